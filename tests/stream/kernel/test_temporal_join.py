"""A temporal join where changes come late: what they hold for does not depend on what had waited."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Record, Relation

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

BASE = 1_700_000_000_000
SQL = "SELECT s.id, c.v FROM s LEFT JOIN c ON s.k = c.k WHERE s.k = 'a'"


def feed(spark: SparkSession, folder: Path, late: list[Record], *, there: bool = True) -> Feed:
    """A row that is deleted after 9 s; a change that comes after the watermark has passed that; rows of the stream
    before and after it. ``there``: the row was there before."""
    s = Relation("s", {"k": "VARCHAR", "id": "INTEGER"})
    c = Relation("c", {"k": "VARCHAR", "v": "VARCHAR"}, ("k",))

    def row(second: int, id: int, k: str = "a") -> Record:
        return Record({"k": k, "id": id}, BASE + second * 1000, 0, id)

    def change(second: int, offset: int, v: str = "", k: str = "a") -> Record:
        return Record({"k": k} | ({"v": v} if v else {}), BASE + second * 1000, 0, offset, delete=not v)

    first = [change(1, 1, "first")] if there else [change(1, 1, "z", "z")]
    s.batches = [[row(2, 1)], [row(50, 2, "z")], [row(100, 3, "z")], [row(101, 4, "z")], [row(102, 5), row(120, 6)],
                 [row(400, 7, "z")], [row(401, 8, "z")]]  # fmt: skip
    c.batches = [first, [change(9, 2)], *([change(t, t, "z", "z")] for t in (100, 101)),
                 [change(102, 102, "z", "z"), *late], *([change(t, t, "z", "z")] for t in (400, 401))]  # fmt: skip
    return Feed(spark, folder, [s, c])


def late(second: int) -> list[Record]:
    return [Record({"k": "a", "v": "late"}, BASE + second * 1000, 0, 7)]


@pytest.mark.parametrize("ttl_ms", [None, 20_000, 3_600_000])
@pytest.mark.parametrize("there", [True, False])
def test_a_late_change_from_before_a_delete_brings_nothing_back(
    there: bool, ttl_ms: int | None, spark: SparkSession, tmp_path: Path
) -> None:
    rows, _ = feed(spark, tmp_path, late(-95), there=there).run(SQL, "stream", ttl_ms=ttl_ms)
    assert rows == [(1, "first" if there else None), (5, None), (6, None)]


def test_a_late_change_from_after_a_delete_counts(spark: SparkSession, tmp_path: Path) -> None:
    rows, _ = feed(spark, tmp_path, late(20)).run(SQL, "stream")
    assert rows == [(1, "first"), (5, "late"), (6, "late")]


def test_a_delete_is_forgotten_with_its_time_to_live(spark: SparkSession, tmp_path: Path) -> None:
    kept = []
    for ttl_ms in (3_600_000, 20_000):
        made = feed(spark, tmp_path / str(ttl_ms), [])
        made.run(SQL, "stream", ttl_ms=ttl_ms)
        kept.append(made.state_rows)
    assert kept[1] < kept[0]
