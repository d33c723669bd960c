"""Random records, many of them replaced, deleted, null, doubled or late: what the kernel's operators leave behind is
what PostgreSQL computes of all the records at once. The seed stands in the test's name; another one by
``PGSTREAM_SEED=7``.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from tests.stream.kernel.feed import Feed, Oracle, Record, Relation, in_order

SEED = int(os.environ.get("PGSTREAM_SEED", "1"))
pytestmark = [
    pytest.mark.stream,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.parametrize("seed", [SEED]),
]


def once(column: str, which: str) -> str:
    """The distinct values of a column in a group of ``c``, and where each came first."""
    place = "min(__partition::bigint << 40 | __offset) AS f"
    return f"SELECT {column}, {place} FROM c o WHERE o.g IS NOT DISTINCT FROM c.g AND {which} GROUP BY {column}"


# What runs; and what PostgreSQL is asked where its words differ.
STATEMENTS = {
    "groups": (
        "SELECT g, count(*) AS n, count(v) AS nv, sum(v) AS total, min(v) AS low, max(s) AS high FROM c GROUP BY g",
        "",
    ),
    "means": (
        "SELECT g, avg(v) AS mean, avg(d) AS fine, stddev(d) AS dev, stddev_pop(d) AS pop, var_samp(d) AS vs, "
        "sum(x) AS money, avg(x) AS share FROM c GROUP BY g",
        "SELECT g, trunc(avg(v))::int, avg(d), stddev(d), stddev_pop(d), var_samp(d), sum(x), round(avg(x), 6) "
        "FROM c GROUP BY g",
    ),
    "distinct": (
        "SELECT g, count(DISTINCT v) AS n, sum(DISTINCT v) AS total, count(DISTINCT s) AS names FROM c GROUP BY g",
        "",
    ),
    "having": ("SELECT g, sum(v) AS total FROM c WHERE v > 2 GROUP BY g HAVING count(*) BETWEEN 2 AND 4", ""),
    "filtered": (
        "SELECT g, count(*) FILTER (WHERE v > 4) AS many, sum(v) FILTER (WHERE s = 'a') AS a FROM c GROUP BY g",
        "",
    ),
    "whole": ("SELECT count(*) AS n, sum(v) AS total, max(v) AS high, count(DISTINCT g) AS groups FROM c", ""),
    "in order": (
        "SELECT g, listagg(s, '|') AS names, first_value(v) AS first, array_agg(v) AS every FROM c GROUP BY g",
        "SELECT g, string_agg(s, '|' ORDER BY __partition, __offset), "
        "(array_agg(v ORDER BY __partition, __offset) FILTER (WHERE v IS NOT NULL))[1], "
        "array_agg(v ORDER BY __partition, __offset) FROM c GROUP BY g",
    ),
    "in order, each once": (
        "SELECT g, listagg(DISTINCT s, '|') AS names, array_agg(DISTINCT v) AS every, "
        "first_value(DISTINCT v) AS first, array_agg(v) FILTER (WHERE s = 'a' OR v > 3) AS some, "
        "array_agg(DISTINCT s) FILTER (WHERE v > 2) AS few "
        "FROM c GROUP BY g",
        f"SELECT g, (SELECT string_agg(s, '|' ORDER BY f) FROM ({once('s', 's IS NOT NULL')}) x), "
        f"(SELECT array_agg(v ORDER BY f) FROM ({once('v', 'true')}) x), "
        "(array_agg(v ORDER BY __partition, __offset) FILTER (WHERE v IS NOT NULL))[1], "
        "array_agg(v ORDER BY __partition, __offset) FILTER (WHERE s = 'a' OR v > 3), "
        f"(SELECT array_agg(s ORDER BY f) FROM ({once('s', 'v > 2')}) x) FROM c GROUP BY g",
    ),
    "keyless inside": ("SELECT g, count(*) AS n FROM (SELECT g, v FROM c WHERE v IS NOT NULL) x GROUP BY g", ""),
    "groups without their key": ("SELECT n FROM (SELECT k2, count(*) AS n FROM s GROUP BY k2) x WHERE n > 1", ""),
    "groups of groups": (
        "SELECT n, count(*) AS groups, max(total) AS most FROM "
        "(SELECT k2, count(*) AS n, sum(v) AS total FROM s GROUP BY k2) x GROUP BY n",
        "",
    ),
    "changelogs": ("SELECT c.k, c.v, e.w FROM c JOIN e ON c.g = e.g", ""),
    "changelogs, left": ("SELECT c.k, c.s, e.w FROM c LEFT JOIN e ON e.g = c.g WHERE c.v > 1", ""),
    "changelogs, full, no key to key": (
        "SELECT c.k, e.g, c.v, e.w FROM c FULL JOIN e ON c.v = e.w",
        "",
    ),
    "groups by NULL on both sides": (
        "SELECT a.k2, a.n, b.g, b.m FROM (SELECT k2, count(*) AS n FROM s GROUP BY k2) a FULL JOIN "
        "(SELECT g, count(*) AS m FROM c GROUP BY g) b ON a.k2 = b.g",
        "",
    ),
    "with what is said of all": (
        "SELECT c.k, c.v, t.total, t.n FROM c CROSS JOIN (SELECT sum(w) AS total, count(*) AS n FROM e) t",
        "",
    ),
    "above the mean, into a topic": (
        "SELECT c.k, c.v FROM c JOIN (SELECT avg(CAST(v AS DOUBLE)) AS mean FROM c) t ON c.v > t.mean",
        "SELECT c.k, c.v FROM c WHERE c.v > (SELECT avg(v) FROM c)",
    ),
    "the greatest or nothing": (
        "SELECT c.k, t.top FROM c LEFT JOIN (SELECT max(v) AS top FROM c) t ON c.v = t.top AND c.g IS NOT NULL",
        "SELECT c.k, t.top FROM c LEFT JOIN (SELECT max(v) AS top FROM c) t ON c.v = t.top AND c.g IS NOT NULL",
    ),
    "those who are there": ("SELECT k, v FROM c WHERE g IN (SELECT g FROM e WHERE w > 1) AND v IS NOT NULL", ""),
    "groups of those above the mean": (
        "SELECT g, count(*) AS n, sum(v) AS t FROM c WHERE v >= (SELECT avg(CAST(v AS DOUBLE)) FROM c) + 1 GROUP BY g",
        "SELECT g, count(*) AS n, sum(v) AS t FROM c WHERE v >= (SELECT avg(v) FROM c) + 1 GROUP BY g",
    ),
    "a row of two": (
        "SELECT a.n, b.total, a.n * 2 > b.total AS more FROM (SELECT count(*) AS n FROM c WHERE v > 100000) a, "
        "(SELECT sum(v) AS total FROM c) b",
        "",
    ),
    "changelogs, into a topic": ("SELECT c.k, c.v, e.g AS at, e.w FROM c LEFT JOIN e ON c.v = e.w", ""),
    "changelogs, then groups": (
        "SELECT e.w, count(*) AS n, sum(c.v) AS total FROM c JOIN e ON c.g = e.g GROUP BY e.w",
        "",
    ),
    "distinct of a stream": ("SELECT k2, count(DISTINCT v) AS n, count(*) AS rows FROM s GROUP BY k2", ""),
}


def relations(seed: int) -> list[Relation]:
    """Two changelogs of few keys and a stream: four batches each."""
    r = random.Random(seed)
    c = Relation("c", {"k": "VARCHAR", "g": "VARCHAR", "v": "INTEGER", "s": "VARCHAR", "d": "DOUBLE",
                       "x": "DECIMAL(10,2)"}, ("k",))  # fmt: skip
    s = Relation("s", {"k2": "VARCHAR", "v": "INTEGER"})
    offset = 0
    for _ in range(4):
        rows, events = [], []
        for _ in range(r.randint(0, 18)):
            offset += 1
            key = f"k{r.randint(1, 8)}"
            time = 1_700_000_000_000 + offset * 1000 - r.choice([0, 0, 0, 5000, 500_000])
            values = {"k": key, "g": r.choice(["a", "b", "c", None]), "v": r.choice([None, *range(1, 7)]),
                      "s": r.choice([None, "a", "b", "c"]), "d": r.choice([None, r.randint(1, 40) / 4]),
                      "x": r.choice([None, r.randint(1, 999)])}  # fmt: skip
            gone = r.random() < 0.25
            rows.append(Record({"k": key} if gone else values, time, hash_of(key), offset, gone))
            if r.random() < 0.2 and not gone:
                offset += 1
                rows.append(Record(values, time, hash_of(key), offset))
            events.append(
                Record({"k2": r.choice(["p", "q", "r", None]), "v": r.choice([None, 1, 2, 3])}, time, 0, offset)
            )
        r.shuffle(rows)  # the shuffle's order means nothing, the offset does
        c.batches.append(rows)
        s.batches.append(events)
    e = Relation("e", {"g": "VARCHAR", "w": "INTEGER"}, ("g",))
    for number in range(4):
        batch = []
        for i in range(r.randint(0, 5)):
            gone, g = r.random() < 0.3, r.choice("abcd")
            values = {"g": g} | ({} if gone else {"w": r.choice([None, 1, 2, 3])})
            batch.append(Record(values, 1_700_000_000_000 + number, 0, 10 * number + i, gone))
        e.batches.append(batch)
    return [c, s, e]


def hash_of(key: str) -> int:
    """The partition of a key."""
    return sum(key.encode()) % 2


@pytest.fixture(scope="module")
def postgres(workspace: Path) -> Iterator[str]:
    p = asyncio.run(open_postgres(Config(data_dir=workspace / "oracle")))
    yield p.url("postgres")
    asyncio.run(p.stop())


@pytest.mark.parametrize("name", STATEMENTS)
def test_result_is_that_of_the_whole(name: str, seed: int, spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    sql, asked = STATEMENTS[name]
    made = relations(seed)
    oracle = Oracle(postgres, made)
    rows, _ = Feed(spark, tmp_path, made).run(sql, "changelog" if "topic" in name else "view")
    assert in_order([tuple(map(plain, r)) for r in rows]) == in_order(
        [tuple(map(plain, r)) for r in oracle.rows(asked or sql)]
    )
    oracle.close()


# A row of the stream meets what the changelog held at its event time: of PostgreSQL a LATERAL lookup in all records.
_VALID = """(SELECT * FROM (SELECT * FROM log_{0} c WHERE c.k = s.k AND c.__time <= s.__time
    ORDER BY c.__time DESC, c.__partition DESC, c.__offset DESC LIMIT 1) x WHERE NOT __delete) {0} ON true"""
TEMPORAL = {
    "inner": (
        "SELECT s.id, s.k, c.v FROM s JOIN c ON s.k = c.k",
        f"SELECT s.id, s.k, c.v FROM log_s s JOIN LATERAL {_VALID.format('c')}",
    ),
    "left, the sides exchanged": (
        "SELECT s.id, c.v, c.g FROM s LEFT JOIN c ON c.k = s.k",
        f"SELECT s.id, c.v, c.g FROM log_s s LEFT JOIN LATERAL {_VALID.format('c')}",
    ),
    "two changelogs": (
        "SELECT s.id, c.v, d.v AS w FROM s JOIN c ON s.k = c.k LEFT JOIN d ON s.k = d.k WHERE c.v > 1",
        f"SELECT s.id, c.v, d.v FROM log_s s JOIN LATERAL {_VALID.format('c')} "
        f"LEFT JOIN LATERAL {_VALID.format('d')} WHERE c.v > 1",
    ),
    "then a group": (
        "SELECT c.g, count(*) AS n, sum(s.id) AS ids FROM s JOIN c ON s.k = c.k GROUP BY c.g",
        f"SELECT c.g, count(*), sum(s.id) FROM log_s s JOIN LATERAL {_VALID.format('c')} GROUP BY c.g",
    ),
}


_AT = "to_timestamp({}/ 1000.0) AT TIME ZONE 'UTC'"
_TUMBLE = _AT.format("(__time / 10000 * 10000)")
# Windows: (what is wanted, the statement, what PostgreSQL is asked). Final windows do not hold the last row.
WINDOWS = {
    "distinct, final": (
        "changelog",
        "SELECT window_start, count(DISTINCT k) AS n, count(*) AS rows, max(id) AS most "
        "FROM TUMBLE(s, SIZE 10 SECONDS) GROUP BY window_start",
        f"SELECT {_TUMBLE}, count(DISTINCT k), count(*), max(id) FROM log_s WHERE id > 0 GROUP BY 1",
    ),
    "distinct, running": (
        "view",
        "SELECT window_end, k, count(DISTINCT id) AS n FROM HOP(s, SIZE 10 SECONDS, ADVANCE BY 5 SECONDS) "
        "GROUP BY window_end, k",
        f"SELECT {_AT.format('(__time / 5000 * 5000 + i * 5000)')}, k, count(DISTINCT id) "
        "FROM log_s, generate_series(1, 2) i GROUP BY 1, 2",
    ),
    "cumulating": (
        "changelog",
        "SELECT window_start, window_end, count(*) AS n, sum(id) AS ids "
        "FROM CUMULATE(s, SIZE 20 SECONDS, ADVANCE BY 5 SECONDS) GROUP BY window_start, window_end",
        f"SELECT {_AT.format('(__time / 20000 * 20000)')}, {_AT.format('(__time / 20000 * 20000 + i * 5000)')}, "
        "count(*), sum(id) FROM log_s, generate_series(1, 4) i "
        "WHERE id > 0 AND __time % 20000 < i * 5000 GROUP BY 1, 2",
    ),
    "sessions": (
        "view",
        "SELECT window_start, window_end, k, count(*) AS n FROM SESSION(s, GAP 3 SECONDS) "
        "GROUP BY window_start, window_end, k",
        f"SELECT {_AT.format('min(__time)')}, {_AT.format('(max(__time) + 3000)')}, k, count(*) FROM "
        "(SELECT *, sum(new) OVER (PARTITION BY k ORDER BY __time, id) AS n FROM (SELECT *, CASE WHEN __time - "
        "lag(__time) OVER (PARTITION BY k ORDER BY __time, id) <= 3000 THEN 0 ELSE 1 END AS new FROM log_s "
        "WHERE id > 0) x) y GROUP BY k, n",
    ),
    "windows without their bounds": (
        "view",
        "SELECT k, n FROM (SELECT window_start, window_end, k, count(*) AS n FROM TUMBLE(s, SIZE 10 SECONDS) "
        "GROUP BY window_start, window_end, k) x WHERE n > 1",
        f"SELECT k, n FROM (SELECT {_TUMBLE}, k, count(*) AS n FROM log_s WHERE id > 0 GROUP BY 1, 2) x WHERE n > 1",
    ),
    "windows grouped again": (
        "view",
        "SELECT n, count(*) AS windows FROM (SELECT window_start, k, count(*) AS n FROM TUMBLE(s, SIZE 10 SECONDS) "
        "GROUP BY window_start, k) x GROUP BY n",
        f"SELECT n, count(*) FROM (SELECT {_TUMBLE}, k, count(*) AS n FROM log_s WHERE id > 0 GROUP BY 1, 2) x "
        "GROUP BY n",
    ),
    "distinct rows": ("stream", "SELECT DISTINCT k FROM s", "SELECT DISTINCT k FROM log_s"),
    "distinct rows of a changelog": ("view", "SELECT DISTINCT g, v FROM c", "SELECT DISTINCT g, v FROM c"),
}


def timed_relations(seed: int) -> list[Relation]:
    """A stream and two changelogs, out of order within the lateness bound; some rows of the stream far beyond it.

    The last batch moves time on for all, so that nothing waits any more.
    """
    r = random.Random(seed)
    s = Relation("s", {"k": "VARCHAR", "id": "INTEGER"})
    logs = [Relation(n, {"k": "VARCHAR", "g": "VARCHAR", "v": "INTEGER"}, ("k",)) for n in ("c", "d")]
    clock, offset = 1_700_000_000_000, 0
    for number in range(6):
        for relation in (s, *logs):
            rows = []
            for i in range(r.randint(1, 10)):
                offset += 1
                time = clock + i * 700 - r.choice([0, 0, 0, 700, 4000])
                key = f"k{r.randint(1, 5)}"
                if relation is s:
                    late = number > 0 and r.random() < 0.1
                    values = {"k": r.choice([key, key, key, None]), "id": -offset if late else offset}
                    rows.append(Record(values, time - 900_000 if late else time, 0, offset))
                else:
                    gone = r.random() < 0.2
                    values = {"k": key} | ({} if gone else {"g": r.choice("ab"), "v": r.choice([None, 1, 2, 3])})
                    rows.append(Record(values, time, hash_of(key), offset, gone))
            r.shuffle(rows)
            relation.batches.append(rows)
        clock += 8_000
    for relation in (s, *logs):
        relation.batches.append([Record({"k": "end", "id": 0}, clock + 10_000_000, 0, offset + 1, relation is not s)])
    return [s, *logs]


@pytest.mark.parametrize("name", TEMPORAL)
def test_a_stream_meets_the_version_of_its_time(
    name: str, seed: int, spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    sql, asked = TEMPORAL[name]
    made = timed_relations(seed)
    oracle = Oracle(postgres, made)
    feed = Feed(spark, tmp_path, made)
    rows, _ = feed.run(sql)
    # Late rows are dropped, the last one waits still.
    oracle.connection.execute("DELETE FROM log_s WHERE id <= 0")
    assert rows == oracle.rows(asked)
    oracle.close()
    assert feed.late == sum(x.values["id"] < 0 for batch in made[0].batches for x in batch)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_hold_what_came_in_time(
    name: str, seed: int, spark: SparkSession, postgres: str, tmp_path: Path
) -> None:
    want, sql, asked = WINDOWS[name]
    made = timed_relations(seed)
    oracle = Oracle(postgres, made)
    rows, added = Feed(spark, tmp_path, made).run(sql, want)
    oracle.connection.execute("DELETE FROM log_s WHERE id < 0" if "TUMBLE" in sql or "(s," in sql else "SELECT")
    assert rows == oracle.rows(asked)
    assert want == "view" or len(added) == len(rows), "what is final is told once"
    oracle.close()


def plain(value: object) -> object:
    """Numbers alike, whatever their type."""
    if isinstance(value, list):
        return str([plain(v) for v in value])
    return round(float(value), 6) if isinstance(value, int | float) or hasattr(value, "quantize") else value
