"""An aggregate without GROUP BY has its row from the beginning: of nothing, told once, also where the query goes on from a
checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Record, Relation

pytestmark = [
    pytest.mark.stream,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_TIME = 1_700_000_000_000
# The statement, its rows of nothing, and those once there is something.
STATEMENTS = {
    "distinct": ("SELECT count(DISTINCT v) AS n FROM s WHERE v > 10", [(0,)], [(1,)]),
    "of a changelog": (
        "SELECT count(*) AS n, sum(v) AS total, max(v) AS high, listagg(k) AS ks FROM c WHERE v > 10",
        [(0, None, None, None)],
        [(1, 11, 11, "a")],
    ),
    "of groups": ("SELECT count(*) AS n FROM (SELECT k, sum(v) AS t FROM s GROUP BY k HAVING sum(v) > 10) x", [(0,)],
                  [(1,)]),  # fmt: skip
    "of distinct rows": ("SELECT count(*) AS n FROM (SELECT DISTINCT k FROM s WHERE v > 10) x", [(0,)], [(1,)]),
    "of itself": ("SELECT count(*) AS m, sum(n) AS n FROM (SELECT count(*) AS n FROM s WHERE v > 10) x", [(1, 0)],
                  [(1, 1)]),  # fmt: skip
    "two of them": (
        "SELECT count(*) AS n FROM s WHERE v > 10 UNION ALL SELECT count(*) AS n FROM s WHERE v > 100",
        [(0,), (0,)],
        [(0,), (1,)],
    ),
    "having": ("SELECT count(*) AS n, sum(DISTINCT v) AS t FROM s WHERE v > 10 HAVING count(*) > 0", [], [(1, 11)]),
}  # fmt: skip


def relations(*batches: int | None) -> list[Relation]:
    """A stream and a changelog, of each batch one value, or none."""
    records = [[] if v is None else [Record({"k": "a", "v": v}, _TIME, 0, i)] for i, v in enumerate(batches)]
    columns = {"k": "VARCHAR", "v": "INTEGER"}
    return [Relation("s", columns, batches=records), Relation("c", columns, ("k",), batches=records)]


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("first", [None, 1], ids=["no records", "no rows"])
def test_it_is_there_before_its_rows(name: str, first: int | None, spark: SparkSession, tmp_path: Path) -> None:
    sql, nothing, something = STATEMENTS[name]
    rows, added = Feed(spark, tmp_path / "one", relations(first)).run(sql)
    assert rows == nothing == added
    rows, added = Feed(spark, tmp_path / "two", relations(first, 2, 11)).run(sql)
    assert rows == something
    assert added == nothing + [r for r in something if r not in nothing]


@pytest.mark.parametrize("name", ["distinct", "of itself"])
def test_it_is_told_once(name: str, spark: SparkSession, tmp_path: Path) -> None:
    sql, nothing, something = STATEMENTS[name]
    checkpoint = tmp_path / "checkpoint"
    assert Feed(spark, tmp_path / "feed", relations(1)).run(sql, checkpoint=checkpoint)[1] == nothing
    assert Feed(spark, tmp_path / "feed", relations(1, 2)).run(sql, checkpoint=checkpoint)[1] == []
    assert Feed(spark, tmp_path / "feed", relations(1, 2, 11)).run(sql, checkpoint=checkpoint)[1] == something
