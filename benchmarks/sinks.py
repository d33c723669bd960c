"""The sinks alone, on one core: a view's upserts beside a bare COPY and merge of the same rows, the transactional topic
beside Spark's own Kafka sink, which writes at least once.

Run ``python -m benchmarks.sinks``. Batches of 200,000 rows are read from Parquet, each with all 200,000 keys; of six
the first two warm up. What is compared is the time of a batch, Spark's ``addBatch``, which has the reading in it; the
bare COPY has neither reading nor rendering: its text is ready.
"""

from __future__ import annotations

import json
import random
import statistics
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from benchmarks.kernel import Bench
from benchmarks.stack import Stack, show, stack
from pgstream.spark.jdbc import jdbc
from pgstream.spark.records import writing
from tests.server import within

ROWS, WARM, BATCHES = 200_000, 2, 6
SCHEMA = "k bigint, c bigint, s bigint, __time timestamp"
VIEW = "CREATE TABLE {} (k bigint PRIMARY KEY, c bigint, s bigint)"


class Sinks(Bench):
    """A session with the kernel, and the batches."""

    def write(self) -> None:
        self.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100")
        for i in range(BATCHES):
            self.spark.range(ROWS).selectExpr(
                "id AS k", f"id % 97 + {i} AS c", f"id * {i + 1} AS s", f"timestamp_seconds(1700000000 + {i}) AS __time"
            ).orderBy(fn.rand(i)).coalesce(1).write.parquet(str(self.folder / "in" / f"{i:02}"))

    def rows(self) -> DataFrame:
        read = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return read.option("recursiveFileLookup", "true").parquet(str(self.folder / "in"))

    def ours(self, sink: dict[str, Any]) -> list[float]:
        """Milliseconds of each batch into one of the kernel's sinks."""
        kernel: Any = self.spark._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
        rows, query = self.rows(), str(uuid.uuid4())
        common = {"query": query, "attempt": 1, "output_mode": "append", "trigger_ms": 0,
                  "checkpoint": str(self.folder / query)}  # fmt: skip
        count = kernel.Kernel.counter(rows._jdf, "none")
        kernel.Kernel.start(rows._jdf, count, count, json.dumps(common | sink))
        stream = kernel.Watch.find(query).get().stream()

        def done() -> list[float]:
            if not stream.isActive():
                raise SystemExit(stream.exception().get().toString())
            return _batches([(p.numInputRows(), p.durationMs().get("addBatch")) for p in stream.recentProgress()])

        found: list[float] = within(120, done)
        kernel.Kernel.stop(query, 3000)
        return found

    def spark_kafka(self, bootstrap: str, topic: str) -> list[float]:
        value = self.rows().select(fn.to_json(fn.struct("k", "c", "s")).alias("value"))
        writer = value.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        writer = writer.option("kafka.linger.ms", "5").option("kafka.batch.size", "131072")
        query = writer.option("checkpointLocation", str(self.folder / topic)).start()
        found: list[float] = within(
            120, lambda: _batches([(p["numInputRows"], p["durationMs"]["addBatch"]) for p in query.recentProgress])
        )
        query.stop()
        return found


def _batches(progress: Sequence[tuple[int, float]]) -> list[float]:
    """The times of the batches that had rows, once all have been; before that nothing."""
    found = [ms for rows, ms in progress if rows]
    return found if len(found) == BATCHES else []


def bare(dsn: str) -> list[float]:
    """Milliseconds of each COPY and merge of rows like those."""
    found = []
    with psycopg.connect(dsn) as c:
        c.execute(VIEW.format("bare").encode())
        c.execute("CREATE TEMP TABLE fresh (LIKE bare) ON COMMIT DELETE ROWS")
        c.commit()
        keys = list(range(ROWS))
        for i in range(BATCHES):
            random.Random(i).shuffle(keys)
            text = "".join(f"{k}\t{k % 97 + i}\t{k * (i + 1)}\n" for k in keys)
            begin = time.perf_counter()
            with c.cursor().copy("COPY fresh FROM STDIN") as copy:
                copy.write(text)
            c.execute(
                "INSERT INTO bare SELECT * FROM fresh ON CONFLICT (k) DO UPDATE SET c = excluded.c, s = excluded.s"
            )
            c.commit()
            found.append((time.perf_counter() - begin) * 1000)
    return found


def compare(sink: str, other: str, ours: list[float], theirs: list[float]) -> None:
    mine, its = statistics.median(ours[WARM:]), statistics.median(theirs[WARM:])
    show(sink=sink, ms=round(mine), rows_per_s=round(ROWS / mine * 1000), of=other, ms_of_other=round(its),
         ratio=round(its / mine, 2))  # fmt: skip


def main(s: Stack, bench: Sinks) -> None:
    with psycopg.connect(s.direct, autocommit=True) as c:
        c.execute(VIEW.format("bench_view").encode())
    view = {"type": "view", "mode": "upsert", "key": ["k"], **jdbc(s.direct), "table": '"public"."bench_view"',
            "staging": 'pg_pgstream."s_bench_1"'}  # fmt: skip
    compare("view", "bare COPY and merge", bench.ours(view), bare(s.direct))
    for topic in ("ours", "theirs"):
        s.kafka.topic(topic, 2)
    side = writing("json", "sql", None)
    kafka = {"type": "kafka", "topic": "ours", "mode": "append", "order": "runs", "value": side, "key": side,
             "columns": ["k", "c", "s"], "key_columns": [], "together": True,
             "properties": {"bootstrap.servers": s.kafka.bootstrap}}  # fmt: skip
    compare("topic", "Spark's own sink", bench.ours(kafka), bench.spark_kafka(s.kafka.bootstrap, "theirs"))


if __name__ == "__main__":
    with stack() as running:
        opened = Sinks(Path(running.server.data_dir.parent) / "sinks")
        try:
            main(running, opened)
        finally:
            opened.close()
