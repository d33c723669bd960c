"""Top-N, deduplication and aggregates OVER rows against PostgreSQL's own window functions over all records at once, and
the state of Top-N when most of its rows are taken back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Oracle, Record, Relation, in_order
from tests.stream.kernel.test_differential import SEED, plain, postgres, relations, timed_relations

__all__ = ["postgres"]
pytestmark = [
    pytest.mark.stream,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# What runs, and what PostgreSQL is asked: NULL is the smallest value here and the greatest there.
_PLACE = "__partition, __offset"
RANKS = {
    "first rows of a stream": (
        "SELECT k2, v, rn FROM (SELECT *, row_number() OVER (PARTITION BY k2 ORDER BY v DESC) AS rn FROM s) "
        "WHERE rn <= 2",
        "SELECT k2, v, rn FROM (SELECT *, row_number() OVER (PARTITION BY k2 ORDER BY v DESC NULLS LAST, "
        f"{_PLACE}) AS rn FROM s) x WHERE rn <= 2",
    ),
    "keep the first": (
        "SELECT k2, v FROM (SELECT *, row_number() OVER (PARTITION BY k2 ORDER BY rowtime()) AS rn FROM s) x "
        "WHERE rn = 1",
        f"SELECT k2, v FROM (SELECT *, row_number() OVER (PARTITION BY k2 ORDER BY __time, {_PLACE}) AS rn FROM s) x "
        "WHERE rn = 1",
    ),
    "keep the last": (
        "SELECT g, k, v FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY d DESC, k) AS rn FROM c) "
        "WHERE 1 >= rn AND v IS NOT NULL",
        "SELECT g, k, v FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY d DESC NULLS LAST, k) AS rn FROM c) "
        "x WHERE rn = 1 AND v IS NOT NULL",
    ),
    "ranks with ties": (
        "SELECT k, g, v, r FROM (SELECT *, rank() OVER (PARTITION BY g ORDER BY v NULLS LAST) AS r FROM c) WHERE r < 3",
        "SELECT k, g, v, r FROM (SELECT *, rank() OVER (PARTITION BY g ORDER BY v) AS r FROM c) x WHERE r < 3",
    ),
    "dense ranks": (
        "SELECT k, v, r FROM (SELECT *, dense_rank() OVER (ORDER BY v DESC) AS r FROM c) x WHERE r BETWEEN 1 AND 2",
        "SELECT k, v, r FROM (SELECT *, dense_rank() OVER (ORDER BY v DESC NULLS LAST) AS r FROM c) x WHERE r <= 2",
    ),
    "the second of each": (
        "SELECT s, k, rn FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY x, k) AS rn FROM c) WHERE rn = 2",
        "SELECT s, k, rn FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY x NULLS FIRST, k) AS rn FROM c) x "
        "WHERE rn = 2",
    ),
    "the first rows, in order": (
        "SELECT k, v FROM c ORDER BY v DESC, k LIMIT 3 OFFSET 1",
        "SELECT k, v FROM c ORDER BY v DESC NULLS LAST, k LIMIT 3 OFFSET 1",
    ),
    "as many as there are": (
        "SELECT k, v FROM c ORDER BY v, k LIMIT 4294967296 OFFSET 1",
        "SELECT k, v FROM c ORDER BY v NULLS FIRST, k OFFSET 1",
    ),
    "the first groups": (
        "SELECT sum(n) AS n, count(*) AS groups FROM (SELECT g, count(*) AS n FROM c GROUP BY g ORDER BY 2 DESC, g "
        "LIMIT 2) x",
        "SELECT sum(n), count(*) FROM (SELECT g, count(*) AS n FROM c GROUP BY g ORDER BY 2 DESC, g NULLS FIRST "
        "LIMIT 2) x",
    ),
    "the first of each": (
        "SELECT DISTINCT ON (g) g, k, v FROM c ORDER BY g, v DESC, k",
        "SELECT DISTINCT ON (g) g, k, v FROM c ORDER BY g, v DESC NULLS LAST, k",
    ),
    "the greatest of all": (
        "SELECT k, v FROM (SELECT *, row_number() OVER (ORDER BY v DESC, k) AS rn FROM c) WHERE rn = 1",
        "SELECT k, v FROM c ORDER BY v DESC NULLS LAST, k LIMIT 1",
    ),
    "the greatest groups": (
        "SELECT * FROM (SELECT g, sum(v) AS total, row_number() OVER (ORDER BY sum(v) DESC, g) AS rn FROM c "
        "GROUP BY g) WHERE rn <= 2",
        "SELECT * FROM (SELECT g, sum(v) AS total, row_number() OVER (ORDER BY sum(v) DESC NULLS LAST, g NULLS FIRST) "
        "AS rn FROM c GROUP BY g) x WHERE rn <= 2",
    ),
    "counted again": (
        "SELECT v, count(*) AS n FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY k) AS rn FROM c) x "
        "WHERE rn <= 2 GROUP BY v",
        "SELECT v, count(*) FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY k) AS rn FROM c) x "
        "WHERE rn <= 2 GROUP BY v",
    ),
    "of a join of changelogs": (
        "SELECT k, w, rn FROM (SELECT c.k, e.w, row_number() OVER (ORDER BY e.w DESC, c.k) AS rn FROM c JOIN e "
        "ON c.g = e.g) WHERE rn <= 3",
        "SELECT k, w, rn FROM (SELECT c.k, e.w, row_number() OVER (ORDER BY e.w DESC NULLS LAST, c.k) AS rn "
        "FROM c JOIN e ON c.g = e.g) x WHERE rn <= 3",
    ),
    "a union of changelogs": ("SELECT g FROM c UNION SELECT g FROM e", ""),
    "a union, counted": (
        "SELECT x, count(*) AS n FROM (SELECT g AS x FROM c UNION ALL SELECT k2 FROM s) y GROUP BY x",
        "",
    ),
}


@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize("want", ["view", "changelog"])
def test_ranks_are_those_of_all_rows(name: str, want: str, spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    sql, asked = RANKS[name]
    made = relations(SEED)
    oracle = Oracle(postgres, made)
    rows, _ = Feed(spark, tmp_path, made).run(sql, want)
    assert in_order([tuple(map(plain, r)) for r in rows]) == in_order(
        [tuple(map(plain, r)) for r in oracle.rows(asked or sql)]
    )
    oracle.close()


# Results without a key: rows as often as they are there. Grouping sets, whose NULLs are no key either.
KEYLESS = {
    "first rows without their ranks": (
        "SELECT g, v FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY x DESC, k) AS rn FROM c) WHERE rn <= 3",
        "SELECT g, v FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY x DESC NULLS LAST, k) AS rn FROM c) y "
        "WHERE rn <= 3",
    ),
    "a changelog without its key": ("SELECT g, v + 1 AS v FROM c WHERE v > 1", ""),
    "a join without its keys": ("SELECT c.v, e.w FROM c LEFT JOIN e ON c.g = e.g", ""),
    "a union of changelogs": ("SELECT g FROM c UNION ALL SELECT g FROM e UNION ALL SELECT k2 FROM s", ""),
    "groups without their key": ("SELECT count(*) AS n, max(v) AS most FROM s GROUP BY k2", ""),
    "rollup": ("SELECT g, v, count(*) AS n, sum(v) AS total FROM c GROUP BY ROLLUP(g, v)", ""),
    "cube of a stream": ("SELECT k2, v, count(*) AS n, grouping(v) AS one FROM s GROUP BY CUBE(k2, v)", ""),
    "grouping sets": (
        "SELECT g, s, v, count(*) AS n, grouping_id(v, g) AS two FROM c GROUP BY s, GROUPING SETS ((g, v), ROLLUP(v)) "
        "HAVING count(*) > 1",
        "SELECT g, s, v, count(*), grouping(v, g) FROM c GROUP BY s, GROUPING SETS ((g, v), ROLLUP(v)) "
        "HAVING count(*) > 1",
    ),
    "elements of arrays": (
        "SELECT k, i FROM c CROSS JOIN UNNEST(ARRAY[g, s, 'x']) AS u(i) WHERE i IS NOT NULL",
        "SELECT k, i FROM c CROSS JOIN unnest(ARRAY[g, s, 'x']) AS u(i) WHERE i IS NOT NULL",
    ),
    "elements, counted": (
        "SELECT i, count(DISTINCT k) AS n FROM c LEFT JOIN UNNEST(CASE WHEN v > 2 THEN ARRAY[g, s] END) AS u(i) "
        "ON TRUE GROUP BY i",
        "",
    ),
    "sets with their mark": ("SELECT g, v, max(s) AS s, grouping_id(g, v) AS set FROM c GROUP BY CUBE(g, v)",
                             "SELECT g, v, max(s), grouping(g, v) FROM c GROUP BY CUBE(g, v)"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYLESS)
def test_results_without_a_key(name: str, spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    sql, asked = KEYLESS[name]
    made = relations(SEED)
    oracle = Oracle(postgres, made)
    rows, _ = Feed(spark, tmp_path, made).run(sql)
    assert in_order([tuple(map(plain, r)) for r in rows]) == in_order(
        [tuple(map(plain, r)) for r in oracle.rows(asked or sql)]
    )
    oracle.close()


_ORDER = "PARTITION BY k ORDER BY __time"
_ALL = f"{_ORDER}, {_PLACE} ROWS"
OVERS = {
    "a range of time": (
        "SELECT id, sum(id) OVER w5 AS total, count(*) OVER w5 AS n, max(id) OVER w5 AS most, avg(id) OVER w5 AS mean, "
        "listagg(CAST(id AS VARCHAR)) OVER w5 AS ids FROM s",
        "SELECT id, sum(id) OVER w, count(*) OVER w, max(id) OVER w, trunc(avg(id) OVER w)::int, "
        "(SELECT string_agg(t.id::text, ',' ORDER BY __time, __offset) FROM log_s t WHERE t.id > 0 AND t.k IS NOT "
        "DISTINCT FROM s.k AND t.__time BETWEEN s.__time - 5000 AND s.__time) FROM log_s s WHERE id > 0 "
        f"WINDOW w AS ({_ORDER} RANGE BETWEEN 5000 PRECEDING AND CURRENT ROW)",
    ),
    "rows before": (
        "SELECT id, sum(id) OVER (PARTITION BY k ORDER BY rowtime() ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) "
        "AS total, min(id) OVER (PARTITION BY k ORDER BY rowtime() ROWS 2 PRECEDING) AS least, "
        "first_value(id) OVER (PARTITION BY k ORDER BY rowtime() ROWS 2 PRECEDING) AS first FROM s",
        f"SELECT id, sum(id) OVER w, min(id) OVER w, first_value(id) OVER w FROM log_s WHERE id > 0 "
        f"WINDOW w AS ({_ALL} BETWEEN 2 PRECEDING AND CURRENT ROW)",
    ),
    "all rows before": (
        "SELECT k, id, count(*) OVER (PARTITION BY k ORDER BY rowtime() ROWS UNBOUNDED PRECEDING) AS n, "
        "max(id) OVER (PARTITION BY k ORDER BY rowtime() ROWS UNBOUNDED PRECEDING) AS most FROM s",
        f"SELECT k, id, count(*) OVER w, max(id) OVER w FROM log_s WHERE id > 0 "
        f"WINDOW w AS ({_ALL} UNBOUNDED PRECEDING)",
    ),
    "all before and of the same time": (
        "SELECT id, sum(id) OVER (ORDER BY rowtime()) AS total, stddev_pop(id) OVER (ORDER BY rowtime()) AS dev FROM s",
        "SELECT id, sum(id) OVER (ORDER BY __time), trunc(stddev_pop(id) OVER (ORDER BY __time))::int FROM log_s "
        "WHERE id > 0",
    ),
    "two frames": (
        "SELECT id, count(*) OVER (ORDER BY rowtime() ROWS 4 PRECEDING) + count(*) OVER (PARTITION BY k ORDER BY "
        "rowtime() RANGE BETWEEN INTERVAL '3' SECONDS PRECEDING AND CURRENT ROW) AS n FROM s WHERE id <> 3",
        f"SELECT id, count(*) OVER (ORDER BY __time, {_PLACE} ROWS 4 PRECEDING) + count(*) OVER ({_ORDER} RANGE "
        "BETWEEN 3000 PRECEDING AND CURRENT ROW) FROM log_s WHERE id > 0 AND id <> 3",
    ),
    "distinct values": (
        "SELECT id, count(DISTINCT k) OVER (ORDER BY rowtime() ROWS 3 PRECEDING) AS names FROM s",
        f"SELECT id, (SELECT count(DISTINCT k) FROM unnest(a) k) FROM (SELECT id, array_agg(k) OVER (ORDER BY __time, "
        f"{_PLACE} ROWS 3 PRECEDING) AS a FROM log_s WHERE id > 0) x",
    ),
    "of what a temporal join gives": (
        "SELECT s.id, sum(c.v) OVER (PARTITION BY s.k ORDER BY rowtime() ROWS UNBOUNDED PRECEDING) AS total "
        "FROM s JOIN c ON s.k = c.k",
        "SELECT s.id, sum(c.v) OVER (PARTITION BY s.k ORDER BY s.__time, s.id ROWS UNBOUNDED PRECEDING) FROM log_s s "
        "JOIN LATERAL (SELECT * FROM (SELECT * FROM log_c c WHERE c.k = s.k AND c.__time <= s.__time ORDER BY "
        "c.__time DESC, c.__partition DESC, c.__offset DESC LIMIT 1) x WHERE NOT __delete) c ON true WHERE s.id > 0",
    ),
}
_W5 = "(PARTITION BY k ORDER BY rowtime() RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW)"


@pytest.mark.parametrize("name", OVERS)
def test_aggregates_over_the_rows_before(name: str, spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    sql, asked = OVERS[name]
    made = timed_relations(SEED)
    oracle = Oracle(postgres, made)
    feed = Feed(spark, tmp_path, made)
    rows, _ = feed.run(sql.replace("w5", _W5), "stream")
    assert [tuple(map(plain, r)) for r in rows] == [tuple(map(plain, r)) for r in oracle.rows(asked)]
    assert feed.late == sum(x.values["id"] < 0 for batch in made[0].batches for x in batch)
    oracle.close()


_TUMBLE = "to_timestamp((__time / 10000 * 10000) / 1000.0) AT TIME ZONE 'UTC'"
WINDOWED = {
    "rows of a window": (
        "SELECT window_start, id FROM HOP(s, SIZE 10 SECONDS, ADVANCE BY 5 SECONDS) WHERE id > 0",
        "SELECT to_timestamp((__time / 5000 * 5000 - i * 5000) / 1000.0) AT TIME ZONE 'UTC', id "
        "FROM log_s, generate_series(0, 1) i WHERE id > 0",
    ),
    "first rows of a window": (
        "SELECT window_start, window_end, k, id, rn FROM (SELECT *, row_number() OVER (PARTITION BY window_start, "
        "window_end, k ORDER BY id DESC) AS rn FROM TUMBLE(s, SIZE 10 SECONDS)) WHERE rn <= 2",
        f"SELECT {_TUMBLE}, {_TUMBLE} + interval '10 s', k, id, rn FROM (SELECT *, row_number() OVER (PARTITION BY "
        "__time / 10000, k ORDER BY id DESC) AS rn FROM log_s WHERE id > 0) x WHERE rn <= 2",
    ),
    "greatest groups of a window": (
        "SELECT window_start, k, n, rn FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY n DESC, "
        "k) AS rn FROM (SELECT window_start, k, count(*) AS n FROM TUMBLE(s, SIZE 10 SECONDS) GROUP BY "
        "window_start, k)) WHERE rn <= 2",
        f"SELECT w, k, n, rn FROM (SELECT {_TUMBLE} AS w, k, count(*) AS n, row_number() OVER (PARTITION BY {_TUMBLE} "
        "ORDER BY count(*) DESC, k NULLS FIRST) AS rn FROM log_s WHERE id > 0 GROUP BY 1, k) x WHERE rn <= 2",
    ),
}


@pytest.mark.parametrize("name", WINDOWED)
def test_ranks_of_windows_are_final(name: str, spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    sql, asked = WINDOWED[name]
    made = timed_relations(SEED)
    oracle = Oracle(postgres, made)
    rows, added = Feed(spark, tmp_path, made).run(sql, "view")
    assert rows == oracle.rows(asked)
    assert len(added) == len(rows), "what is final is told once"
    oracle.close()


@pytest.fixture
def crowd() -> Iterator[Relation]:
    """A hundred rows, of which the eighty greatest are then taken back, and a few added behind."""
    c = Relation("c", {"k": "INTEGER", "v": "INTEGER"}, ("k",))
    c.batches.append([Record({"k": i, "v": i // 2}, 1000 + i, 0, i) for i in range(100)])
    c.batches.append([Record({"k": i}, 2000 + i, 0, 100 + i, True) for i in range(20, 100)])
    c.batches.append([Record({"k": 200 + i, "v": 9}, 3000 + i, 0, 300 + i) for i in range(3)])
    c.batches.append([Record({"k": 200}, 4000, 0, 400, True)])
    yield c


@pytest.mark.parametrize(
    "function, told",
    [
        ("row_number", [(18, 9, 1), (19, 9, 2), (201, 9, 3)]),
        ("rank", [(18, 9, 1), (19, 9, 1), (201, 9, 1), (202, 9, 1)]),
        ("dense_rank", [(16, 8, 2), (17, 8, 2), (18, 9, 1), (19, 9, 1), (201, 9, 1), (202, 9, 1)]),
    ],
)
def test_rows_behind_the_first_ones_move_up(
    function: str, told: list[object], crowd: Relation, spark: SparkSession, tmp_path: Path
) -> None:
    limit = 2 if function == "dense_rank" else 3
    sql = f"SELECT k, v, r FROM (SELECT *, {function}() OVER (ORDER BY v DESC) AS r FROM c) WHERE r <= {limit}"
    rows, _ = Feed(spark, tmp_path, [crowd]).run(sql)
    assert rows == in_order(told)  # type: ignore[arg-type]
