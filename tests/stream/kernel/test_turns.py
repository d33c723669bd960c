"""Queries that all want the worker's places for tasks take turns, whatever their names are."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

POOLS = [f"turns {name}" for name in "abcdefgh"]


@pytest.mark.stream
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_none_waits_for_ever(spark: SparkSession) -> None:
    """Eight, each with a job of one task of some 50 ms after another, on two places."""
    job = spark.range(0, 1, 1, 1).selectExpr("aggregate(sequence(id, 300000), 0L, (a, x) -> a + x)")
    done: Counter[str] = Counter()
    over = threading.Event()

    def work(pool: str) -> None:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        while not over.is_set():
            job._jdf.queryExecution().toRdd().count()
            done[pool] += 1

    threads = [InheritableThread(target=work, args=(pool,)) for pool in POOLS]
    for thread in threads:
        thread.start()
    while done.total() < 100 and all(t.is_alive() for t in threads):
        time.sleep(0.05)
    over.set()
    for thread in threads:
        thread.join()
    assert done.total() >= 100
    assert min(done[pool] for pool in POOLS) * 2 >= max(done.values()), done
