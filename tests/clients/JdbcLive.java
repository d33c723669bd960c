// A streaming SELECT through the PostgreSQL JDBC driver with a fetch size: prints each row when it comes.
import java.sql.*;

public class JdbcLive {
    public static void main(String[] a) throws Exception {
        try (Connection c = DriverManager.getConnection(a[0], a[1], a[2])) {
            c.setAutoCommit(false);
            try (Statement s = c.createStatement()) {
                s.setFetchSize(Integer.parseInt(a[4]));
                s.setMaxRows(Integer.parseInt(a[5]));
                try (ResultSet r = s.executeQuery(a[3])) {
                    while (r.next()) {
                        System.out.println(r.getLong(1) + " " + r.getString(2));
                        System.out.flush();
                    }
                }
            }
            c.commit();
        }
    }
}
