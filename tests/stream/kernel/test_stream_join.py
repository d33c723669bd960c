"""Joins of streams without WITHIN: rows of both sides for a time to live, against PostgreSQL over all records at once;
above each other, over rows that are taken back, and what is forgotten.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from pgstream.planner import plan
from pgstream.planner.select import Planned, plan_select
from tests.stream.kernel.feed import Feed, Oracle, Record, Relation
from tests.stream.kernel.test_differential import SEED, plain, postgres
from tests.stream.kernel.test_interval_join import KINDS, hot, rows_of, spread, streams

__all__ = ["postgres"]
pytestmark = [
    pytest.mark.stream,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LONG_MS = 86_400_000
FURTHER = ["", " AND a.v < b.v", " AND (a.id - b.id) % 60 = 0"]
SHAPES = {"some rows a key": spread, "nearly all of one key": hot}


def compare(spark: SparkSession, postgres: str, folder: Path, made: list[Relation], sql: str) -> Feed:
    """The same select, here of streams and there of tables."""
    with closing(Oracle(postgres, made)) as oracle:
        feed = Feed(spark, folder, made)
        rows, _ = feed.run(sql, ttl_ms=LONG_MS)
        assert len(rows) > 100, "there is something to compare"
        assert [tuple(map(plain, r)) for r in rows] == [tuple(map(plain, r)) for r in oracle.rows(sql)]
    return feed


@pytest.mark.parametrize("how", [f"{how} ON a.k = b.k{on}" for how in KINDS.values() for on in FURTHER])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_those_of_postgresql(shape: str, how: str, spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    # Of the hot key each side has blocks; with 60 it has rows that meet late or never.
    keys, many = SHAPES[shape], shape.startswith("nearly") and "60" not in how
    made = streams(SEED, 4, 40 if many else 250, keys)
    sql = f"SELECT a.id, b.id AS other, a.v, b.pad FROM a {how.replace(' ON', ' b ON')}"
    feed = compare(spark, postgres, tmp_path, made, sql)
    assert feed.state_rows > 5


# A row that a join below has told alone is taken back when it meets one.
ABOVE_EACH_OTHER = [
    f"SELECT a.id, b.id AS other, c.v FROM a {one} b ON a.k = b.k AND a.v < b.v {two} c ON b.pad = c.pad AND a.v = c.v"
    for one in KINDS.values()
    for two in KINDS.values()
] + [
    "SELECT a.id, x.id AS other, x.v FROM a FULL JOIN (SELECT b.k, b.id, c.v FROM b LEFT JOIN c ON b.id = c.id "
    "AND c.v > 1) x ON a.k = x.k AND a.id % 7 = x.id % 7",
    "SELECT a.k, count(x.id) AS n, count(*) AS m FROM a LEFT JOIN (SELECT b.k, b.id FROM b LEFT JOIN c ON b.id = c.id "
    "AND c.v > 1 WHERE c.id IS NULL) x ON a.k = x.k AND a.id % 7 = x.id % 7 GROUP BY a.k, a.id",
    "SELECT x.id, x.other, c.id AS third FROM (SELECT a.k, a.id, b.id AS other FROM a LEFT JOIN b ON a.k = b.k AND "
    "a.v < b.v UNION ALL SELECT k, id, v FROM b) x JOIN c ON x.k = c.k AND x.id % 7 = c.id % 7",
]


@pytest.mark.parametrize("sql", ABOVE_EACH_OTHER)
def test_joins_above_each_other(sql: str, spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    a, b = streams(SEED, 4, 35, spread)
    (c, _) = streams(SEED + 1, 4, 35, spread)
    c.name = "c"
    compare(spark, postgres, tmp_path, [a, b, c], sql)


def test_unions_may_be_joined(spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    """Their rows have no place of their own; equal ones are two."""
    made = streams(SEED, 3, 60, spread)
    both = "(SELECT k, v FROM a UNION ALL SELECT k, v FROM b)"
    compare(spark, postgres, tmp_path, made, f"SELECT x.v, b.id FROM {both} x LEFT JOIN b ON x.k = b.k AND x.v = b.v")


@pytest.mark.parametrize(
    "ttl_ms, met",
    [(1, [(1, None), (2, 2), (3, None)]), (LONG_MS, [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)])],
)
def test_rows_are_forgotten(ttl_ms: int, met: list[object], spark: SparkSession, tmp_path: Path) -> None:
    """With a millisecond between any two batches: only rows of one batch meet."""
    a = rows_of("a", ("x", 1, 0, 0), ("x", 2, 0, 1), ("x", 3, 0, 2), ("end", 9, 0, 3), ("end", 9, 0, 4), batches=5)
    b = rows_of("b", ("y", 0, 0, 0), ("x", 2, 0, 1), ("x", 1, 0, 2), ("end", 9, 0, 3), ("end", 9, 0, 4), batches=5)
    if ttl_ms == 1:
        b.batches[2][0].values |= {"k": "y"}  # type: ignore[operator]
    feed = Feed(spark, tmp_path, [a, b])
    rows, _ = feed.run("SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.k = b.k WHERE a.id < 9", ttl_ms=ttl_ms)
    assert rows == met
    assert feed.state_rows == (1 if ttl_ms == 1 else 3), "keys, or those of the last batch"


def test_who_has_met_one_that_is_forgotten_is_not_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    """1 and 1 have met at once. When 2 comes the other 1 is gone, but nobody was told that the first is alone."""
    a = rows_of("a", ("x", 1, 0, 0))
    b = rows_of("b", ("x", 1, 0, 0), ("x", 2, 0, 1), batches=2)
    a.batches.append([Record({"k": "x", "id": 2, "v": 0, "pad": ""}, 1_700_000_001_000, 0, 9)])
    rows, added = Feed(spark, tmp_path, [a, b]).run(
        "SELECT a.id, b.id AS other FROM a FULL JOIN b ON a.k = b.k", ttl_ms=1
    )
    assert rows == [(1, 1), (2, 2)] and len(added) == 2


@pytest.mark.parametrize("how", KINDS)
def test_plans_of_before_version_13_go_on(
    how: str, spark: SparkSession, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They join by an operator that knows rows as a set, and tell them apart by their places."""

    def placed(node: plan.Node) -> plan.Node:
        assert isinstance(node, plan.Project)
        places = [plan.Expr(f"of_{p}", f"`__{p}`") for p in ("partition", "offset")]
        return plan.Project(node.input, [*node.columns, *places])

    def earlier(*args: Any, **more: Any) -> Planned:
        planned = plan_select(*args, **more)
        above = planned.root
        assert isinstance(above, plan.Project) and isinstance(above.input, plan.StreamJoin)
        j = above.input
        left, right, inner = placed(j.left), placed(j.right), j.how == "inner"
        old = plan.ChangelogJoin(left, right, j.how, j.keys, j.left_alias, j.right_alias, append=inner)
        return replace(planned, root=msgspec.structs.replace(above, input=old))

    monkeypatch.setattr("tests.stream.kernel.feed.plan_select", earlier)
    made = streams(SEED, 3, 60, spread)
    compare(spark, postgres, tmp_path, made, f"SELECT a.v, b.id FROM a {KINDS[how]} b ON a.k = b.k")
