"""What goes away while queries run, and comes back: the broker (kill -9), the worker's PostgreSQL connections."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.server import Kafka, Server, within


class Broker:
    """A broker of this test alone, which may be killed and started again on the same port and data."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.log = data_dir.parent / f"{data_dir.name}.broker.log"
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "pgstream",
            "broker",
            "--data-dir",
            str(self.data_dir),
            "--port",
            str(self.port),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line.startswith("ready "), line
        self.port = int(line.rsplit(":", 1)[1])

    def kill(self) -> None:
        """The broker's JVM dies with the process that started it."""
        self.process.kill()
        self.gone()

    def gone(self, within_s: float | None = None) -> None:
        """Somebody has killed its JVM; it ends, and may be started again."""
        with self.process:
            self.process.wait(within_s)

    @property
    def jvm(self) -> int:
        """The process that is Kafka."""
        (java,) = psutil.Process(self.process.pid).children()
        return java.pid

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture
def broker(workspace: Path) -> Iterator[Broker]:
    b = Broker(workspace / "outage")
    yield b
    b.kill()


def run(db: psycopg.Connection[Any], text: str) -> list[str]:
    """Run statements; ids of the queries that they made."""
    made = []
    for statement in text.split(";\n"):
        if statement.strip():
            cursor = db.execute(statement.encode())
            made += [row[1] for row in (cursor.fetchall() if cursor.description else []) if row[0] == "query"]
    return made


def facts(db: psycopg.Connection[Any], query: str) -> dict[str, str]:
    return dict(db.execute(f"DESCRIBE QUERY {query}".encode()).fetchall())


class Reader(threading.Thread):
    """Reads an interactive SELECT to its LIMIT."""

    def __init__(self, server: Server, text: str) -> None:
        super().__init__(daemon=True)
        self.server, self.text = server, text
        self.rows: list[Any] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with self.server.connect() as c, c.cursor() as cursor:
                self.rows += cursor.stream(self.text.encode())
        except psycopg.Error as e:
            self.error = e


def produce(kafka: Kafka, topic: str, first: int, last: int) -> None:
    records = [(str(i % 7), json.dumps({"id": i, "k": i % 7})) for i in range(first, last)]
    kafka.produce(topic, records)


@pytest.mark.stream
@pytest.mark.timeout(240)
def test_broker_goes_away(server: Server, broker: Broker, db: psycopg.Connection[Any]) -> None:
    kafka = Kafka(broker.bootstrap)
    kafka.topic("away", 2)
    queries = run(db, f"""
        CREATE STORE away WITH ('type' = KAFKA, 'uris' = '{broker.bootstrap}', 'tls.disabled' = TRUE,
          'kafka.sasl.hash_function' = NONE);
        CREATE STREAM away_in (id BIGINT, k BIGINT)
          WITH ('store' = away, 'topic' = 'away', 'value.format' = 'json', 'starting.position' = 'earliest');
        CREATE MATERIALIZED VIEW away_all AS SELECT id FROM away_in;
        CREATE MATERIALIZED VIEW away_keys AS SELECT k, count(*) AS n FROM away_in GROUP BY k;
        CREATE STREAM away_out WITH ('store' = away) AS SELECT id FROM away_in;
    """)  # fmt: skip
    reader = Reader(server, "SELECT id FROM away_in LIMIT 2000")
    reader.start()
    produce(kafka, "away", 0, 1000)
    within(60, lambda: db.execute("SELECT count(*) FROM away_all").fetchone() == (1000,))
    within(60, lambda: len(reader.rows) == 1000)
    produce(kafka, "away", 1000, 1500)
    broker.kill()  # in the midst of their batches, of some of them
    within(60, lambda: all("waiting" in (facts(db, q)["message"] or "") for q in queries))
    waits = db.execute("LIST QUERIES").fetchall()
    assert {row[9].split(":")[0] for row in waits if row[0] in queries} == {"waiting"}
    assert all('store "away"' in row[9] for row in waits if row[0] in queries), waits
    broker.start()
    produce(kafka, "away", 1500, 2000)
    for query in queries:
        within(60, lambda q=query: facts(db, q)["state"] == "running")
    within(60, lambda: db.execute("SELECT count(*) FROM away_all").fetchone() == (2000,))
    within(60, lambda: db.execute("SELECT sum(n) FROM away_keys").fetchone() == (2000,))
    assert db.execute("SELECT count(DISTINCT id) FROM away_all").fetchone() == (2000,)
    copied = [json.loads(v or "")["id"] for _, v, _ in kafka.consume("away_out", 2000)]
    assert sorted(copied) == list(range(2000))
    reader.join(30)
    assert reader.error is None
    assert sorted(row[0] for row in reader.rows) == list(range(2000))
    for query in queries:
        db.execute(f"TERMINATE QUERY {query}".encode())


