"""The state store that remembers what it was asked last: queries that began with Spark's, or with that of an older
pgstream, go on with it; and it counts as Spark's does."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Record, Relation, in_order

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

_SETTING = "spark.sql.streaming.stateStore.providerClass"
_STATE = "org.apache.spark.sql.execution.streaming.state"
SPARKS, OLDER = f"{_STATE}.RocksDBStateStoreProvider", f"{_STATE}.pgstream.StateStores"
OURS = f"{_STATE}.pgstream.LeanStateStores"


@pytest.fixture(autouse=True)
def setting(spark: SparkSession) -> Iterator[None]:
    assert spark.conf.get(_SETTING) == OURS
    yield
    spark.conf.set(_SETTING, OURS)


def feed(spark: SparkSession, folder: Path) -> Feed:
    """A stream ``s`` and two changelogs, some of whose rows are deleted: six batches of a few keys."""
    chance = random.Random(7)
    relations = [Relation("s", {"k": "VARCHAR", "v": "INTEGER"})]
    relations += [Relation(n, {"k": "VARCHAR", n: "INTEGER"}, ("k",)) for n in "cd"]
    for r in relations:
        column = "v" if r.name == "s" else r.name
        for batch in range(6):
            times = [1000 * batch + chance.randrange(1200) for _ in range(12)]
            r.batches.append([
                Record({"k": chance.choice("abcde"), column: chance.randrange(4)}, t, 0, 100 * batch + i,
                       bool(r.key) and chance.random() < 0.3)
                for i, t in enumerate(times)
            ])  # fmt: skip
    return Feed(spark, folder, relations)


OVER = "SELECT k, v, count(*) OVER (PARTITION BY k ORDER BY rowtime() RANGE INTERVAL '2' SECOND PRECEDING) AS n FROM s"
TEMPORAL = "SELECT s.k, s.v, c.c FROM s LEFT JOIN c ON s.k = c.k"


@pytest.mark.parametrize("first", [SPARKS, OLDER, OURS])
@pytest.mark.parametrize("sql", [OVER, TEMPORAL])
def test_a_query_goes_on_where_it_was(sql: str, first: str, spark: SparkSession, tmp_path: Path) -> None:
    made = feed(spark, tmp_path / "in")
    later = [f for r in "scd" for f in (tmp_path / "in" / r).glob("000[345].json")]
    for file in later:
        file.rename(file.with_suffix(".later"))
    spark.conf.set(_SETTING, first)
    told = made.run(sql, "stream", checkpoint=tmp_path / "checkpoint")[1]
    for file in later:
        file.with_suffix(".later").rename(file)
    spark.conf.set(_SETTING, OURS)
    told += made.run(sql, "stream", checkpoint=tmp_path / "checkpoint")[1]
    kept = made.state_rows
    assert in_order(told) == in_order(made.run(sql, "stream")[1])
    assert kept == made.state_rows


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT v, count(*) AS n, count(DISTINCT k) AS keys, max(k) AS m FROM s GROUP BY v",
        "SELECT c, count(*) AS n FROM c GROUP BY c",
        "SELECT c.k, c.c, d.d FROM c JOIN d ON c.k = d.k",
        "SELECT c.k, c.c, d.k AS other FROM c LEFT JOIN d ON c.c = d.d",
        "SELECT k, v FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM s) x WHERE n <= 2",
        "SELECT k, c FROM (SELECT k, c, row_number() OVER (PARTITION BY c ORDER BY k) AS n FROM c) x WHERE n = 1",
    ],
)
def test_rows_are_counted_as_by_spark(sql: str, spark: SparkSession, tmp_path: Path) -> None:
    made = feed(spark, tmp_path / "in")
    rows, _ = made.run(sql)
    counted = made.state_rows
    spark.conf.set(_SETTING, SPARKS)
    assert made.run(sql)[0] == rows
    assert made.state_rows == counted > 0


def test_a_store_closes_its_statistics(spark: SparkSession, tmp_path: Path) -> None:
    assert spark._jvm is not None
    jvm, none = spark._jvm, spark._jvm.scala.Option.empty()
    settings, local = getattr(jvm, f"{_STATE}.RocksDBConf").apply(), jvm.java.io.File(str(tmp_path / "local"))
    made = getattr(jvm, OURS)().createRocksDB(
        str(tmp_path / "kept"), settings, local, jvm.org.apache.hadoop.conf.Configuration(), "a store", False, False, 0,
        none, none,
    )  # fmt: skip
    made.load(0, none, False)
    statistics = [made.rocksDbOptions().statistics() for _ in range(2)]
    assert all(s.isOwningHandle() for s in statistics)
    # Spark's constructor makes options that ours stand before.
    unseen = jvm.java.lang.Class.forName(f"{_STATE}.RocksDB").getDeclaredField("rocksDbOptions")
    unseen.setAccessible(True)
    assert made.rocksDbOptions().isOwningHandle() and not unseen.get(made).isOwningHandle()
    made.close()
    assert not any(s.isOwningHandle() for s in [made.rocksDbOptions(), *statistics])


def test_the_jvm_has_two_arenas(spark: SparkSession) -> None:
    """Over more of them the memory of state stores is torn into pieces, and stays."""
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    assert system.getenv("MALLOC_ARENA_MAX") == os.environ.get("MALLOC_ARENA_MAX", "2")
