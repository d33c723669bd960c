"""What a continuous query looks up does not answer: the query ends when it is told to, or when its time is over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from tests.postgres import PASSWORD, USER, Postgres, postgres
from tests.server import Kafka, Server, within
from tests.stream.clicks import clicks
from tests.stream.stores.test_tables import query_of

pytestmark = [
    pytest.mark.stream,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # PySpark's sockets
]
SLEEPS = "BEGIN PERFORM pg_sleep(100000); RETURN x; END"
# It goes on after it was canceled.
STUBBORN = "BEGIN LOOP BEGIN PERFORM pg_sleep(100000); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END"


@pytest.fixture(scope="module")
def slow(server: Server, kafka: Kafka) -> Iterator[psycopg.Connection[Any]]:
    with clicks(server, kafka, "slow") as c:
        for name, body in (("sleeps", SLEEPS), ("stubborn", STUBBORN)):
            c.execute(f"CREATE FUNCTION public.{name}(x text) RETURNS text LANGUAGE plpgsql AS $$ {body} $$".encode())
            view = f"SELECT x AS userid, public.{name}(x) AS said FROM (VALUES ('a'::text)) v (x)"
            c.execute(f"CREATE VIEW public.{name}_view AS {view}".encode())
        yield c


@pytest.mark.parametrize("name", ["sleeps", "stubborn"])
def test_it_ends_with_its_query(slow: psycopg.Connection[Any], name: str) -> None:
    def waiting() -> int:
        those = "SELECT count(*) FROM pg_stat_activity WHERE usename ~ '~' AND datname = 'slow'"
        found = slow.execute(those).fetchone()
        assert found is not None
        return int(found[0])

    text = f"SELECT c.userid, t.said FROM clicks c JOIN public.{name}_view t ON t.userid = c.userid"
    queries = [query_of(slow, f"CREATE MATERIALIZED VIEW {name}_{i} AS {text}") for i in range(2)]
    within(90, lambda: waiting() == 2)
    for query in queries:
        slow.execute(f"TERMINATE QUERY {query}".encode())
    within(20, lambda: waiting() == 0)
    # The threads are free: other queries run.
    counts = "SELECT userid, count(*) AS n FROM clicks GROUP BY userid"
    counted = query_of(slow, f"CREATE MATERIALIZED VIEW after_{name} AS {counts}")
    within(60, lambda: slow.execute(f"SELECT n FROM after_{name}".encode()).fetchall() == [(1,)])
    slow.execute(f"TERMINATE QUERY {counted}".encode())


@pytest.fixture(scope="module")
def asked(workspace: Path) -> Iterator[Postgres]:
    with postgres(workspace / "slow_lookups") as p:
        with p.connect() as c:
            for name, body in (("sleeps", SLEEPS), ("stubborn", STUBBORN)):
                c.execute(f"CREATE FUNCTION {name}(x text) RETURNS text LANGUAGE plpgsql AS $$ {body} $$".encode())
            c.execute("CREATE ROLE asks")
        yield p


def look_up(spark: SparkSession, asked: Postgres, sql: str, rows: DataFrame | None = None, **more: Any) -> list[Any]:
    """The text of a row's column beside what PostgreSQL answers for it."""
    told = {
        "url": asked.uris.replace("postgresql:", "jdbc:postgresql:"), "user": USER, "password": PASSWORD,
        "key": ["__key_0"], "arguments": ["text"], "sql": sql, "how": "inner", "types": ["text"], "ddl": "c1 string",
        "names": ["said"], **more,
    }  # fmt: skip
    df = spark.sql("SELECT 'a' AS userid, 'a' AS __key_0, timestamp'2024-01-01' AS __time") if rows is None else rows
    jvm: Any = spark._jvm
    made = jvm.org.apache.spark.sql.pgstream.Lookup.apply(df._jdf, json.dumps(told))
    return [
        said
        for (said,) in DataFrame(made, spark)
        .selectExpr("left(said, 30) AS said" if rows is not None else "said")
        .collect()
    ]


