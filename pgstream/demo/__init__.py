"""``pgstream demo``: page views flow from a real Kafka topic through Spark into a view, before your eyes.

Owns: starting a broker, a generator and a ``pgstream serve`` of its own, running the annotated script, showing the view
live, and stopping exactly what it started. Must not know: the server's inside; it is a client like any other.
Start reading at ``main``.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import psycopg

from pgstream import logs
from pgstream.config import Config
from pgstream.demo.generator import Generator
from pgstream.demo.live import wait_for_rows, watch
from pgstream.demo.script import run, statements, without_kinesis
from pgstream.demo.stores import NO_DOUBLE, Stores
from pgstream.embedded import jars
from pgstream.embedded.check import CHECKS
from pgstream.embedded.child import free_port, spawn
from pgstream.embedded.cluster import binaries
from pgstream.embedded.kafka import Broker, open_broker
from pgstream.errors import ConfigurationError

# Of the demo's own settings, those that its server needs too.
_PASSED = ("java_home", "cache_dir", "jars_dir", "jars_mirror", "log_level")
_TRY = """Things to try there:

    LIST RELATIONS;                                what there is; \\d says it too
    SELECT * FROM pageviews LIMIT 5;               page views as they come
    SELECT pageid, sum(views) FROM views_per_10s
      GROUP BY pageid ORDER BY 2 DESC;             a view is a table: any PostgreSQL query will do
    LIST QUERIES;                                  what keeps the views current
"""
_TRY_STORES = """\
    SELECT * FROM orders_by_status;                what the shop's orders add up to now
    DESCRIBE ENTITY orders IN STORE demo_shop;     its table, and what its PostgreSQL keeps for the query
    PRINT ENTITY pageviews_kinesis IN STORE demo_kinesis WITH ('from_beginning') LIMIT 3;
