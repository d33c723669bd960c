// pgjdbc with all that it logs in with in the URL: java -cp postgresql.jar JdbcToken.java URL SQL. Prints two columns.
import java.sql.*;

public class JdbcToken {
    public static void main(String[] a) throws Exception {
        try (Connection c = DriverManager.getConnection(a[0]); ResultSet r = c.createStatement().executeQuery(a[1])) {
            r.next();
            System.out.println(r.getString(1) + " " + r.getString(2));
        }
    }
}
