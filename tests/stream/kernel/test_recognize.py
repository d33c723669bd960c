"""MATCH_RECOGNIZE: the operator batch by batch, as a query runs it, and against ``matcher``, which tries everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pgstream.errors import InvalidStatement
from pgstream.planner import plan
from pgstream.planner.select import plan_select
from pgstream.spark.operators import Operators
from pgstream.spark.step import Refused, Step
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


@pytest.mark.parametrize(("pattern", "late"), [("B C | A ANY_ROW* D", 1), ("A ANY_ROW* D | B C", 0)])
def test_matches_that_were_held_may_be_late_for_windows(
    pattern: str, late: int, spark: SparkSession, tmp_path: Path
) -> None:
    """What begins first is told first: p's match waits until one that began before it can not come about any more.
    Where the end of a match is open, windows above wait, too.
    """
    more = " ".join(["x"] * 12)
    f = feed(spark, tmp_path, "p:a1 b2 c3;q:b4 c5", *(f"x:{more}" for _ in range(4)))
    matches = (
        "s MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime() MEASURES LAST(v) AS v AFTER MATCH SKIP TO NEXT ROW "
        f"PATTERN ({pattern}) WITHIN 20 SECONDS DEFINE A AS w = 'a', B AS w = 'b', C AS w = 'c', D AS w = 'd')"
    )
    _, told = f.run(f"SELECT k, v FROM {matches}", "stream")
    assert told == [("q", 5), ("p", 3)] and f.late == 0
    windows = f"SELECT window_start, count(*) AS n, max(v) AS v FROM TUMBLE((SELECT k, v FROM {matches}), SIZE {{}}) "
    windows += "GROUP BY window_start, window_end"
    rows, _ = f.run(windows.format("10 SECONDS"), "changelog")
    assert [r[1:] for r in rows] == [(2 - late, 5)] and f.late == late
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


MATCH = "MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime()"
A_AND_B = "PATTERN (A B) DEFINE A AS A.w = 'a', B AS B.w = 'b')"


@pytest.mark.parametrize(
    "clause, expected",
    [
        ("MEASURES SUM(10 / A.v) AS x PATTERN (A+ B) DEFINE A AS A.v > 0, B AS B.v = 0", 7),
        ("MEASURES 10 / LAST(A.v) AS x PATTERN (A+ B) DEFINE A AS A.v > 0, B AS B.v = 0", 5),
        ("MEASURES LAST(CAST(A.w AS INTEGER)) AS x PATTERN (A B) DEFINE A AS A.w = '8', B AS B.w = 'a'", 8),
        ("MEASURES SUM(CAST(A.w AS INTEGER)) + MAX(CAST(A.w AS INTEGER) * 10) AS x PATTERN (A+ B) "
         "DEFINE A AS A.w IN ('7', '8'), B AS B.w = 'a'", 95),
        ("MEASURES COUNT(DISTINCT CAST(A.w AS INTEGER)) AS x PATTERN (A+ B) DEFINE A AS A.w < 'a', B AS B.w = 'a'", 2),
        ("MEASURES LISTAGG(CAST(A.w AS INTEGER)) FILTER (WHERE A.w < 'a') AS x PATTERN (A+? B) DEFINE B AS B.w = 'b'",
         "7,8"),
        ("MEASURES COUNT(*) AS x PATTERN (A+ B) DEFINE A AS A.w IN ('7', '8') AND LAST(CAST(A.w AS INTEGER)) > 6 "
         "AND SUM(CAST(A.w AS INTEGER)) < 16, B AS B.w = 'a'", 3),
    ],
)  # fmt: skip
def test_what_is_an_error_of_a_row_that_is_not_read_is_none(
    clause: str, expected: Any, spark: SparkSession, tmp_path: Path
) -> None:
    f = feed(spark, tmp_path, "p:70 80 a5", "p:a2 b0", "q:x")
    rows, _ = f.run(f"SELECT x FROM s {MATCH} {clause})", "stream")
    assert rows == [(expected,)]


@pytest.mark.parametrize(
    "clause",
    [
        "MEASURES LAST(CAST(A.w AS INTEGER)) AS x PATTERN (A B) DEFINE A AS A.w = 'a'",
        "MEASURES COUNT(DISTINCT CAST(A.w AS INTEGER)) AS x PATTERN (A+? B) DEFINE B AS B.w = 'b'",
        "MEASURES COUNT(*) AS x PATTERN (A+ B) DEFINE A AS SUM(CAST(A.w AS INTEGER)) > 0",
    ],
)
def test_what_is_an_error_of_a_row_that_is_read_ends_the_query(
    clause: str, spark: SparkSession, tmp_path: Path
) -> None:
    f = feed(spark, tmp_path, "p:70 a5 b0")
    with pytest.raises(StreamingQueryException, match='22P02 invalid input syntax for type integer: "a"'):
        f.run(f"SELECT x FROM s {MATCH} {clause})", "stream")


def test_plans_of_before_keep_rows_as_they_did(spark: SparkSession) -> None:
    """Errors have columns in the state from version 12 on."""
    sql = f"SELECT x FROM s {MATCH} MEASURES SUM(10 / A.v) AS x {A_AND_B}"
    root = plan_select(Cursor(sql).select(), snapshot([Relation("s", COLUMNS)]), "main", "public", "stream").root
    assert isinstance(root, plan.Project) and isinstance(root.input, plan.Recognize)
    old = msgspec.structs.replace(
        root.input, reads=[msgspec.structs.replace(r, raises=False) for r in root.input.reads]
    )
    df = frame(spark, [], "k string, w string, v int, t bigint, __offset bigint").selectExpr("*", "now() AS __time")
    operators = Operators(spark, None, "append", 0)
    kept = [operators.recognizing(node, Step(df))[0].columns for node in (old, root.input)]
    assert kept[0] == kept[1][:-1] and kept[1][-1] == "__v1_error"


def test_nothing_divided_by_nothing_is_null(spark: SparkSession, tmp_path: Path) -> None:
    f = feed(spark, tmp_path, "p:b2", "q:a4 b2")
    measures = "SUM(A.v) / COUNT(A.*) AS x, SUM(A.v) % COUNT(A.*) AS y"
    rows, _ = f.run(f"SELECT x, y FROM s {MATCH} MEASURES {measures} PATTERN (A? B) DEFINE A AS w = 'a', B AS w = 'b')")
    assert rows == [(4, 0), (None, None)]


def later(spark: SparkSession, folder: Path, *batches: list[tuple[str, str, int]]) -> Feed:
    """A stream, and another like it: rows of key, letter and second."""
    streams = [Relation(name, COLUMNS) for name in ("s", "u")]
    for i, batch in enumerate([*batches, [("z", "-", 1000)], [("z", "-", 2000)]]):
        for s in streams:
            s.batches.append([Record({"k": k, "w": w, "v": n, "t": 0}, 1000 * at, 0, 10 * i + n)
                              for n, (k, w, at) in enumerate(batch)])  # fmt: skip
    return Feed(spark, folder, streams)


WINDOWS = "SELECT k, 'n' AS w FROM TUMBLE(u, SIZE 10 SECONDS) GROUP BY window_start, window_end, k"


@pytest.mark.parametrize(
    "rows",
    [
        "SELECT DISTINCT k, w FROM s",
        f"SELECT k, w FROM s UNION ALL {WINDOWS}",
        f"{WINDOWS} UNION ALL SELECT k, w FROM s",
    ],
)
def test_late_rows_of_what_waits_for_nothing_are_counted(rows: str, spark: SparkSession, tmp_path: Path) -> None:
    f = later(
        spark, tmp_path, [("p", "a", 10)], [("z", "x", 100)], [("z", "x", 101)], [("p", "b", 5)], [("z", "x", 102)]
    )
    told, _ = f.run(f"SELECT k FROM ({rows}) z {MATCH} MEASURES A.w AS x {A_AND_B}", "stream")
    assert (told, f.late) == ([], 1 if "DISTINCT" in rows else 2)
    f = later(spark, tmp_path / "other", [("p", "a", 10)], [("p", "b", 11)], [("z", "x", 100)])
    told, _ = f.run(f"SELECT k FROM ({rows}) z {MATCH} MEASURES A.w AS x {A_AND_B}", "stream")
    assert (told, f.late) == ([("p",)], 0)


def test_rows_of_a_union_that_come_behind_the_watermark_are_not_late(spark: SparkSession, tmp_path: Path) -> None:
    f = later(spark, tmp_path, [("p", "a", 10), ("p", "b", 11)], [("z", "x", 60)], [("z", "x", 100)], [("z", "x", 140)])
    alone = "SELECT s.k, s.w FROM s LEFT JOIN u WITHIN 1 MINUTE ON s.k = u.k AND u.w = 'n' WHERE s.w = 'b'"
    rows = f"SELECT k, w FROM s WHERE w = 'a' UNION ALL {alone}"
    told, _ = f.run(f"SELECT k FROM ({rows}) z {MATCH} MEASURES A.w AS x {A_AND_B}", "stream")
    assert (told, f.late) == ([("p",)], 0)


PAIRS = "SELECT s.k, s.w FROM s JOIN u ON s.k = u.k AND s.w = u.w"


@pytest.mark.parametrize("rows", ["SELECT DISTINCT k, w FROM s", PAIRS])
def test_event_time_goes_on_above_state_with_a_time_to_live(rows: str, spark: SparkSession, tmp_path: Path) -> None:
    f = later(spark, tmp_path, [("p", "a", 1)], [("p", "b", 2)], [("z", "x", 100)])
    told, _ = f.run(f"SELECT x FROM ({rows}) z {MATCH} MEASURES A.w AS x {A_AND_B}", "stream", ttl_ms=3_600_000)
    assert told == [("a",)]


def test_rows_of_before_1970_wait_too(spark: SparkSession, tmp_path: Path) -> None:
    f = later(spark, tmp_path, [("p", "b", 0)], [("p", "a", -2)])
    assert f.run(f"SELECT k FROM s {MATCH} MEASURES A.w AS x {A_AND_B}", "stream")[0] == [("p",)]


def test_rows_that_prev_cannot_reach_are_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    f = feed(spark, tmp_path, "p:a5 a3 a4;q:a5 a3 a4")
    clause = "MEASURES UP.v AS x, PREV(UP.v) AS y PATTERN (STRT DOWN+ UP) WITHIN 5 SECONDS DEFINE "
    reach = "DOWN AS DOWN.v < PREV(DOWN.v) AND DOWN.v < PREV(FIRST(DOWN.v)), UP AS UP.v > PREV(v)"
    states = []
    for more in ("", ", STRT AS STRT.v > 0 OR PREV(STRT.v) > 0"):
        rows, _ = f.run(f"SELECT x, y FROM s {MATCH} {clause}{reach}{more})", "stream")
        assert rows == [(4, 3), (4, 3)]
        states.append(f.state_rows)
    assert states[0] < states[1], "of p and q a row each"


def test_a_repetition_of_what_may_be_empty_goes_no_way_twice(spark: SparkSession, tmp_path: Path) -> None:
    f = feed(spark, tmp_path, "p:s" + " x" * 60 + " e", "q:s" + " x" * 60 + " y")
    define = "DEFINE S AS S.w = 's', A AS A.w = 'x', B AS B.w = 'x', E AS E.w = 'e'"
    rows, _ = f.run(f"SELECT n FROM s {MATCH} MEASURES COUNT(*) AS n PATTERN (S (A? B?)* E) {define})", "stream")
    assert rows == [(62,)]


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("X{,} E", ["1 2 3 4 5"]),
        ("X{,}? E", ["1 2", "3 4 5"]),
        ("((X?)*)* E", ["1 2 3 4 5"]),
        ("((X?){2,})+ E", ["1 2 3 4 5"]),
        ("((X? E??)* X?)+ E", ["1 2 3 4 5"]),
        ("((X?)*?)* E", ["1 2", "3 4 5"]),
        # A choice that is still open at a row is not one that led nowhere.
        ("((X??){2,}?)* E", ["1 2", "3 4 5"]),
        ("(((X??){2,}?)?){2,} E", ["1 2", "3 4 5"]),
    ],
)
def test_repetitions_of_what_may_be_empty_inside_each_other(
    pattern: str, expected: list[str], spark: SparkSession, tmp_path: Path
) -> None:
    f = feed(spark, tmp_path, "p:x1 e2 x3 x4 e5")
    clause = f"MEASURES LISTAGG(v, ' ') AS n PATTERN ({pattern}) WITHIN 9 SECONDS DEFINE E AS E.w = 'e'"
    _, told = f.run(f"SELECT k, n FROM s {MATCH} {clause})", "stream")
    assert [n for k, n in told if k == "p"] == expected


@pytest.mark.parametrize("pattern", ["(X? | Y? | X?){14} E", "((X? Y??){,12}){,12} E", "((X? | Y? | X?){14})* E"])
def test_no_choice_is_made_twice_where_it_led_nowhere(pattern: str, spark: SparkSession, tmp_path: Path) -> None:
    f = feed(spark, tmp_path, "p:" + " x" * 20 + " z" + " x" * 3 + " e")
    define = "DEFINE E AS E.w = 'e', X AS X.w = 'x', Y AS Y.w = 'y'"
    rows, _ = f.run(f"SELECT n FROM s {MATCH} MEASURES COUNT(*) AS n PATTERN ({pattern}) {define})", "stream")
    assert rows == [(4,)]


@pytest.mark.parametrize(
    "clause, at",
    [
        ("ORDER BY rowtime(), STR_TO_MAP(w) MEASURES A.w AS x", "STR_TO_MAP"),
        ("ORDER BY rowtime() MEASURES MAX(STR_TO_MAP(A.w)) AS x", "MAX"),
    ],
)
def test_what_has_no_order_is_refused(clause: str, at: str, spark: SparkSession, tmp_path: Path) -> None:
    sql = f"SELECT x FROM s MATCH_RECOGNIZE ({clause} {A_AND_B}"
    with pytest.raises(Refused) as e:
        feed(spark, tmp_path, "p:a").run(sql, "stream")
    fault = e.value.fault
    assert (fault.sqlstate, fault.at) == (
        "42883",
        sql.index(at),
    ) and "ordering operator for type MAP" in fault.message
