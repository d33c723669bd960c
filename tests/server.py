"""What tests run against: one pgstream server and one Kafka broker per test run, started when first asked for.

``server`` is a real ``pgstream serve`` process on a temporary data folder, driven from outside only; ``kafka`` a real
broker. ``Server`` and ``Kafka`` can also be made by hand (kill tests).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PASSWORD = "test-password-1"
PASSED_ON = ("PGSTREAM_CACHE_DIR", "PGSTREAM_WORKERS", "PGSTREAM_SPARK_MASTER")
"""Settings of the tests' own environment: ``PGSTREAM_WORKERS=2`` runs any test against listener processes."""


def within(seconds: float, probe: Callable[[], Any], every: float = 0.1) -> Any:
    """Call ``probe`` until it returns something true; the last answer (or error) is the failure."""
    end = time.monotonic() + seconds
    while True:
        error: Exception | None = None
        answer: Any = None
        try:
            answer = probe()
            if answer:
                return answer
        except (AssertionError, psycopg.Error, OSError) as e:
            error = e
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {answer!r}") from error
        time.sleep(every)


class Server:
    """A ``pgstream serve`` process. ``url`` is a psycopg connection string with the password."""

    def __init__(self, data_dir: Path, *, environ: Mapping[str, str] | None = None, **settings: str) -> None:
        self.data_dir = data_dir
        self.log = data_dir.parent / f"{data_dir.name}.log"
        env = {k: v for k, v in os.environ.items() if not k.startswith("PGSTREAM_") or k in PASSED_ON}
        env |= {"PGSTREAM_ADMIN_PASSWORD": PASSWORD, "PGSTREAM_SPARK_FAST_START": "true", "PGSTREAM_LOG_LEVEL": "debug"}
        # Queries of other tests that wait for records ask for them less often, and leave more of the processor.
        env |= {"PGSTREAM_TRIGGER_MS": "300"}
        env |= {f"PGSTREAM_{k.upper()}": v for k, v in settings.items()} | dict(environ or {})
        command = [sys.executable, "-m", "pgstream", "serve", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        self.ready = self._first_line()
        self.port = int(self.ready.rsplit(":", 1)[1].split("/")[0])
        self.url = f"postgresql://admin:{PASSWORD}@127.0.0.1:{self.port}/main"

    def _first_line(self, seconds: float = 60) -> str:
        lines: list[str] = []
        thread = threading.Thread(target=lambda: lines.append(self.process.stdout.readline()), daemon=True)
        thread.start()
        thread.join(seconds)
        if not lines or not lines[0].startswith("ready postgresql://"):
            self.process.kill()
            raise AssertionError(f"no ready line, got {lines}: {self.log.read_text()[-3000:]}")
        return lines[0].strip()

    def connect(self, database: str = "main", **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url.rsplit("/", 1)[0] + "/" + database, autocommit=True, **options)

    @property
    def metrics_port(self) -> int:
        """Where ``metrics_listen`` is, as the log says in either form."""
        lines = [line for line in self.log.read_text().splitlines() if "metrics" in line and "host" in line]
        return int(re.findall(r'port"?[=:] ?(\d+)', lines[-1])[0])

    def ask(self, path: str, accept: str = "") -> tuple[int, str]:
        """A GET of the port of ``metrics_listen``: status and body."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.metrics_port}{path}", headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        with self.process:
            return self.process.wait(40)

    def kill(self) -> None:
        self.process.kill()
        with self.process:
            self.process.wait()


Side = str | bytes | None
ON_A_CLUSTER = "://" in os.environ.get("PGSTREAM_SPARK_MASTER", "")
in_one_process = pytest.mark.skipif(ON_A_CLUSTER, reason="a pool on a cluster refuses it: docs/howto/cluster.md")


class Kafka:
    """A real broker and the clients that tests need."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def topic(self, name: str, partitions: int = 1, **config: str) -> None:
        new = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
        for f in self.admin.create_topics([new]).values():
            f.result(30)
        # The broker's answer may come before it tells others of the topic.
        within(30, lambda: self.admin.list_topics(timeout=10).topics.get(name), 0.02)

    def produce(
        self, topic: str, records: Sequence[tuple[Side, Side]], timestamp: int = 0, partition: int = -1
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})
        for key, value in records:
            place = ({"timestamp": timestamp} if timestamp else {}) | (
                {"partition": partition} if partition >= 0 else {}
            )
            producer.produce(topic, value, key, **place)
            producer.poll(0)
        assert producer.flush(30) == 0

    def consume(self, topic: str, wanted: int, seconds: float = 60) -> list[tuple[str | None, str | None, int]]:
        """Committed records of all partitions from the beginning: (key, value, timestamp); at least ``wanted``."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": f"test-{time.time_ns()}",
                    "isolation.level": "read_committed", "enable.auto.commit": False}  # fmt: skip
        consumer = Consumer(settings)
        try:
            partitions = self.admin.list_topics(topic, 10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
            out: list[tuple[str | None, str | None, int]] = []
            end = time.monotonic() + seconds
            while time.monotonic() < end and len(out) < wanted:
                out += self._take(consumer, 0.3)
            return out + self._take(consumer, 1.0)
        finally:
            consumer.close()

    @staticmethod
    def _take(consumer: Consumer, timeout: float) -> list[tuple[str | None, str | None, int]]:
        def text(b: bytes | None) -> str | None:
            if b is None:
                return None
            plain = all(byte >= 0x20 for byte in b)
            return b.decode("utf-8", "backslashreplace") if plain else "\\x" + b.hex()

        messages = [m for m in consumer.consume(10000, timeout) if m.error() is None]
        return [(text(m.key()), text(m.value()), m.timestamp()[1]) for m in messages]


@contextlib.contextmanager
def broker(data_dir: Path, *flags: str) -> Iterator[Kafka]:
    """A broker process of its own: ``pgstream broker``."""
    command = [sys.executable, "-m", "pgstream", "broker", "--data-dir", str(data_dir), *flags]
    with (data_dir.parent / f"{data_dir.name}.broker.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("ready "), line
        yield Kafka(line.split()[1].removeprefix("kafka://"))
    finally:
        process.terminate()
        with process:
            process.wait(30)


@pytest.fixture(scope="session")
def workspace() -> Iterator[Path]:
    """A short temporary folder for the whole run, removed at its end."""
    path = Path(tempfile.mkdtemp(prefix="pgs"))
    yield path
    if not os.environ.get("PGSTREAM_KEEP"):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def server(workspace: Path) -> Iterator[Server]:
    s = Server(workspace / "server", metrics_listen="127.0.0.1:0")
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="session")
def kafka(workspace: Path) -> Iterator[Kafka]:
    with broker(workspace / "kafka") as k:
        yield k


@pytest.fixture
def db(server: Server) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as connection:
        yield connection