@pytest.mark.stream
@pytest.mark.timeout(120)
def test_postgres_connections_die(server: Server, kafka: Kafka, db: psycopg.Connection[Any]) -> None:
    kafka.topic("pgdies", 2)
    queries = run(db, f"""
        CREATE STORE pgdies WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE,
          'kafka.sasl.hash_function' = NONE);
        CREATE STREAM pgdies_in (id BIGINT, k BIGINT)
          WITH ('store' = pgdies, 'topic' = 'pgdies', 'value.format' = 'json', 'starting.position' = 'earliest');
        CREATE MATERIALIZED VIEW pgdies_all AS SELECT id FROM pgdies_in;
        CREATE MATERIALIZED VIEW pgdies_keys AS SELECT k, count(*) AS n FROM pgdies_in GROUP BY k;
    """)  # fmt: skip
    with superuser(server) as su:
        for turn in range(3):
            produce(kafka, "pgdies", turn * 2000, turn * 2000 + 2000)
            seen = turn * 2000
            within(60, lambda s=seen: db.execute("SELECT count(*) > %s FROM pgdies_all", [s]).fetchone() == (True,))
            killed = su.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'pgstream_worker'"
            ).fetchone()
            assert killed and killed[0] >= 1
    within(60, lambda: db.execute("SELECT count(*), count(DISTINCT id) FROM pgdies_all").fetchone() == (6000, 6000))
    within(60, lambda: db.execute("SELECT sum(n) FROM pgdies_keys").fetchone() == (6000,))
    for query in queries:
        assert facts(db, query)["state"] in ("running", "starting")
        db.execute(f"TERMINATE QUERY {query}".encode())


@pytest.mark.stream
@pytest.mark.timeout(240)
def test_postgres_is_killed(server: Server, kafka: Kafka) -> None:
    """kill -9 of the postmaster: the server has it back, clients connect again, queries go on where they were."""
    kafka.topic("pgkill", 2)
    with server.connect() as db:
        queries = run(db, f"""
            CREATE STORE pgkill WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE,
              'kafka.sasl.hash_function' = NONE);
            CREATE STREAM pgkill_in (id BIGINT, k BIGINT)
              WITH ('store' = pgkill, 'topic' = 'pgkill', 'value.format' = 'json', 'starting.position' = 'earliest');
            CREATE MATERIALIZED VIEW pgkill_all AS SELECT id FROM pgkill_in;
            CREATE MATERIALIZED VIEW pgkill_keys AS SELECT k, count(*) AS n FROM pgkill_in GROUP BY k;
        """)  # fmt: skip
        produce(kafka, "pgkill", 0, 1000)
        within(60, lambda: db.execute("SELECT count(*) FROM pgkill_all").fetchone() == (1000,))
        os.kill(postmaster(server), signal.SIGKILL)
        within(20, lambda: is_lost(db))
    produce(kafka, "pgkill", 1000, 2000)
    with within(60, lambda: server.connect()) as db:
        within(
            120, lambda: db.execute("SELECT count(*), count(DISTINCT id) FROM pgkill_all").fetchone() == (2000, 2000)
        )
        within(60, lambda: db.execute("SELECT sum(n) FROM pgkill_keys").fetchone() == (2000,))
        db.execute("CREATE MATERIALIZED VIEW pgkill_more AS SELECT id FROM pgkill_in")
        within(60, lambda: db.execute("SELECT count(*) FROM pgkill_more").fetchone() == (2000,))
        for query in queries:
            within(60, lambda q=query: facts(db, q)["state"] == "running")
            db.execute(f"TERMINATE QUERY {query}".encode())


def is_lost(db: psycopg.Connection[Any]) -> bool:
    with contextlib.suppress(psycopg.OperationalError):
        db.execute("SELECT 1")
    return db.closed


def postmaster(server: Server) -> int:
    return int((server.data_dir / "postgres" / "postmaster.pid").read_text().split("\n")[0])


@contextlib.contextmanager
def superuser(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """Straight to the embedded PostgreSQL, as its superuser."""
    lines = (server.data_dir / "postgres" / "postmaster.pid").read_text().split("\n")
    password = (server.data_dir / "postgres.password").read_text().strip()
    with psycopg.connect(host="127.0.0.1", port=lines[3], user="pgstream", password=password, dbname="main",
                         autocommit=True) as c:  # fmt: skip
        yield c
