"""What a writer of a topic takes for its last batch: the offset of its group, whatever is under way."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from tests.server import Kafka, within

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")]


@pytest.fixture(scope="module", autouse=True)
def numbers(kafka: Kafka) -> None:
    kafka.topic("numbers", 1)


class Offset:
    """The number of a batch, in a transaction that is not the writer's own and has no end yet."""

    def __init__(self, kafka: Kafka, group: str, number: int) -> None:
        settings = {"bootstrap.servers": kafka.bootstrap}
        self.producer = Producer({**settings, "transactional.id": f"other-{group}"})
        self.producer.init_transactions(30)
        self.producer.begin_transaction()
        consumer = Consumer({**settings, "group.id": group})
        at = [TopicPartition("numbers", 0, number)]
        self.producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 30)
        consumer.close()


def written(spark: SparkSession, kafka: Kafka, query: str, **more: str) -> int:
    """The last batch that a new writer believes is in."""
    jvm: Any = spark._jvm
    settings = jvm.PythonUtils.toScalaMap({"bootstrap.servers": kafka.bootstrap, **more})
    writer = jvm.org.apache.spark.sql.pgstream.KafkaWriter(query, 1, "all", "numbers", settings)
    try:
        return int(writer.written())
    finally:
        writer.close()


@pytest.mark.parametrize("before", [None, 4])
def test_an_offset_without_an_end_is_waited_for(spark: SparkSession, kafka: Kafka, before: int | None) -> None:
    query = f"waits-{before}"
    group = f"pgstream-{query}-all"
    if before is not None:
        Offset(kafka, group, before).producer.commit_transaction(30)
    assert written(spark, kafka, query) == (-1 if before is None else before)
    other = Offset(kafka, group, 7)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(written, spark, kafka, query)
        threading.Event().wait(2)
        assert not asked.done()
        other.producer.commit_transaction(30)
        assert asked.result(30) == 7


def test_an_offset_that_gets_no_end_is_an_error(spark: SparkSession, kafka: Kafka) -> None:
    other = Offset(kafka, "pgstream-unended-all", 7)
    soon = {"default.api.timeout.ms": "3000", "request.timeout.ms": "2000"}
    with pytest.raises(Exception, match="on topic numbers has neither been committed nor aborted"):
        written(spark, kafka, "unended", **soon)
    other.producer.abort_transaction(30)
    assert written(spark, kafka, "unended") == -1


def test_which_batch_any_task_has_written(spark: SparkSession, kafka: Kafka) -> None:
    jvm: Any = spark._jvm
    settings = jvm.PythonUtils.toScalaMap({"bootstrap.servers": kafka.bootstrap})
    writers = getattr(getattr(jvm.org.apache.spark.sql.pgstream, "KafkaWriter$"), "MODULE$")

    def any_in(prefix: str, batch: int) -> bool:
        return bool(writers.anyIn(prefix, batch, settings))

    assert not any_in("several-", 0)
    for writer, number in (("t0", 3), ("p12", 4), ("o1-t1", 6), ("all", 9), ("bad-a-p0", 9)):
        Offset(kafka, f"pgstream-several-{writer}", number).producer.commit_transaction(30)
    Offset(kafka, "pgstream-several-2-t0", 9).producer.commit_transaction(30)
    within(30, lambda: any_in("several-", 4) and not any_in("several-", 5))
    within(30, lambda: any_in("several-o1-", 6) and not any_in("several-o1-", 7))
    other = Offset(kafka, "pgstream-several-t1", 1)  # whether that comes in is not known
    assert any_in("several-", 5)
    other.producer.abort_transaction(30)
