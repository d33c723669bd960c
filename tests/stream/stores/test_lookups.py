"""Rows of a store's tables looked up beside a stream, with a real PostgreSQL as the store: what comes out is what the
table holds when the stream's row comes by, while the store is away the query waits, and what cannot be is refused.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres import PASSWORD, Postgres, postgres
from tests.server import Kafka, Server, within
from tests.stream.stores.test_tables import query_of
from tests.stream.test_outage import facts, run

pytestmark = pytest.mark.stream
KAFKA = "'type' = KAFKA, 'tls.disabled' = TRUE, 'kafka.sasl.hash_function' = NONE"
TYPES = """sku text PRIMARY KEY, price numeric(10,2), n integer, tag varchar(10), since timestamptz, plain timestamp,
    d date, clock time, raw bytea, ok boolean, u uuid, doc jsonb, f double precision, tags text[], more int[]"""
DECLARED = """sku VARCHAR, price DECIMAL(10, 2), n INTEGER, tag VARCHAR(3), since TIMESTAMP_LTZ, plain TIMESTAMP(3),
    d DATE, clock TIME, raw BYTES, ok BOOLEAN, u VARCHAR, doc VARCHAR, f DOUBLE, tags ARRAY<VARCHAR>, more ARRAY<INT>"""
UUID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture(scope="module")
def source(workspace: Path) -> Iterator[Postgres]:
    with postgres(workspace / "looked_up") as p:
        p.run(
            f"CREATE TABLE prices ({TYPES})",
            f"""INSERT INTO prices VALUES ('a', 1.50, 7, 'longer', '2024-01-01 00:00:00.123456+02',
            '2024-05-05 01:02:03', '2024-02-29', '10:11:12.5', '\\x00ff', true, '{UUID}', '{{"a": 1}}', 0.1,
            ARRAY['x', 'y z', NULL], ARRAY[1, NULL])""",
            "INSERT INTO prices VALUES ('b', 2, NULL, 'b')",
            "CREATE TABLE half AS SELECT sku, n FROM prices",
        )
        yield p


@pytest.fixture(scope="module")
def looks(server: Server, kafka: Kafka, source: Postgres) -> Iterator[psycopg.Connection[Any]]:
    kafka.topic("lk_orders", 2)
    with server.connect() as c:
        c.execute("CREATE DATABASE lookups")
    with server.connect("lookups") as c:
        run(
            c,
            f"""CREATE STORE lk_kafka WITH ({KAFKA}, 'uris' = '{kafka.bootstrap}');
            CREATE STORE lk_pg WITH ({source.store});
            CREATE STREAM orders (id BIGINT, sku VARCHAR, n BIGINT) WITH ('store' = lk_kafka, 'topic' = 'lk_orders',
                'value.format' = 'json', 'starting.position' = 'earliest');
            CREATE TABLE prices ({DECLARED}) WITH ('store' = lk_pg);
            CREATE TABLE halves (sku VARCHAR, n INT) WITH ('store' = lk_pg, 'postgresql.table.name' = 'half')""",
        )
        yield c
        for query, *_ in c.execute("LIST QUERIES").fetchall():
            c.execute(f"TERMINATE QUERY {query}".encode())


def orders(kafka: Kafka, *rows: tuple[int, str | None]) -> None:
    kafka.produce("lk_orders", [(sku, json.dumps({"id": i, "sku": sku, "n": i})) for i, sku in rows])


def test_subqueries_over_a_table_of_a_store(
    server: Server, looks: psycopg.Connection[Any], kafka: Kafka, source: Postgres
) -> None:
    """As PostgreSQL answers them, NULL included; two rows for a value end the query, which says so."""
    kafka.topic("lk_asked")
    source.run("CREATE TABLE listed (sku text, n bigint)",
               "INSERT INTO listed VALUES ('a', 1), ('a', 2), ('b', NULL)",
               "INSERT INTO listed VALUES ('O''B_c', NULL), ('O''Bxc', NULL)")  # fmt: skip
    run(
        looks,
        """CREATE TABLE listed (sku VARCHAR, n BIGINT) WITH ('store' = lk_pg);
        CREATE STREAM asked (id BIGINT, sku VARCHAR, n BIGINT) WITH ('store' = lk_kafka, 'topic' = 'lk_asked',
        'value.format' = 'json', 'starting.position' = 'earliest')""",
    )

    def ask(*rows: tuple[int, str | None, int | None]) -> None:
        kafka.produce("lk_asked", [(None, json.dumps({"id": i, "sku": sku, "n": n})) for i, sku, n in rows])

    query = query_of(
        looks,
        """CREATE MATERIALIZED VIEW answered AS SELECT id,
          sku IN (SELECT sku FROM listed) AS known, n NOT IN (SELECT l.n FROM listed l) AS other,
          EXISTS (SELECT 1 FROM listed WHERE sku = asked.sku AND n = asked.n) AS both_,
          (SELECT count(*) FROM listed l WHERE l.sku = asked.sku) AS times, (SELECT max(n) FROM listed) AS most,
          (SELECT n FROM listed l WHERE l.sku = asked.sku AND l.n = 2) AS two, n > ALL (SELECT n FROM listed
          WHERE sku = 'a') AS above, (SELECT count(*) FROM listed l WHERE l.sku LIKE 'O''B\\_%') AS quoted
          FROM asked""",
    )
    some = query_of(
        looks,
        """CREATE MATERIALIZED VIEW answered_b AS SELECT id FROM asked WHERE (sku, n) IN
          (SELECT sku, n FROM listed) AND NOT EXISTS (SELECT * FROM listed WHERE sku = 'none')""",
    )
    ask((1, "a", 1), (2, "b", 3), (3, None, 2), (4, "none", 3))

    def seen(text: str, wanted: list[Any]) -> None:
        within(90, lambda: looks.execute(text.encode()).fetchall() == wanted)

    seen("SELECT * FROM answered ORDER BY id", [
        (1, True, False, True, 2, 2, 2, False, 1), (2, True, None, False, 1, 2, None, True, 1),
        (3, None, False, False, 0, 2, None, False, 1), (4, False, None, False, 0, 2, None, True, 1),
    ])  # fmt: skip
    seen("SELECT id FROM answered_b", [(1,)])
    source.run("INSERT INTO listed VALUES ('none', 2), ('none', 2)")
    ask((5, "a", 2), (6, "none", None))
    within(90, lambda: facts(looks, query)["state"] == "errored")
    assert "more than one row" in str(facts(looks, query)), facts(looks, query)
    within(60, lambda: facts(looks, some)["state"] == "running")
    seen("SELECT id FROM answered_b", [(1,)])


def test_a_table_of_a_store_beside_a_stream(
    server: Server, looks: psycopg.Connection[Any], kafka: Kafka, source: Postgres
) -> None:
    orders(kafka, (1, "a"), (2, "none"), (3, None), (4, "b"))
    columns = """p.sku, p.price, p.n, p.tag, p.since, p.plain, p.d, p.clock, p.raw, p.ok, p.u, p.doc, p.f,
        p.tags[2] AS tag2, p.tags[3] AS tag3, p.more[1] AS one, p.more[2] AS two"""
    query = query_of(
        looks,
        f"""CREATE MATERIALIZED VIEW priced AS SELECT o.id, {columns}
        FROM orders o LEFT JOIN prices p ON p.sku = o.sku AND o.id < 100""",
    )
    other = query_of(
        looks,
        f"""CREATE MATERIALIZED VIEW dear AS SELECT o.id, p.u, h.n AS half FROM orders o JOIN prices p
        ON p.price > o.n AND p.u = '{UUID}' AND lower(p.tag) LIKE 'long%' JOIN halves h ON h.sku = p.sku""",
    )

    def seen(text: str, wanted: list[Any], seconds: float = 90) -> None:
        def same() -> bool:
            found = looks.execute(text.encode()).fetchall()
            assert found == wanted, f"{found}; {facts(looks, query)}; {facts(looks, other)}"
            return True

        within(seconds, same, 0.5)

    nothing = (None,) * 16
    utc = dt.UTC
    seen("SELECT * FROM priced ORDER BY id", [
        (1, "a", Decimal("1.50"), 7, "longer", dt.datetime(2023, 12, 31, 22, 0, 0, 123456, utc),
         dt.datetime(2024, 5, 5, 1, 2, 3), dt.date(2024, 2, 29), dt.time(10, 11, 12, 500000), b"\x00\xff", True, UUID,
         '{"a": 1}', 0.1, "y z", None, 1, None),
        (2, None, *nothing), (3, None, *nothing),
        (4, "b", Decimal("2.00"), None, "b", *nothing[:13]),
    ])  # fmt: skip
    seen("SELECT * FROM dear", [(1, UUID, 7)])

    # What changes is seen by the rows that come later; those that have come stay.
    source.run("UPDATE prices SET price = 9 WHERE sku = 'a'", "DELETE FROM prices WHERE sku = 'b'",
               "INSERT INTO prices (sku, price) VALUES ('none', 5)")  # fmt: skip
    orders(kafka, (5, "a"), (6, "b"), (7, "none"), (100, "a"))
    told = "SELECT id, price FROM priced ORDER BY id"
    new = [(1, Decimal("1.50")), (2, None), (3, None), (4, Decimal(2)), (5, Decimal(9)), (6, None), (7, Decimal(5)),
           (100, None)]  # fmt: skip
    seen(told, new)
    seen("SELECT id FROM dear ORDER BY id", [(1,), (5,), (6,), (7,)])
    read = looks.execute("SELECT o.id, p.price FROM orders o JOIN prices p USING (sku) LIMIT 3").fetchall()
    assert len(read) == 3 and all(price in (5, 9) for _, price in read)

    # While the store is away the queries wait and say so, and go on where they were.
    source.stop()
    orders(kafka, (8, "a"))
    within(60, lambda: all("waiting" in (facts(looks, q)["message"] or "") for q in (query, other)))
    said = [row[9] for row in looks.execute("LIST QUERIES").fetchall() if row[0] in (query, other)]
    assert len(said) == 2 and all('store "lk_pg"' in text for text in said), said
    events = str(looks.execute(f"DESCRIBE QUERY EVENTS {query}".encode()).fetchall())
    assert 'store "lk_pg"' in events, events
    with pytest.raises(psycopg.Error) as e:
        looks.execute("CREATE MATERIALIZED VIEW late AS SELECT o.id FROM orders o JOIN prices p ON p.sku = o.sku")
    assert e.value.sqlstate == "58000" and 'store "lk_pg"' in str(e.value), str(e.value)
    source.start()
    seen(told, [*new[:7], (8, Decimal(9)), new[7]], 120)
    within(60, lambda: [facts(looks, q)["state"] for q in (query, other)] == ["running"] * 2)

    # A connection that is cut is another batch's beginning.
    source.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgstream worker'")
    orders(kafka, (9, "a"))
    seen(f"SELECT count(*) FROM ({told}) s", [(10,)])

    for kind, name in (("TABLE", "prices"), ("STORE", "lk_pg")):
        with pytest.raises(psycopg.errors.DependentObjectsStillExist):
            looks.execute(f"DROP {kind} {name}".encode())
    shown = str(looks.execute(f"DESCRIBE QUERY {query}".encode()).fetchall()) + events + server.log.read_text()
    assert PASSWORD not in shown and "pass'word" not in shown

    # A table that changes under the query ends it with the reason.
    source.run("ALTER TABLE prices RENAME TO prices_old")
    orders(kafka, (10, "a"))
    within(60, lambda: facts(looks, query)["state"] == "errored")
    assert 'relation "public.prices" does not exist' in facts(looks, query)["error"]
    source.run("ALTER TABLE prices_old RENAME TO prices")
    looks.execute(f"RESTART QUERY {query}".encode())
    seen(f"SELECT count(*) FROM ({told}) s", [(11,)])


def test_what_cannot_be_looked_up(server: Server, looks: psycopg.Connection[Any], source: Postgres) -> None:
    source.run("CREATE TABLE gone (sku text)", "CREATE TABLE less (sku text, more int)",
               "CREATE TABLE unlike (sku text, since int)")  # fmt: skip
    run(
        looks,
        """CREATE TABLE gone (sku VARCHAR) WITH ('store' = lk_pg);
        CREATE TABLE less (sku VARCHAR, more INT) WITH ('store' = lk_pg);
        CREATE TABLE unlike (sku VARCHAR, since INT) WITH ('store' = lk_pg)""",
    )
    source.run("DROP TABLE gone", "ALTER TABLE less DROP COLUMN more",
               "ALTER TABLE unlike ALTER COLUMN since TYPE timestamptz USING now()")  # fmt: skip
    for table, code, what in (
        ("gone", "42704", 'entity "public.gone" does not exist in store "lk_pg"'),
        ("less", "42703", 'column "more" does not exist'),
        ("unlike", "22023", "cannot cast type timestamp with time zone to integer"),
    ):
        text = f"CREATE MATERIALIZED VIEW refused AS SELECT o.id FROM orders o JOIN {table} t ON t.sku = o.sku"
        with pytest.raises(psycopg.Error) as e:
            looks.execute(text.encode())
        assert (e.value.sqlstate, what in str(e.value)) == (code, True), str(e.value)
        assert e.value.diag.statement_position == str(text.index(f"{table} t") + 1)
    # What the store's user may not read.
    source.run("CREATE ROLE narrow LOGIN PASSWORD 'x'")
    run(
        looks,
        f"""CREATE STORE lk_narrow WITH ('type' = POSTGRESQL, 'uris' = '{source.uris}', 'tls.disabled' = TRUE,
            'postgres.username' = 'narrow', 'postgres.password' = 'x');
        CREATE TABLE narrow_prices (sku VARCHAR) WITH ('store' = lk_narrow, 'postgresql.table.name' = 'prices')""",
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="prices"):
        looks.execute("SELECT o.id FROM orders o JOIN narrow_prices t ON t.sku = o.sku LIMIT 1")
    # What the query's role may not, though the store's user could.
    run(
        looks,
        """USE ROLE useradmin;
CREATE ROLE lk_role WITH (ROLE (sysadmin));
USE ROLE sysadmin;
        GRANT USAGE ON DATABASE lookups TO ROLE lk_role;
        GRANT USAGE ON SCHEMA lookups.public TO ROLE lk_role;
        GRANT USAGE ON COMPUTE_POOL default TO ROLE lk_role;
        GRANT SELECT ON RELATION orders TO ROLE lk_role;
        GRANT SELECT ON RELATION halves TO ROLE lk_role""",
    )
    with server.connect("lookups") as c:
        c.execute("USE ROLE lk_role")
        assert c.execute("SELECT h.n FROM orders o JOIN halves h ON h.sku = o.sku AND o.id = 1 LIMIT 1").fetchone() == (
            7,
        )
        with pytest.raises(psycopg.Error) as e:
            c.execute("SELECT o.id FROM orders o JOIN prices p ON p.sku = o.sku LIMIT 1")
        assert e.value.sqlstate in ("42501", "42P01"), str(e.value)
