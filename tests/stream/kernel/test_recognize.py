"""MATCH_RECOGNIZE: the operator batch by batch, as a query runs it, and against ``matcher``, which tries everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from pgstream.errors import InvalidStatement
from pgstream.planner import plan
from pgstream.planner.select import plan_select
from pgstream.spark.operators import Operators
from pgstream.spark.step import Step
from pgstream.sql.cursor import Cursor
from tests.stream.frames import frame
from tests.stream.kernel.feed import Feed, Record, Relation, Row, snapshot
from tests.stream.kernel.matcher import Aggregate, Chain, Compare, Literal, Maker, One, Query, Seek, Times, in_order

pytestmark = [
    pytest.mark.stream,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
COLUMNS = {"k": "VARCHAR", "w": "VARCHAR", "v": "INTEGER", "t": "BIGINT"}


def feed(spark: SparkSession, folder: Path, *batches: str) -> Feed:
    """A stream of a letter and a number a row, ``k: a1 b2``: partition ``k``, a row a second. Time moves on behind."""
    s = Relation("s", COLUMNS)
    n = 0
    for batch in batches:
        records = []
        for part in batch.split(";"):
            k, _, words = part.strip().partition(":")
            for word in words.split():
                n += 1
                records.append(Record({"k": k, "w": word[0], "v": int(word[1:] or 0), "t": 1000 * n}, 1000 * n, 0, n))
        s.batches.append(records)
    for _ in range(2):
        n += 100
        s.batches.append([Record({"k": "z", "w": "-", "v": 0, "t": 1000 * n}, 1000 * n, 0, n)])
    return Feed(spark, folder, [s])


def test_a_pattern_over_batches(spark: SparkSession, tmp_path: Path) -> None:
    f = feed(spark, tmp_path, "p:a1 l2 l3 f4;q:a1", "p:a5 l6;q:l2 f3", "p:x7")
    rows, _ = f.run(
        "SELECT k, first_l, last_l, n, total, ts, before FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime() "
        "MEASURES FIRST(L.v) AS first_l, LAST(L.v) AS last_l, COUNT(*) AS n, SUM(L.v) AS total, "
        "CAST(MATCH_ROWTIME() AS VARCHAR) AS ts, F.v - PREV(F.v, 1) AS before PATTERN (A L+ F) "
        "DEFINE A AS w = 'a', L AS L.w = 'l', F AS F.w = 'f' AND F.v > COUNT(L.*)) AS m",
        "stream",
    )
    assert rows == [
        ("p", 2, 3, 4, 5, "1970-01-01 00:00:04.000", 1),
        ("q", 2, 2, 3, 2, "1970-01-01 00:00:09.000", 1),
    ]
    _, told = f.run(
        "SELECT n, fired FROM (SELECT w AS what, v FROM s) MATCH_RECOGNIZE (ORDER BY rowtime() MEASURES COUNT(*) AS n, "
        "v AS fired PATTERN (A L+ F) DEFINE A AS what = 'a', L AS what = 'l', F AS what = 'f') AS m WHERE n > 3",
        "stream",
    )
    assert told == [(4, 4), (4, 3)], "without PARTITION BY all rows are one partition"


def replayed(
    spark: SparkSession, query: Query, rows: list[dict[str, Any]], marks: list[int], ttl: int = 0
) -> list[Row]:
    """What the operator tells of these rows while event time passes some points (ms)."""
    stream = Relation("s", {**COLUMNS, "w": "INTEGER"})
    node = plan_select(Cursor(query.sql()).select(), snapshot([stream]), "main", "public", "stream").root
    assert isinstance(node, plan.Project) and isinstance(node.input, plan.Recognize)
    made = node.input
    records = [(r["k"], r["v"], r["w"], r["t"], r["n"]) for r in rows]
    df = frame(spark, records, "k string, v int, w int, t bigint, __offset bigint").selectExpr(
        "k", "v", "w", "t", "timestamp_millis(t) AS __time", "0 AS __partition", "__offset"
    )
    operators = Operators(spark, None, "append", ttl)
    given, conditions, told = operators.recognizing(made, Step(df))
    found = DataFrame(operators.kernel.Recognize.replay(given._jdf, conditions, told, marks), spark)
    exprs = [f"`{e.name}`" for e in made.partition] + [f"{e.sql} AS `{e.name}`" for e in made.measures]
    return [tuple(r) for r in found.selectExpr(*exprs).collect()]


SEEDS = range(80)
PARTITIONS = 8


@pytest.mark.parametrize("seed", range(0, len(SEEDS), 10))
def test_matches_are_those_of_trying_everything(seed: int, spark: SparkSession) -> None:
    for n in range(seed, seed + 10):
        _compare(spark, n)


def _compare(spark: SparkSession, seed: int) -> None:
    maker = Maker(seed)
    query = maker.query()
    parts = {f"p{i}": in_order(maker.rows(f"p{i}"), query.order) for i in range(PARTITIONS)}
    now = max(r["t"] for rows in parts.values() for r in rows) + maker.r.choice([0, 3000])
    expected = {k: query.matches(rows, now) for k, rows in parts.items()}
    good = {k: rows for k, rows in expected.items() if not isinstance(rows, str)}
    marks = [*sorted(maker.r.sample(range(0, now), 3)), now]
    told = f"seed {seed}: {query.sql()}"
    given = [r for k in good for r in parts[k]]
    maker.r.shuffle(given)
    try:
        rows = replayed(spark, query, given, marks)
    except InvalidStatement as e:
        # It is known before that it cannot end well.
        assert "leads back" in str(e) and set(map(str, expected.values())) <= {"2202L", "[]"}, told
        return
    got: dict[str, list[Row]] = {k: [] for k in good}
    for row in rows:
        got[row[0]].append(row[1:])
    for k, wanted in good.items():
        assert got[k] == wanted, f"{told}\n{k}: {[(r['t'], r['v'], r['w']) for r in parts[k]]}"
    for k in sorted(set(expected) - set(good))[:1]:
        with pytest.raises(Py4JJavaError, match=f"USER_RAISED_EXCEPTION\\] {expected[k]} AFTER MATCH SKIP"):
            replayed(spark, query, parts[k], marks)


def test_a_match_may_end_with_as_many_rows_as_there_are(spark: SparkSession, tmp_path: Path) -> None:
    """It is told when a row comes that is none of them, or when event time says that none can be."""
    f = feed(spark, tmp_path, "p:a1 b2 b3;q:a1 b1", "p:c1", "p:b1;q:c1")
    clause = "MEASURES COUNT(B.*) AS n, LAST(v) AS v PATTERN (A B+) {} DEFINE A AS w = 'a', B AS w = 'b')"
    sql = f"SELECT k, n, v FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime() {clause}"
    rows, _ = f.run(sql.format(""), "stream")
    assert rows == [("p", 2, 3), ("q", 1, 1)]
    rows, _ = f.run(sql.format("WITHIN 1 SECOND"), "stream")
    assert rows == [("p", 1, 2), ("q", 1, 1)]


def test_conditions_of_calculated_values(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's optimizer takes apart what BETWEEN and NULLIF ask twice."""
    f = feed(spark, tmp_path, "p:a1 b5 a2 b4 a3 b3")
    asked = "B.v - A.v BETWEEN 1 AND 3 AND nullif(A.v + B.v, 3) > 1"
    clause = f"MEASURES A.v AS a, B.v AS b PATTERN (A B) DEFINE A AS A.w = 'a', B AS {asked}"
    rows, _ = f.run(f"SELECT a, b FROM s MATCH_RECOGNIZE (ORDER BY rowtime() {clause})", "stream")
    assert rows == [(2, 4)]


