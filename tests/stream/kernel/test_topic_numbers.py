"""What a writer of a topic takes for its last batch: the offset of its group, whatever is under way."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from tests.server import Kafka

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
