"""One Spark session for all tests of the suite that need Spark but no worker: the worker's own JVM and settings."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgstream.config import load
from pgstream.embedded.jars import fetch
from pgstream.embedded.java import find_java
from pgstream.spark import jvm
from pgstream.spark.session import open_session
from pgstream.spark.settings import Settings
from tests.registry import schema_registry

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark without its code generation, whose compiler takes a good part of a short query's processor time."""


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[SparkSession]:
    """A session as a worker has it."""
    config = load({}, os.environ)
    jars = [str(j) for j in fetch(config)]
    settings = Settings(
        str(find_java(config)),
        jars,
        master="local[2]",
        memory_mb=768,
        cache_dir=str(config.cache),
        fast_start=True,
        log_level="error",
    )
    folder.mkdir()
    process = jvm.launch(settings, folder, ())
    session = open_session(settings, folder)
    for private in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        del os.environ[private]  # other tests start workers of their own
    yield session
    session.stop()
    with process:  # closes its standard input, too
        process.kill()


def worker_options() -> dict[str, Any]:
    """What a worker process of the tests is started with."""
    config = load({}, os.environ)
    return {"java": str(find_java(config)), "jars": [str(j) for j in fetch(config)], "fast_start": True,
            "cache_dir": str(config.cache), "memory_mb": 768, "trigger_ms": 50, "log_level": "debug"}  # fmt: skip


@pytest.fixture(scope="session")
def worker_settings() -> dict[str, Any]:
    return worker_options()


@pytest.fixture(scope="session")
def registry(workspace: Path) -> Iterator[str]:
    """The URL of a schema registry."""
    folder = workspace / "registry"
    folder.mkdir()
    with schema_registry(folder) as url:
        yield url


@pytest.fixture(scope="session")
def spark(workspace: Path) -> Iterator[SparkSession]:
    with opened(workspace / "spark") as session:
        yield session
