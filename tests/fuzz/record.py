"""Records what real clients say to a real door: ``python -m tests.fuzz.record`` writes ``transcripts/``.

Between client and door stands a proxy that keeps what the client sends. Connections that only carry a cancel request
or are refused make no transcript; a client that makes several connections makes several (``psycopg_2.txt``).
pgjdbc, pgx, lib/pq and node-postgres say what their programs in ``tests/clients`` say to PostgreSQL, which must have
been built (``make test-clients``); of long sessions the short messages are kept, and not all.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psycopg

from pgstream import config
from pgstream.embedded.cluster import binaries
from pgstream.embedded.jars import fetch
from pgstream.embedded.java import find_java
from tests.fuzz import transcript
from tests.pg.door import double
from tests.pg.door.double import Door

LANGUAGES = Path(__file__).parents[1] / "clients"
LONG, MANY = 2000, 240
SQL = """
SELECT 1; SELECT 'a', NULL;
LIST DOORS;
CREATE TEMPORARY TABLE t (i int, s text); INSERT INTO t VALUES (1, 'x'), (2, 'y');
BEGIN; COUNT TO 3; SELECT * FROM t; COMMIT;
BEGIN; LIST !; SELECT 1; ROLLBACK;
COPY t FROM STDIN;
3	z
4	\\N
\\.
COPY t TO STDOUT;
SET search_path TO pg_catalog; WHERE AM I; RESET search_path;
LISTEN rooms; NOTIFY rooms, 'hi';
SELECT 1/0; QUIET;
USE DATABASE other; SELECT current_database(); LIST DOORS;
\\set FETCH_COUNT 2
SELECT generate_series(1, 5);
COUNT TO 5;
\\d pg_language
\\gdesc
"""


class Recorder:
    """Listens on ``port`` and passes on to a door; ``sessions`` are what clients said, one entry a connection."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.sessions: list[bytearray] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            server = socket.create_connection(("127.0.0.1", self._to))
            said = bytearray()
            self.sessions.append(said)
            for source, target, kept in ((client, server, said), (server, client, None)):
                threading.Thread(target=self._pass, args=(source, target, kept), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, kept: bytearray | None) -> None:
        while data := source.recv(1 << 16):
            if kept is not None:
                kept += data
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def with_psql(port: int) -> None:
    _program("psql", "-X", "-q", port=port, text=SQL)


def with_pgbench(port: int) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("\\set i random(1, 9)\nSELECT :i + 1;\nCOUNT TO 2;\nSELECT :i;\n")
        script.flush()
        for mode in ("simple", "extended", "prepared"):
            _program("pgbench", "-n", "-t", "2", "-M", mode, "-f", script.name, port=port)


def _program(name: str, *flags: str, port: int, text: str = "") -> None:
    environ = {
        **os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": Door.USER, "PGPASSWORD": Door.PASSWORD,
        "PGDATABASE": "main", "PGSSLMODE": "disable", "PGGSSENCMODE": "disable",
    }  # fmt: skip
    subprocess.run([binaries() / name, *flags], input=text, text=True, env=environ, capture_output=True, check=False)


def with_psycopg(port: int) -> None:
    own = {"host": "127.0.0.1", "port": port, "user": Door.USER, "password": Door.PASSWORD, "dbname": "main"}
    with psycopg.connect(**own, autocommit=True, sslmode="disable", gssencmode="disable") as conn:
        conn.execute("SELECT %s::int, %s", (1, "x"), binary=True).fetchall()
        for n in range(7):
            conn.execute("SELECT %s::int", (n,), prepare=True)
        conn.execute("ECHO $1", prepare=False)
        conn.execute("ECHO %s, %s", ("a", None))
        list(conn.cursor().stream("COUNT TO 4"))
        with conn.transaction(), conn.cursor(name="c") as cur:
            cur.itersize = 2
            cur.execute("SELECT generate_series(1, 5)")
            cur.fetchall()
        with conn.pipeline():
            for n in range(3):
                conn.execute("SELECT %s::int", (n,))
                conn.execute("LIST DOORS")
        with conn.transaction():
            conn.execute("CREATE TEMPORARY TABLE t (i int, b bytea)")
            with conn.cursor().copy("COPY t FROM STDIN (FORMAT binary)") as copy:
                copy.set_types(["int4", "bytea"])
                copy.write_row((1, b"\0\xff"))
        with conn.cursor().copy("COPY t TO STDOUT") as copy:
            list(copy.rows())
        for failing in ("SELECT 1/0", "LIST !", "SELECT nothing"):
            try:
                conn.execute(failing, binary=True)
            except psycopg.Error:
                continue
    with psycopg.connect(**own, sslmode="disable", max_protocol_version="latest") as conn:
        conn.execute("SELECT 1")
        conn.execute("COUNT TO 2")
        conn.rollback()


