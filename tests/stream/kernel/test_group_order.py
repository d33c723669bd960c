"""The order in which rows come into an operator: no key comes behind one whose bytes are less."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.stream


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
