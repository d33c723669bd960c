"""Changes of tables and tables as sinks, with a real PostgreSQL as the store: the snapshot and what follows, without
gap and without doubles, through what goes wrong on the way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.postgres import Postgres, postgres
from tests.server import Server, within
from tests.stream.test_kill import killed

TYPES = """id bigint PRIMARY KEY, name text, big text, n numeric(12,2), f double precision, ok boolean, day date,
    at timestamptz, plain timestamp, tags int[], words text[], doc jsonb, raw bytea, small smallint, u uuid,
    dom positive, mood feeling, pair pair, span int4range, during tstzrange, net inet, took interval, clock timetz,
    grid int[][], shifted int[], boxes box[], moods feeling[], cash money, bits varbit, r real,
    twice bigint GENERATED ALWAYS AS (id * 2) STORED"""
OWN = ("CREATE DOMAIN small_number AS smallint", "CREATE DOMAIN positive AS small_number CHECK (VALUE > 0)",
       "CREATE TYPE feeling AS ENUM ('sad', 'o k')", "CREATE TYPE pair AS (a int, b text)")  # fmt: skip
_TEXTS = ("mood", "pair", "span", "during", "net", "took", "clock", "cash", "bits")
COLUMNS = f"""id, name, big, n, f, ok, day, at, plain, tags[1], words[2], doc::text, raw, small, u::text, dom,
    {", ".join(f"{c}::text" for c in _TEXTS)}, grid[2][1], shifted[3], boxes[2]::text, moods[2]::text, r"""
SELECTED = f"""id, name, big, n, f, ok, "day", "at", plain, tags[1] AS tag, words[2] AS word, doc, raw, small, u, dom,
    {", ".join(_TEXTS)}, grid[2][1] AS g, shifted[2] AS sh, boxes[2] AS bo, moods[2] AS mo, r"""
KEPT = f"""id, name, big, n, f, ok, "day", "at", plain, tag, word, doc, raw, small, u, dom, {", ".join(_TEXTS)}, g, sh,
    bo, mo, r"""


@pytest.fixture(scope="module")
def db(server: Server, shop: Postgres) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as c:
        c.execute(f"CREATE STORE pg_tables WITH ({shop.store})".encode())
        yield c
        for query, *_ in c.execute("LIST QUERIES").fetchall():
            c.execute(f"TERMINATE QUERY {query}".encode())


def query_of(c: psycopg.Connection[Any], text: str) -> str:
    """Start a continuous query; its id. A machine with much to do may take its time to have a worker ready."""

    def begun() -> str:
        try:
            return str(c.execute(text.encode()).fetchall()[-1][1])
        except psycopg.errors.SystemError as e:
            assert "worker is starting" in str(e)
            return ""

    return str(within(180, begun, 1))


def fill(shop: Postgres, table: str, first: int, last: int) -> None:
    shop.run(f"""INSERT INTO {table} SELECT i, 'n"\\' || i, repeat(md5(i::text), 400), i * 1.25, i / 3.0, i % 2 = 0,
        date '2024-01-31' + i, timestamptz '2024-01-01 00:00:00.5+02' + i * interval '1 s', timestamp '2024-05-05' ,
        ARRAY[i, NULL], ARRAY['a', 'é"\\' || i], jsonb_build_object('a', i), decode('00ff', 'hex'), 7,
        md5(i::text)::uuid, 1 + i % 3, CASE WHEN i % 2 = 0 THEN 'o k' ELSE 'sad' END::feeling, ROW(i, 'x "y')::pair,
        int4range(i, i + 5), tstzrange('2024-01-01 00:00+01', NULL), '10.0.0.1/8', i * interval '1 month 2 days 3 s',
        '12:34:56+02', ARRAY[[1, 2], [i, NULL]], '[2:3]={{4,5}}', ARRAY['(1,1),(0,0)'::box, '(2,2),(1,1)'],
        ARRAY['sad', 'o k']::feeling[], i::money, i::bit(9), i / 3.0::real FROM generate_series({first}, {last}) i""")


def workload(shop: Postgres, table: str, seed: int, steps: int) -> None:
    """Inserts, updates with and without the big value, deletes and changes of keys, several in a transaction."""
    rng = random.Random(seed)
    with shop.connect() as c:
        for _ in range(steps):
            with c.transaction(force_rollback=rng.random() < 0.1):
                for _ in range(rng.randint(1, 4)):
                    a, b = rng.randrange(400), rng.randrange(400, 100000)
                    c.execute(rng.choice((
                        f"UPDATE {table} SET name = 'x{b}' WHERE id % 400 = {a}",
                        f"UPDATE {table} SET big = repeat('{b}', 3000), n = NULL WHERE id = {a}",
                        f"DELETE FROM {table} WHERE id = {a}",
                        f"UPDATE {table} SET id = {b + 100000} WHERE id = {a}",
                        f"INSERT INTO {table} (id, name) VALUES ({b}, E'new\\n{a}') ON CONFLICT DO NOTHING",
                    )).encode())  # fmt: skip


def equal(shop: Postgres, table: str, c: psycopg.Connection[Any], view: str) -> None:
    """The view comes to hold what the table holds."""

    def same() -> bool:
        theirs = shop.rows(f"SELECT {COLUMNS} FROM {table} ORDER BY id")
        ours = c.execute(f"SELECT {KEPT} FROM {view} ORDER BY id".encode()).fetchall()
        different = [(a, b) for a, b in zip(theirs, ours, strict=False) if a != b]
        assert len(ours) == len(theirs), f"{len(ours)} rows, not {len(theirs)}"
        assert not different, str(different[0])[:600]
        return True

    within(90, same, 0.5)


def test_a_changelog_of_a_table_ends_as_the_table(db: psycopg.Connection[Any], shop: Postgres) -> None:
    shop.run(*OWN, f"CREATE TABLE people ({TYPES})", "ALTER TABLE people REPLICA IDENTITY FULL")
    fill(shop, "people", 1, 400)
    db.execute("CREATE CHANGELOG people_log WITH ('store' = pg_tables, 'postgresql.table.name' = 'people')")
    rows = db.execute("DESCRIBE CHANGELOG COLUMNS people_log").fetchall()
    assert "twice" not in [r[0] for r in rows], "changes do not say what was computed"
    with pytest.raises(psycopg.errors.FeatureNotSupported, match='generated column "twice"'):
        db.execute("""CREATE CHANGELOG people_twice (id BIGINT, twice BIGINT, PRIMARY KEY (id))
            WITH ('store' = pg_tables, 'postgresql.table.name' = 'people')""")
    assert [(r[0], r[1], r[2]) for r in rows[:4]] == [
        ("id", "BIGINT", "f"), ("name", "VARCHAR", "t"), ("big", "VARCHAR", "t"), ("n", "DECIMAL(12, 2)", "t"),
    ] or rows[0][:2] == ("id", "BIGINT")  # fmt: skip
    listed = next(r for r in db.execute("LIST RELATIONS").fetchall() if r[0] == "people_log")
    assert "postgresql.table.name" in str(listed) and "topic" not in str(listed), listed
    query = query_of(db, f"CREATE MATERIALIZED VIEW people_now AS SELECT {SELECTED} FROM people_log")
    equal(shop, "people", db, "people_now")
    workload(shop, "people", 1, 60)
    equal(shop, "people", db, "people_now")
    shop.run("TRUNCATE people")
    fill(shop, "people", 200, 500)
    workload(shop, "people", 5, 10)
    equal(shop, "people", db, "people_now")
    # The walsender is cut off, and the server restarted, while changes come.
    workload(shop, "people", 2, 20)
    shop.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    workload(shop, "people", 3, 20)
    shop.stop()
    shop.start()
    workload(shop, "people", 4, 20)
    equal(shop, "people", db, "people_now")
    slots = "SELECT slot_name FROM pg_replication_slots UNION ALL SELECT pubname FROM pg_publication"
    assert len(shop.rows(slots)) == 2
    db.execute(f"TERMINATE QUERY {query}".encode())
    within(20, lambda: shop.rows(slots) == [])


def test_a_stream_of_a_table_tells_each_change_once(db: psycopg.Connection[Any], shop: Postgres) -> None:
    shop.run("CREATE TABLE events (id int PRIMARY KEY, v text)", "INSERT INTO events VALUES (1, 'a'), (2, 'b')")
    db.execute("CREATE STREAM events_cdc WITH ('store' = pg_tables, 'postgresql.table.name' = 'events')")
    query = query_of(
        db,
        """CREATE MATERIALIZED VIEW events_seen AS SELECT op, before->id AS old, after->id AS id,
        after->v AS v, source->"table" AS t, source->lsn AS lsn
        FROM events_cdc WITH ('postgresql.slot.name' = 'named')""",
    )
    within(60, lambda: db.execute("SELECT count(*) FROM events_seen").fetchall() == [(2,)])
    shop.run("INSERT INTO events VALUES (3, 'c')", "UPDATE events SET v = 'B' WHERE id = 2",
             "UPDATE events SET id = 9 WHERE id = 1", "DELETE FROM events WHERE id = 3", "TRUNCATE events")  # fmt: skip
    within(60, lambda: db.execute("SELECT count(*) FROM events_seen").fetchall() == [(7,)])
    seen = db.execute("SELECT op, old, id, v FROM events_seen ORDER BY lsn, id").fetchall()
    assert seen == [("r", None, 1, "a"), ("r", None, 2, "b"), ("c", None, 3, "c"), ("u", None, 2, "B"),
                    ("u", 1, 9, "a"), ("d", 3, None, None), ("t", None, None, None)]  # fmt: skip

    with pytest.raises(psycopg.errors.ObjectInUse) as e:
        db.execute("""CREATE MATERIALIZED VIEW events_ops AS
            SELECT op FROM events_cdc WITH ('postgresql.slot.name' = 'named')""")
    assert e.value.diag.message_primary == f'replication slot "named" is read by query {query} already'

    def figures() -> set[str]:
        found = {str(r[0]) for r in db.execute(f"DESCRIBE QUERY METRICS {query}".encode()).fetchall()}
        return found if "slot_kept_bytes" in found else set()

    assert not {"slot_warning", "slot_room_bytes"} & within(60, figures), "the server gives no slot up"
    # A slot that is gone ends the query with the reason; nothing is skipped.

    def dropped() -> bool:  # who is told to end has the slot a moment longer
        shop.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'named'",
                 "SELECT pg_drop_replication_slot('named')")  # fmt: skip
        return True

    within(30, dropped)
    said = within(60, lambda: [r for r in db.execute(f"DESCRIBE QUERY {query}".encode()).fetchall()
                               if "errored" in str(r)])  # fmt: skip
    assert said
    text = str(db.execute("LIST QUERIES").fetchall())
    assert "cannot go on" in text, text
    db.execute(f"TERMINATE QUERY {query}".encode())


def test_who_may_only_select_takes_nothing_from_a_declared_slot(
    server: Server, db: psycopg.Connection[Any], shop: Postgres
) -> None:
    """Neither by a SELECT nor by a query of its own, also while the owner's is errored; nor anybody by a SELECT. When
    the right is taken, what it reads ends.
    """
    shop.run("CREATE TABLE kept (id int PRIMARY KEY, n int)",
             "SELECT pg_create_logical_replication_slot('kept', 'pgoutput')")  # fmt: skip
    for text in ("USE ROLE useradmin", "CREATE ROLE kept_reader",
                 "INVITE USER 'kept_user' WITH ('default_role' = kept_reader, 'password' = 'kept-reader-1')",
                 "USE ROLE securityadmin", "GRANT CREATE_QUERY ON ORGANIZATION TO ROLE kept_reader",
                 "USE ROLE sysadmin",
                 """CREATE STREAM kept_cdc WITH ('store' = pg_tables, 'postgresql.table.name' = 'kept',
                    'postgresql.slot.name' = 'kept')""",
                 "GRANT SELECT ON kept_cdc TO ROLE kept_reader", "GRANT USAGE ON DATABASE main TO ROLE kept_reader",
                 "GRANT USAGE, CREATE ON SCHEMA public TO ROLE kept_reader"):  # fmt: skip
        db.execute(text.encode())
    shop.run("INSERT INTO kept VALUES (1, 5), (2, 0)")
    place = "SELECT confirmed_flush_lsn, active FROM pg_replication_slots WHERE slot_name = 'kept'"
    before = shop.rows(place)
    said: list[str] = []
    with server.connect("postgres", user="kept_user", password="kept-reader-1") as invited:
        [(invitation, *_)] = invited.execute("LIST MY INVITATIONS").fetchall()
        invited.execute(f"ACCEPT INVITATION {invitation}".encode())
    with server.connect(user="kept_user", password="kept-reader-1") as reader:
        reader.add_notice_handler(lambda n: said.append(str(n.message_primary)))
        first = "SELECT after->id AS id FROM kept_cdc LIMIT 2"
        assert sorted(reader.execute(first).fetchall()) == [(1,), (2,)]
        assert "parameter 'postgresql.slot.name' is left out: reading by it needs USAGE on its store" in said
        theirs = query_of(reader, "CREATE MATERIALIZED VIEW kept_theirs AS SELECT after->id AS id FROM kept_cdc")
        within(60, lambda: reader.execute("SELECT count(*) FROM kept_theirs").fetchall() == [(2,)])
        db.add_notice_handler(lambda n: said.append(str(n.message_primary)))
        assert sorted(db.execute(first).fetchall()) == [(1,), (2,)]
        assert "parameter 'postgresql.slot.name' = 'kept' is left out: what is read by it is not given again" in said
        assert shop.rows(place) == before
        view = "CREATE MATERIALIZED VIEW kept_by AS SELECT after->id AS id, 10 / after->n AS n FROM kept_cdc"
        query = query_of(db, view)
        within(60, lambda: [r for r in db.execute("LIST QUERIES").fetchall() if r[0] == query and r[4] == "errored"])
        before = shop.rows(place)
        assert sorted(reader.execute(first).fetchall()) == sorted(db.execute(first).fetchall()) == [(1,), (2,)]
        with pytest.raises(psycopg.errors.ObjectInUse, match=f'slot "kept" is read by query {query} already'):
            db.execute(view.replace("kept_by", "kept_by_another").encode())
        assert shop.rows(place) == before
        rows = reader.cursor().stream("SELECT after->id AS id FROM kept_cdc")
        assert sorted(next(rows) for _ in range(2)) == [(1,), (2,)]
        db.execute("REVOKE SELECT ON kept_cdc FROM ROLE kept_reader")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="denied for relation"):
            next(rows)
        reader.execute(f"TERMINATE QUERY {theirs}".encode())
        db.execute(f"TERMINATE QUERY {query}".encode())
    shop.run("SELECT pg_drop_replication_slot('kept')")


def test_a_stream_of_several_tables(db: psycopg.Connection[Any], shop: Postgres) -> None:
    """By commit; a row is JSON, as BYTES. Where a change was has the name that older scripts say."""
    shop.run("CREATE SCHEMA far", "CREATE TABLE firsts (id int PRIMARY KEY, v text)",
             "INSERT INTO firsts VALUES (1, 'é')", "CREATE TABLE far.seconds (name text PRIMARY KEY)")  # fmt: skip
    tables = "'store' = pg_tables, 'postgresql.cdc.table.list' = 'firsts, far.seconds'"
    db.execute(f"CREATE STREAM both_cdc WITH ({tables})".encode())
    assert dict(r[:2] for r in db.execute("DESCRIBE STREAM COLUMNS both_cdc").fetchall())["after"] == "VARBINARY"
    listed = next(r for r in db.execute("LIST RELATIONS").fetchall() if r[0] == "both_cdc")
    assert "public.firsts,far.seconds" in str(listed)
    db.execute(
        f"""CREATE STREAM both_said (op VARCHAR, "after" BYTES, "before" BYTES,
        "system" STRUCT<"schema" VARCHAR, "table" VARCHAR, "lsn" BIGINT>) WITH ({tables})""".encode()
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="changelog over several entities"):
        db.execute(f"CREATE CHANGELOG both_log (id INT, PRIMARY KEY (id)) WITH ({tables})".encode())
    with pytest.raises(psycopg.errors.UndefinedObject, match="thirds"):
        db.execute(f"CREATE STREAM some WITH ({tables.replace('firsts', 'thirds')})".encode())
    query = query_of(
        db,
        """CREATE MATERIALIZED VIEW both_seen AS SELECT op, DECODE("before", 'UTF-8') AS old,
        "after" AS new, system->"schema" AS s, system->"table" AS t, system->lsn AS lsn
        FROM both_said""",
    )
    within(60, lambda: db.execute("SELECT count(*) FROM both_seen").fetchall() == [(1,)])
    with shop.connect() as c, c.transaction():
        c.execute("INSERT INTO far.seconds VALUES ('x')")
        c.execute("INSERT INTO firsts VALUES (2, NULL)")
        c.execute("DELETE FROM far.seconds")
    shop.run("TRUNCATE firsts, far.seconds")
    expected = [("r", None, '{"id":1,"v":"é"}'.encode(), "public", "firsts"),
                ("c", None, b'{"name":"x"}', "far", "seconds"),
                ("c", None, b'{"id":2,"v":null}', "public", "firsts"), ("d", '{"name":"x"}', None, "far", "seconds"),
                ("t", None, None, "far", "seconds"), ("t", None, None, "public", "firsts")]  # fmt: skip
    seen = "SELECT op, old, new, s, t FROM both_seen ORDER BY op <> 'r', lsn, s"

    def same() -> bool:
        assert db.execute(seen).fetchall() == expected
        return True

    within(60, same)
    with pytest.raises(psycopg.Error, match="both_cdc"):
        db.execute("DROP ENTITY far.seconds IN STORE pg_tables")
    db.execute(f"TERMINATE QUERY {query}".encode())
    within(20, lambda: shop.rows("SELECT pubname FROM pg_publication_tables WHERE tablename = 'seconds'") == [])
    shop.run("DROP SCHEMA far CASCADE")


def test_what_cannot_be_followed_is_refused(db: psycopg.Connection[Any], shop: Postgres) -> None:
    shop.run("CREATE TABLE keyless (a int)")
    db.execute("CREATE STREAM keyless_cdc WITH ('store' = pg_tables, 'postgresql.table.name' = 'keyless')")
    query = query_of(db, "CREATE MATERIALIZED VIEW keyless_now AS SELECT op FROM keyless_cdc")
    why = "neither a primary key nor a replica identity"
    within(60, lambda: [r for r in db.execute("LIST QUERIES").fetchall() if query in str(r) and why in str(r)])
    db.execute(f"TERMINATE QUERY {query}".encode())
    for text, code in (
        ("CREATE CHANGELOG keyless_log WITH ('store' = pg_tables, 'postgresql.table.name' = 'keyless')", "42601"),
        ("CREATE STREAM nothing_cdc WITH ('store' = pg_tables, 'postgresql.table.name' = 'nothing')", "42704"),
    ):
        with pytest.raises(psycopg.Error) as e:
            db.execute(text.encode())
        assert e.value.sqlstate == code, text
    assert shop.rows("SELECT slot_name FROM pg_replication_slots") == []
    # That of the query before this one, whose slot somebody else had dropped, went with it.
    assert shop.rows("SELECT pubname FROM pg_publication") == []


def test_tables_are_sinks(db: psycopg.Connection[Any], shop: Postgres) -> None:
    shop.run("CREATE TABLE orders (id int PRIMARY KEY, who text, price numeric(10,2))",
             "INSERT INTO orders SELECT i, 'u' || i % 5, i FROM generate_series(1, 100) i",
             "CREATE TABLE copied (id int PRIMARY KEY, who text, price numeric(10,2), noted timestamptz DEFAULT now())",
             "ALTER TABLE orders REPLICA IDENTITY FULL")  # fmt: skip
    db.execute("CREATE CHANGELOG orders_log WITH ('store' = pg_tables, 'postgresql.table.name' = 'orders')")
    db.execute("CREATE STREAM orders_cdc WITH ('store' = pg_tables, 'postgresql.table.name' = 'orders')")
    notices: list[str | None] = []
    db.add_notice_handler(lambda d: notices.append(d.message_primary))
    db.execute("""CREATE TABLE copied (id INT, who VARCHAR, price DECIMAL(10, 2), PRIMARY KEY (id))
        WITH ('store' = pg_tables)""")
    assert notices == []
    db.execute("CREATE TABLE misspelt (id INT) WITH ('store' = pg_tables, 'postgresql.table.name' = 'copid')")
    assert notices == ['table "public.copid" was not in store "pg_tables", and is made with these columns']
    with pytest.raises(psycopg.Error) as read:
        db.execute("SELECT * FROM copied")
    assert read.value.sqlstate == "0A000" and "CREATE CHANGELOG" in (read.value.diag.message_hint or "")
    with pytest.raises(psycopg.Error) as changed:
        db.execute("DELETE FROM orders_log")
    assert changed.value.sqlstate == "0A000"
    query_of(db, "INSERT INTO copied SELECT id, who, price FROM orders_log")
    rows = db.execute("""CREATE TABLE totals WITH ('store' = pg_tables)
        AS SELECT who, count(*) AS n, sum(price) AS total FROM orders_log GROUP BY who""").fetchall()
    assert [r[0] for r in rows] == ["table", "query"]
    query_of(db, "CREATE TABLE log WITH ('store' = pg_tables) AS SELECT op, after->id AS id FROM orders_cdc")
    within(60, lambda: shop.rows("SELECT count(*) FROM log") == [(100,)])  # what the slot began with
    shop.run("DELETE FROM orders WHERE id > 90", "UPDATE orders SET price = price + 1 WHERE id < 10",
             "UPDATE orders SET id = id + 1000 WHERE id = 50")  # fmt: skip

    def right() -> bool:
        assert shop.rows("SELECT id, who, price FROM copied ORDER BY 1") == shop.rows("SELECT * FROM orders ORDER BY 1")
        grouped = "SELECT who, count(*), sum(price) FROM orders GROUP BY 1 ORDER BY 1"
        assert shop.rows("SELECT who, n, total FROM totals ORDER BY 1") == shop.rows(grouped)
        return True

    within(90, right, 0.5)
    told = [("d", 10), ("r", 100), ("u", 10)]
    within(90, lambda: shop.rows("SELECT op, count(*) FROM log GROUP BY 1 ORDER BY 1") == told, 0.5)
    keys = """SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid IN ('totals'::regclass, 'sold'::regclass) AND contype IN ('p', 'u') ORDER BY 1"""
    query_of(db, "CREATE TABLE sold WITH ('store' = pg_tables) AS SELECT id, price FROM orders_log")
    assert shop.rows(keys) == [("sold", "PRIMARY KEY (id)"), ("totals", "UNIQUE NULLS NOT DISTINCT (who)")]
    # Groups of those that have NULL, and changes of them while the table is published.
    shop.run("CREATE PUBLICATION of_totals FOR TABLE totals", "UPDATE orders SET who = NULL WHERE id % 10 = 1")
    within(90, right, 0.5)
    db.execute(f"TERMINATE QUERY {rows[-1][1]}".encode())
    db.execute("DROP TABLE totals")  # the relation: the store's table stays
    shop.run("DELETE FROM orders WHERE who IS NULL", "DELETE FROM totals WHERE who IS NULL")
    db.execute("""CREATE TABLE totals WITH ('store' = pg_tables)
        AS SELECT who, count(*) AS n, sum(price) AS total FROM orders_log GROUP BY who""")
    shop.run("UPDATE orders SET who = NULL WHERE id < 20")
    within(90, right, 0.5)
    with pytest.raises(psycopg.Error) as e:
        db.execute("CREATE TABLE no_key WITH ('store' = pg_tables) AS SELECT count(*) AS n FROM orders_log")
    assert e.value.sqlstate == "0A000"
    db.execute("CREATE TABLE heap (id INT) WITH ('store' = pg_tables)")
    with pytest.raises(psycopg.Error, match='heap" has no primary key'):
        db.execute("INSERT INTO heap SELECT id FROM orders_log")


def test_a_killed_worker_neither_loses_nor_doubles(db: psycopg.Connection[Any], server: Server, shop: Postgres) -> None:
    shop.run(
        "CREATE TABLE hits (id int PRIMARY KEY, v int)", "INSERT INTO hits SELECT i, 0 FROM generate_series(1, 50) i"
    )
    db.execute("CREATE STREAM hits_cdc WITH ('store' = pg_tables, 'postgresql.table.name' = 'hits')")
    query_of(
        db,
        "CREATE TABLE hits_log WITH ('store' = pg_tables) AS SELECT op, after->id AS id, after->v AS v FROM hits_cdc",
    )
    within(60, lambda: shop.rows("SELECT count(*) FROM hits_log") == [(50,)])
    for i in range(1, 21):
        shop.run(f"UPDATE hits SET v = {i}")
        if i in (5, 12):
            within(60, lambda: killed(server))
    within(120, lambda: shop.rows("SELECT count(*) FROM hits_log") == [(1050,)], 1)
    once = "SELECT count(*) FROM (SELECT id, v FROM hits_log GROUP BY 1, 2 HAVING count(*) = 1) s"
    assert shop.rows(once) == [(1050,)]


def test_what_would_be_missed_is_said(server: Server, db: psycopg.Connection[Any], shop: Postgres) -> None:
    """A publication that leaves changes out, a key that two rows may have, a table that is called something else for a
    moment; and rows of tables that inherit are nobody's.
    """
    shop.run(
        "CREATE TABLE partly (id int PRIMARY KEY, a text)", "INSERT INTO partly VALUES (1, 'a')",
        "CREATE PUBLICATION partly_inserts FOR TABLE partly WITH (publish = 'insert')",
        "CREATE PUBLICATION partly_some FOR TABLE partly WHERE (id > 1)",
        "CREATE PUBLICATION partly_all FOR TABLE partly",
        "CREATE TABLE later_key (id int, PRIMARY KEY (id) DEFERRABLE)", "ALTER TABLE later_key REPLICA IDENTITY FULL",
        "CREATE TABLE parent (id int PRIMARY KEY, a text)", "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "INSERT INTO parent VALUES (1, 'p')", "INSERT INTO child VALUES (2, 'c')",
    )  # fmt: skip
    for table in ("partly", "later_key", "parent"):
        db.execute(
            f"CREATE CHANGELOG {table}_log WITH ('store' = pg_tables, 'postgresql.table.name' = '{table}')".encode()
        )
    refused = {
        "wm_inserts": ("partly", "partly_inserts", "leaves out some changes"),
        "wm_some": ("partly", "partly_some", "leaves out some changes"),
        "wm_later": ("later_key", "", "deferrable"),
    }
    queries = {}
    for view, (table, publication, _) in refused.items():
        more = f" WITH ('postgresql.publication.name' = '{publication}')" if publication else ""
        queries[view] = query_of(db, f"CREATE MATERIALIZED VIEW {view} AS SELECT * FROM {table}_log{more}")
    queries["wm_all"] = query_of(
        db,
        "CREATE MATERIALIZED VIEW wm_all AS SELECT * FROM partly_log"
        " WITH ('postgresql.publication.name' = 'partly_all')",
    )
    queries["wm_parent"] = query_of(db, "CREATE MATERIALIZED VIEW wm_parent AS SELECT * FROM parent_log")

    def told(view: str) -> str:
        return str(db.execute(f"DESCRIBE QUERY {queries[view]}".encode()).fetchall())

    for view, (_, _, why) in refused.items():
        within(60, lambda view=view, why=why: "errored" in told(view) and why in told(view))
    within(60, lambda: db.execute("SELECT * FROM wm_parent").fetchall() == [(1, "p")])
    shop.run("INSERT INTO child VALUES (3, 'c')", "INSERT INTO parent VALUES (4, 'p')")
    within(60, lambda: db.execute("SELECT * FROM wm_parent ORDER BY id").fetchall() == [(1, "p"), (4, "p")])
    within(60, lambda: db.execute("SELECT * FROM wm_all").fetchall() == [(1, "a")])
    # In one transaction: who looks at the catalogue now and then does not see it.
    shop.run("""ALTER TABLE partly RENAME TO other; INSERT INTO other VALUES (2, 'b');
        ALTER TABLE other RENAME TO partly; INSERT INTO partly VALUES (3, 'c')""")
    within(60, lambda: "errored" in told("wm_all") and "the table is called public.other now" in told("wm_all"))
    queries["wm_again"] = query_of(
        db,
        "CREATE MATERIALIZED VIEW wm_again AS SELECT * FROM partly_log"
        " WITH ('postgresql.publication.name' = 'partly_all')",
    )
    within(60, lambda: db.execute("SELECT count(*) FROM wm_again").fetchone() == (3,))
    shop.run("ALTER PUBLICATION partly_all SET (publish = 'insert')")
    within(60, lambda: "errored" in told("wm_again") and "leaves out some changes" in told("wm_again"))
    for query in queries.values():
        db.execute(f"TERMINATE QUERY {query}".encode())


def test_a_long_value_of_another_row_is_not_taken(server: Server, db: psycopg.Connection[Any], shop: Postgres) -> None:
    """A row that the query has not seen is moved after another was deleted: what was not sent is not that one's."""
    shop.run(
        "CREATE TABLE nokey (id int PRIMARY KEY, big text)", "ALTER TABLE nokey ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO nokey VALUES (1, repeat('1', 9000))", "CREATE PUBLICATION nokey_pub FOR TABLE nokey",
        "SELECT pg_create_logical_replication_slot('nokey_slot', 'pgoutput')",
        "INSERT INTO nokey VALUES (2, repeat('2', 9000))", "DELETE FROM nokey WHERE id = 2",
        "UPDATE nokey SET id = 10 WHERE id = 1",
    )  # fmt: skip
    db.execute("""CREATE CHANGELOG nokey_log WITH ('store' = pg_tables, 'postgresql.table.name' = 'nokey',
        'postgresql.slot.name' = 'nokey_slot', 'postgresql.publication.name' = 'nokey_pub')""")
    query = query_of(db, "CREATE MATERIALIZED VIEW nokey_view AS SELECT id, substring(big, 1, 3) AS b FROM nokey_log")

    def told() -> str:
        return str(db.execute(f"DESCRIBE QUERY {query}".encode()).fetchall())

    within(60, lambda: "errored" in told() and "not sent" in told())
    assert not db.execute("SELECT * FROM nokey_view WHERE id = 10").fetchall()
    db.execute(f"TERMINATE QUERY {query}".encode())
    within(30, lambda: shop.run("SELECT pg_drop_replication_slot('nokey_slot')") is None)