def with_asyncpg(port: int) -> None:
    asyncio.run(_asyncpg(port))


async def _asyncpg(port: int) -> None:
    conn = await asyncpg.connect(
        host="127.0.0.1", port=port, user=Door.USER, password=Door.PASSWORD, database="main", ssl=False
    )
    await conn.fetch("SELECT $1::int[], $2::jsonb", [1, 2], "{}")
    statement = await conn.prepare("LIST DOORS")
    await statement.fetch()
    async with conn.transaction():
        async for _ in conn.cursor("COUNT TO 6", prefetch=2):
            pass
        async for _ in conn.cursor("SELECT generate_series(1, $1::int)", 6, prefetch=2):
            pass
    await conn.execute("CREATE TEMPORARY TABLE t (i int, s text)")
    await conn.executemany("INSERT INTO t VALUES ($1, $2)", [(n, str(n)) for n in range(4)])
    await conn.copy_records_to_table("t", records=[(9, "nine")])
    await conn.add_listener("rooms", lambda *_: None)
    await conn.execute("SELECT 1; LIST DOORS; SELECT 2")
    await conn.reset()
    await conn.close()


def with_language(name: str) -> Callable[[int], None]:
    """A program of another language, in ``tests/clients``."""

    def run(port: int) -> None:
        own = {"PGUSER": Door.USER, "PGPASSWORD": Door.PASSWORD, "PGDATABASE": "main", "PGSSLMODE": "disable"}
        environ = {**os.environ, **own, "PGHOST": "127.0.0.1", "PGPORT": str(port), "TARGET": "postgresql"}
        folder, cache = LANGUAGES / name, config.load({}).cache / "clients" / name
        commands = {
            "node": ["node", folder / "client.js"],
            "go": [cache / "client"],
            "jdbc": [find_java(config.load({})), "-cp", _pgjdbc(), folder / "Client.java"],
        }
        environ["NODE_PATH"] = str(cache / "node_modules")
        subprocess.run([str(part) for part in commands[name]], env=environ, capture_output=True, check=False)

    return run


def _pgjdbc() -> Path:
    return next(p for p in fetch(config.load({})) if p.name.startswith("postgresql-"))


def shortened(messages: list[transcript.Message]) -> list[transcript.Message]:
    """The begin and the end of a long session, without messages that are long for their data only."""
    short = [m for m in messages if len(m[1]) < LONG]
    return short if len(short) <= MANY else short[: MANY * 2 // 3] + short[-MANY // 3 :]


CLIENTS: dict[str, Callable[[int], None]] = {
    "psql": with_psql,
    "pgbench": with_pgbench,
    "psycopg": with_psycopg,
    "asyncpg": with_asyncpg,
    "node": with_language("node"),
    "go": with_language("go"),
    "jdbc": with_language("jdbc"),
}
MOST = 4
"""Transcripts of one client."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        door = double.start(Path(folder) / "data")
        for name, run in CLIENTS.items():
            recorder = Recorder(door.port)
            run(recorder.port)
            told = [messages for said in recorder.sessions if len(messages := transcript.cut(bytes(said))) > 2]
            for n, messages in enumerate(sorted(map(shortened, told), key=len, reverse=True)[:MOST], 1):
                file = name if n == 1 else f"{name}_{n}"
                transcript.write(file, messages)
                print(f"{file}: {len(messages)} messages")
        door.stop()


if __name__ == "__main__":
    main()
