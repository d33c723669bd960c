"""What a small batch leaves out: looking for ended windows where none can have ended, a plan that is only told."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from tests.server import Kafka, within
from tests.stream.kernel.conftest import Start, topic

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

# Seconds of event time, batch by batch: a window ends in the third, the sixth and the last; two rows are late.
BATCHES = [[1, 2, 9], [12, 8], [13, 11], [14, 3], [15], [31, 19], [32], [33, 29, 31], [64]]
GAP = "INTERVAL 1 SECOND"


def feed(folder: Path, batches: Sequence[Sequence[int]], first: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    for i, times in enumerate(batches, first):
        file = folder / f"{i:02}.json"
        file.write_text("".join(json.dumps({"t": t, "k": f"k{t % 2}"}) + "\n" for t in times))
        os.utime(file, (1_000_000 + i, 1_000_000 + i))  # they are read in this order


def windows(spark: SparkSession, folder: Path, every: int, at: Path, window: Sequence[str]) -> list[dict[str, Any]]:
    """Groups of windows over what is in the folder, to its end: of each batch what became of its state, its rows."""
    session = spark.newSession()
    session.conf.set("spark.pgstream.windows.every", str(every))
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    rows = session.readStream.schema("t BIGINT, k STRING").option("maxFilesPerTrigger", 1).json(str(folder))
    timed = rows.select("k", fn.timestamp_seconds("t").alias("__time")).withWatermark("__time", "1 second")
    grouped = timed.groupBy(fn.window("__time", *window), "k").count()
    told: dict[int, list[Any]] = {}

    def keep(df: Any, batch: int) -> None:
        told[batch] = sorted((str(r.window.start), r.k, r["count"]) for r in df.collect())

    writer = grouped.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(at)).start()
    query.awaitTermination()
    assert "WindowSave" in query._jsq.streamingQuery().lastExecution().executedPlan().toString()
    batches: list[dict[str, Any]] = []
    for p in query.recentProgress:
        o = p["stateOperators"][0]
        kept = {"kept": o["numRowsTotal"], "gone": o["numRowsRemoved"], "late": o["numRowsDroppedByWatermark"]}
        batches.append({**kept, "rows": told.get(p["batchId"], [])})
    return batches


@pytest.mark.parametrize(("every", "window"), [(10_000, ["10 seconds"]), (1_000, ["10 seconds", "3 seconds"])])
def test_state_of_windows_is_what_looking_through_it_each_time_leaves(
    spark: SparkSession, tmp_path: Path, every: int, window: list[str]
) -> None:
    feed(tmp_path / "all", BATCHES)
    always = windows(spark, tmp_path / "all", 0, tmp_path / "always", window)
    assert sum(b["gone"] for b in always) > 4 and sum(b["late"] for b in always) > 1
    assert windows(spark, tmp_path / "all", every, tmp_path / "seldom", window) == always


@pytest.mark.parametrize("stop", [2, 5])
def test_a_checkpoint_of_before_goes_on(spark: SparkSession, tmp_path: Path, stop: int) -> None:
    def run(name: str, every: int) -> list[dict[str, Any]]:
        feed(tmp_path / name, BATCHES[:stop])
        windows(spark, tmp_path / name, 0, tmp_path / f"{name} at", ["10 seconds"])
        feed(tmp_path / name, BATCHES[stop:], stop)
        return windows(spark, tmp_path / name, every, tmp_path / f"{name} at", ["10 seconds"])

    assert run("seldom", 10_000) == run("always", 0)


def test_a_batch_is_planned_once(spark: SparkSession, kafka: Kafka, start: Start) -> None:
    kafka.topic("kernel_batches")
    df = topic(spark, kafka, "kernel_batches")
    run = start(df)
    kafka.produce("kernel_batches", [(None, "a")])
    within(60, lambda: run.sink().begun() > 0)
    batch = run.stream().streamingQuery().lastExecution()
    assert df.isStreaming and not batch.logical().isStreaming()
    assert "BatchRows" in batch.logical().toString() and "BatchRows" not in batch.executedPlan().toString()


def test_groups_of_a_small_batch_change_hands_in_memory(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Of a large one, or of one partition, they do not; what is counted is the same, each record once."""
    kernel: Any = spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    kafka.topic("kernel_together", 3)
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    plans: list[str] = []

    def count(wanted: int) -> dict[str, int]:
        groups = topic(session, kafka, "kernel_together").groupBy("v").count()
        told: dict[str, int] = {}
        keep = lambda df, _: told.update({r["v"]: r["count"] for r in df.collect()})  # noqa: E731
        writer = groups.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        plans.append(query._jsq.streamingQuery().lastExecution().executedPlan().toString())
        assert query.lastProgress is not None and query.lastProgress["numInputRows"] == wanted
        return told

    for p in range(3):
        kafka.produce("kernel_together", [(None, f"v{i % 7}") for i in range(100 + p)], partition=p)
    first = count(303)
    kafka.produce("kernel_together", [(None, f"v{i % 7}") for i in range(5001)], partition=0)
    second = count(5001)
    kafka.produce("kernel_together", [(None, "v1")], partition=2)
    third = count(1)
    assert sum(first.values()) == 303 and sum(second.values()) == 5304 and third == {"v1": second["v1"] + 1}
    assert [("Together" in p, "Exchange" in p) for p in plans] == [(True, False), (False, True), (True, False)]
    assert kernel.Together.held() == 0
