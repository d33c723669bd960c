// Drives the PostgreSQL JDBC driver: java -cp postgresql.jar Jdbc.java URL USER PASSWORD. Prints one line a check.
import java.sql.*;

public class Jdbc {
    public static void main(String[] a) throws Exception {
        try (Connection c = DriverManager.getConnection(a[0], a[1], a[2])) {
            try (PreparedStatement p = c.prepareStatement("select ?::int + 1")) {
                for (int i = 0; i < 7; i++) {  // past prepareThreshold: server-side prepared, binary
                    p.setInt(1, i);
                    ResultSet r = p.executeQuery();
                    r.next();
                    if (r.getInt(1) != i + 1) throw new AssertionError(r.getInt(1));
                }
                System.out.println("prepared ok");
            }
            try (PreparedStatement p = c.prepareStatement("LIST DATABASES")) {
                boolean found = false;
                for (int i = 0; i < 7; i++) {
                    ResultSet r = p.executeQuery();
                    while (r.next()) found |= r.getString("Name").equals("main");
                }
                System.out.println("list " + found);
            }
            try (Statement s = c.createStatement()) {
                s.executeQuery("DESCRIBE STORE nope");
            } catch (SQLException e) {
                System.out.println("error " + e.getSQLState());
            }
            ResultSet tables = c.getMetaData().getTables(null, "public", "%", new String[] {"VIEW", "TABLE"});
            int n = 0;
            while (tables.next()) n++;
            System.out.println("metadata ok " + (n >= 0));
            c.setAutoCommit(false);
            try (Statement s = c.createStatement()) {
                s.setFetchSize(100);
                ResultSet r = s.executeQuery("select g from generate_series(1, 5000) g");
                long sum = 0;
                while (r.next()) sum += r.getLong(1);
                System.out.println("cursor " + sum);
            }
            c.commit();
        }
    }
}
