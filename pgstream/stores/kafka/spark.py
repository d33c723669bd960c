"""Kafka in the worker: a topic as a streaming DataFrame of raw records, and the client settings of sinks.

Owns: Spark's Kafka source and its options; where a query begins to read.
Must not know: formats, SQL, the checkpoint. The only file of this store that imports pyspark.
Start reading at ``KafkaStreams``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from pgstream.errors import InvalidOption
from pgstream.stores.kafka.client import java

# While catching up, a batch this large keeps Spark's fixed costs small and one core's memory bounded.
CATCH_UP_RECORDS = 500_000


class KafkaStreams:
    """A Kafka store seen from Spark."""

    def read(self, spark: SparkSession, source: Any, access: Any) -> DataFrame:
        """The records of a topic: key, value, ``__time``, ``__partition``, ``__offset``.

        Only committed records; offsets that are gone fail the query instead of being skipped.
        """
        reader = spark.readStream.format("kafka").option("subscribe", source.entity)
        for name, value in self.consumer(access.options, source.options).items():
            reader = reader.option(f"kafka.{name}", value)
        records = source.options.get("max.records.per.batch", str(CATCH_UP_RECORDS))
        raw = (
            reader.options(**starting(source.starting_position))
            .option("maxOffsetsPerTrigger", records)
            .option("failOnDataLoss", "true")
            # A broker that is away ends the batch soon: the query then says so, and is tried again.
            .option("fetchOffset.numRetries", "1")
            .option("kafkaConsumer.pollTimeoutMs", "15000")
            .load()
        )
        return raw.select(
            "key",
            "value",
            fn.col("timestamp").alias("__time"),
            fn.col("partition").alias("__partition"),
            fn.col("offset").alias("__offset"),
        )

    def consumer(self, store: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        """Settings of the source's consumers, ``kafka.consumer.*`` options last."""
        own = {"isolation.level": "read_committed", "fetch.max.wait.ms": "100", "max.partition.fetch.bytes": "4194304",
               "default.api.timeout.ms": "10000", "request.timeout.ms": "8000"}  # fmt: skip
        return own | java(store) | _family(given, "kafka.consumer.")

    def producer(self, store: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        """Settings of a sink's producers, ``kafka.producer.*`` options last."""
        return java(store) | _family(given, "kafka.producer.")


def starting(position: str) -> dict[str, str]:
    """Spark's options for a starting position: ``earliest``, ``latest``, or ``timestamp:<epoch milliseconds>``."""
    word, _, value = position.partition(":")
    if word in ("earliest", "latest"):
        return {"startingOffsets": word}
    if word == "timestamp" and value.isdigit():
        return {"startingTimestamp": value, "startingOffsetsByTimestampStrategy": "latest"}
    raise InvalidOption(what=f'invalid value for parameter "starting.position": "{position}"')


def _family(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
