"""A query on the kernel alone: no server, no worker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.server import Kafka

Start = Callable[..., Any]


def topic(spark: SparkSession, kafka: Kafka, name: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("subscribe", name).option("startingOffsets", "earliest")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.isolation.level": "read_committed"}
    return reader.options(**options).load().selectExpr("CAST(value AS STRING) AS v")


def shown(spark: SparkSession, run: Any) -> int:
    """The rows that its client has got."""
    kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    return int(getattr(getattr(kernel, "ResultSink$"), "MODULE$").client(run.query()).sent())


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Iterator[Start]:
    """Starts a query whose rows a client gets; the kernel's ``Run`` of it."""
    kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    begun: list[str] = []

    def start(df: DataFrame) -> Any:
        query = str(uuid.uuid4())
        sink = {"query": query, "attempt": 1, "checkpoint": str(tmp_path / query), "output_mode": "append",
                "trigger_ms": 50, "type": "result", "limit": None}  # fmt: skip
        counter = kernel.Kernel.counter(df._jdf, "none")
        kernel.Kernel.start(df._jdf, counter, counter, json.dumps(sink))
        begun.append(query)
        kernel.Kernel.more(query, 1000)
        return kernel.Watch.find(query).get()

    yield start
    for query in begun:
        kernel.Kernel.stop(query, 0)
        kernel.Kernel.forget(query)
    kernel.Watch.poll(0)
