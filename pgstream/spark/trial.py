"""The trial run: a JVM that does once what a worker does, and leaves its classes as an archive when it ends.

Owns: two small queries over made-up records, through the kernel's decoder and operators, and the clients of Kafka.
Must not know: the channel, stores. ``python -m pgstream.spark.trial`` makes the archive of the settings in the
environment, one at a time. Start reading at ``main``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import structlog
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from pgstream import logs
from pgstream.embedded import aside
from pgstream.embedded.archive import Archive
from pgstream.embedded.child import LAUNCH
from pgstream.engine.channel import Start
from pgstream.planner.plan import (
    Aggregate,
    Call,
    ChangeAggregate,
    Column,
    Expr,
    Node,
    Normalize,
    Plan,
    ResultSink,
    Source,
    Window,
)
from pgstream.spark import jvm
from pgstream.spark import settings as worker_settings
from pgstream.spark.query import RunningQuery
from pgstream.spark.session import open_session
from pgstream.spark.settings import Settings
from pgstream.spark.sources import Sources

log = structlog.get_logger("pgstream.spark.trial")

_WITHIN_S, _GRACE_MS = 90, 3000
_ENDS_WITHIN_S = 300
_NICE, _MEMORY_MB = 19, 512


class MadeUp(Sources):
    """Sources whose records are made up, as JSON of ``k`` and ``v``."""

    def _raw(self, source: Source) -> DataFrame:
        rows = self.spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
        return rows.selectExpr(
            "cast(to_json(named_struct('k', value % 7)) AS binary) AS key",
            "cast(to_json(named_struct('k', value % 7, 'v', value)) AS binary) AS value",
            "timestamp AS __time", "spark_partition_id() AS __partition", "value AS __offset",
        )  # fmt: skip


class TrialQuery(RunningQuery):
    """A query over them."""

    def sources(self, session: SparkSession) -> Sources:
        return MadeUp(session, None, {})


def plans() -> list[Plan]:
    """A count per key of a changelog, by the kernel; a windowed count of a stream, by Spark."""
    columns = [Column("k", "BIGINT"), Column("v", "BIGINT")]
    stream = Source("s", "trial", "stream", "none", "none", columns, "json", watermark=True)
    changelog = Source("c", "trial", "changelog", "none", "none", columns, "json", primary_key=["k"], key_format="json")
    changes = ChangeAggregate(
        Normalize(changelog, ["k"]), [Expr("k", "`k`")], [Call("n", "count", ["1"]), Call("s", "sum", ["`v`"])]
    )
    calls = [Expr("n", "count(1)"), Expr("s", "sum(`v`)")]
    windowed = Aggregate(stream, [Expr("k", "`k`")], calls, Window("tumble", 1000, 1000))
    roots: list[Node] = [changes, windowed]
    return [Plan(root, ResultSink()) for root in roots]


def run(settings: Settings, folder: Path) -> None:
    """Run the trial's queries until each has written rows."""
    spark = open_session(settings, folder)
    java: Any = spark._jvm
    begun = []
    for number, plan in enumerate(plans()):
        start = Start(f"trial-{number}", 0, plan.json(), {})
        TrialQuery(spark, start, str(folder / "interactive"), settings.trigger_ms).begin()
        java.org.apache.spark.sql.pgstream.Kernel.more(start.query, 1 << 30)
        begun.append(start.query)
    _clients(java)
    waiting, end = set(begun), time.monotonic() + _WITHIN_S
    while waiting and time.monotonic() < end:
        for event in json.loads(java.org.apache.spark.sql.pgstream.Kernel.poll(500)):
            if event["type"] in ("rows", "ended"):
                waiting.discard(event["query"])
    for query in begun:  # a stream whose process ends under it says so with a stack trace
        with contextlib.suppress(Py4JError):  # one that does not end in time: the archive is made all the same
            java.org.apache.spark.sql.pgstream.Kernel.stop(query, _GRACE_MS)


def _clients(java: Any) -> None:
    """Kafka's clients, made and closed: they ask nobody before they are used."""
    options = java.java.util.HashMap()
    options.put("bootstrap.servers", "127.0.0.1:9")
    for kind in ("Serializer", "Deserializer"):
        for part in ("key", "value"):
            options.put(f"{part}.{kind.lower()}", f"org.apache.kafka.common.serialization.ByteArray{kind}")
    clients = java.org.apache.kafka.clients
    for client in (clients.producer.KafkaProducer, clients.consumer.KafkaConsumer):
        client(options).close()


def begin() -> None:
    """Run it beside a worker's work, with the time that nobody else wants. It ends with this thread."""
    head = [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid()), "9", "-1", "-1", "-1", "--"]
    program = [sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "pgstream.spark.trial"]
    subprocess.Popen([*head, *program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def main() -> None:
    settings = worker_settings.from_environment()
    logs.configure(settings.log_level)
    os.nice(_NICE)
    archive = Archive(settings.java, jvm.class_path(settings), settings.cache)
    with archive.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.made:
            make(archive, settings)


def make(archive: Archive, settings: Settings) -> None:
    """Run the trial in a JVM that archives its classes at its end."""
    begin = time.monotonic()
    with aside.folder(archive.path.parent, ".trial-") as folder:
        new, record = archive.record()
        small = msgspec.structs.replace(
            settings, fast_start=True, memory_mb=min(settings.memory_mb, _MEMORY_MB), log_level="error",
            master="local[1]", spark={},
        )  # fmt: skip
        process = jvm.launch(small, folder, record)
        run(small, folder)
        assert process.stdin is not None
        process.stdin.close()  # which ends it
        process.wait(_ENDS_WITHIN_S)
        archive.take(new)
    log.info("class archive made", file=archive.path.name, seconds=round(time.monotonic() - begin, 1))


if __name__ == "__main__":
    main()
