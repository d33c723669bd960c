"""What runs the jobs: pgstream, a PySpark program by hand, Flink SQL, Pathway. Each is a context around one run.

``out`` is the topic or the table that a job writes. Programs other than pgstream get one JSON argument, print START
when they begin to read, and run until they are killed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import psutil
import psycopg

from benchmarks import flink, pathway
from benchmarks.stack import Stack
from benchmarks.usage import tree
from pgstream import config
from pgstream.embedded.jars import fetch

HERE = Path(__file__).parent
TABLES = {
    "J2": "CREATE TABLE {out} (k bigint, w bigint, c bigint, s bigint, PRIMARY KEY (k, w))",
    "J3": "CREATE TABLE {out} (k bigint PRIMARY KEY, c bigint, s bigint)",
}
EVENTS = "n BIGINT, ts BIGINT, k1 BIGINT, k2 BIGINT, v BIGINT"
OURS = {
    "J1": """CREATE STREAM {out} WITH ('store' = bench, 'topic' = '{out}') AS
SELECT n, k2, v * 2 AS w FROM ev WITH ('starting.position' = '{position}') WHERE v % 2 = 0""",
    "J2": """CREATE MATERIALIZED VIEW {out} AS SELECT k1 AS k, window_start AS w, count(*) AS c, sum(v) AS s
FROM TUMBLE(ev, SIZE 10 SECONDS) WITH ('starting.position' = '{position}') GROUP BY window_start, window_end, k1""",
    "J3": """CREATE MATERIALIZED VIEW {out} AS SELECT k2 AS k, count(*) AS c, sum(v) AS s
FROM ev WITH ('starting.position' = '{position}') GROUP BY k2""",
    "J4": """CREATE STREAM {out} WITH ('store' = bench, 'topic' = '{out}') AS
SELECT x.n AS a, y.n AS b, x.k2 AS k FROM a AS x WITH ('starting.position' = '{position}')
JOIN b AS y WITH ('starting.position' = '{position}') WITHIN 10 SECONDS ON x.k2 = y.k2""",
}


class Engine:
    """One run of one job."""

    name: ClassVar[str]

    def __init__(self, s: Stack, job: str, topics: Sequence[str], out: str, position: str = "earliest") -> None:
        self.s, self.job, self.topics, self.out, self.position = s, job, topics, out, position
        self.folder = Path(tempfile.mkdtemp(prefix="pgsj"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def begin(self) -> float:
        """Start; the moment from which it reads."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise if it has ended."""

    def processes(self) -> list[psutil.Process]:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError


class Pgstream(Engine):
    name = "pgstream"

    def begin(self) -> float:
        with self.s.server.connect() as c:
            c.execute(
                f"CREATE STORE IF NOT EXISTS bench WITH ('type' = KAFKA, 'uris' = '{self.s.kafka.bootstrap}', "
                "'tls.disabled' = TRUE, 'kafka.sasl.hash_function' = NONE)".encode()
            )
            for topic in self.topics:
                c.execute(
                    f"CREATE STREAM IF NOT EXISTS {topic} ({EVENTS}) WITH ('store' = bench, 'topic' = '{topic}', "
                    "'value.format' = 'json', 'timestamp' = 'ts')".encode()
                )
            begin = time.perf_counter()
            c.execute(OURS[self.job].format(out=self.out, position=self.position).encode())
        return begin

    def check(self) -> None:
        if self.s.server.process.poll() is not None:
            raise SystemExit("the server has ended")

    def processes(self) -> list[psutil.Process]:
        return tree(self.s.server.process.pid, without="postgres")

    def end(self) -> None:
        with self.s.server.connect() as c:
            for row in c.execute("LIST QUERIES").fetchall():
                c.execute(f"TERMINATE QUERY {row[0]}".encode())


class Program(Engine):
    """A program of its own."""

    _program: subprocess.Popen[str] | None = None

    def argument(self) -> dict[str, Any]:
        return {"job": self.job, "kafka": self.s.kafka.bootstrap, "topics": list(self.topics), "out": self.out,
                "position": self.position, "dsn": self.s.direct, "port": self.s.port, "password": self.s.password,
                "folder": str(self.folder)}  # fmt: skip

    def command(self) -> list[str]:
        raise NotImplementedError

    def begin(self) -> float:
        if self.job in TABLES:
            with psycopg.connect(self.s.direct, autocommit=True) as c:
                c.execute(TABLES[self.job].format(out=self.out).encode())
        else:
            self.s.kafka.topic(self.out, 2, retention_ms="-1")
        with (self.folder / "errors").open("w") as errors:
            self._program = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=errors, text=True, cwd=self.folder
            )
        assert self._program.stdout is not None
        for line in self._program.stdout:
            if line.startswith("START"):
                break
        self.check()
        return time.perf_counter()

    def check(self) -> None:
        if self._program is None or self._program.poll() is not None:
            raise SystemExit(f"{self.name} has ended: {(self.folder / 'errors').read_text()[-2000:]}")

    def processes(self) -> list[psutil.Process]:
        return tree(self._program.pid) if self._program is not None else []

    def end(self) -> None:
        for process in self.processes()[::-1]:
            process.kill()
        if self._program is not None:
            self._program.wait()


class Plain(Program):
    name = "plain PySpark"

    def command(self) -> list[str]:
        jars = [str(j) for j in fetch(config.load({}))]
        return [sys.executable, str(HERE / "plain_pyspark.py"), json.dumps(self.argument() | {"jars": jars})]


class Flink(Program):
    name = "Flink SQL"

    def command(self) -> list[str]:
        return flink.command(self.argument())


class Pathway(Program):
    name = "Pathway"

    def command(self) -> list[str]:
        return pathway.command(self.argument())


ENGINES: list[type[Engine]] = [Pgstream, Plain]
PEERS: list[type[Engine]] = [Flink, Pathway]
