// pgjdbc: types, server-side prepared statements, fetch size, batches, generated keys, COPY, LISTEN, cancel, timeouts, XA,
// DatabaseMetaData. Prints the same against PostgreSQL and pgstream up to a line "== pgstream".
import java.io.*;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.time.*;
import java.util.*;
import javax.sql.*;
import javax.transaction.xa.*;
import org.postgresql.*;
import org.postgresql.copy.CopyManager;
import org.postgresql.xa.PGXADataSource;

public class Client {
    static final String URL = "jdbc:postgresql://%s:%s/%s".formatted(env("PGHOST"), env("PGPORT"), env("PGDATABASE"));

    static String env(String name) { return System.getenv(name); }

    static Connection connect(String options) throws SQLException {
        return DriverManager.getConnection(URL + options, env("PGUSER"), env("PGPASSWORD"));
    }

    interface Doing { void run() throws Exception; }

    static String failing(Doing it) throws Exception {
        try {
            it.run();
        } catch (SQLException e) {
            for (Throwable c = e; c instanceof SQLException; c = ((SQLException) c).getNextException())
                if (c instanceof org.postgresql.util.PSQLException p && p.getServerErrorMessage() != null) e = p;
            return e.getSQLState() + " " + e.getMessage().replace("\n", " ").replaceAll("127.0.0.1:\\d+", "ADDRESS");
        }
        throw new AssertionError("no error");
    }

    static void say(String name, Object... values) {
        StringJoiner out = new StringJoiner(" | ");
        for (Object v : values) out.add(v instanceof byte[] b ? Arrays.toString(b) : v instanceof java.sql.Array ? "" + v : "" + v);
        System.out.println(name + ": " + out);
    }

    // All rows, by the named columns or all.
    static List<String> rows(ResultSet r, String... columns) throws SQLException {
        List<String> out = new ArrayList<>();
        while (r.next()) {
            StringJoiner row = new StringJoiner(" ", "(", ")");
            if (columns.length > 0) for (String c : columns) row.add(r.getString(c));
            else for (int n = 1; n <= r.getMetaData().getColumnCount(); n++) row.add(r.getString(n));
            out.add(row.toString());
        }
        r.close();
        return out;
    }

    static List<String> query(Connection c, String text) throws SQLException {
        try (Statement s = c.createStatement()) { return rows(s.executeQuery(text)); }
    }

    static void types(Connection c, String mode) throws Exception {
        String casts = "int2 int8 float8 numeric text bool date timestamptz timestamp bytea uuid jsonb int[] text";
        StringJoiner text = new StringJoiner(", ", "SELECT ", "");
        for (String cast : casts.split(" ")) text.add("?::" + cast);
        Object[] values = {(short) 7, Long.MAX_VALUE, 1.5, new BigDecimal("12.340"), "zö\uD83D\uDC0D '\"\\", true,
            LocalDate.of(2024, 2, 29), OffsetDateTime.of(2024, 1, 2, 3, 4, 5, 678000000, ZoneOffset.UTC),
            LocalDateTime.of(2024, 1, 2, 3, 4, 5), new byte[] {0, -1, 92}, UUID.fromString("6f9619ff-8b86-d011-b42d-00c04fc964ff"),
            "{\"a\": [1, null]}", null, null};
        try (PreparedStatement p = c.prepareStatement(text.toString())) {
            String seen = null;
            for (int run = 0; run < 8; run++) {  // past prepareThreshold: server-side prepared, binary
                for (int n = 0; n < values.length; n++) p.setObject(n + 1, values[n]);
                p.setArray(13, c.createArrayOf("int4", new Integer[] {1, null, 3}));
                ResultSet r = p.executeQuery();
                r.next();
                StringJoiner row = new StringJoiner(" ");
                for (int n = 1; n <= values.length; n++) row.add(n == 13 ? Arrays.toString((Object[]) r.getArray(n).getArray()) : n == 10 ? Arrays.toString(r.getBytes(n)) : n == 8 ? "" + r.getObject(n, OffsetDateTime.class) : r.getString(n));
                if (seen != null && !seen.equals(row.toString())) throw new AssertionError(seen + " became " + row);
                seen = row.toString();
                r.close();
            }
            say("types " + mode, seen);
            ResultSetMetaData m = p.getMetaData();
            StringJoiner described = new StringJoiner(" ");
            for (int n = 1; n <= m.getColumnCount(); n++) described.add(m.getColumnTypeName(n) + ":" + m.getColumnType(n) + ":" + m.getColumnClassName(n));
            if (!mode.equals("simple")) say("described", described, p.getParameterMetaData().getParameterTypeName(13));
        }
    }

