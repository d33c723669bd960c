// R2DBC: types in both formats, prepared statements, transactions and savepoints, errors, batches, generated keys,
// fetch size, COPY, notices, LISTEN, cancel, metadata. Prints the same against PostgreSQL and pgstream up to a line
// "== pgstream".
import io.netty.buffer.Unpooled;
import io.r2dbc.postgresql.*;
import io.r2dbc.postgresql.api.*;
import io.r2dbc.postgresql.codec.Json;
import io.r2dbc.spi.*;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.*;
import java.util.*;
import java.util.function.Supplier;
import org.reactivestreams.Publisher;
import reactor.core.publisher.*;

public class Client {
    static final Duration LONG = Duration.ofSeconds(60);

    static String env(String name) { return System.getenv(name); }

    static PostgresqlConnectionConfiguration.Builder options() {
        return PostgresqlConnectionConfiguration.builder().host(env("PGHOST")).port(Integer.parseInt(env("PGPORT")))
            .username(env("PGUSER")).password(env("PGPASSWORD")).database(env("PGDATABASE")).applicationName("of_r2dbc");
    }

    static PostgresqlConnection connect(PostgresqlConnectionConfiguration.Builder how) {
        return new PostgresqlConnectionFactory(how.build()).create().block(LONG);
    }

    static void say(String name, Object... values) {
        StringJoiner out = new StringJoiner(" | ");
        for (Object v : values) out.add(text(v));
        System.out.println(name + ": " + out);
    }

    static String text(Object v) {
        if (v instanceof ByteBuffer b) return text(Arrays.copyOfRange(b.array(), b.arrayOffset() + b.position(), b.arrayOffset() + b.limit()));
        if (v instanceof Json j) return j.asString();
        if (v instanceof byte[] b) return Arrays.toString(b);
        if (v instanceof Object[] a) return Arrays.deepToString(a);
        return String.valueOf(v);
    }

    static <T> List<T> all(Publisher<T> p) { return Flux.from(p).collectList().block(LONG); }

    // All rows of all results, and the counts of those without rows.
    static List<String> results(Publisher<? extends Result> p) {
        return all(Flux.from(p).concatMap(r -> r.flatMap(part -> {
            if (part instanceof Result.Message m) return Mono.error(m.exception());
            if (part instanceof Result.UpdateCount u) return Mono.just("" + u.value());
            Row row = ((Result.RowSegment) part).row();
            StringJoiner out = new StringJoiner(" ", "(", ")");
            for (int n = 0; n < row.getMetadata().getColumnMetadatas().size(); n++) out.add(text(row.get(n)));
            return Mono.just(out.toString());
        })));
    }

    static List<String> query(Connection c, String text, Object... values) {
        Statement s = c.createStatement(text);
        for (int n = 0; n < values.length; n++) s.bind(n, values[n]);
        return results(s.execute());
    }

    static String failing(Supplier<Object> it) {
        try {
            it.get();
        } catch (RuntimeException e) {
            for (Throwable c = e; c != null; c = c.getCause())
                if (c instanceof PostgresqlException p) {
                    ErrorDetails d = p.getErrorDetails();
                    return d.getSeverityNonLocalized() + " " + d.getCode() + " " + d.getMessage() + " " + d.getPosition().orElse("-") + " " + d.getDetail().orElse("-") + " " + d.getConstraintName().orElse("-") + " " + c.getClass().getSimpleName();
                }
            throw e;
        }
        throw new AssertionError("no error");
    }

