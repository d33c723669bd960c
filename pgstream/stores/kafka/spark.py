"""Kafka in the worker: a topic as a streaming DataFrame of raw records, and the client settings of sinks.

Owns: Spark's Kafka source and its options; where a query begins to read.
Must not know: formats, SQL, the checkpoint. The only file of this store that imports pyspark.
Start reading at ``KafkaStreams``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming import DataStreamReader

from pgstream.errors import InvalidOption
from pgstream.stores.kafka.client import java
from pgstream.stores.kafka.options import FETCHING, SENDING

# While catching up, a batch this large keeps Spark's fixed costs small and one core's memory bounded.
CATCH_UP_RECORDS = "500000"
_KIND = "element_at(array('CreateTime', 'LogAppendTime'), timestampType + 1)"


class KafkaStreams:
    """A Kafka store seen from Spark."""

    def read(self, spark: SparkSession, source: Any, access: Any, query: str) -> DataFrame:
        """The records of a topic, with ``__headers`` and ``__metadata``.

        Only committed records; offsets that are gone fail the query instead of being skipped.
        """
        most = source.options.get("source.max.records.per.trigger", CATCH_UP_RECORDS)
        return _shaped(self._reader(spark, source, access, query).option("maxOffsetsPerTrigger", most).load())

    def follow(self, spark: SparkSession, source: Any, access: Any, query: str) -> DataFrame:
        """The same of a query that runs in real time: a batch has no end that is known before."""
        jvm: Any = spark._jvm
        raw = self._reader(spark, source, access, query).load()
        kernel = jvm.org.apache.spark.sql.pgstream.Kernel
        return _shaped(DataFrame(kernel.realTime(raw._jdf, query), spark))

    def asks(self, source: Any, access: Any) -> dict[str, Any]:
        return {"topic": source.entity, "properties": self.consumer(access.options, source.options)}

    def _reader(self, spark: SparkSession, source: Any, access: Any, query: str) -> DataStreamReader:
        reader = spark.readStream.format("kafka").option("subscribe", source.entity)
        settings = self.consumer(access.options, source.options)
        for name, value in settings.items():
            reader = reader.option(f"kafka.{name}", value)
        return (
            reader.options(**starting(source.starting_position, lambda: _partitions(spark, settings, source.entity)))
            .option("groupIdPrefix", f"pgstream-{query}")
            .option("failOnDataLoss", "true")
            .option("includeHeaders", "true")
            # A broker that is away ends the batch soon: the query then says so, and is tried again.
            .option("fetchOffset.numRetries", "1")
            .option("kafkaConsumer.pollTimeoutMs", "15000")
        )

    def write(self, sink: Any, access: Any) -> dict[str, Any]:
        """A topic, by transactional producers (``KafkaSink.scala``)."""
        return {"type": "kafka", "properties": self.producer(access.options, sink.options)}

    def bad_records(self, access: Any) -> dict[str, str]:
        return self.producer(access.options, {})

    def consumer(self, store: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        """Settings of the source's consumers, ``kafka.consumer.*`` options last."""
        own = {"isolation.level": "read_committed", "fetch.max.wait.ms": "100", "max.partition.fetch.bytes": "4194304",
               "default.api.timeout.ms": "10000", "request.timeout.ms": "8000"}  # fmt: skip
        asked = java(store) | _both(given, FETCHING) | _family(given, "kafka.consumer.")
        if "request.timeout.ms" in asked:
            del own["default.api.timeout.ms"]  # Kafka wants it to be no shorter
        return own | asked

    def producer(self, store: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        """Settings of a sink's producers, ``kafka.producer.*`` options last."""
        return java(store) | _both(given, SENDING) | _family(given, "kafka.producer.")


def starting(position: str, partitions: Callable[[], tuple[str, int]]) -> dict[str, str]:
    """Spark's options for a starting position, as ``values.position`` spells it; with ``earliest:`` and offsets the
    records that come first there must be those.

    ``partitions``: the topic's name and how many it has. Spark wants an offset of each, of which -2 is the earliest.
    """
    word, _, value = position.partition(":")
    if word == "timestamp":
        return {"startingTimestamp": value, "startingOffsetsByTimestampStrategy": "latest"}
    if not value:
        return {"startingOffsets": word}
    said = {int(p): int(o) for p, o in (pair.split(":") for pair in value.split(","))}
    topic, count = partitions()
    if max(said) >= count:
        raise InvalidOption(
            what=f'invalid value for parameter "starting.position": topic "{topic}" has no partition {max(said)}',
            hint=f"Its partitions are 0 to {count - 1}.",
        )
    return {"startingOffsets": json.dumps({topic: {str(p): said.get(p, -2) for p in range(count)}})}


def _shaped(raw: DataFrame) -> DataFrame:
    return raw.select(
        "key",
        "value",
        fn.col("timestamp").alias("__time"),
        fn.col("partition").alias("__partition"),
        fn.col("offset").alias("__offset"),
        fn.col("headers").alias("__headers"),
        fn.expr(f"struct(topic, partition, offset, {_KIND} AS timestamp_type)").alias("__metadata"),
    )


def _partitions(spark: SparkSession, settings: Mapping[str, str], topic: str) -> tuple[str, int]:
    jvm: Any = spark._jvm
    return topic, int(jvm.org.apache.spark.sql.pgstream.Topics.partitions(dict(settings), topic))


def _both(given: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in _family(given, "kafka.properties.").items() if name.lower() in known}


def _family(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
