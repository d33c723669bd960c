"""A PostgreSQL of its own that is a store: wal_level logical, password logins over TCP.

``Postgres`` is started, stopped, killed and started again by tests. Owns: its process and its folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgstream.embedded.child import free_port, spawn, unprivileged
from pgstream.embedded.cluster import binaries
from tests.server import within

USER, PASSWORD, DATABASE = "shop_owner", "shop-pass'word 1", "shop"


class Postgres:
    """One cluster. ``uris`` and the user's name and password are what CREATE STORE wants. ``programs``: the folder of
    another PostgreSQL than the embedded one, which speaks no TLS."""

    def __init__(self, folder: Path, *, programs: Path | None = None, **settings: str) -> None:
        self.folder, self.settings = folder, settings
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.bin = programs or binaries()
        self.user = unprivileged(folder, self.bin / "postgres")
        folder.mkdir(parents=True)
        self.user.own(folder)
        self._make()
        self.start()
        with self.connect("postgres") as c:
            c.execute(f"CREATE DATABASE {DATABASE}".encode())

    @property
    def uris(self) -> str:
        return f"postgresql://127.0.0.1:{self.port}/{DATABASE}"

    @property
    def options(self) -> dict[str, str]:
        return {"uris": self.uris, "postgres.username": USER, "postgres.password": PASSWORD, "tls.disabled": "true"}

    @property
    def store(self) -> str:
        """The parameters of CREATE STORE."""
        password = PASSWORD.replace("'", "''")
        return (f"'type' = POSTGRESQL, 'uris' = '{self.uris}', 'postgres.username' = '{USER}', "
                f"'postgres.password' = '{password}', 'tls.disabled' = TRUE")  # fmt: skip

    def _make(self) -> None:
        secret = self.folder.parent / f"{self.folder.name}.password"
        secret.write_text(PASSWORD + "\n")
        self.user.own(secret)
        argv = [self.bin / "initdb", "-D", self.folder, "-U", USER, f"--pwfile={secret}", "--auth=scram-sha-256",
                "--encoding=UTF8", "--locale=C", "--no-instructions", "--no-sync"]  # fmt: skip
        done = spawn(argv, user=self.user, environ=dict(os.environ), output=subprocess.PIPE)
        output, _ = done.communicate()
        assert done.returncode == 0, output.decode()
        secret.unlink()

    def start(self) -> None:
        settings = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": "",
                    "wal_level": "logical", "fsync": "off", "shared_buffers": "16MB", "max_wal_size": "64MB",
                    "max_replication_slots": "20", "max_wal_senders": "20", **self.settings}  # fmt: skip
        argv: list[str | Path] = [self.bin / "postgres", "-D", self.folder]
        argv += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self.process = spawn(argv, user=self.user, death_signal=signal.SIGINT, environ=dict(os.environ), output=log)

        def up() -> bool:
            with self.connect("postgres"):
                return True

        within(30, up)

    def stop(self, order: signal.Signals = signal.SIGINT) -> None:
        assert self.process is not None
        self.process.send_signal(order)
        self.process.wait(60)

    def connect(self, database: str = DATABASE, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(host="127.0.0.1", port=self.port, dbname=database, user=USER, password=PASSWORD,
                               autocommit=True, **options)  # fmt: skip

    def run(self, *texts: str) -> None:
        """Statements, each its own transaction."""
        with self.connect() as c:
            for text in texts:
                c.execute(text.encode())

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        with self.connect() as c:
            return c.execute(text.encode()).fetchall()


@contextlib.contextmanager
def postgres(folder: Path, *, programs: Path | None = None, **settings: str) -> Iterator[Postgres]:
    p = Postgres(folder, programs=programs, **settings)
    try:
        yield p
    finally:
        if p.process is not None and p.process.poll() is None:
            p.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def shop(workspace: Path) -> Iterator[Postgres]:
    with postgres(workspace / "shop") as p:
        yield p
