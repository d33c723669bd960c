"""The kernel's operators alone, on one core: rows a second of wall clock and of the JVM's CPU time, over 100,000 spread
keys, from Parquet to nothing.

Run ``python -m benchmarks.kernel [OPERATOR…] [keys=COUNT] [SETTING=VALUE…]``, the settings being Spark's. Each
operator warms up on its first two batches, in which half of the time is Java's compiler's; two more of 300,000 rows
of the same run are measured. Of more keys, each comes once before those, in batches of 500,000. On a busy machine the
rate by CPU time is the one to trust; it counts the collector's and the compiler's threads too.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pgstream.config import load as configured
from pgstream.embedded.jars import fetch
from pgstream.embedded.java import find_java
from pgstream.planner import plan
from pgstream.spark import jvm
from pgstream.spark.compile import Compiler
from pgstream.spark.session import open_session
from pgstream.spark.settings import Settings

ROWS, KEYS, WARM, MEASURED = 300_000, 100_000, 2, 2
TTL_MS = 1_800_000
MANY, FILLING = 1_000_000, 500_000
"""From so many keys on the state is filled with all of them first, so many rows at a time."""
_COLUMNS = [plan.Column("k", "INTEGER"), plan.Column("v", "INTEGER")]
_CALLS = [plan.Call("n", "count", ["1"]), plan.Call("t", "sum", ["`v`"])]
_BY_K = [plan.Expr("k", "`k`")]
_PAIR = [(plan.Expr("k", "`k`"), plan.Expr("k", "`k`"))]


def source(kind: str, watermark: bool = False) -> plan.Source:
    key = ["k"] if kind == "changelog" else []
    return plan.Source("s", "d.s.r", kind, "k", "t", _COLUMNS, "json", primary_key=key, watermark=watermark)


def latest() -> plan.Node:
    return plan.Normalize(source("changelog"), ["k"])


def first(limit: int, over: plan.Node) -> plan.Node:
    return plan.Rank(over, "rn", "row_number", _BY_K, [plan.Order("`v`", True, False)], limit)


OPERATORS: dict[str, plan.Node] = {
    "normalize": latest(),
    "aggregate": plan.ChangeAggregate(source("stream"), _BY_K, _CALLS),
    "aggregate of a changelog": plan.ChangeAggregate(latest(), [plan.Expr("g", "`v`")], _CALLS),
    "distinct values": plan.ChangeAggregate(
        source("stream"), [plan.Expr("g", "`k` % 100")], [plan.Call("n", "count", ["`v`"], True)]
    ),
    "deduplication": first(1, source("stream")),
    "top 3": first(3, source("stream")),
    "over a range of time": plan.Over(source("stream", True), _BY_K, _CALLS, range_ms=60_000),
    "over all rows before": plan.Over(source("stream", True), _BY_K, _CALLS, peers=False),
    "temporal join": plan.TemporalJoin(source("stream", True), source("changelog", True), "left", _PAIR, "a", "b"),
    "join within 10 s": plan.IntervalJoin(
        source("stream", True),
        source("stream", True),
        "inner",
        10_000,
        plan.Expr("k", "`k`"),
        plan.Expr("k", "`k`"),
        "a",
        "b",
        by_key=True,
    ),
    "join without WITHIN": plan.StreamJoin(source("stream"), source("stream"), "inner", _PAIR, "a", "b"),
    "join of changelogs": plan.ChangelogJoin(latest(), latest(), "inner", _PAIR, "a", "b"),
}


@dataclass
class Bench:
    """A Spark session with one core, and the rows that it reads."""

    keys: int = KEYS
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="pgstream-kernel-")))

    def __post_init__(self) -> None:
        c = configured({}, os.environ)
        settings = Settings(
            str(find_java(c)), [str(j) for j in fetch(c)], master="local[1]", memory_mb=3000, cache_dir=str(c.cache)
        )
        self.process = jvm.launch(settings, self.folder, ())
        self.cpu = psutil.Process(self.process.pid)
        self.spark: SparkSession = open_session(settings, self.folder)
        self.spark.conf.set("spark.sql.shuffle.partitions", "1")
        self.spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        self.write()

    def write(self) -> None:
        """The rows of each batch, a file each: those that fill the state, then random keys."""
        filled = self.keys if self.keys >= MANY else 0
        ends = [*range(0, filled, FILLING), *(filled + n * ROWS for n in range(WARM + MEASURED + 1))]
        self.batches = len(ends) - 1
        for i, (first, end) in enumerate(itertools.pairwise(ends)):
            k = f"id * 7919 % {self.keys}" if end <= filled else f"pmod(hash(id), {self.keys})"
            self.spark.range(first, end).selectExpr(
                f"cast({k} AS int) AS k", "cast(pmod(id, 997) AS int) AS v",
                "timestamp_millis(1700000000000 + id) AS __time", "0 AS __partition", "id AS __offset",
                "false AS __delete",
            ).coalesce(1).write.parquet(str(self.folder / f"part{i}"))  # fmt: skip

    def read(self, node: plan.Source, parts: Path) -> DataFrame:
        schema = "k int, v int, __time timestamp, __partition int, __offset bigint, __delete boolean"
        rows = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(parts))
        return rows if node.kind == "changelog" else rows.drop("__delete")

    def run(self, name: str, root: plan.Node) -> tuple[float, float]:
        """Rows a second of wall clock, and of CPU time; of all sources."""
        parts = self.folder / f"in {name}"
        parts.mkdir()
        self._add(parts, range(self.batches - MEASURED))
        query = self._begin(name, root, parts)
        try:
            query.processAllAvailable()
            begin, used = time.perf_counter(), self._used()
            self._add(parts, range(self.batches - MEASURED, self.batches))
            query.processAllAvailable()
            rows = MEASURED * ROWS * len(plan.sources(root))
            return rows / (time.perf_counter() - begin), rows / (self._used() - used)
        finally:
            query.stop()

    def _add(self, parts: Path, numbers: range) -> None:
        for n in numbers:
            (file,) = (self.folder / f"part{n}").glob("*.parquet")
            os.link(file, parts / f"{n}.parquet")
            os.utime(parts / f"{n}.parquet", (n + 1, n + 1))

    def _begin(self, name: str, root: plan.Node, parts: Path) -> StreamingQuery:
        ttl_ms = TTL_MS if isinstance(root, plan.StreamJoin) else None
        whole = plan.Plan(root, plan.ResultSink(), state_ttl_ms=ttl_ms)
        compiled = Compiler(self.spark, lambda s: self.read(s, parts)).compile(whole)
        writer = compiled.step.df.writeStream.format("noop").outputMode(compiled.output_mode)
        return writer.option("checkpointLocation", str(self.folder / f"checkpoint {name}")).start()

    def _used(self) -> float:
        times = self.cpu.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        self.spark.stop()
        self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


def main() -> None:
    settings = [a for a in sys.argv[1:] if a.startswith(("spark.", "keys="))]
    names = [a for a in sys.argv[1:] if a not in settings] or [*OPERATORS]
    if len(names) > 1:
        # A process for each: what one has not written yet takes the room that all share.
        for name in names:
            subprocess.run([sys.executable, "-m", "benchmarks.kernel", name, *settings], check=True)
        return
    given = dict(setting.split("=", 1) for setting in settings)
    bench = Bench(int(given.pop("keys", KEYS)))
    try:
        for setting, value in given.items():
            bench.spark.conf.set(setting, value)
        wall, cpu = bench.run(names[0], OPERATORS[names[0]])
        print(f"{names[0]:28} {wall / 1000:7.0f}k rows/s  {cpu / 1000:7.0f}k rows per CPU second", flush=True)
    finally:
        bench.close()


if __name__ == "__main__":
    main()