    static void types(String mode, PostgresqlConnectionConfiguration.Builder how) {
        PostgresqlConnection c = connect(how);
        String casts = "int2 int4 int8 float8 numeric text bool date timestamptz timestamp time bytea uuid jsonb int[] text[]";
        StringJoiner select = new StringJoiner(", ", "SELECT ", ", NULL::int");
        int count = 0;
        for (String cast : casts.split(" ")) select.add("$" + ++count + "::" + cast);
        Object[] values = {(short) 7, -8, Long.MAX_VALUE, 1.5, new BigDecimal("12.340"), "zö\uD83D\uDC0D '\"\\", true,
            LocalDate.of(2024, 2, 29), OffsetDateTime.of(2024, 1, 2, 3, 4, 5, 678000000, ZoneOffset.UTC),
            LocalDateTime.of(2024, 1, 2, 3, 4, 5), LocalTime.of(1, 2, 3), ByteBuffer.wrap(new byte[] {'a', 92, 10}),
            UUID.fromString("6f9619ff-8b86-d011-b42d-00c04fc964ff"), Json.of("{\"a\": [1, null]}"), new Integer[] {1, null, 3},
            new String[] {"x", "\"", null}};
        Set<String> seen = new LinkedHashSet<>();
        for (int run = 0; run < 4; run++) seen.addAll(query(c, select.toString(), values));
        say("types " + mode, seen);
        c.close().block(LONG);
    }

    static void transactions(PostgresqlConnection c) {
        query(c, "CREATE TEMPORARY TABLE t (id serial CONSTRAINT only_one PRIMARY KEY, name text)");
        c.beginTransaction(IsolationLevel.SERIALIZABLE).block(LONG);
        say("generated", results(c.createStatement("INSERT INTO t (name) VALUES ($1)").bind(0, "one").returnGeneratedValues("id").execute()), c.getTransactionIsolationLevel().asSql());
        c.createSavepoint("s").block(LONG);
        say("error", failing(() -> query(c, "SELECT 1 / $1", 0)));
        say("failed block", failing(() -> query(c, "SELECT 1")));
        c.rollbackTransactionToSavepoint("s").block(LONG);
        c.commitTransaction().block(LONG);
        c.beginTransaction().block(LONG);
        say("updated", query(c, "UPDATE t SET name = 'lost'"));
        c.rollbackTransaction().block(LONG);
        say("kept", query(c, "SELECT * FROM t"), c.isAutoCommit());
        say("violation", failing(() -> query(c, "INSERT INTO t VALUES ($1)", 1)));
        say("syntax", failing(() -> query(c, "SELECT * FORM t")));
        Statement s = c.createStatement("INSERT INTO t (name) VALUES ($1)");
        for (int n = 0; n < 300; n++) { if (n > 0) s.add(); s.bind(0, "n" + n); }
        say("batch", results(s.execute()).size(), query(c, "SELECT count(*), max(name) FROM t"));
        say("several", results(c.createBatch().add("SELECT 1").add("UPDATE t SET name = 'x' WHERE id < 5").add("SELECT 2, 3").execute()));
        say("text of several", query(c, "SELECT 1; SELECT 'a;b'; DELETE FROM t WHERE id = 4"));
        say("text with an error", failing(() -> query(c, "SELECT 1; SELECT 1 / 0; SELECT 2")));
    }

    static void streams(PostgresqlConnection c) {
        PostgresqlStatement numbers = c.createStatement("SELECT n FROM generate_series(1, $1) n").bind("$1", 5000).fetchSize(100);
        say("fetched", all(numbers.execute().concatMap(r -> r.map((row, m) -> row.get(0, Integer.class)))).stream().mapToLong(n -> n).sum());
        say("taken", all(numbers.execute().concatMap(r -> r.map((row, m) -> row.get(0, Integer.class))).take(3)));
        say("copied in", c.copyIn("COPY t FROM STDIN", Mono.just(Unpooled.copiedBuffer("2000\tzö\n2001\t\\N\n", StandardCharsets.UTF_8))).block(LONG), query(c, "SELECT * FROM t WHERE id >= 2000 ORDER BY id"));
        say("bad copy", failing(() -> c.copyIn("COPY t FROM STDIN", Mono.just(Unpooled.copiedBuffer("x\ty\n", StandardCharsets.UTF_8))).block(LONG)));
        Blob blob = Blob.from(Flux.just(ByteBuffer.wrap(new byte[] {1, 2}), ByteBuffer.wrap(new byte[] {3})));
        say("blob", query(c, "SELECT length($1::bytea)", blob));
    }

