// A streaming SELECT through the PostgreSQL JDBC driver, fetch by fetch, with bound values. Prints one line a run.
import java.sql.*;

public class JdbcStream {
    public static void main(String[] a) throws Exception {
        try (Connection c = DriverManager.getConnection(a[0], a[1], a[2])) {
            c.setAutoCommit(false);
            String sql = "SELECT n, price, at, tags FROM clicks WITH ('starting.position' = 'earliest') "
                + "WHERE n >= ? AND userid = ? LIMIT ?";
            try (PreparedStatement p = c.prepareStatement(sql)) {
                p.setFetchSize(100);
                for (int i = 0; i < 6; i++) {  // past prepareThreshold: server-side prepared, binary
                    p.setLong(1, 100);
                    p.setString(2, "u1");
                    p.setInt(3, 300);
                    ResultSet r = p.executeQuery();
                    long rows = 0, sum = 0;
                    String last = "";
                    while (r.next()) {
                        rows++;
                        sum += r.getLong(1);
                        Long[] tags = (Long[]) r.getArray(4).getArray();
                        last = r.getBigDecimal(2) + " " + r.getTimestamp(3) + " " + tags.length;
                    }
                    r.close();
                    System.out.println(rows + " " + sum + " " + last);
                }
            }
            c.commit();
        }
    }
}
