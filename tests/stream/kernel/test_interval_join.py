"""Interval joins of streams whose keys have one row or thousands, against PostgreSQL over all records at once; what
they keep, what they tell at once and what when event time has passed it. Late rows are dropped and counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pgstream.spark.step import Refused
from tests.stream.kernel.feed import Feed, Oracle, Record, Relation
from tests.stream.kernel.test_differential import SEED, plain, postgres

__all__ = ["postgres"]
pytestmark = [
    pytest.mark.stream,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
BASE = 1_700_000_000_000
KINDS = {"": "JOIN", "LEFT": "LEFT JOIN", "FULL": "FULL JOIN"}
_COLUMNS = {"k": "VARCHAR", "id": "INTEGER", "v": "INTEGER", "pad": "VARCHAR"}


def streams(seed: int, batches: int, rows: int, keys: Callable[[random.Random], str | None]) -> list[Relation]:
    """Two streams, ``rows`` seconds a batch, each row up to three seconds out of order; a last row ends event time."""
    r = random.Random(seed)
    made = [Relation(name, _COLUMNS) for name in "ab"]
    for relation in made:
        number = 0
        for b in range(batches):
            batch = []
            for i in range(rows):
                number += 1
                values = {"k": keys(r), "id": number, "v": r.randint(0, 4), "pad": "x" * r.choice([0, 5, 200])}
                batch.append(Record(values, BASE + (b * rows + i) * 1000 - r.choice([0, 0, 1000, 3000]), 0, number))
            r.shuffle(batch)
            relation.batches.append(batch)
        end = BASE + (batches * rows + 1000) * 1000
        relation.batches.append([Record({"k": "end", "id": -1, "v": 0, "pad": ""}, end, 0, number + 1)])
    return made


def select(how: str, seconds: int, on: str = "") -> tuple[str, str]:
    """What runs, and what PostgreSQL is asked."""
    kind = KINDS[how]
    ours = f"SELECT a.id, b.id AS other, a.v, b.pad FROM a {kind} b WITHIN {seconds} SECONDS ON a.k = b.k{on}"
    near = f"abs(a.__time - b.__time) <= {seconds * 1000}"
    return ours, f"SELECT a.id, b.id, a.v, b.pad FROM log_a a {kind} log_b b ON a.k = b.k AND {near}{on}"


def hot(r: random.Random) -> str | None:
    return "hot" if r.random() < 0.9 else r.choice([None, "cold", "a", "b"])


def spread(r: random.Random) -> str | None:
    return r.choice([None, *(f"k{i}" for i in range(30))])


SHAPES = {"some rows a key": (spread, 9), "nearly all of one key": (hot, 9), "nearly all, far apart": (hot, 200)}


@pytest.mark.parametrize("how", ["", "LEFT", "FULL", "further", "LEFT further", "FULL further"])
@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_are_those_of_postgresql(
    shape: str, how: str, spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    keys, seconds = SHAPES[shape]
    on = " AND a.v < b.v" if "further" in how else ""
    made = streams(SEED, 5, 300, keys)
    # So far apart nearly all rows meet; a key then has blocks.
    sql, asked = select(
        how.removesuffix("further").strip(), seconds, f"{on} AND (a.id - b.id) % 60 = 0" if seconds > 9 else on
    )
    oracle = Oracle(postgres, made)
    feed = Feed(spark, tmp_path, made)
    rows, _ = feed.run(sql, "stream")
    oracle.connection.execute("DELETE FROM log_a WHERE id < 0; DELETE FROM log_b WHERE id < 0")
    mine = [tuple(map(plain, r)) for r in rows if (r[0] or r[1]) > 0]
    assert mine == [tuple(map(plain, r)) for r in oracle.rows(asked)]
    assert feed.state_rows <= 2, "of what is over nothing is kept"
    oracle.close()


def test_a_key_with_thousands_of_rows_lies_in_blocks_that_go_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    """Rows for hours of one key, which hardly meet: only what a batch's rows can meet is read."""
    made = streams(SEED, 4, 1500, lambda r: "hot")
    sql, _ = select("LEFT", 1, " AND a.id = b.id AND a.v = 1 AND b.v = 1")
    rows, added = Feed(spark, tmp_path, made).run(sql, "stream")
    ids = [r[0] for r in added if r[0] > 0]
    assert sorted(ids) == list(range(1, 6001)), "each once, with a pair or without"
    assert 0 < sum(r[1] is not None for r in rows) < 1500


