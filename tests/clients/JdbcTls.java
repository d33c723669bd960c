// pgjdbc inside TLS: java -cp postgresql.jar JdbcTls.java URL USER PASSWORD CERTIFICATE. Prints one line a connection.
import java.sql.*;

public class JdbcTls {
    public static void main(String[] a) throws Exception {
        String trusted = "&sslrootcert=" + a[3];
        String[] options = {"sslmode=require", "sslmode=require&channelBinding=require", "sslmode=verify-ca" + trusted,
            "sslmode=verify-full" + trusted, "sslmode=require&sslNegotiation=direct", "sslmode=verify-ca&sslrootcert=/none"};
        for (String option : options) {
            try (Connection c = DriverManager.getConnection(a[0] + "?" + option, a[1], a[2]);
                 ResultSet r = c.createStatement().executeQuery("SELECT current_user")) {
                r.next();
                System.out.println(option.replace(a[3], "CERTIFICATE") + ": " + r.getString(1));
            } catch (SQLException e) {
                System.out.println(option.replace(a[3], "CERTIFICATE") + ": " + e.getSQLState());
            }
        }
    }
}