@pytest.mark.parametrize("name", ["sleeps", "stubborn"])
@pytest.mark.parametrize("more", [{"store": "shop"}, {"role": '"asks"', "schema": '"public"'}])
def test_it_ends_in_its_time(spark: SparkSession, asked: Postgres, name: str, more: dict[str, str]) -> None:
    spark.conf.set("spark.pgstream.lookupTimeoutMs", "1000")
    try:
        assert look_up(spark, asked, """SELECT "__row".p1 || '!'""", **more) == ["a!"]
        with pytest.raises(Exception, match=r"a lookup.* within 1 seconds") as e:
            look_up(spark, asked, f'SELECT public.{name}("__row".p1)', **more)
    finally:
        spark.conf.unset("spark.pgstream.lookupTimeoutMs")
    assert ('store "shop"' in str(e.value)) == ("store" in more)
    those = "FROM pg_stat_activity WHERE application_name = 'pgstream worker'"
    if name == "stubborn" and "store" in more:  # the store's own
        asked.run(f"SELECT pg_terminate_backend(pid) {those}")
    within(10, lambda: asked.rows(f"SELECT pid {those}") == [])


def test_a_shorter_limit_of_the_store_stays(spark: SparkSession, asked: Postgres) -> None:
    limit = "SELECT current_setting('statement_timeout')"
    seen = look_up(spark, asked, limit, store="shop")
    for own in ("5s", "1h", "0"):
        asked.run(f"ALTER ROLE {USER} SET statement_timeout = '{own}'")
        seen += look_up(spark, asked, limit, store="shop")
    asked.run(f"ALTER ROLE {USER} RESET statement_timeout")
    assert seen == ["1min", "5s", "1min", "1min"]


def test_many_answers_come_and_too_many_for_a_row_end_it(spark: SparkSession, asked: Postgres) -> None:
    """Beyond what a task keeps fewer rows ask at once; one row's own are told, whether they are many or long."""
    each = 'SELECT repeat("__row".p1, 1000000) FROM generate_series(1, {})'
    rows = spark.sql(
        "SELECT CAST(id AS string) AS userid, CAST(id AS string) AS __key_0, now() AS __time FROM range(6)"
    )
    one = rows.coalesce(1)
    found = look_up(spark, asked, each.format(30), rows=one, store="shop")
    assert Counter(text[0] for text in found) == dict.fromkeys("012345", 30)
    for many in (each.format(80), each.format(3000000), "SELECT repeat('x', 100000000)"):
        for more in ({"store": "shop"}, {"role": '"asks"'}):
            with pytest.raises(Exception, match=r"a lookup.* found more than 64 MB for one row") as e:
                look_up(spark, asked, many, rows=one, **more)
            assert ('in store "shop"' in str(e.value)) == ("store" in more)


PLANTED = (
    "CREATE ROLE plants", "GRANT CREATE ON SCHEMA public TO plants", "GRANT USAGE ON SCHEMA public TO asks",
    "SET ROLE plants",
    "CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'called by %', current_user; END $$",
    "CREATE FUNCTION public.timed(numeric, int) RETURNS numeric LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'called by %', current_user; END $$",
    "CREATE OPERATOR public.* (FUNCTION = public.timed, LEFTARG = numeric, RIGHTARG = int)",
    "RESET ROLE",
)  # fmt: skip


def test_nothing_that_others_have_planted_is_called(spark: SparkSession, asked: Postgres) -> None:
    """A function and an operator that fit better than PostgreSQL's own, in the schema that a query was made in."""
    asked.run("BEGIN; " + "; ".join(PLANTED) + "; COMMIT")
    try:
        own = {"role": "asks", "schema": "public"}
        noon = {"types": ["time"], "ddl": "c1 time(6)"}
        assert look_up(spark, asked, "SELECT 'well'", **own) == ["well"]
        assert [str(t) for t in look_up(spark, asked, "SELECT time '12:00'", **own, **noon)] == ["12:00:00"]
    finally:
        asked.run("DROP OWNED BY plants CASCADE", "DROP ROLE plants")
