"""State that is not touched for its time to live is forgotten: with one millisecond, between any two batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Record, Relation

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


@pytest.mark.parametrize("ttl_ms, told", [(1, [("a", 3), ("a", 4)]), (86_400_000, [("a", 3), ("a", 7)])])
def test_a_group_begins_again(ttl_ms: int, told: list[object], spark: SparkSession, tmp_path: Path) -> None:
    s = Relation("s", {"k": "VARCHAR", "v": "INTEGER"})
    for number, values in enumerate([(1, 2), (4,)]):
        s.batches.append([Record({"k": "a", "v": v}, 1000 * number, 0, 10 * number + v) for v in values])
    _, added = Feed(spark, tmp_path, [s]).run("SELECT k, sum(v) AS total FROM s GROUP BY k", ttl_ms=ttl_ms)
    assert added == told


def in_time(name: str, *times: int, **values: str) -> Relation:
    """A relation with a row of key ``a`` at each time, then two that only move event time on, each a batch."""
    made = Relation(name, {"k": "VARCHAR", "t": "BIGINT"}, ("k",) if name == "c" else ())
    rows = [Record({"k": "a", "t": t, **values}, t, 0, i) for i, t in enumerate(times)]
    made.batches = [[r] for r in rows]
    made.batches += [[Record({"k": "z", "t": t}, t, 0, 100 + t)] for t in (900_000, 900_001)]
    return made


@pytest.mark.parametrize(
    "ttl_ms, told",
    [
        (20_000, [(1000, 1, 1, None, 1), (2000, 2, 2, 1000, 2), (90_000, 1, 1, None, 1), (95_000, 2, 2, 90_000, 2)]),
        (None, [(1000, 1, 1, None, 1), (2000, 2, 2, 1000, 2), (90_000, 3, 2, 2000, 3), (95_000, 4, 2, 90_000, 4)]),
    ],
)
def test_a_partition_begins_again_after_a_silence_of_event_time(
    ttl_ms: int | None, told: list[object], spark: SparkSession, tmp_path: Path
) -> None:
    s = in_time("s", 1000, 2000, 90_000, 95_000)
    over = "OVER (PARTITION BY k ORDER BY rowtime())"
    rows, _ = Feed(spark, tmp_path, [s]).run(
        f"SELECT t, count(*) {over} AS n, count(*) OVER (PARTITION BY k ORDER BY rowtime() ROWS 1 PRECEDING) AS two, "
        f"lag(t) {over} AS before, row_number() {over} AS rn FROM s WHERE k = 'a'",
        "stream",
        ttl_ms=ttl_ms,
    )
    assert sorted(rows) == told


@pytest.mark.parametrize("ttl_ms, met", [(20_000, [(2000, 1000), (15_000, 1000), (95_000, None)]),
                                         (None, [(2000, 1000), (15_000, 1000), (95_000, 1000)])])  # fmt: skip
def test_a_version_is_forgotten_in_event_time(
    ttl_ms: int | None, met: list[object], spark: SparkSession, tmp_path: Path
) -> None:
    s, c = in_time("s", 2000, 15_000, 95_000), in_time("c", 1000)
    sql = "SELECT s.t, c.t AS since FROM s LEFT JOIN c ON s.k = c.k WHERE s.k = 'a'"
    rows, _ = Feed(spark, tmp_path, [s, c]).run(sql, "stream", ttl_ms=ttl_ms)
    assert sorted(rows) == met