def test_matches_that_were_held_may_be_late_for_windows(spark: SparkSession, tmp_path: Path) -> None:
    """What begins first is told first: p's match waits until one that began before it can not come about any more."""
    more = " ".join(["x"] * 12)
    f = feed(spark, tmp_path, "p:a1 b2 c3;q:b4 c5", *(f"x:{more}" for _ in range(4)))
    matches = (
        "s MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime() MEASURES LAST(v) AS v AFTER MATCH SKIP TO NEXT ROW "
        "PATTERN (A ANY_ROW* D | B C) WITHIN 20 SECONDS DEFINE A AS w = 'a', B AS w = 'b', C AS w = 'c', D AS w = 'd')"
    )
    _, told = f.run(f"SELECT k, v FROM {matches}", "stream")
    assert told == [("q", 5), ("p", 3)] and f.late == 0
    windows = f"SELECT window_start, count(*) AS n, max(v) AS v FROM TUMBLE((SELECT k, v FROM {matches}), SIZE {{}}) "
    windows += "GROUP BY window_start, window_end"
    rows, _ = f.run(windows.format("10 SECONDS"), "changelog")
    assert [r[1:] for r in rows] == [(1, 5)] and f.late == 1
    rows, _ = f.run(windows.format("1 MINUTE"), "changelog")
    assert [r[1:] for r in rows] == [(2, 5)] and f.late == 0


