"""Nothing of a run stays in what the JVM's libraries keep for ever. Each has a session, as in a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.server import Kafka, within
from tests.stream.kernel.conftest import Start, shown, topic

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


def loggers(spark: SparkSession) -> set[str]:
    jvm: Any = spark._jvm
    factory = jvm.org.slf4j.LoggerFactory.getILoggerFactory()
    return {str(n) for c in factory.getLoggerContexts() for n in factory.getLoggersInContext(c).keySet()}


def test_loggers_of_state_stores_go_with_their_run(spark: SparkSession, kafka: Kafka, start: Start) -> None:
    """Those of a run that goes on stay."""
    kafka.topic("remains", 1)
    kafka.produce("remains", [(None, "1"), (None, "2")])
    ends, stays = (start(topic(spark.newSession(), kafka, "remains").dropDuplicates(["v"])) for _ in range(2))
    within(30, lambda: shown(spark, ends) == shown(spark, stays) == 2)
    ended, running = (str(r.stream().runId()) for r in (ends, stays))

    def named(run: str) -> bool:
        return any(f"queryRunId={run}" in name for name in loggers(spark))

    assert named(ended) and named(running)
    kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    kernel.Kernel.stop(ends.query(), 0)
    within(30, lambda: not named(ended))
    assert named(running)


def test_what_a_state_store_writes_after_the_end_of_its_run_goes(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    folder = tmp_path / "checkpoint"
    path = jvm.org.apache.hadoop.fs.Path(str(folder))
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())  # type: ignore[union-attr]
    (folder / "state").mkdir(parents=True)
    jvm.org.apache.spark.sql.pgstream.Remains.remove(path, files, 1000)
    assert not folder.exists()
    (folder / "state").mkdir(parents=True)
    (folder / "state" / "7.zip").write_bytes(b"late")
    within(20, lambda: not folder.exists())


def test_places_for_fetched_records_go_when_they_hold_none(spark: SparkSession, kafka: Kafka, start: Start) -> None:
    """The pool itself lets the records go after a minute; here they are let go at once. It is that of Spark's reader,
    which reads what is no stream, or where ours has failed.
    """
    kafka.topic("remains_fetched", 3)
    for partition in range(3):
        kafka.produce("remains_fetched", [(None, "1")], partition=partition)
    run = start(topic(spark.newSession(), kafka, "remains_fetched"))
    within(30, lambda: shown(spark, run) == 3)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "remains_fetched"}
    assert spark.read.format("kafka").options(**options).load().count() == 3
    jvm: Any = spark._jvm
    of = jvm.java.lang.Class.forName("org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer$")
    pool = field(of, "fetchedDataPool", None)
    places = field(pool.getClass(), "cache", pool)
    keys = [k for k in iterated(places.keys()) if "remains_fetched" in k.toString()]
    assert len(keys) == 3
    for key in keys:
        places.apply(key).clear()
    kernel = jvm.org.apache.spark.sql.pgstream
    kernel.Kernel.stop(run.query(), 0)
    within(30, lambda: not any("remains_fetched" in k.toString() for k in iterated(places.keys())))


def field(of: Any, name: str, found: Any) -> Any:
    one = of.getDeclaredField(name)
    one.setAccessible(True)
    return one.get(found)


def iterated(found: Any) -> list[Any]:
    each, out = found.iterator(), []
    while each.hasNext():
        out.append(each.next())
    return out
