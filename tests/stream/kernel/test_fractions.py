"""Sums, means and variances of fractions: what is taken away again leaves nothing behind, however odd it was."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Record, Relation

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

ODD = [float("nan"), float("inf"), float("-inf"), 1e15]


def changelog(*batches: list[tuple[int, float | None]]) -> Relation:
    """A row a key; None takes it away."""
    made = Relation("c", {"k": "BIGINT", "d": "DOUBLE"}, ("k",))
    n = 0
    for batch in batches:
        rows = []
        for k, d in batch:
            n += 1
            rows.append(Record({"k": k, "d": d}, 1000 + n, 0, n, delete=d is None))
        made.batches.append(rows)
    return made


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("apart", [False, True])
def test_what_was_taken_away_leaves_no_trace(odd: float, apart: bool, spark: SparkSession, tmp_path: Path) -> None:
    """``apart``: in a batch of its own, so that what is in state says it."""
    gone: list[list[tuple[int, float | None]]] = [[(9, odd), (8, odd)], [(9, None)], [(8, 0.2)]]
    more = gone if apart else [[row for batch in gone for row in batch]]
    c = changelog([(1, 0.1), (2, 0.1)], *more, [(8, None)])
    assert Feed(spark, tmp_path, [c]).run("SELECT sum(d) AS s, avg(d) AS a FROM c")[0] == [(0.2, 0.1)]


@pytest.mark.parametrize("odd", [*ODD[:3], 1e6])
def test_nor_in_a_variance(odd: float, spark: SparkSession, tmp_path: Path) -> None:
    c = changelog([(1, 0.1), (2, 0.1)], [(9, odd), (8, odd)], [(9, None)], [(8, 0.2)], [(8, None), (3, 0.4)])
    made = Feed(spark, tmp_path, [c]).run("SELECT var_pop(d) AS v, stddev_samp(d) AS t FROM c")[0]
    assert made == [(0.02, round(0.03**0.5, 9))]


def test_equal_values_have_none(spark: SparkSession, tmp_path: Path) -> None:
    c = changelog([(k, 0.1) for k in range(40)], [(k, None) for k in range(7)])
    assert Feed(spark, tmp_path, [c]).run("SELECT var_pop(d) AS v, stddev(d) AS t FROM c")[0] == [(0.0, 0.0)]


@pytest.mark.parametrize(("odd", "total"), [
    (ODD[1:2], "Infinity"), (ODD[2:3], "-Infinity"), (ODD[1:3], "NaN"), (ODD[:1], "NaN"),
])  # fmt: skip
def test_while_it_is_there_it_says_all(odd: list[float], total: str, spark: SparkSession, tmp_path: Path) -> None:
    c = changelog([(1, 0.5)], [(10 + i, d) for i, d in enumerate(odd)], [(2, 0.25)])
    columns = ", ".join(f"CAST({x} AS VARCHAR) AS c{i}" for i, x in enumerate(("sum(d)", "avg(d)", "var_samp(d)")))
    assert Feed(spark, tmp_path, [c]).run(f"SELECT {columns} FROM c")[0] == [(total, total, "NaN")]


def test_variances_of_values_that_lie_close(spark: SparkSession, tmp_path: Path) -> None:
    c = changelog([(k, 1e9 + k) for k in range(1, 4)], [(9, 1e3)], [(9, None), (4, 1e9 + 4)])
    made = Feed(spark, tmp_path, [c]).run("SELECT var_pop(d) AS v, var_samp(d) AS s FROM c")[0]
    assert made == [(1.25, round(5 / 3, 9))]


@pytest.mark.parametrize("odd", ODD)
def test_a_frame_forgets_what_has_left_it(odd: float, spark: SparkSession, tmp_path: Path) -> None:
    made = Relation("s", {"k": "BIGINT", "d": "DOUBLE"})
    values = [odd, 0.1, 0.2, 0.3]
    made.batches = [[Record({"k": i, "d": d}, 1000 + i, 0, i)] for i, d in enumerate(values)]
    made.batches.append([Record({"k": 99, "d": 9.0}, 9_000_000, 0, 99)])
    over = "OVER (ORDER BY rowtime() ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    rows = Feed(spark, tmp_path, [made]).run(f"SELECT k, sum(d) {over} AS s FROM s", "stream")[0]
    assert [r for r in rows if r[0] in (2, 3)] == [(2, 0.3), (3, 0.5)]


def test_the_state_of_earlier_versions_is_read(spark: SparkSession) -> None:
    """A count and a sum; a count, the mean, and the sum of the squares of the distances from it."""
    jvm = spark._jvm
    double = jvm.org.apache.spark.sql.types.DataTypes.DoubleType
    kernel = jvm.org.apache.spark.sql.pgstream
    for made, state, result in (
        (kernel.DoubleSum(double, True), struct.pack(">qd", 4, 10.0), 2.5),
        (kernel.DoubleSum(double, False), struct.pack(">qd", 4, math.inf), math.inf),
        (kernel.Variance(double, False, False), struct.pack(">qdd", 4, 2.5, 5.0), 1.25),
    ):
        made.read(jvm.java.io.DataInputStream(jvm.java.io.ByteArrayInputStream(state)))
        assert made.result() == result
