"""What a pool's worker is started with: command line and environment, from the settings.

Owns: the settings that cross to the worker (``PGSTREAM_WORKER``, JSON). No secret crosses here: the server's own
variables that hold one are taken out of the environment.
Must not know: processes. Start reading at ``prepare``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from pgstream.config import SETTINGS, Config
from pgstream.embedded.jars import fetch
from pgstream.embedded.java import find_java

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a worker."""

    argv: list[str]
    environ: dict[str, str]


Prepare = Callable[[], Awaitable[Launch]]


def preparer(config: Config) -> Prepare:
    """``prepare`` for these settings."""
    return lambda: prepare(config)


async def prepare(config: Config) -> Launch:
    """Find Java and the connectors (downloading what is missing). Errors: ConfigurationError."""
    java = await asyncio.to_thread(find_java, config)
    jars = await asyncio.to_thread(fetch, config, lambda line: log.info("jars", step=line))
    settings = {
        "java": str(java),
        "jars": [str(j) for j in jars],
        "master": config.spark_master,
        "memory_mb": config.spark_memory_mb,
        "cache_dir": str(config.cache.absolute()),
        "checkpoints": str((config.data_dir / "checkpoints").absolute()),
        "fast_start": config.spark_fast_start,
        "trigger_ms": config.trigger_ms,
        "log_level": config.log_level,
    }
    hidden = {s.variable for s in SETTINGS if s.kind == "secret"}
    environ = {k: v for k, v in os.environ.items() if k not in hidden}
    return Launch([sys.executable, "-m", "pgstream.spark"], {**environ, "PGSTREAM_WORKER": json.dumps(settings)})
