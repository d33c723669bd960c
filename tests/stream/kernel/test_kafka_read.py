"""Kafka's records are read on from where the batch before ended; Spark's reader takes over where that fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.server import Kafka, within

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

Record = tuple[int, int, str]
PARTITIONS = 2


@pytest.fixture
def consumers(spark: SparkSession) -> Iterator[Any]:
    jvm: Any = spark._jvm
    consumers = getattr(getattr(jvm.org.apache.spark.sql.kafka010.pgstream, "Consumers$"), "MODULE$")
    consumers.look(0)
    yield consumers
    consumers.look(0)


def read(spark: SparkSession, kafka: Kafka, topic: str, at: Path, times: int = 1, **more: str) -> list[list[Record]]:
    """What a query reads to the topic's end, batch by batch, each ``times`` over; it goes on where the one before
    ended."""
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    reader = session.readStream.format("kafka").option("subscribe", topic).option("startingOffsets", "earliest")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.isolation.level": "read_committed",
               "groupIdPrefix": f"pgstream-{at.name}", **more}  # fmt: skip
    rows = reader.options(**options).load().selectExpr("partition", "offset", "CAST(value AS STRING) AS v")
    told: list[list[Record]] = []

    def tell(df: Any, batch: int) -> None:
        found = [sorted(map(tuple, df.collect())) for _ in range(times)]
        assert found == found[:1] * times
        told.append(found[0])

    query = rows.writeStream.foreachBatch(tell).trigger(availableNow=True).option("checkpointLocation", str(at)).start()
    query.awaitTermination()
    assert "KafkaRead" in query._jsq.streamingQuery().lastExecution().executedPlan().toString()
    assert sum(p["numInputRows"] for p in query.recentProgress) == times * sum(map(len, told))
    return told


def there(kafka: Kafka, topic: str) -> list[Record]:
    """The same by a client of another kind."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "enable.auto.commit": False,
                "enable.partition.eof": True, "isolation.level": "read_committed"}  # fmt: skip
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found: list[Record] = []
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is not None:
            ends += 1
        else:
            found.append((message.partition(), message.offset(), message.value().decode()))
    consumer.close()
    return sorted(found)


def produce(kafka: Kafka, topic: str, name: str, transactions: str) -> None:
    """Thirteen records in each partition for each transaction: ``c`` is committed, ``a`` aborted, ``-`` is none."""
    plain = Producer({"bootstrap.servers": kafka.bootstrap})
    bound = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{name}"})
    bound.init_transactions(30)
    for n, kind in enumerate(transactions):
        producer = plain if kind == "-" else bound
        if kind != "-":
            bound.begin_transaction()
        for i in range(13):
            for p in range(PARTITIONS):
                producer.produce(topic, f"{name}{n}.{i}".encode(), partition=p)
        producer.flush(30)
        if kind == "c":
            bound.commit_transaction(30)
        elif kind == "a":
            bound.abort_transaction(30)
    # The brokers answer before each partition knows how a transaction ended; until then its readers stop before it.
    within(30, lambda: _ends(kafka, topic, "COMMITTED") == _ends(kafka, topic, "UNCOMMITTED"))


def _ends(kafka: Kafka, topic: str, isolation: str) -> list[int]:
    """Where readers of a topic's partitions stop."""
    asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
    found = kafka.admin.list_offsets(asked, isolation_level=IsolationLevel[f"READ_{isolation}"])
    return [future.result(30).offset for future in found.values()]


@pytest.mark.parametrize("most", ["7", "26", "1000"])
def test_each_record_comes_once_whatever_ends_a_batch(
    spark: SparkSession, kafka: Kafka, consumers: Any, tmp_path: Path, most: str
) -> None:
    topic = f"onward_{most}"
    kafka.topic(topic, PARTITIONS)
    produce(kafka, topic, "x", "-ca-aac")
    first = read(spark, kafka, topic, tmp_path / "at", maxOffsetsPerTrigger=most)
    assert sorted(chain(*first)) == there(kafka, topic)
    assert consumers.held() == PARTITIONS
    produce(kafka, topic, "y", "ac-a")
    second = read(spark, kafka, topic, tmp_path / "at", maxOffsetsPerTrigger=most)
    assert sorted(chain(*first, *second)) == there(kafka, topic)
    assert consumers.held() == 2 * PARTITIONS  # each start has its own


def test_what_is_read_once_more_is_the_same(spark: SparkSession, kafka: Kafka, consumers: Any, tmp_path: Path) -> None:
    kafka.topic("onward_again", PARTITIONS)
    produce(kafka, "onward_again", "x", "-cac-")
    batches = read(spark, kafka, "onward_again", tmp_path / "at", times=3, maxOffsetsPerTrigger="14")
    assert sorted(chain(*batches)) == there(kafka, "onward_again")


