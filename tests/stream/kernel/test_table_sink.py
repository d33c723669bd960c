"""A table of a store as a sink: what it needs of the database, whom it waits for there, and what is said of faults."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.postgres import PASSWORD, USER, Postgres
from tests.server import within

pytestmark = pytest.mark.stream
Sink = Callable[..., Any]
SINK = "org.apache.spark.sql.pgstream.TableSink"


def settings(shop: Postgres, table: str, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
    return {"query": str(uuid.uuid4()), "attempt": 2, "mode": "append", "key": [], "table": f'"public"."{table}"',
            "store": "tills", "url": shop.uris.replace("postgresql:", "jdbc:postgresql:"), "user": user,
            "password": password, "properties": {}}  # fmt: skip


@pytest.fixture
def sink(spark: SparkSession, shop: Postgres) -> Iterator[Sink]:
    """Makes a sink of rows with an id."""
    made: list[Any] = []

    def make(table: str, **more: Any) -> Any:
        kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
        made.append(kernel.TableSink(json.dumps(settings(shop, table) | more)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def nil(spark: SparkSession) -> Any:
    return getattr(getattr(spark._jvm.scala.collection.immutable, "Nil$"), "MODULE$")  # type: ignore[union-attr]


def opened(spark: SparkSession, sink: Any, ddl: str = "id BIGINT") -> Any:
    schema = spark._jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)  # type: ignore[union-attr]
    sink.begin(0, getattr(nil(spark), "$colon$colon")(schema))
    return sink


class Work(threading.Thread):
    """Something that waits, and how it ended."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.work, self.error = work, ""
        self.start()

    def run(self) -> None:
        try:
            self.work()
        except Exception as e:
            self.error = str(e)


def waiting(shop: Postgres, word: str) -> bool:
    found = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ "
    return shop.rows(f"{found} '{word}'") == [(1,)]


def test_who_may_not_make_the_schema_finds_it_made(spark: SparkSession, shop: Postgres, sink: Sink) -> None:
    shop.run("CREATE TABLE st_tills (id bigint)", "CREATE ROLE st_clerk LOGIN PASSWORD 'c'",
             "GRANT SELECT, INSERT ON st_tills TO st_clerk")  # fmt: skip
    opened(spark, sink("st_tills"))
    clerk = sink("st_tills", user="st_clerk", password="c")
    with pytest.raises(Exception, match="for schema pgstream\nThe store's user needs SELECT and INSERT"):
        opened(spark, clerk)
    shop.run("GRANT USAGE, CREATE ON SCHEMA pgstream TO st_clerk", "GRANT ALL ON pgstream.ledger TO st_clerk")
    opened(spark, clerk).end(0, nil(spark))


def test_one_that_waits_for_its_table_holds_up_no_other(spark: SparkSession, shop: Postgres, sink: Sink) -> None:
    shop.run("CREATE TABLE st_locked (id bigint)", "CREATE TABLE st_free (id bigint)")
    with shop.connect() as holding, holding.transaction():
        holding.execute("LOCK TABLE st_locked")
        held = Work(lambda: opened(spark, sink("st_locked")))
        within(30, lambda: waiting(shop, "CREATE UNLOGGED"))
        free = Work(lambda: opened(spark, sink("st_free")))
        free.join(20)
        assert not free.is_alive() and not free.error and held.is_alive()
    held.join(20)
    assert not held.is_alive() and not held.error


def test_an_earlier_start_is_in_the_commit_of_the_first_batch(spark: SparkSession, shop: Postgres, sink: Sink) -> None:
    """Of a worker that was killed PostgreSQL may still be at the last statement."""
    shop.run("CREATE TABLE st_first (id bigint)")
    query = str(uuid.uuid4())
    later = opened(spark, sink("st_first", query=query))
    with shop.connect() as earlier, earlier.transaction():
        earlier.execute("INSERT INTO st_first VALUES (1)")
        earlier.execute("INSERT INTO pgstream.ledger VALUES (%s, 0, 1)", [query])
        end = Work(lambda: later.end(0, nil(spark)))
        within(30, lambda: waiting(shop, "INSERT INTO pgstream.ledger"))
    end.join(20)
    assert not end.is_alive() and not end.error
    assert shop.rows(f"SELECT batch FROM pgstream.ledger WHERE query = '{query}'") == [(0,)]


