"""An aggregate without GROUP BY has its row from the beginning: of nothing, told once, also where the query goes on
from a checkpoint. Means of whole numbers.
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
    "of groups": (
        "SELECT count(*) AS n FROM (SELECT k, sum(v) AS t FROM s GROUP BY k HAVING sum(v) > 10) x",
        [(0,)],
        [(1,)],
    ),
    "of distinct rows": ("SELECT count(*) AS n FROM (SELECT DISTINCT k FROM s WHERE v > 10) x", [(0,)], [(1,)]),
    "of itself": (
        "SELECT count(*) AS m, sum(n) AS n FROM (SELECT count(*) AS n FROM s WHERE v > 10) x",
        [(1, 0)],
        [(1, 1)],
    ),
    "two of them": (
        "SELECT count(*) AS n FROM s WHERE v > 10 UNION ALL SELECT count(*) AS n FROM s WHERE v > 100",
        [(0,), (0,)],
        [(0,), (1,)],
    ),
    "having": ("SELECT count(*) AS n, sum(DISTINCT v) AS t FROM s WHERE v > 10 HAVING count(*) > 0", [], [(1, 11)]),
}


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


# Sums of them have more digits than a BIGINT, and each more than a DOUBLE.
_BIG = (2**63 - 1, 2**63 - 2, 2**53 + 1, -(2**63), -7, None)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT avg(w) AS m FROM c",
        "SELECT avg(DISTINCT w) AS m FROM c",
        "SELECT avg(w) AS m FROM s WHERE k <> 'gone'",
        "SELECT avg(w) FILTER (WHERE k <> '') AS m FROM s WHERE k <> 'gone'",
    ],
)
@pytest.mark.parametrize("values", [_BIG[:3], _BIG[3:], _BIG, (2**53 + 1,)], ids=["high", "low", "all", "one"])
def test_the_mean_of_whole_numbers_is_exact(
    sql: str, values: tuple[int | None, ...], spark: SparkSession, tmp_path: Path
) -> None:
    columns = {"k": "VARCHAR", "w": "BIGINT"}
    rows = [Record({"k": str(i), "w": v}, _TIME, 0, i) for i, v in enumerate(values)]
    kept = [v for v in values if v is not None]
    both = [Record({"k": "gone", "w": 2**62 + 1}, _TIME, 0, 10), *rows]
    gone = [Record({"k": "gone"}, _TIME, 0, 11, True)]
    feed = Feed(spark, tmp_path, [Relation("s", columns, batches=[both]), Relation("c", columns, ("k",), [both, gone])])
    mean = abs(sum(kept)) // len(kept) * (1 if sum(kept) > 0 else -1)
    assert feed.run(sql)[0] == [(mean,)]
