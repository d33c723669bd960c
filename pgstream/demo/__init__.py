"""``pgstream demo``: page views flow from a real Kafka topic through Spark into a view, before your eyes.

Owns: starting a broker, a generator and a ``pgstream serve`` of its own, running the annotated script, showing the view
live, and stopping exactly what it started. Must not know: the server's inside; it is a client like any other.
Start reading at ``main``.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import psycopg

from pgstream.config import Config
from pgstream.demo.generator import Generator
from pgstream.demo.script import run, table
from pgstream.embedded.kafka import Broker, open_broker
from pgstream.errors import ConfigurationError

_LIVE = """SELECT window_start::time(0) AS "from", pageid, views FROM views_per_10s
WHERE window_start >= (SELECT max(window_start) FROM views_per_10s) - interval '10 seconds'
ORDER BY window_start DESC, views DESC, pageid LIMIT 10"""


def main(config: Config, seconds: float | None = None) -> int:
    """Run the demo until Ctrl-C, or for ``seconds`` after the first live rows. Answers the exit code."""
    try:
        asyncio.run(_Demo(config, seconds).run())
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("\nstopped.")
    return 0


class _Demo:
    def __init__(self, config: Config, seconds: float | None) -> None:
        self.config, self.seconds, self.begin = config, seconds, time.monotonic()
        self.folder = config.data_dir / "demo"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.broker: Broker | None = None
        self.generator: Generator | None = None
        self.server: subprocess.Popen[str] | None = None

    async def run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        try:
            url = await self.start()
            await asyncio.to_thread(self.tell, url)
            await self.watch(url)
        finally:
            await self.stop()

    async def start(self) -> str:
        """Start broker, generator and server; the connection URL with its password."""
        password = self._remembered("password", secrets.token_urlsafe(9))
        port = int(self._remembered("kafka.port", str(_free_port())))
        self.say("starting Kafka, PostgreSQL and Spark (first time: jars are downloaded, about 60 MB) …")
        self.server = self.spawn(password)
        self.broker = await open_broker(self.config, self.folder / "kafka", port)
        self.say(f"Kafka is up at {self.broker.bootstrap}")
        self.generator = Generator(self.broker.bootstrap)
        await asyncio.to_thread(self.generator.start)
        line = await asyncio.to_thread(_first_line, self.server, self.folder / "server.log")
        self.say("pgstream is up")
        return line.removeprefix("ready ").strip().replace("@", f":{password}@", 1)

    def spawn(self, password: str) -> subprocess.Popen[str]:
        env = os.environ | {"PGSTREAM_ADMIN_PASSWORD": password, "PGSTREAM_SPARK_FAST_START": "true"}
        command = [sys.executable, "-m", "pgstream", "serve", "--data-dir", str(self.folder / "server"),
                   "--listen", self.config.listen]  # fmt: skip
        with (self.folder / "server.log").open("ab") as log:
            # Its own process group: Ctrl-C reaches only the demo, which then stops the server in order.
            return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0)

    def tell(self, url: str) -> None:
        assert self.broker is not None
        with psycopg.connect(url, autocommit=True) as connection:
            run(connection, self.broker.bootstrap, print)
            first = _wait_for_rows(connection)
        self.say(f"first rows of views_per_10s after {time.monotonic() - self.begin:.1f} s in all "
                 f"({first:.1f} s after the last statement)")  # fmt: skip
        print(f"\nGo on with psql, in another terminal:\n\n    psql {url}\n")

    async def watch(self, url: str) -> None:
        """Show the view changing, once a second."""
        end = time.monotonic() + self.seconds if self.seconds is not None else None
        drawn = 0
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            while end is None or time.monotonic() < end:
                text = await _live(connection)
                if sys.stdout.isatty() and drawn:
                    print(f"\x1b[{drawn}F\x1b[0J", end="")
                print(text, flush=True)
                drawn = text.count("\n") + 1
                await asyncio.sleep(1)

    async def stop(self) -> None:
        self.say("stopping what this demo started …")
        if self.generator is not None:
            await asyncio.to_thread(self.generator.stop)
        if self.server is not None:
            self.server.terminate()
            await asyncio.to_thread(self.server.wait)
        if self.broker is not None:
            await self.broker.stop()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begin:5.1f} s] {text}", flush=True)

    def _remembered(self, name: str, fresh: str) -> str:
        """A value kept beside the demo's data, so that a second demo finds the first one's objects."""
        path = self.folder / name
        if not path.exists():
            path.touch(0o600)
            path.write_text(fresh)
        return path.read_text()


def _wait_for_rows(connection: psycopg.Connection[Any]) -> float:
    begin = time.monotonic()
    while connection.execute("SELECT 1 FROM views_per_10s LIMIT 1").fetchone() is None:
        time.sleep(0.1)
    return time.monotonic() - begin


async def _live(connection: psycopg.AsyncConnection[Any]) -> str:
    rows = await (await connection.execute(_LIVE)).fetchall()
    joined = await (await connection.execute("SELECT count(*) FROM viewer_cities")).fetchone()
    count = joined[0] if joined else 0
    head = f"{time.strftime('%H:%M:%S')}  views_per_10s (the two latest windows) · viewer_cities: {count:,} rows\n"
    return head + table(["from", "page", "views"], rows) + "\n Ctrl-C ends the demo.\n"


def _first_line(server: subprocess.Popen[str], log: Path) -> str:
    out: IO[str] | None = server.stdout
    line = out.readline() if out else ""
    if not line.startswith("ready "):
        tail = "\n".join(log.read_text().splitlines()[-5:])
        raise ConfigurationError(what="the server did not start", hint=f"Its log is {log}; the end of it:\n{tail}")
    return line


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