def test_rows_that_delete_have_no_value_for_a_domain(spark: SparkSession, shop: Postgres, sink: Sink) -> None:
    shop.run("CREATE DOMAIN st_amount AS numeric(9, 2)", "CREATE DOMAIN st_sum AS st_amount NOT NULL",
             """CREATE DOMAIN st_name AS text COLLATE "C" NOT NULL""",
             "CREATE TABLE st_of_domains (id bigint PRIMARY KEY, o st_sum, plain int[], named st_name)")  # fmt: skip
    open_sink = sink("st_of_domains", mode="upsert", key=["id"])
    opened(spark, open_sink, "id BIGINT, o DECIMAL(9, 2)")
    types = """SELECT format_type(atttypid, atttypmod) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE relnamespace = 'pgstream'::regnamespace AND relkind = 'r' AND attname IN ('o', 'plain') ORDER BY 1 DESC"""
    assert shop.rows(types) == [("numeric(9,2)",), ("integer[]",)]
    collation = types.replace("atttypmod)", "-1), attcollation::regcollation::text")
    assert shop.rows(collation.replace("'o', 'plain'", "'named'")) == [("text", '"C"')]


@pytest.mark.parametrize(
    ("of_type", "fault"), [("varchar(9)", ("data", "22001", "tills")), ("st_ends", ("store", "58000", "tills"))]
)
def test_rows_that_a_task_writes(
    spark: SparkSession, shop: Postgres, tmp_path: Path, of_type: str, fault: tuple[str, ...]
) -> None:
    """Those of a large batch; a value of one type ends the session that it comes by."""
    kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    shop.run("CREATE OR REPLACE FUNCTION st_end() RETURNS boolean RETURN pg_terminate_backend(pg_backend_pid())",
             "DROP DOMAIN IF EXISTS st_ends CASCADE", "CREATE DOMAIN st_ends AS text CHECK (st_end())",
             "DROP TABLE IF EXISTS st_large", f"CREATE TABLE st_large (id bigint, t {of_type})")  # fmt: skip
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    df = rows.selectExpr("value AS id", "repeat('x', 1000000) AS t")
    config = settings(shop, "st_large") | {
        "type": SINK, "checkpoint": str(tmp_path / "c"), "output_mode": "append", "trigger_ms": 50,
    }  # fmt: skip
    query = config["query"]
    counter = kernel.Kernel.counter(df._jdf, "none")
    kernel.Kernel.start(df._jdf, counter, counter, json.dumps(config))
    stream = kernel.Watch.find(query).get().stream()
    try:
        within(60, lambda: stream.exception().isDefined())
        failed = stream.exception()
        causes = json.loads(kernel.Kernel.causes(failed.get()))
        told = [c["message"].split("\n") for c in causes if c["class"].endswith(".TableFault")]
        assert [(kind, code, store) for kind, code, _, _, store in told] == [fault]
    finally:
        kernel.Kernel.stop(query, 0)
        kernel.Kernel.forget(query)
        kernel.Watch.poll(0)


def test_a_way_that_is_gone_is_noticed(spark: SparkSession, shop: Postgres) -> None:
    """By the system: what it was asked to do with the socket is all that can be seen without waiting for it."""
    jvm: Any = spark._jvm
    socket = jvm.org.apache.spark.sql.pgstream.KeptAlive().createSocket()
    options = {o.name(): socket.getOption(o) for o in socket.supportedOptions()}
    socket.close()
    assert options["SO_KEEPALIVE"]
    assert [options[f"TCP_KEEP{n}"] for n in ("IDLE", "INTERVAL", "COUNT")] == [30, 10, 3]


@pytest.mark.parametrize(
    ("state", "kind", "code"),
    [
        ("23505", "data", "23505"),
        ("P0001", "data", "P0001"),  # a trigger does not take the row
        ("44000", "data", "44000"),
        ("54000", "data", "54000"),
        ("42P01", "user", "42P01"),
        ("0A000", "user", "0A000"),
        ("28P01", "refused", "58000"),
        (None, "store", "58000"),
        ("08006", "store", "58000"),
        ("57P01", "store", "58000"),
        ("53300", "store", "58000"),
        ("57014", "store", "57014"),
        ("55P03", "store", "55P03"),
        ("40P01", "store", "40P01"),
        ("25006", "store", "25006"),
        ("53100", "store", "53100"),
    ],
)
def test_what_is_to_blame(spark: SparkSession, state: str | None, kind: str, code: str) -> None:
    kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    said = spark._jvm.java.sql.SQLException("ERROR: no\n  Where: there", state)  # type: ignore[union-attr]
    fault = kernel.TableFault.of(said, "to be let in").at("tills")
    assert (fault.kind(), fault.code(), fault.text(), fault.store()) == (kind, code, "no", "tills")
    assert ("trigger" in fault.hint()) == (state == "P0001")


def test_what_a_store_says_at_length_is_cut(spark: SparkSession) -> None:
    kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    said = spark._jvm.java.sql.SQLException("ERROR: " + "x" * 9000, "22P02")  # type: ignore[union-attr]
    assert kernel.TableFault.of(said, "").text() == "x" * 1500 + "…"