def test_pairs_come_at_once_and_rows_without_when_time_has_passed_them(spark: SparkSession, tmp_path: Path) -> None:
    def record(id_: int, k: str | None, second: int) -> Record:
        return Record({"k": k, "id": id_, "v": 0, "pad": ""}, BASE + second * 1000, 0, id_)

    a = Relation(
        "a", _COLUMNS, batches=[[record(1, "x", 0), record(2, "y", 1), record(3, None, 2)], [record(4, "z", 60)]]
    )
    b = Relation("b", _COLUMNS, batches=[[record(1, "x", 8), record(2, "x", 20)], [record(3, "z", 61)]])
    _, added = Feed(spark, tmp_path, [a, b]).run(select("FULL", 10)[0], "view")
    pairs = [r[:2] for r in added]
    # A NULL meets nothing; the second x is ten seconds from none; y waits for what may come until the eleventh second.
    assert set(pairs[:2]) == {(1, 1), (3, None)}
    assert set(pairs[2:]) == {(4, 3), (2, None), (None, 2)}


def test_late_rows_are_counted_and_meet_nothing(spark: SparkSession, tmp_path: Path) -> None:
    made = streams(SEED, 3, 50, spread)
    late = [Record({"k": f"k{i}", "id": 9000 + i, "v": 0, "pad": ""}, BASE, 0, 9000 + i) for i in range(30)]
    made[0].batches[3] += late
    feed = Feed(spark, tmp_path, made)
    rows, _ = feed.run(select("LEFT", 9)[0], "stream")
    assert feed.late == 30
    assert not [r for r in rows if r[0] is not None and r[0] >= 9000]


_PAIRS = "a {} JOIN b WITHIN 1 HOUR ON a.k = b.k AND a.id = b.id"
_PAIR_WINDOWS = "TUMBLE((SELECT a.id, b.id AS other FROM {}), SIZE 10 SECONDS) x"
# What groups are of, by kind of join; what is told of them once a minute has passed.
ABOVE = {
    "of pairs": (_PAIR_WINDOWS.format(_PAIRS.format("")), [(2,)]),
    "of what may have no pair": (_PAIR_WINDOWS.format(_PAIRS.format("LEFT")), []),
    "of one side": (_PAIRS.format("").replace("a  JOIN", "TUMBLE(a, SIZE 10 SECONDS) a JOIN"), []),
}


