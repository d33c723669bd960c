"""What the streaming benchmarks run on: one broker, one pgstream server, and direct access to its PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgstream.config import Config
from tests.server import Kafka, Server, broker

USUAL = {"spark_fast_start": "false", "log_level": "info", "trigger_ms": str(Config().trigger_ms)}
"""The product's own settings, where ``tests.server`` has others."""


@dataclass
class Stack:
    """``direct`` is a connection URL to PostgreSQL itself, as its superuser; ``port`` its TCP port."""

    server: Server
    kafka: Kafka
    direct: str
    port: int
    password: str


@contextlib.contextmanager
def stack(**settings: str) -> Iterator[Stack]:
    folder = Path(tempfile.mkdtemp(prefix="pgsb"))
    try:
        with broker(folder / "kafka") as kafka:
            server = Server(folder / "server", **USUAL | settings)
            try:
                pid_file = (folder / "server/postgres/postmaster.pid").read_text().split("\n")
                password = (folder / "server/postgres.password").read_text().strip()
                port = int(pid_file[3])
                direct = f"postgresql://pgstream:{password}@127.0.0.1:{port}/main"
                yield Stack(server, kafka, direct, port, password)
            finally:
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def create_stream(s: Stack, topic: str) -> None:
    """Store, and a stream ``events`` over the topic."""
    with s.server.connect() as c:
        c.execute(
            f"CREATE STORE IF NOT EXISTS bench WITH ('type' = KAFKA, 'uris' = '{s.kafka.bootstrap}', "
            "'tls.disabled' = TRUE, 'kafka.sasl.hash_function' = NONE)".encode()
        )
        c.execute(
            "CREATE STREAM events (n BIGINT, ts BIGINT, k1 BIGINT, k2 BIGINT, v BIGINT) WITH ('store' = bench, "
            f"'topic' = '{topic}', 'value.format' = 'json', 'timestamp' = 'ts')".encode()
        )


VIEW = """CREATE MATERIALIZED VIEW per_window AS
SELECT window_start, k1, count(*) AS c, sum(v) AS s
FROM TUMBLE(events, SIZE 10 SECONDS) WITH ('starting.position' = '{position}')
GROUP BY window_start, window_end, k1"""


def show(**figures: object) -> None:
    """One line of JSON a figure set, so that runs can be compared by programs."""
    print(json.dumps(figures), flush=True)
