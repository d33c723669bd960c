"""The Spark session of the worker, with the settings that were measured.

Owns: every Spark setting and why it stands. A query's own settings (shuffle partitions) come with ``Start``.
Must not know: the JVM's flags (``jvm.py``), queries. Start reading at ``SETTINGS``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pgstream.spark.settings import ARENAS, TRIM, Settings

_KERNEL = "org.apache.spark.sql.pgstream"
_STATE = "spark.sql.streaming.stateStore"

SETTINGS: dict[str, str] = {
    # No web server, no event log, no progress console: nobody looks, and each costs start-up or every batch.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    # FIFO starves the 25th windowed query on two cores.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    # The planner writes out the semantics of the language; Spark's ANSI errors are not those.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timeType.enabled": "true",
    # Of a key that is given twice the last counts, as in Flink: it is no error that ends a query.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.variant.allowDuplicateKeys": "true",
    # ${env:X}, ${system:x} and ${spark.x} in a client's text are text: they would show what this process knows.
    "spark.sql.variable.substitute": "false",
    # json.`/a/file` is no relation (``Fence.scala`` says no to a query in an expression before that).
    "spark.sql.runSQLOnFiles": "false",
    # A batch is small and comes again: re-planning it at run time costs more than it gains.
    "spark.sql.adaptive.enabled": "false",
    # Classes of generated code, of which a query has some thirty: past it each batch compiles anew.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.extensions": f"{_KERNEL}.Extensions",
    "spark.sql.streaming.checkpointFileManagerClass": f"{_KERNEL}.CheckpointFiles",
    "spark.hadoop.fs.file.impl": f"{_KERNEL}.LocalFiles",
    # Our manager syncs what it writes; a second file with a checksum beside each would double the writes.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # A query's checkpoint says which it began with: older ones go on with theirs.
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.pgstream.LeanStateStores",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    # A snapshot is made in the batch, and holds it up; the newest is stored once a minute, whatever is set here.
    f"{_STATE}.minDeltasForSnapshot": "50",
    f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}.rocksdb.maxMemoryUsageMB": "256",
    # Counting keys means a read before every write, of which most are answered from memory (``StateStores.scala``).
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "true",
    # One store for both sides of a join: half as much to write and to look up as in four.
    "spark.sql.streaming.join.stateFormatVersion": "3",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.streamingQueryListeners": f"{_KERNEL}.WatchListener",
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.streaming.pollingDelay": "10ms",
    # How often a query that has nothing new says so: its freshness is known that exactly. It asks once a second
    # (``Arrivals.scala``), so this is every other time.
    "spark.sql.streaming.noDataProgressEventInterval": "1500ms",
    "spark.sql.ui.retainedExecutions": "5",
    # Each batch's plan is written out for it, even where there is none.
    "spark.sql.ui.explainMode": "simple",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.cleaner.periodicGC.interval": "10min",
    # Idle consumers, those of ended queries among them, go soon.
    "spark.kafka.consumer.cache.timeout": "1m",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "15s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "1m",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "15s",
    "spark.port.maxRetries": "100",
    "spark.log.structuredLogging.enabled": "false",
    # Of what stands in plans and settings that Spark shows somewhere, none that may be secret.
    "spark.redaction.regex": "(?i)secret|password|token|credential|access[.]?key|jaas|keystore|truststore",
    "spark.sql.redaction.options.regex": "(?i)url|user|config|sasl|ssl",
}


def open_session(settings: Settings, folder: Path) -> SparkSession:
    """The session on the JVM that ``jvm.launch`` started."""
    builder: Any = SparkSession.builder
    builder = builder.master(settings.master).appName("pgstream")
    cores = os.cpu_count() or 2
    # An idle consumer may hold what it has fetched, some megabytes; without a place each batch connects anew.
    consumers = max(64, settings.memory_mb // 8)
    own = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse"),
           "spark.sql.shuffle.partitions": str(cores),
           "spark.kafka.consumer.cache.capacity": str(consumers),
           "spark.pgstream.lookupTimeoutMs": str(settings.lookup_timeout_s * 1000)}  # fmt: skip
    if settings.in_one_jvm:
        own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        own |= {"spark.authenticate": "true"}  # with a secret that Spark makes: other users reach its ports
    else:
        own |= {"spark.executor.extraJavaOptions": " ".join(_executor(settings))}
        own |= {f"spark.executorEnv.{name}": value for name, value in ARENAS.items()}
    for name, value in (SETTINGS | own | settings.spark).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.pgstream.Kernel.settle(session._jsparkSession)
    return session


def _executor(settings: Settings) -> list[str]:
    """Flags of executors' JVMs. Those that open Java's packages Spark adds, ``spark.executor.defaultJavaOptions`` its
    own; the jar for MSK lies where ``spark.files`` puts it.
    """
    out = [*TRIM, "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8", "-Djava.awt.headless=true"]
    return [*out, f"-Dpgstream.msk.jar={Path(settings.msk_jar).name}"] if settings.msk_jar else out


@contextlib.contextmanager
def fresh(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own for what this thread does: without one Spark takes its defaults here and there, which know
    no type TIME. Afterwards the thread has none: it would keep the session, and its streams' manager, alive.
    """
    session = spark.newSession()
    jvm: Any = spark._jvm
    kernel = jvm.org.apache.spark.sql.pgstream.Kernel
    kernel.activate(session._jsparkSession)
    try:
        yield session
    finally:
        kernel.deactivate()