@pytest.mark.parametrize("name", ABOVE)
def test_windows_above_wait_for_what_may_still_come(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """Pairs are as late as what has just come; rows without one, and pairs in windows of one side, by the interval."""

    def record(id_: int, second: int) -> Record:
        return Record({"k": "x", "id": id_, "v": 0, "pad": ""}, BASE + second * 1000, 0, id_)

    batches = [[record(1, 0), record(2, 5)], [record(3, 60)], [record(4, 61)]]
    made = [Relation(n, _COLUMNS, batches=batches) for n in "ab"]
    rows, told = ABOVE[name]
    sql = f"SELECT count(*) AS n, window_end FROM {rows} GROUP BY window_end"
    got, _ = Feed(spark, tmp_path, made).run(sql, "changelog")
    assert [r[:1] for r in got] == told


def rows_of(name: str, *rows: tuple[str | None, int, int, int], batches: int = 1) -> Relation:
    """A stream of rows (k, id, v, second), each batch of as many of them."""
    records = [
        Record({"k": k, "id": i, "v": v, "pad": ""}, BASE + at * 1000, 0, n) for n, (k, i, v, at) in enumerate(rows)
    ]
    size = len(records) // batches
    return Relation(name, _COLUMNS, batches=[records[n : n + size] for n in range(0, len(records), size)])


_NEXT = "LEFT JOIN a c WITHIN 9 SECONDS ON a.k = c.k AND a.id = c.id + 1"
_NEXT_PG = "LEFT JOIN log_a c ON a.k = c.k AND a.id = c.id + 1 AND abs(c.__time - greatest(a.__time, b.__time)) <= 9000"
# Ours, PostgreSQL's.
ABOVE_EACH_OTHER = {
    f"{how or 'INNER'}, then LEFT": (
        f"SELECT a.id, b.id AS other, c.id AS c FROM a {how} JOIN b WITHIN 9 SECONDS ON a.k = b.k AND {on} {_NEXT}",
        f"SELECT a.id, b.id, c.id FROM log_a a {how} JOIN log_b b ON a.k = b.k AND {on} AND "
        f"abs(a.__time - b.__time) <= 9000 {_NEXT_PG}",
    )
    for how in ("LEFT", "")
    for on in ("b.v - a.v BETWEEN 1 AND 3 AND nullif(a.v + b.v, 3) > 1",)
}


@pytest.mark.parametrize("name", ABOVE_EACH_OTHER)
def test_joins_above_each_other(name: str, spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    """What ON asks of calculated values, which Spark's optimizer takes apart, too."""
    made = streams(SEED, 4, 120, spread)
    sql, asked = ABOVE_EACH_OTHER[name]
    oracle = Oracle(postgres, made)
    rows, _ = Feed(spark, tmp_path, made).run(sql, "stream")
    oracle.connection.execute("DELETE FROM log_a WHERE id < 0; DELETE FROM log_b WHERE id < 0")
    mine = [tuple(map(plain, r)) for r in rows if r[0] > 0]
    assert mine == [tuple(map(plain, r)) for r in oracle.rows(asked)]
    oracle.close()


def test_operators_below_do_not_wait_for_the_interval(spark: SparkSession, tmp_path: Path) -> None:
    a = rows_of("a", ("x", 1, 0, 0), ("x", 2, 0, 3900), ("x", 3, 0, 3901), batches=3)
    b = rows_of("b", ("y", 1, 0, 0), ("y", 2, 0, 3900), ("y", 3, 0, 3901), batches=3)
    over = "SELECT k, id, count(*) OVER (PARTITION BY k ORDER BY rowtime()) AS n FROM a"
    sql = f"SELECT x.id, b.id AS other FROM ({over}) x LEFT JOIN b WITHIN 1 HOUR ON x.k = b.k"
    rows, _ = Feed(spark, tmp_path, [a, b]).run(sql, "stream")
    assert rows == [(1, None)]


def test_a_row_far_ahead_keeps_no_others(spark: SparkSession, tmp_path: Path) -> None:
    year = 365 * 24 * 3600
    plain_rows = [("hot", i, 0, i // 10) for i in range(4000)]
    a, b = rows_of("a", *plain_rows, batches=8), rows_of("b", *plain_rows, batches=8)
    a.batches[0].append(Record({"k": "hot", "id": 9999, "v": 0, "pad": ""}, BASE + year * 1000, 1, 0))
    feed = Feed(spark, tmp_path, [a, b])
    rows, _ = feed.run(select("", 2, " AND a.id - b.id = 0")[0], "stream")
    assert len(rows) == 4000
    assert feed.state_rows < 12


def test_zeros_are_equal(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"d": "DOUBLE", "id": "INTEGER"}
    made = [
        Relation(n, columns, batches=[[Record({"d": d, "id": 1}, BASE, 0, 0)]]) for n, d in (("a", 0.0), ("b", -0.0))
    ]
    rows, _ = Feed(spark, tmp_path, made).run("SELECT a.id FROM a JOIN b WITHIN 1 SECOND ON a.d = b.d", "stream")
    assert rows == [(1,)]


@pytest.mark.parametrize(
    ("on", "why"), [("rand() < 0.5 AND b.v > 0", "deterministic"), ("now() > CAST('2020-01-01' AS TIMESTAMP)", "")]
)
def test_conditions_by_chance_are_refused_and_by_the_clock_are_not(
    on: str, why: str, spark: SparkSession, tmp_path: Path
) -> None:
    made = [rows_of("a", ("x", 1, 0, 0)), rows_of("b", ("x", 1, 1, 0))]
    sql = f"SELECT a.id, b.id AS other FROM a LEFT JOIN b WITHIN 1 SECOND ON a.k = b.k AND {on}"
    if why:
        with pytest.raises(Refused, match=why):
            Feed(spark, tmp_path, made).run(sql, "stream")
    else:
        assert Feed(spark, tmp_path, made).run(sql, "stream")[0] == [(1, 1)]


@pytest.mark.parametrize("join", ["a JOIN b WITHIN 1 SECOND", "c AS a JOIN d AS b"])
def test_keys_without_equality_are_refused(join: str, spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "INTEGER", "m": "MAP<VARCHAR, INTEGER>"}
    one = [[Record({"id": 1, "m": {"x": 1}}, BASE, 0, 0)]]
    made = [Relation(n, columns, key, batches=one) for n, key in zip("abcd", [(), (), ("id",), ("id",)], strict=True)]
    sql = f"SELECT a.id, b.id AS other FROM {join} ON a.m = b.m"
    with pytest.raises(Refused, match="MAP") as refused:
        Feed(spark, tmp_path, made).run(sql, "stream" if "WITHIN" in join else "view")
    assert refused.value.fault.at == sql.index("a.m")


def test_keys_of_unlike_types_are_refused_as_postgresql_does(spark: SparkSession, tmp_path: Path) -> None:
    made = [
        Relation("a", {"k": "VARCHAR"}, batches=[[Record({"k": "x"}, BASE, 0, 0)]]),
        Relation("b", {"k": "STRUCT<x VARCHAR>"}, batches=[[Record({"k": {"x": "x"}}, BASE, 0, 0)]]),
    ]
    with pytest.raises(Refused, match="operator does not exist: VARCHAR = STRUCT<x VARCHAR>") as refused:
        Feed(spark, tmp_path, made).run("SELECT a.k FROM a JOIN b WITHIN 1 SECOND ON a.k = b.k", "stream")
    assert refused.value.fault.sqlstate == "42883" and refused.value.fault.hint