    static void messages(PostgresqlConnection c) {
        List<String> notices = new ArrayList<>();
        c.createStatement("DO $$ BEGIN RAISE NOTICE 'hear this'; END $$").execute().flatMap(r -> r.flatMap(part -> {
            if (part instanceof Result.Message m) notices.add(m.message());
            return Mono.empty();
        })).blockLast(LONG);
        say("notice", notices);
        query(c, "LISTEN news");
        Mono<io.r2dbc.postgresql.api.Notification> heard = c.getNotifications().next();
        PostgresqlConnection other = connect(options());
        var waiting = heard.toFuture();
        query(other, "SELECT pg_notify('news', 'hello')");
        io.r2dbc.postgresql.api.Notification n = Mono.fromFuture(waiting).block(LONG);
        say("notification", n.getName(), n.getParameter());
        var running = Mono.fromSupplier(() -> failing(() -> query(c, "SELECT pg_sleep($1::int)", 60))).subscribeOn(reactor.core.scheduler.Schedulers.boundedElastic()).toFuture();
        while (query(other, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND wait_event = 'PgSleep'").isEmpty());
        c.cancelRequest().block(LONG);
        say("cancelled", Mono.fromFuture(running).block(LONG));
        c.setStatementTimeout(Duration.ofMillis(50)).block(LONG);
        say("timeout", failing(() -> query(c, "SELECT pg_sleep(60)")));
        c.setStatementTimeout(Duration.ZERO).block(LONG);
        say("valid", c.validate(ValidationDepth.REMOTE).block(LONG), c.getMetadata().getDatabaseProductName());
        other.close().block(LONG);
    }

    static void metadata(PostgresqlConnection c) {
        List<String> columns = all(c.createStatement("SELECT 1::int2 AS a, 'x'::varchar(5) AS b, 1.5::numeric(8,2) AS c, ARRAY[1] AS d, now() AS e, '{}'::jsonb AS f, t.* FROM t LIMIT 1").execute().concatMap(r -> r.map((row, m) -> {
            StringJoiner out = new StringJoiner(", ");
            for (ColumnMetadata k : m.getColumnMetadatas()) out.add(k.getName() + " " + k.getType().getName() + " " + k.getJavaType().getSimpleName() + " " + k.getPrecision() + " " + k.getScale());
            return out.toString();
        })));
        say("columns", columns);
    }

    static void ours(PostgresqlConnection c) {
        say("stores", query(c, "LIST STORES").stream().filter(r -> r.startsWith("(of_languages Kafka")).count());
        query(c, "CREATE STREAM of_r2dbc (n BIGINT, userid VARCHAR) WITH ('store' = of_languages, 'topic' = 'of_languages', 'value.format' = 'json')");
        String read = "SELECT n, userid FROM of_r2dbc WITH ('starting.position' = 'earliest') WHERE n > $1 AND userid <> $2 LIMIT $3";
        say("rows", query(c, read, 0L, "it's", 2));
        PostgresqlStatement slow = c.createStatement("SELECT n FROM of_r2dbc WITH ('starting.position' = 'earliest') LIMIT 3").fetchSize(1);
        say("fetched", all(slow.execute().concatMap(r -> r.map((row, m) -> row.get(0, Long.class)))));
        say("view", query(c, "SELECT userid, n FROM of_languages_counts ORDER BY userid"));
        query(c, "DROP STREAM of_r2dbc");
        say("missing", failing(() -> query(c, "DROP STORE nope")));
    }

    public static void main(String[] a) {
        types("text", options().forceBinary(false));
        types("binary", options().forceBinary(true));
        types("unprepared", options().preparedStatementCacheQueries(0));
        types("simple", options().compatibilityMode(true));
        PostgresqlConnection c = connect(options());
        say("session", query(c, "SELECT current_user, current_database(), current_setting('application_name')"));
        transactions(c);
        streams(c);
        messages(c);
        metadata(c);
        say("wrong password", failing(() -> connect(options().password("wrong"))));
        if (env("TARGET").equals("pgstream")) {
            System.out.println("== pgstream");
            ours(c);
        }
        c.close().block(LONG);
    }
}