def test_two_who_read_a_topic_do_not_share_a_place(
    spark: SparkSession, kafka: Kafka, consumers: Any, tmp_path: Path
) -> None:
    kafka.topic("onward_two", PARTITIONS)
    produce(kafka, "onward_two", "x", "-c-")
    for most in ("10", "30"):
        batches = read(spark, kafka, "onward_two", tmp_path / most, maxOffsetsPerTrigger=most)
        assert sorted(chain(*batches)) == there(kafka, "onward_two")


def test_more_queries_than_places_for_clients(
    spark: SparkSession, kafka: Kafka, consumers: Any, tmp_path: Path
) -> None:
    """They take those of others, and jump, where each would find that its own was closed for the one before."""
    kafka.topic("onward_many", PARTITIONS)
    produce(kafka, "onward_many", "first", "-c")
    most, before = consumers.most(), consumers.made()
    consumers.bound(2 * PARTITIONS)
    told: list[list[Record]] = []
    queries = []
    try:
        for number in range(4):
            got: list[Record] = []
            told.append(got)
            reader = spark.newSession().readStream.format("kafka").option("subscribe", "onward_many")
            options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.isolation.level": "read_committed",
                       "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(10 + number),
                       "groupIdPrefix": f"pgstream-{number}"}  # fmt: skip
            rows = reader.options(**options).load().selectExpr("partition", "offset", "CAST(value AS STRING) AS v")
            write = rows.writeStream.foreachBatch(lambda df, _, got=got: got.extend(map(tuple, df.collect())))
            queries.append(write.option("checkpointLocation", str(tmp_path / str(number))).start())

        def all_read() -> bool:
            wanted = there(kafka, "onward_many")
            return all(sorted(got) == wanted for got in told)

        within(60, all_read)
        made = consumers.made()
        assert made - before >= 2 * PARTITIONS
        for name in "xyz":
            produce(kafka, "onward_many", name, "-c")
            within(60, all_read)
        assert consumers.made() == made
        assert consumers.held() == 2 * PARTITIONS
    finally:
        for query in queries:
            query.stop()
        consumers.bound(most)


def test_records_that_are_gone_are_told_as_ever(
    spark: SparkSession, kafka: Kafka, consumers: Any, tmp_path: Path
) -> None:
    kafka.topic("onward_gone", PARTITIONS)
    produce(kafka, "onward_gone", "x", "-")
    read(spark, kafka, "onward_gone", tmp_path / "at")
    consumers.look(0)  # one that is left may have fetched what is to go
    produce(kafka, "onward_gone", "y", "--")
    gone = [TopicPartition("onward_gone", p, 20) for p in range(PARTITIONS)]
    for future in kafka.admin.delete_records(gone).values():
        future.result(30)
    with pytest.raises(StreamingQueryException, match="Some data may have been lost"):
        read(spark, kafka, "onward_gone", tmp_path / "at")
    rest = read(spark, kafka, "onward_gone", tmp_path / "at", failOnDataLoss="false")
    assert [r[1] for r in chain(*rest)] == [*range(20, 39)] * PARTITIONS


def test_a_client_in_use_meets_records_that_are_gone(
    spark: SparkSession, kafka: Kafka, consumers: Any, tmp_path: Path
) -> None:
    kafka.topic("onward_under", PARTITIONS)
    produce(kafka, "onward_under", "x", "-")
    told: list[int] = []

    def tell(df: Any, batch: int) -> None:
        told.extend(r.offset for r in df.collect())
        if batch == 0:
            time.sleep(1)  # the client has asked for what comes next: the broker keeps that for half a second
            produce(kafka, "onward_under", "y", "--")
            gone = [TopicPartition("onward_under", p, 20) for p in range(PARTITIONS)]
            for future in kafka.admin.delete_records(gone).values():
                future.result(30)

    reader = spark.readStream.format("kafka").option("subscribe", "onward_under").option("startingOffsets", "earliest")
    rows = reader.options(**{"kafka.bootstrap.servers": kafka.bootstrap, "failOnDataLoss": "false"}).load()
    query = rows.writeStream.foreachBatch(tell).option("checkpointLocation", str(tmp_path / "at")).start()
    try:
        within(60, lambda: len(told) >= (13 + 19) * PARTITIONS)
    finally:
        query.stop()
    assert sorted(told) == sorted([*range(13), *range(20, 39)] * PARTITIONS)


def test_clients_that_nobody_reads_with_are_closed(
    spark: SparkSession, kafka: Kafka, consumers: Any, tmp_path: Path
) -> None:
    kafka.topic("onward_idle", PARTITIONS)
    produce(kafka, "onward_idle", "x", "-")
    read(spark, kafka, "onward_idle", tmp_path / "at")
    consumers.look(60_000)
    assert consumers.held() == PARTITIONS
    consumers.look(0)
    assert consumers.held() == 0
    produce(kafka, "onward_idle", "y", "-")
    assert sum(map(len, read(spark, kafka, "onward_idle", tmp_path / "at"))) == 13 * PARTITIONS
