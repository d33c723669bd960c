"""Windows on either side of a join and groups above them, joins above joins and above windows, several ranks,
neighbours: against PostgreSQL over all records at once. Late rows are dropped; the last row, which nothing follows,
still waits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Oracle
from tests.stream.kernel.test_differential import SEED, plain, postgres, timed_relations

__all__ = ["postgres"]
pytestmark = [
    pytest.mark.stream,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_W = "to_timestamp(({0}.__time / 10000 * 10000) / 1000.0) AT TIME ZONE 'UTC'"
_VERSION = (
    "LATERAL (SELECT * FROM (SELECT * FROM log_c c WHERE c.k = s.k AND c.__time <= s.__time ORDER BY c.__time DESC, "
    "c.__partition DESC, c.__offset DESC LIMIT 1) x WHERE NOT __delete) c ON true"
)
_WINDOWED = "(SELECT window_start, window_end, k, count(*) AS n FROM TUMBLE(s, SIZE 10 SECONDS) GROUP BY window_start, "
_COUNTED = f"(SELECT {_W.format('s')} AS w, k, count(*) AS n FROM log_s s WHERE id > 0 GROUP BY 1, 2)"
# Wanted for, ours, PostgreSQL's.
JOINED = {
    "versions in windows": (
        "changelog",
        "SELECT window_start, window_end, c.g, count(*) AS n, sum(s.id) AS total FROM TUMBLE(s, SIZE 10 SECONDS) s "
        "JOIN c ON s.k = c.k GROUP BY window_start, window_end, c.g",
        f"SELECT {_W.format('s')} AS w, {_W.format('s')} + interval '10 s', c.g, count(*), sum(s.id) FROM log_s s "
        f"JOIN {_VERSION} WHERE s.id > 0 GROUP BY w, c.g",
    ),
    "versions in windows, growing": (
        "view",
        "SELECT window_start, c.g, count(DISTINCT s.k) AS n FROM TUMBLE(s, SIZE 10 SECONDS) s "
        "LEFT JOIN c ON s.k = c.k GROUP BY window_start, c.g",
        f"SELECT {_W.format('s')} AS w, c.g, count(DISTINCT s.k) FROM log_s s LEFT JOIN {_VERSION} WHERE s.id > 0 "
        "GROUP BY w, c.g",
    ),
    "windows of an interval join": (
        "changelog",
        "SELECT a.window_start, a.window_end, count(*) AS n, sum(b.id) AS total FROM HOP(s, SIZE 10 SECONDS, ADVANCE "
        "BY 5 SECONDS) a JOIN s b WITHIN 3 SECONDS ON a.k = b.k GROUP BY a.window_start, a.window_end",
        "SELECT to_timestamp((a.__time / 5000 * 5000 - i * 5000) / 1000.0) AT TIME ZONE 'UTC' AS w, "
        "to_timestamp((a.__time / 5000 * 5000 - i * 5000 + 10000) / 1000.0) AT TIME ZONE 'UTC', count(*), sum(b.id) "
        "FROM log_s a JOIN log_s b ON a.k = b.k AND abs(a.__time - b.__time) <= 3000, generate_series(0, 1) i "
        "WHERE a.id > 0 AND b.id > 0 GROUP BY 1, 2",
    ),
    "rows of one window": (
        "stream",
        "SELECT a.window_start, a.id, b.id AS other FROM TUMBLE(s, SIZE 10 SECONDS) a LEFT JOIN TUMBLE(s, SIZE 10 "
        "SECONDS) b ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end AND b.id > a.id",
        f"SELECT {_W.format('a')}, a.id, b.id FROM log_s a LEFT JOIN log_s b ON a.k = b.k AND a.__time / 10000 = "
        "b.__time / 10000 AND b.id > a.id AND b.id > 0 WHERE a.id > 0",
    ),
    "final windows joined": (
        "stream",
        f"SELECT a.window_start, a.k, a.n, b.n AS others FROM {_WINDOWED}window_end, k) a JOIN {_WINDOWED}window_end, "
        "k) b ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end",
        f"SELECT w, k, n, n FROM {_COUNTED} a WHERE k IS NOT NULL",
    ),
    "final windows within": (
        "stream",
        f"SELECT a.window_start, a.k, a.n, b.n AS before FROM {_WINDOWED}window_end, k) a LEFT JOIN "
        f"{_WINDOWED}window_end, k) b WITHIN 10 SECONDS ON a.k = b.k AND b.window_start < a.window_start",
        f"SELECT a.w, a.k, a.n, b.n FROM {_COUNTED} a LEFT JOIN {_COUNTED} b ON a.k = b.k AND b.w = a.w - "
        "interval '10 s'",
    ),
    "a join above a join": (
        "stream",
        "SELECT a.id, b.id AS one, x.id AS two FROM s a JOIN s b WITHIN 2 SECONDS ON a.k = b.k LEFT JOIN s x WITHIN "
        "1 SECOND ON b.id = x.id AND x.k <> 'k1'",
        "SELECT a.id, b.id, x.id FROM log_s a JOIN log_s b ON a.k = b.k AND abs(a.__time - b.__time) <= 2000 LEFT JOIN "
        "log_s x ON x.id = b.id AND x.k <> 'k1' AND abs(x.__time - greatest(a.__time, b.__time)) <= 1000 "
        "WHERE a.id >= 0 AND b.id >= 0",
    ),
    "a join of versions with a stream": (
        "stream",
        "SELECT s.id, c.v, b.id AS other FROM s JOIN c ON s.k = c.k JOIN s b WITHIN 2 SECONDS ON b.k = s.k",
        f"SELECT s.id, c.v, b.id FROM log_s s JOIN {_VERSION} JOIN log_s b ON b.k = s.k AND "
        "abs(b.__time - s.__time) <= 2000 WHERE s.id > 0 AND b.id > 0",
    ),
    "outer pairs grouped": (
        "view",
        "SELECT k, count(*) AS n, count(other) AS paired FROM (SELECT a.k, b.id AS other FROM s a FULL JOIN "
        "(SELECT * FROM s WHERE k = 'k1') b WITHIN 1 SECOND ON a.k = b.k AND a.id = b.id) x GROUP BY k",
        "SELECT k, count(*), count(*) FILTER (WHERE k = 'k1') FROM log_s WHERE id > 0 GROUP BY k",
    ),
    "groups of a subquery's windows": (
        "changelog",
        "SELECT ws, we, k, count(*) AS n FROM (SELECT window_start AS ws, window_end AS we, k FROM HOP(s, SIZE 10 "
        "SECONDS, ADVANCE BY 5 SECONDS)) x GROUP BY ws, we, k",
        "SELECT to_timestamp((__time / 5000 * 5000 - i * 5000) / 1000.0) AT TIME ZONE 'UTC' AS w, "
        "to_timestamp((__time / 5000 * 5000 - i * 5000 + 10000) / 1000.0) AT TIME ZONE 'UTC', k, count(*) "
        "FROM log_s, generate_series(0, 1) i WHERE id > 0 GROUP BY 1, 2, 3",
    ),
    "ranks of every row": (
        "stream",
        "SELECT id, row_number() OVER (PARTITION BY k ORDER BY rowtime()) AS n, rank() OVER (ORDER BY rowtime()) AS r, "
        "dense_rank() OVER (ORDER BY rowtime()) AS d, count(*) OVER (ORDER BY rowtime()) AS before FROM s",
        "SELECT id, row_number() OVER (PARTITION BY k ORDER BY __time, __offset), rank() OVER (ORDER BY __time), "
        "dense_rank() OVER (ORDER BY __time), count(*) OVER (ORDER BY __time) FROM log_s WHERE id > 0",
    ),
    "several ranks, one bounded": (
        "view",
        "SELECT g, k, r, rn, d FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY v DESC) AS rn, rank() OVER "
        "(PARTITION BY g ORDER BY v DESC) AS r, dense_rank() OVER (PARTITION BY g ORDER BY v DESC) AS d FROM c) "
        "WHERE d <= 2",
        "SELECT g, k, r, rn, d FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY v DESC NULLS LAST, "
        "__partition, __offset) AS rn, rank() OVER (PARTITION BY g ORDER BY v DESC NULLS LAST) AS r, dense_rank() OVER "
        "(PARTITION BY g ORDER BY v DESC NULLS LAST) AS d FROM c) x WHERE d <= 2",
    ),
    "neighbours": (
        "stream",
        "SELECT id, lag(id) OVER w AS one, lag(id, 2, -7) OVER w AS two, id - lag(id, 0) OVER w AS same, "
        "lag(k, 1, 'none') OVER (ORDER BY rowtime()) AS k FROM s",
        "SELECT id, lag(id) OVER w, lag(id, 2, -7) OVER w, 0, lag(k, 1, 'none') OVER (ORDER BY __time, "
        "__offset) FROM log_s WHERE id > 0 WINDOW w AS (PARTITION BY k ORDER BY __time, __offset)",
    ),
    "rows ahead": (
        "stream",
        "SELECT id, lead(id) OVER w AS next, lead(id, 2, 0) OVER w AS second, lag(id) OVER w AS before FROM s",
        "SELECT * FROM (SELECT id, lead(id) OVER w AS next, lead(id, 2) OVER w AS second, lag(id) OVER w FROM log_s "
        "WHERE id > 0 WINDOW w AS (PARTITION BY k ORDER BY __time, __offset)) x WHERE second IS NOT NULL",
    ),
}
_OVER = "(PARTITION BY k ORDER BY rowtime())"


@pytest.mark.parametrize("name", JOINED)
def test_what_comes_out_is_what_postgresql_computes(
    name: str, spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    want, sql, asked = JOINED[name]
    made = timed_relations(SEED)
    oracle = Oracle(postgres, made)
    rows, added = Feed(spark, tmp_path, made).run(sql.replace("OVER w ", f"OVER {_OVER} "), want)
    oracle.connection.execute("DELETE FROM log_s WHERE id < 0")
    assert [tuple(map(plain, r)) for r in rows] == [tuple(map(plain, r)) for r in oracle.rows(asked)]
    assert want == "view" or len(added) == len(rows), "what is final is told once"
    oracle.close()