    static void transactions(Connection c) throws Exception {
        Statement s = c.createStatement();
        s.execute("CREATE TEMPORARY TABLE t (id serial CONSTRAINT only_one PRIMARY KEY, name text)");
        c.setAutoCommit(false);
        c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
        s.executeUpdate("INSERT INTO t (name) VALUES ('one')", Statement.RETURN_GENERATED_KEYS);
        say("generated", rows(s.getGeneratedKeys()));
        Savepoint point = c.setSavepoint("s");
        say("error", failing(() -> s.executeQuery("SELECT 1 / 0")));
        say("failed block", failing(() -> s.executeQuery("SELECT 1")));
        c.rollback(point);
        c.commit();
        c.setAutoCommit(true);
        say("violation", failing(() -> s.execute("INSERT INTO t VALUES (1)")));
        say("syntax", failing(() -> s.execute("SELECT * FORM t")));
        PreparedStatement p = c.prepareStatement("INSERT INTO t (name) VALUES (?)", new String[] {"id"});
        for (int n = 0; n < 300; n++) { p.setString(1, "n" + n); p.addBatch(); }
        say("batch", Arrays.stream(p.executeBatch()).sum(), rows(p.getGeneratedKeys()).size());
        for (int n : new int[] {1000, 1, 1001}) s.addBatch("INSERT INTO t VALUES (" + n + ")");
        say("bad batch", failing(s::executeBatch));
        say("after it", query(c, "SELECT count(*) FROM t"));
        boolean more = s.execute("SELECT 1; UPDATE t SET name = 'x' WHERE id < 5; SELECT 2, 3");
        StringJoiner several = new StringJoiner(" ");
        while (more || s.getUpdateCount() >= 0) { several.add(more ? "" + rows(s.getResultSet()) : "" + s.getUpdateCount()); more = s.getMoreResults(); }
        say("several", several);
        c.setReadOnly(true);
        c.setAutoCommit(false);
        say("read only", failing(() -> s.executeUpdate("CREATE TABLE never (a int)")));
        c.rollback();
        c.setReadOnly(false);
        c.setAutoCommit(true);
        try (Statement u = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE)) {
            ResultSet r = u.executeQuery("SELECT id, name FROM t WHERE id IN (1, 2) ORDER BY id");
            r.last(); r.updateString(2, "updated"); r.updateRow(); r.absolute(1); r.deleteRow();
        }
        say("updatable", query(c, "SELECT id, name FROM t WHERE id < 4 ORDER BY id"));
        try (CallableStatement f = c.prepareCall("{? = call upper(?)}")) {
            f.registerOutParameter(1, Types.VARCHAR); f.setString(2, "called"); f.execute();
            say("call", f.getString(1));
        }
    }

    static void fetching(Connection c) throws Exception {
        c.setAutoCommit(false);
        try (PreparedStatement p = c.prepareStatement("SELECT n FROM generate_series(1, ?) n")) {
            p.setFetchSize(100);
            p.setInt(1, 5000);
            long sum = 0;
            for (ResultSet r = p.executeQuery(); r.next(); ) sum += r.getLong(1);
            p.setMaxRows(7);
            say("fetched", sum, rows(p.executeQuery()).size());
        }
        c.commit();
        c.setAutoCommit(true);
    }

    static void copies(Connection c) throws Exception {
        CopyManager copy = c.unwrap(PGConnection.class).getCopyAPI();
        say("copied in", copy.copyIn("COPY t FROM STDIN", new StringReader("2000\tzö\n2001\t\\N\n")));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        say("copied out", copy.copyOut("COPY (SELECT * FROM t WHERE id >= 2000 ORDER BY id) TO STDOUT CSV", out), out.toString(StandardCharsets.UTF_8).replace("\n", "/"));
        say("bad copy", failing(() -> copy.copyIn("COPY t FROM STDIN", new StringReader("x\ty\n"))));
    }

    static void messages(Connection c) throws Exception {
        Statement s = c.createStatement();
        s.execute("DO $$ BEGIN RAISE NOTICE 'hear this'; END $$");
        say("notice", s.getWarnings().getMessage(), s.getWarnings().getSQLState());
        s.execute("LISTEN news");
        try (Connection other = connect("")) { query(other, "SELECT pg_notify('news', 'hello')"); }
        PGNotification[] heard = c.unwrap(PGConnection.class).getNotifications(0);
        say("notification", heard[0].getName(), heard[0].getParameter());
        s.execute("SET application_name = 'me'");
        say("parameters", c.unwrap(PGConnection.class).getParameterStatus("application_name"), c.getClientInfo("ApplicationName"), c.isValid(5));
        Thread stop = new Thread(() -> {
            try (Connection other = connect("")) {
                while (query(other, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND wait_event = 'PgSleep'").isEmpty());
                s.cancel();
            } catch (SQLException e) { throw new RuntimeException(e); }
        });
        stop.start();
        say("cancelled", failing(() -> s.executeQuery("SELECT pg_sleep(60)")));
        stop.join();
        s.setQueryTimeout(1);
        say("timeout", failing(() -> s.executeQuery("SELECT pg_sleep(60)")));
        s.setQueryTimeout(0);
        say("after it", query(c, "SELECT 1"));
    }

    static void two_phase() throws Exception {
        PGXADataSource source = new PGXADataSource();
        source.setUrl(URL); source.setUser(env("PGUSER")); source.setPassword(env("PGPASSWORD"));
        XAConnection x = source.getXAConnection();
        Xid id = new Xid() {
            public int getFormatId() { return 1; }
            public byte[] getGlobalTransactionId() { return new byte[] {1}; }
            public byte[] getBranchQualifier() { return new byte[] {2}; }
        };
        XAResource r = x.getXAResource();
        r.start(id, XAResource.TMNOFLAGS);
        query(x.getConnection(), "SELECT 1");
        r.end(id, XAResource.TMSUCCESS);
        try {
            r.prepare(id);
        } catch (XAException e) {
            say("two-phase", e.errorCode, ((SQLException) e.getCause()).getSQLState());
        }
        x.close();
    }

    // What driver and server say of themselves, and everything about two tables.
    static void metadata(Connection c) throws Exception {
        DatabaseMetaData m = c.getMetaData();
        TreeMap<String, String> scalars = new TreeMap<>();
        for (Method one : DatabaseMetaData.class.getMethods()) {
            Class<?> kind = one.getReturnType();
            boolean asked = one.getParameterCount() == 0 && (kind == int.class || kind == boolean.class || kind == String.class);
            if (asked && !one.getName().matches("getURL|.*Version")) scalars.put(one.getName(), String.valueOf(one.invoke(m)));
        }
        for (var one : scalars.entrySet()) System.out.println("  " + one.getKey() + " " + one.getValue());
        Statement s = c.createStatement();
        s.execute("CREATE TABLE of_jdbc (id serial PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'x', price numeric(8,2), at timestamptz)");
        s.execute("CREATE TABLE of_jdbc_more (id int REFERENCES of_jdbc ON DELETE CASCADE, tags text[], CONSTRAINT of_jdbc_key UNIQUE (id, tags))");
        s.execute("COMMENT ON TABLE of_jdbc IS 'a table'; COMMENT ON COLUMN of_jdbc.name IS 'who'");
        s.execute("CREATE FUNCTION of_jdbc_add(a int, b int, OUT c int) LANGUAGE sql AS 'SELECT $1 + $2'; CREATE TYPE of_jdbc_kind AS (n int)");
        try {
            describe(m, "of\\_jdbc%");
            say("types", rows(m.getTypeInfo(), "TYPE_NAME", "DATA_TYPE", "PRECISION").stream().filter(t -> !t.contains("of_")).count());
            say("table types", rows(m.getTableTypes()));
            say("schemas", rows(m.getSchemas(), "TABLE_SCHEM").stream().filter(n -> n.matches("\\(public\\)|\\(pg_catalog\\)|\\(information_schema\\)")).toList());
            say("catalogs", rows(m.getCatalogs()).stream().filter(n -> n.equals("(main)")).toList());
            say("functions", rows(m.getFunctions(null, "public", "of\\_jdbc%"), "FUNCTION_NAME", "FUNCTION_TYPE"), rows(m.getFunctionColumns(null, "public", "of\\_jdbc%", "%"), "COLUMN_NAME", "COLUMN_TYPE", "TYPE_NAME"));
            say("procedures", rows(m.getProcedures(null, "public", "of\\_jdbc%")), rows(m.getProcedureColumns(null, "pg_catalog", "lower", "%"), "COLUMN_NAME", "TYPE_NAME"));
            say("own types", rows(m.getUDTs(null, "public", "of\\_jdbc%", null), "TYPE_NAME", "DATA_TYPE"));
        } finally {
            s.execute("DROP FUNCTION of_jdbc_add; DROP TYPE of_jdbc_kind; DROP TABLE of_jdbc_more; DROP TABLE of_jdbc");
        }
    }

    static void describe(DatabaseMetaData m, String pattern) throws SQLException {
        List<String> names = new ArrayList<>();
        for (String row : rows(m.getTables(null, "public", pattern, new String[] {"TABLE", "VIEW"}), "TABLE_NAME", "TABLE_TYPE", "REMARKS")) {
            say("table", row);
            names.add(row.substring(1).split(" ")[0]);
        }
        for (String row : rows(m.getColumns(null, "public", pattern, "%"), "TABLE_NAME", "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE", "COLUMN_DEF", "REMARKS", "ORDINAL_POSITION", "IS_AUTOINCREMENT")) say("column", row);
        for (String name : names) {
            say("keys of " + name, rows(m.getPrimaryKeys(null, "public", name), "COLUMN_NAME", "PK_NAME"), rows(m.getImportedKeys(null, "public", name), "PKTABLE_NAME", "FKCOLUMN_NAME", "FK_NAME", "DELETE_RULE"), rows(m.getExportedKeys(null, "public", name), "FKTABLE_NAME"), rows(m.getIndexInfo(null, "public", name, false, true), "INDEX_NAME", "COLUMN_NAME", "NON_UNIQUE"));
            say("more of " + name, rows(m.getBestRowIdentifier(null, "public", name, DatabaseMetaData.bestRowSession, true), "COLUMN_NAME"), rows(m.getVersionColumns(null, "public", name), "COLUMN_NAME").size());
        }
        say("privileges", rows(m.getTablePrivileges(null, "public", pattern), "TABLE_NAME", "GRANTEE", "PRIVILEGE").size() > 0);
    }

    static void ours(Connection c) throws Exception {
        try (PreparedStatement p = c.prepareStatement("LIST STORES")) {
            for (int n = 0; n < 7; n++) {
                List<String> found = rows(p.executeQuery(), "Name", "Type").stream().filter(r -> r.startsWith("(of_languages ")).toList();
                if (n % 6 == 0) say("stores", found);
            }
        }
        Statement s = c.createStatement();
        s.execute("CREATE STREAM of_jdbc (n BIGINT, userid VARCHAR) WITH ('store' = of_languages, 'topic' = 'of_languages', 'value.format' = 'json')");
        describe(c.getMetaData(), "of\\_jdbc");
        c.setAutoCommit(false);
        try (PreparedStatement p = c.prepareStatement("SELECT n, userid FROM of_jdbc WITH ('starting.position' = 'earliest') WHERE n > ? AND userid <> ? LIMIT ?")) {
            p.setFetchSize(1);
            p.setLong(1, 0); p.setString(2, "it's"); p.setInt(3, 2);
            say("rows", rows(p.executeQuery()));
        }
        c.commit();
        c.setAutoCommit(true);
        say("simple", query(c, "SELECT n FROM of_jdbc WITH ('starting.position' = 'earliest') LIMIT 1; "));
        s.execute("DROP STREAM of_jdbc");
        say("updates", s.executeUpdate("CREATE SCHEMA of_jdbc"), s.executeUpdate("DROP SCHEMA of_jdbc CASCADE"),
            s.executeUpdate("CREATE DATABASE of_jdbc"), s.executeUpdate("DROP DATABASE of_jdbc"));
        describe(c.getMetaData(), "of\\_languages\\_counts");
        say("view", query(c, "SELECT userid, n FROM of_languages_counts ORDER BY userid"));
        say("missing", failing(() -> s.execute("DROP STORE nope")));
    }

    public static void main(String[] a) throws Exception {
        for (String mode : new String[] {"extended", "simple", "extendedForPrepared", "extendedCacheEverything"})
            try (Connection c = connect("?preferQueryMode=" + mode)) { types(c, mode); }
        try (Connection c = connect("?binaryTransfer=true&reWriteBatchedInserts=true&ApplicationName=of_jdbc")) {
            say("session", query(c, "SELECT current_user, current_database(), current_setting('application_name')"));
            transactions(c);
            fetching(c);
            copies(c);
            messages(c);
            two_phase();
            metadata(c);
            say("wrong password", failing(() -> DriverManager.getConnection(URL, env("PGUSER"), "wrong")));
            say("tls asked for", failing(() -> connect("?sslmode=require")));
            if (env("TARGET").equals("pgstream")) {
                System.out.println("== pgstream");
                ours(c);
            }
        }
    }
}
