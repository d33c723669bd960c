"""What a pool's worker is started with: command line and environment, from the settings.

Owns: the settings that cross to the worker (``PGSTREAM_WORKER``, JSON). No secret crosses here: the server's own
variables that hold one are taken out of the environment.
Must not know: processes. Start reading at ``prepare``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from pgstream.config import Config, program, public_environment
from pgstream.embedded.jars import fetch, path
from pgstream.embedded.java import find_java
from pgstream.errors import ConfigurationError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a worker."""

    argv: list[str]
    environ: dict[str, str]


SIZES = {"SMALL": 1, "MEDIUM": 2, "LARGE": 4}
"""How many times the setting spark_memory_mb a pool of each size has."""

SPARK_SETTINGS = (
    "sql.shuffle.partitions", "sql.adaptive.", "sql.autobroadcastjointhreshold", "sql.broadcasttimeout", "sql.codegen.",
    "sql.files.maxpartitionbytes", "sql.streaming.statestore.rocksdb.", "sql.streaming.statestore.mindeltasforsnapshot",
    "sql.streaming.statestore.maintenanceinterval", "sql.streaming.minbatchestoretain",
    "sql.streaming.numrecentprogressupdates", "default.parallelism", "memory.", "storage.memorymapthreshold",
    "cleaner.", "broadcast.blocksize", "broadcast.checksum", "broadcast.compress", "shuffle.compress",
    "shuffle.spill.compress", "shuffle.file.buffer", "shuffle.io.", "io.compression.lz4.", "io.compression.zstd.",
    "reducer.", "locality.",
    "network.timeout", "rpc.asktimeout", "rpc.message.maxsize", "task.cpus", "task.reaper.", "cores.max",
    "executor.cores", "executor.heartbeatinterval", "executor.instances", "executor.memory", "driver.maxresultsize",
    "dynamicallocation.", "excludeonfailure.",
)  # fmt: skip
"""Settings of Spark that a statement may set begin so, without "spark." and in lower case: how much and how often. No
other, for among Spark's thousand are some that run a program, load a class, or read or write a file of the server's.
"""


def master(value: str) -> str:
    """A Spark master. ValueError for one that lets tasks fail and come again in the same process: what a failed one
    sent is part of the batch's transaction, and would be in it twice.
    """
    if re.match(r"local\[[^\]]*,", value):
        raise ValueError("a task that fails is not tried again by itself: write local[N] without a number of failures")
    return value


def sized(config: Config, options: Mapping[str, str]) -> dict[str, object]:
    """The worker's settings that a pool's own options decide; the server's are the defaults."""
    cores = options.get("compute_pool.cores")
    memory = config.spark_memory_mb * SIZES[options.get("compute_pool.size", "SMALL")]
    wait = options.get("compute_pool.silent_partition_ms")
    silence = {} if wait is None else {"spark.pgstream.silentPartitionMs": wait}  # read by Watermarks.scala
    return {
        "master": options.get("compute_pool.master") or (f"local[{cores}]" if cores else _own_master(config)),
        "memory_mb": int(options.get("compute_pool.memory_mb", memory)),
        "spark": _spark(options) | silence,
    }


def _spark(options: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings of a pool; those that an earlier pgstream took and this one would not are left out."""
    given = {k: v for k, v in options.items() if k.startswith("spark.")}
    taken = {k: v for k, v in given.items() if k.removeprefix("spark.").lower().startswith(SPARK_SETTINGS)}
    if left := sorted(given.keys() - taken.keys()):
        log.warning("settings that no statement may set are left out of a pool's", settings=left)
    return taken


def _own_master(config: Config) -> str:
    try:
        return master(config.spark_master)
    except ValueError as e:
        raise ConfigurationError(what=f'setting spark_master is "{config.spark_master}"', detail=f"{e}.") from None


async def prepare(config: Config, options: Mapping[str, str]) -> Launch:
    """Find Java and the connectors (downloading what is missing). Errors: ConfigurationError."""
    java = await asyncio.to_thread(find_java, config)
    jars = await asyncio.to_thread(fetch, config, lambda line: log.info("jars", step=line))
    settings = {
        "java": str(java),
        "jars": [str(j) for j in jars],
        "msk_jar": str(path("msk", config)),
        **sized(config, options),
        "cache_dir": str(config.cache.absolute()),
        "checkpoints": config.checkpoints,
        "fast_start": config.spark_fast_start,
        "trigger_ms": config.trigger_ms,
        "lookup_timeout_s": config.lookup_timeout_s,
        "log_level": config.log_level,
        "log_format": config.log_format,
    }
    environ = {**public_environment(), "PGSTREAM_WORKER": json.dumps(settings)}
    return Launch(program("pgstream.spark"), environ)


async def rehearse(config: Config) -> int:
    """Make now what the first worker would make for those after it: the operators' jar and the archive of the classes.

    Gives the exit code. Errors: ConfigurationError.
    """
    launch = await prepare(config, {})
    process = await asyncio.create_subprocess_exec(*program("pgstream.spark.trial"), env=launch.environ)
    return await process.wait()
