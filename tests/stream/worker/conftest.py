"""One PostgreSQL and one worker for all tests of the folder; the broker is that of the test run."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from pgstream.engine import channel as ch
from tests.server import Kafka
from tests.stream.worker.driver import Environment, WorkerProcess


@pytest.fixture(scope="session")
def env(workspace: Path, kafka: Kafka) -> Iterator[Environment]:
    """The broker, and a PostgreSQL of its own with the state schema."""
    postgres = asyncio.run(open_postgres(Config(data_dir=workspace / "worker")))
    environment = Environment(kafka.bootstrap, postgres.url("postgres", tcp=True), str(workspace))
    environment.prepare()
    yield environment
    asyncio.run(postgres.stop())


@pytest.fixture(scope="session")
def worker(worker_settings: dict[str, Any], workspace: Path) -> Iterator[WorkerProcess]:
    with (workspace / "worker.log").open("ab") as log:
        w = WorkerProcess(worker_settings, log)
        w.wait(ch.Ready, 120)
        yield w
        w.send(ch.Shutdown())
        assert w.process.wait(30) == 0
        w.hang_up()


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    kafka.topic(name, 2)
    return name
