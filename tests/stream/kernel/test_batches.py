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