"""


def main(config: Config, seconds: float | None = None, stores: str = "kafka") -> int:
    """Run the demo until Ctrl-C, or for ``seconds`` after the first live rows. Answers the exit code.

    ``stores``: ``kafka``, or ``all`` for a PostgreSQL and a double of Kinesis beside it.
    """
    if config.log_level == "info":
        # The demo tells itself what happens; its server's log is in a file.
        logs.configure("warning")
    try:
        asyncio.run(_Demo(config, seconds, stores == "all").run())
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped.")
    except psycopg.Error as e:
        raise ConfigurationError(
            what="the demo lost its server, or the server refused a statement",
            detail=str(e).strip(),
            hint=f'The server\'s log is "{config.data_dir / "demo" / "server.log"}".',
        ) from None
    return 0


class _Demo:
    def __init__(self, config: Config, seconds: float | None, all_stores: bool) -> None:
        self.all_stores = all_stores
        self.stores: Stores | None = None
        self.config, self.seconds, self.begin = config, seconds, time.monotonic()
        self.folder = config.data_dir.expanduser().absolute() / "demo"
        self.broker: Broker | None = None
        self.generator: Generator | None = None
        self.server: subprocess.Popen[bytes] | None = None

    async def run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        try:
            url = await self.start()
            await asyncio.to_thread(self.tell, url)
            await watch(url, self.seconds)
        finally:
            await self.stop()

    async def start(self) -> str:
        """Start broker, generator and server; the connection URL with its password."""
        self.look_first()
        await asyncio.to_thread(self.download)
        password = self._remembered("password", secrets.token_urlsafe(9))
        more = ("PostgreSQL", "Kinesis") if self.all_stores else ()
        ports = {of: self._port(of) for of in ("Kafka", *more)}
        self.say("starting Kafka and PostgreSQL; Spark starts meanwhile …")
        log = self.folder / "server.log"
        before = log.stat().st_size if log.exists() else 0
        self.server = self.spawn(password, log)
        self.broker = await open_broker(self.config, self.folder / "kafka", ports["Kafka"])
        self.say(f"Kafka is up at {self.broker.bootstrap}; a generator writes 50 page views a second")
        self.generator = Generator(self.broker.bootstrap)
        await asyncio.to_thread(self.generator.start)
        if self.all_stores:
            self.stores = await Stores.open(self.config, self.folder, ports)
            self.say("a shop's PostgreSQL is up" + (" and so is Kinesis" if self.stores.kinesis else f". {NO_DOUBLE}"))
        line = await asyncio.to_thread(_first_line, self.server, log, before)
        self.say(f"pgstream is up; the data of the demo stays in {self.folder}")
        return line.removeprefix("ready ").strip().replace("@", f":{quote(password, safe='')}@", 1)

    def look_first(self) -> None:
        """Refuse what would fail later, while nothing has been started. Errors: ConfigurationError."""
        CHECKS["listen"](self.config)
        CHECKS["data directory"](dataclasses.replace(self.config, data_dir=self.folder / "server"))
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def download(self) -> None:
        """Have all jars in the cache."""
        wanted = sum(len(jars.missing(part, self.config)) for part in ("connectors", "broker"))
        if not wanted:
            return
        self.say(f"the first time: downloading {wanted} jars for Spark and Kafka, about 60 MB …")
        done = 0

        def report(line: str) -> None:
            nonlocal done
            done += line.startswith("downloaded ")
            if line.startswith("downloaded ") and done % 10 == 0:
                self.say(f"{done} of {wanted} jars are here")

        jars.fetch(self.config, report)
        jars.broker_jars(self.config, report)

    def spawn(self, password: str, log: Path) -> subprocess.Popen[bytes]:
        """Start the server: with a log of its own, in a session of its own, gone when the demo is gone."""
        # Settings of another server in this environment are not the demo's.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PGSTREAM_")}
        env |= {"PGSTREAM_ADMIN_PASSWORD": password, "PGSTREAM_SPARK_FAST_START": "true"}
        for name in _PASSED:
            if value := getattr(self.config, name):
                env["PGSTREAM_" + name.upper()] = str(value.absolute() if isinstance(value, Path) else value)
        command: list[str | Path] = [sys.executable, "-m", "pgstream", "serve"]
        command += ["--data-dir", self.folder / "server", "--listen", self.config.listen]
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as errors:
            return spawn(command, death_signal=signal.SIGTERM, environ=env, output=subprocess.PIPE, errors=errors)

    def tell(self, url: str) -> None:
        """Run the script, wait for fresh rows, say how to go on."""
        assert self.broker is not None
        with psycopg.connect(url, autocommit=True) as connection:
            connection.add_notice_handler(self.notice)
            run(connection, statements({"bootstrap": self.broker.bootstrap}), print)
            if self.stores is not None:
                more = statements(self.stores.values, "stores.sql")
                if self.stores.kinesis is None:
                    more = without_kinesis(more)
                run(connection, more, print, self.stores.values["password"])
            print()
            first = wait_for_rows(connection)
        self.say(f"first live rows of views_per_10s after {time.monotonic() - self.begin:.1f} s in all "
                 f"({first:.1f} s after the last statement)")  # fmt: skip
        psql = shutil.which("psql")
        print(f"\nGo on with psql, in another terminal:\n\n    {'psql' if psql else binaries() / 'psql'} {url}\n")
        print(_TRY + (_TRY_STORES if self.stores is not None else ""))

    def notice(self, notice: psycopg.errors.Diagnostic) -> None:
        """Show that something is waited for; what is skipped says so itself."""
        if notice.message_primary and not notice.message_primary.endswith("skipping"):
            self.say(f"{notice.message_primary} (Spark takes 5 to 25 seconds) …")

    async def stop(self) -> None:
        started = [part for part in (self.server, self.generator, self.broker, self.stores) if part is not None]
        if not started:
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Stopping is not stopped half-way.
            asyncio.get_running_loop().add_signal_handler(number, lambda: None)
        print()
        self.say("stopping what this demo started …")
        if self.server is not None:
            with contextlib.suppress(ProcessLookupError):
                self.server.terminate()
        if self.generator is not None:
            await asyncio.to_thread(self.generator.stop)
        if self.server is not None:
            await asyncio.to_thread(self.server.wait)
        if self.broker is not None:
            await self.broker.stop()
        if self.stores is not None:
            await self.stores.stop()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begin:5.1f} s] {text}", flush=True)

    def _remembered(self, name: str, fresh: str) -> str:
        """A value kept beside the demo's data, so that a second demo finds the first one's objects."""
        path = self.folder / name
        if not path.exists():
            path.touch(0o600)
            path.write_text(fresh)
        return path.read_text()

    def _port(self, of: str) -> int:
        """The port that the first demo gave to this kind of store: stores and queries name it."""
        port = int(self._remembered(f"{of.lower()}.port", str(free_port())))
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                raise ConfigurationError(
                    what=f"port {port}, where this demo's {of} was before, is taken by another program",
                    hint=f'Stop that program, or let the demo begin afresh: rm -r "{self.folder}"',
                ) from None
        return port


def _first_line(server: subprocess.Popen[bytes], log: Path, before: int) -> str:
    """The server's ready line. Errors: ConfigurationError with the server's own words, from ``before`` in its log."""
    line = server.stdout.readline().decode() if server.stdout else ""
    if not line.startswith("ready "):
        with log.open("rb") as file:
            file.seek(before)
            words = file.read().decode(errors="replace")
        _, error, rest = words.rpartition("error: ")
        tail = rest if error else "\n".join(words.splitlines()[-5:])
        raise ConfigurationError(what="the server did not start", detail=tail.strip(), hint=f'Its log is "{log}".')
    return line
