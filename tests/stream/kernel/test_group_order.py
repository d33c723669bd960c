"""The order in which rows come into an operator: no key comes behind one whose bytes are less, nor twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Record, Relation

pytestmark = [
    pytest.mark.stream,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def keys(chance: random.Random) -> Iterator[bytes]:
    """Keys that begin alike, some for longer than is looked at, some of which are the beginning of others."""
    begins = [b"", b"\0" * 8, b"user_00", b"\xff" * 5, bytes(range(100, 228)), b"x" * 140]
    for _ in range(400):
        yield chance.choice(begins) + bytes(chance.choice([0, 1, 127, 128, 255]) for _ in range(chance.randrange(12)))


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_keys_is_that_of_their_bytes(seed: int, spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    place = jvm.org.apache.spark.sql.pgstream.KeyPlace()
    told = [(key, place.of(key)) for key in keys(random.Random(seed))]
    ordered = [n for _, n in sorted(told)]
    assert ordered == sorted(ordered)


def test_keys_that_begin_alike_are_told_apart(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    place = jvm.org.apache.spark.sql.pgstream.KeyPlace()
    numbers = random.Random(3).sample(range(100_000), 500)
    assert len({place.of(b"\0" * 16 + b"customer_%08d" % n) for n in numbers}) == 500


@pytest.mark.parametrize("seed", range(3))
def test_a_key_comes_once_in_a_batch(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Behind a NULL all other keys have one number, so that rows are compared."""
    chance = random.Random(seed)
    names = [None] * 8 + [f"k{chance.randrange(40)}" for _ in range(600)]
    records = [Record({"k": k, "v": i}, 1_700_000_000_000, 0, i) for i, k in enumerate(names)]
    feed = Feed(spark, tmp_path, [Relation("s", {"k": "VARCHAR", "v": "INTEGER"}, batches=[records])])
    _, added = feed.run("SELECT k, count(DISTINCT v) AS n FROM s GROUP BY k")
    assert sorted(added, key=str) == sorted(Counter(names).items(), key=str)
