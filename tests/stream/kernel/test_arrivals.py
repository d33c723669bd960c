"""A query that has read everything waits until its topics have more, and asks by itself no more than once a second."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

from tests.server import Kafka, within
from tests.stream.kernel.conftest import Start, shown, topic

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


def test_it_waits_for_records_and_gets_them_at_once(spark: SparkSession, kafka: Kafka, start: Start) -> None:
    kafka.topic("arrivals", 2)
    kafka.produce("arrivals", [(None, "1")])
    run = start(topic(spark, kafka, "arrivals"))
    within(30, lambda: shown(spark, run) == 1)
    within(30, lambda: run.waits() > 0)
    before, began = run.waits(), time.monotonic()
    time.sleep(4)
    assert run.waits() - before <= time.monotonic() - began + 1
    for n in range(2, 7):
        time.sleep(0.3)
        kafka.produce("arrivals", [(None, str(n))])
        within(30, lambda n=n: shown(spark, run) == n, every=0.01)
    assert run.waits() - before > 5


def test_a_topic_that_is_gone_ends_it(spark: SparkSession, kafka: Kafka, start: Start) -> None:
    kafka.topic("arrivals_gone")
    kafka.produce("arrivals_gone", [(None, "1")])
    run = start(topic(spark, kafka, "arrivals_gone"))
    within(30, lambda: run.waits() > 1)
    kafka.admin.delete_topics(["arrivals_gone"])["arrivals_gone"].result(60)
    within(30, lambda: not run.stream().isActive())


def test_who_reads_something_else_asks_with_every_trigger(spark: SparkSession, kafka: Kafka, start: Start) -> None:
    kafka.topic("arrivals_too")
    other = spark.readStream.format("rate").option("rowsPerSecond", 1).load().selectExpr("CAST(value AS STRING) AS v")
    run = start(topic(spark, kafka, "arrivals_too").union(other))
    within(30, lambda: shown(spark, run) > 2)
    assert run.waits() == 0
