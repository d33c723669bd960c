"""Rows that are written out: what they are joined by, and what sinks are given of a NULL in one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pgstream.planner.plan import Plan, ResultSink
from pgstream.planner.select import plan_select
from pgstream.spark.compile import Compiler
from pgstream.spark.step import columns
from pgstream.sql.cursor import Cursor
from tests.stream.kernel.feed import Feed, Record, Relation, snapshot

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


def _relation(name: str, key: tuple[str, ...] = ()) -> Relation:
    r = Relation(name, {"k": "VARCHAR", "w": "BIGINT", "v": "BIGINT"}, key)
    rows = [{"k": "a", "w": 1, "v": 1}, {"k": "b", "w": 2, "v": 2}]
    rows += [] if key else [{"k": "a", "w": None, "v": 3}, {"k": None, "w": None, "v": 4}]
    begin = 0 if key else 1000
    late = Record({"k": "z", "w": 9, "v": 9}, 9_000_000, 0, 9)
    r.batches = [[Record(row, begin + i, 0, i) for i, row in enumerate(rows)], [late]]
    return r


@pytest.mark.parametrize(
    "sql, expected",
    [
        ("SELECT s.v, q.v AS w FROM s JOIN q WITHIN 1 HOUR ON (s.k, s.w) = (q.k, q.w) WHERE s.v < 9", [(1, 1), (2, 2)]),
        ("SELECT s.v, q.v AS w FROM s JOIN q WITHIN 1 HOUR ON ROW(s.k, q.w) = (q.k, s.w) WHERE s.v < 9",
         [(1, 1), (2, 2)]),
        ("SELECT s.v, c.v AS w FROM s JOIN c ON (s.k, ROW(c.w)) = (c.k, ROW(s.w)) WHERE s.v < 9",
         [(1, 1), (2, 2)]),
    ],
)  # fmt: skip
def test_a_join_on_rows_is_one_on_each_pair(
    sql: str, expected: list[tuple[int, int]], spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path, [_relation("s"), _relation("q"), _relation("c", ("k", "w"))])
    assert feed.run(sql)[0] == expected


def test_a_null_of_no_type_is_text_at_last(spark: SparkSession, tmp_path: Path) -> None:
    s = _relation("s")
    feed = Feed(spark, tmp_path, [s])
    text = "SELECT ROW(v, NULL) AS r, MAP['a', (1, NULL)] AS m, ARRAY[NULL] AS a, v FROM s"
    planned = plan_select(Cursor(text).select(), snapshot([s]), "main", "public", "view")
    step = Compiler(spark, feed.read).compile(Plan(planned.root, ResultSink())).step
    assert [type_ for _, type_, _ in columns(step)] == [
        "struct<`f0`:bigint,`f1`:string>", "map<string,struct<`f0`:int,`f1`:string>>", "array<string>", "bigint"
    ]  # fmt: skip
    united = "SELECT ROW(v, NULL)->f1 AS f FROM s WHERE v = 1 UNION ALL SELECT (k, v)->f1 AS f FROM s WHERE v = 2"
    assert feed.run(united)[0] == [(2,), (None,)]