def test_what_a_dead_worker_left_goes_with_its_query(
    server: Server, db: psycopg.Connection[Any], shop: Postgres
) -> None:
    """Its slot is held for a moment after its death, by whom PostgreSQL does not know to be dead."""
    shop.run("CREATE TABLE orphaned (id bigint PRIMARY KEY)", "INSERT INTO orphaned VALUES (1)")
    db.execute("CREATE CHANGELOG orphaned_log WITH ('store' = pg_tables, 'postgresql.table.name' = 'orphaned')")
    for n in range(3):
        query = query_of(db, f"CREATE MATERIALIZED VIEW orphaned_{n} AS SELECT id FROM orphaned_log")
        slots = f"SELECT slot_name FROM pg_replication_slots WHERE slot_name ~ 'pgstream_{query.replace('-', '')}'"
        within(60, lambda n=n: db.execute(f"SELECT count(*) FROM orphaned_{n}".encode()).fetchone() == (1,))
        assert shop.rows(slots)
        assert killed(server)
        db.execute(f"TERMINATE QUERY {query}".encode())
        within(60, lambda slots=slots: not shop.rows(slots))


def test_a_store_that_was_away_when_its_query_ended_keeps_nothing(
    db: psycopg.Connection[Any], shop: Postgres, server: Server
) -> None:
    shop.run("CREATE TABLE far (id bigint PRIMARY KEY)", "INSERT INTO far VALUES (1)")
    db.execute("CREATE CHANGELOG far_log WITH ('store' = pg_tables, 'postgresql.table.name' = 'far')")
    query = query_of(db, "CREATE MATERIALIZED VIEW far_now AS SELECT id FROM far_log")
    own = f"pgstream_{query.replace('-', '')}"
    left = (
        f"SELECT slot_name FROM pg_replication_slots WHERE slot_name ~ '{own}' "
        f"UNION ALL SELECT pubname FROM pg_publication WHERE pubname ~ '{own}'"
    )
    within(60, lambda: db.execute("SELECT count(*) FROM far_now").fetchone() == (1,))
    shop.stop()
    db.execute(f"TERMINATE QUERY {query}".encode())
    within(60, lambda: (query, "terminated") in [(r[0], r[3]) for r in db.execute("LIST QUERIES WITH ('all')")])
    assert not (server.data_dir / "checkpoints" / query).exists()
    noted = server.data_dir / "checkpoints" / "left"
    assert [f.name for f in noted.rglob("*.json")] == [f"{query}-0.json"]
    shop.start()
    within(60, lambda: not list(noted.rglob("*.json")))
    assert not shop.rows(left)