@pytest.mark.parametrize("ttl_ms, before", [(3000, [None, None, 6, None]), (None, [None, 2, 6, 7])])
def test_what_is_long_ago_is_not_seen_with_a_time_to_live(
    ttl_ms: int | None, before: list[int | None], spark: SparkSession, tmp_path: Path
) -> None:
    f = feed(spark, tmp_path, "p:a2", "x:x x x x x", "p:a6", "p:a7", "x:x x x x x", "p:a8")
    rows, _ = f.run(
        "SELECT v, before FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime() MEASURES A.v AS v, PREV(A.v) AS "
        "before PATTERN (A) DEFINE A AS w = 'a') AS m",
        "stream",
        ttl_ms=ttl_ms,
    )
    assert rows == list(zip([2, 6, 7, 8], before, strict=True))


def test_a_pattern_that_would_be_looked_for_too_long_ends_the_query(spark: SparkSession) -> None:
    """Its conditions depend on the match, so that no way can be told from another."""
    every = tuple(Times(Times(One("A"), 1, None, False), 1, None, False) for _ in range(3))
    query = Query(Chain((*every, One("B"))), {"A": Compare(Aggregate("COUNT", "A", "*"), ">", Literal(0)),
                  "B": Compare(Seek("B", "v"), ">", Literal(9))}, {"n": Aggregate("COUNT", "", "*")}, "PAST LAST ROW",
                  within=1000)  # fmt: skip
    rows = [{"k": "p", "t": 1000, "v": 1, "w": 1, "n": n} for n in range(40)]
    with pytest.raises(Py4JJavaError, match="54001 the pattern of MATCH_RECOGNIZE needs more than 1000000 steps"):
        replayed(spark, query, rows, [60_000])
    plain = replace(query, define={"B": query.define["B"]})
    assert replayed(spark, plain, rows, [60_000]) == [], "without such conditions no way is gone twice"


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_matches_of_joined_rows_are_as_late_as_the_join(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    f = feed(spark, tmp_path, "p:a1 b2;q:a3 b4", "x:" + " x" * 20)
    pairs = f"SELECT a.k, a.w, a.v FROM s a {kind} s b WITHIN 1 MINUTE ON a.k = b.k AND a.v = b.v AND a.w = b.w"
    clause = "MEASURES A.v AS a, B.v AS b PATTERN (A B) DEFINE A AS A.w = 'a', B AS B.w = 'b'"
    matches = f"({pairs}) m MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime() {clause})"
    sql = f"SELECT window_start, count(*) AS n, sum(a) AS t FROM TUMBLE((SELECT a, b FROM {matches}), SIZE 10 SECONDS) "
    rows, _ = f.run(sql + "GROUP BY window_start, window_end", "changelog")
    assert [r[1:] for r in rows] == [(2, 4)] and f.late == 0
