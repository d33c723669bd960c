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