def test_a_dead_worker_leaves_no_slot_of_a_select(db: psycopg.Connection[Any], server: Server, shop: Postgres) -> None:
    """Its checkpoint went with the worker; its slot would have the server keep its log for ever."""
    shop.run("CREATE TABLE watched (id int PRIMARY KEY)", "INSERT INTO watched VALUES (1)")
    db.execute("CREATE CHANGELOG watched WITH ('store' = pg_tables, 'postgresql.table.name' = 'watched')")
    left = (
        "SELECT 'slot', slot_name FROM pg_replication_slots UNION ALL SELECT 'publication', pubname FROM pg_publication"
    )
    before = set(shop.rows(left))
    with server.connect() as c:
        rows = c.cursor().stream("SELECT id FROM watched WITH ('starting.position' = 'earliest')")
        assert next(rows) == (1,)
        assert len(set(shop.rows(left)) - before) == 2
        within(60, lambda: killed(server))
        with pytest.raises(psycopg.Error, match="worker"):
            next(rows)
    within(30, lambda: not set(shop.rows(left)) - before)


def test_a_table_whose_rows_lose_a_column(server: Server, workspace: Any) -> None:
    """A schema changes while the query runs; a long value that was not sent is known of a changelog's row, and of a
    stream's ends the query with the way out, as does a changelog's table whose rows are identified otherwise."""
    with postgres(workspace / "changing") as source, server.connect() as c:
        c.execute(f"CREATE STORE pg_changing WITH ({source.store})".encode())
        source.run(
            "CREATE TABLE t (id int PRIMARY KEY, a text, b text)", "INSERT INTO t VALUES (1, 'a', repeat('b', 9))"
        )
        c.execute("CREATE CHANGELOG t_log WITH ('store' = pg_changing, 'postgresql.table.name' = 't')")
        c.execute("CREATE STREAM t_cdc WITH ('store' = pg_changing, 'postgresql.table.name' = 't')")
        query = query_of(c, "CREATE MATERIALIZED VIEW t_now AS SELECT id, a, length(b) AS n FROM t_log")
        stream = query_of(c, 'CREATE MATERIALIZED VIEW t_told AS SELECT op, "after"->a AS a FROM t_cdc')

        def shows(*rows: tuple[Any, ...]) -> None:
            within(60, lambda: c.execute("SELECT * FROM t_now ORDER BY id").fetchall() == list(rows))

        def says(why: str) -> str:
            found = within(60, lambda: [r for r in c.execute("LIST QUERIES").fetchall() if why in str(r)])
            return str(found[0][0])

        shows((1, "a", 9))
        source.run("ALTER TABLE t ADD COLUMN more int", "UPDATE t SET a = 'A', more = 1")
        shows((1, "A", 9))
        source.run("UPDATE t SET b = (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 2000) i)",
                   "UPDATE t SET a = 'later'", "UPDATE t SET id = 2", "UPDATE t SET a = 'last', id = 3")  # fmt: skip
        shows((3, "last", 64000))
        assert says('the value of column "b" of table "public.t" was not sent') == stream
        source.run("ALTER TABLE t ALTER a SET NOT NULL", "CREATE UNIQUE INDEX t_a ON t (a)",
                   "ALTER TABLE t REPLICA IDENTITY USING INDEX t_a", "UPDATE t SET id = 4")  # fmt: skip
        assert says('does not have column "id" of its primary key') == query
        shows((3, "last", 64000))
        for one in (query, stream):
            c.execute(f"TERMINATE QUERY {one}".encode())
        within(20, lambda: source.rows("SELECT slot_name FROM pg_replication_slots") == [])
