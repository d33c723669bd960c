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
    "keyless inside": ("SELECT g, count(*) AS n FROM (SELECT g, v FROM c WHERE v IS NOT NULL) x GROUP BY g", ""),
    "groups of groups": (
        "SELECT n, count(*) AS groups, max(total) AS most FROM "
        "(SELECT k2, count(*) AS n, sum(v) AS total FROM s GROUP BY k2) x GROUP BY n",
        "",
    ),
    "distinct of a stream": ("SELECT k2, count(DISTINCT v) AS n, count(*) AS rows FROM s GROUP BY k2", ""),
}


def relations(seed: int) -> list[Relation]:
    """A changelog of few keys and a stream: six batches each."""
    r = random.Random(seed)
    c = Relation("c", {"k": "VARCHAR", "g": "VARCHAR", "v": "INTEGER", "s": "VARCHAR", "d": "DOUBLE",
                       "x": "DECIMAL(10,2)"}, ("k",))  # fmt: skip
    s = Relation("s", {"k2": "VARCHAR", "v": "INTEGER"})
    offset = 0
    for _ in range(6):
        rows, events = [], []
        for _ in range(r.randint(0, 12)):
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
    return [c, s]


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
    rows, _ = Feed(spark, tmp_path, made).run(sql)
    assert in_order([tuple(map(plain, r)) for r in rows]) == in_order(
        [tuple(map(plain, r)) for r in oracle.rows(asked or sql)]
    )
    oracle.close()


def plain(value: object) -> object:
    """Numbers alike, whatever their type."""
    if isinstance(value, list):
        return str([plain(v) for v in value])
    return round(float(value), 6) if isinstance(value, int | float) or hasattr(value, "quantize") else value
