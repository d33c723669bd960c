"""A SELECT on a stream as tools run it: rows as they come, bound values, Ctrl-C, clients that vanish or do not read."""

from __future__ import annotations

import datetime as dt
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import asyncpg
import psycopg
import pytest

from pgstream import config
from pgstream.embedded.jars import fetch
from pgstream.embedded.java import find_java
from tests.pg.door.raw import Wire, query
from tests.server import PASSWORD, Kafka, Server, within

pytestmark = pytest.mark.clients
EARLIEST = "FROM clicks WITH ('starting.position' = 'earliest')"
RECORDS = 20_000


@pytest.fixture(scope="module", autouse=True)
def clicks(server: Server, kafka: Kafka) -> None:
    kafka.topic("clicks")
    kafka.produce("clicks", [(str(n), _record(n)) for n in range(RECORDS)])
    with server.connect() as c:
        c.execute(
            f"CREATE STORE streaming_k WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE, "
            "'kafka.sasl.hash_function' = NONE)"
        )
        c.execute(
            "CREATE STREAM clicks (n BIGINT, userid VARCHAR, price DECIMAL(10,2), ok BOOLEAN, ratio DOUBLE, "
            "at TIMESTAMP(3), day DATE, tags ARRAY<BIGINT>, geo STRUCT<city VARCHAR>, pad VARCHAR) "
            "WITH ('store' = streaming_k, 'topic' = 'clicks', 'value.format' = 'json')"
        )


def _record(n: int) -> str:
    return json.dumps(
        {"n": n, "userid": f"u{n % 2}", "price": 12.34, "ok": True, "ratio": 1.5, "at": "2024-01-02 03:04:05.678",
         "day": "2024-01-02", "tags": [1, None], "geo": {"city": "x"}, "pad": "x" * 500}
    )  # fmt: skip


ROW = (
    0, "u0", Decimal("12.34"), True, 1.5, dt.datetime(2024, 1, 2, 3, 4, 5, 678000), dt.date(2024, 1, 2), [1, None],
    {"city": "x"},
)  # fmt: skip


@pytest.mark.parametrize("binary", [False, True])
def test_types_and_rows_as_they_come(db: psycopg.Connection, binary: bool) -> None:
    columns = "n, userid, price, ok, ratio, at, day, tags, geo"
    assert db.cursor(binary=binary).execute(f"SELECT {columns} {EARLIEST} LIMIT 1").fetchone() == ROW
    rows = db.cursor(binary=binary).stream(f"SELECT n {EARLIEST} LIMIT 1000")
    assert [n for (n,) in rows] == list(range(1000))


def test_a_user_cancels_it_from_another_session(server: Server, db: psycopg.Connection) -> None:
    with server.connect() as other:
        rows = db.cursor().stream(f"SELECT n {EARLIEST}")
        assert next(rows) == (0,)
        assert other.execute("SELECT pg_cancel_backend(%s)", (db.info.backend_pid,)).fetchone() == (True,)
        with pytest.raises(psycopg.errors.QueryCanceled, match="due to user request"):
            for _ in rows:
                pass
        assert db.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    ("condition", "value"),
    [("n = %s", 4), ("userid = %s AND n > 3", "u0"), ("price > %s AND n = 4", Decimal("1.5")),
     ("ok = %s AND n = 4", True),
     ("ratio < %s AND n = 4", 2.5), ("at < %s AND n = 4", dt.datetime(2025, 1, 1)),
     ("day <= %s AND n = 4", dt.date(2025, 1, 1))],
)  # fmt: skip
def test_bound_values(db: psycopg.Connection, binary: bool, condition: str, value: object) -> None:
    text = f"SELECT n, n + %s {EARLIEST} WHERE {condition} LIMIT %s"
    assert db.cursor(binary=binary).execute(text, (1, value, 1)).fetchall() == [(4, 5)]


@pytest.mark.parametrize("binary", [False, True])
def test_a_prepared_statement_of_a_stream_that_was_made_anew(server: Server, binary: bool) -> None:
    ways = "WITH ('store' = streaming_k, 'topic' = 'clicks', 'value.format' = 'json', 'starting.position' = 'earliest')"
    with server.connect() as db, server.connect() as other, db.cursor(binary=binary) as c:
        other.execute(f"CREATE STREAM anew (n BIGINT) {ways}")
        assert c.execute("SELECT * FROM anew LIMIT 1", prepare=True).fetchall() == [(0,)]
        other.execute("DROP STREAM anew")
        other.execute(f"CREATE STREAM anew (userid VARCHAR) {ways}")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan must not change result type"):
            c.execute("SELECT * FROM anew LIMIT 1", prepare=True)
        assert c.execute("SELECT * FROM anew LIMIT 1").fetchall() == [("u0",)]
        other.execute("DROP STREAM anew")
    _gone(server)


async def test_asyncpg_cursor(server: Server) -> None:
    c = await asyncpg.connect(server.url)
    try:
        async with c.transaction():
            text = f"SELECT n, tags {EARLIEST} WHERE userid = $1 LIMIT 1000"
            rows = [r async for r in c.cursor(text, "u1", prefetch=100)]
        assert [r["n"] for r in rows] == list(range(1, 2001, 2))
        assert rows[0]["tags"] == [1, None]
    finally:
        await c.close()


def jdbc(server: Server, program: str, *arguments: str) -> list[str]:
    """The command that runs a Java program with the JDBC driver: it is given URL, user, password and ``arguments``."""
    settings = config.load({})
    java = find_java(settings)
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("this Java has no compiler for single-file programs")
    driver = next(p for p in fetch(settings) if p.name.startswith("postgresql-"))
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/main"
    source = str(Path(__file__).with_name(program))
    return [str(java), "-XX:TieredStopAtLevel=1", "-cp", str(driver), source, url, "admin", PASSWORD, *arguments]


def test_jdbc_fetch_size(server: Server) -> None:
    command = jdbc(server, "JdbcStream.java")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["300 120000 12.34 2024-01-02 03:04:05.678 2"] * 6, done.stderr


def _running(server: Server) -> int:
    """Streaming SELECTs in the worker: Spark gives each query a thread, whose name Linux cuts at 15 characters.

    Less the continuous queries: other programs here share a view.
    """
    with server.connect() as c:
        found = -sum(row[4] == "running" for row in c.execute("LIST QUERIES").fetchall())
    for comm in Path("/proc").glob("[0-9]*/task/*/comm"):
        try:
            if comm.read_text() == "stream executio\n" and _descends(int(comm.parts[2]), server.process.pid):
                found += 1
        except OSError:
            continue
    return found


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == ancestor


def _started(server: Server) -> None:
    within(30, lambda: _running(server) == 1)


def _gone(server: Server) -> None:
    def none() -> bool:
        found = _running(server)
        assert found == 0, f"{found} running"
        return True

    within(60, none)


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_ctrl_c_in_psql(server: Server) -> None:
    leader, follower = pty.openpty()
    command = ["psql", "-X", "-P", "pager=off", server.url]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True) as psql:
        os.close(follower)
        try:
            _reads(leader, "main=")  # psql begins to handle SIGINT a moment before
            _gone(server)  # the query of the test before
            os.write(leader, b"SELECT n FROM clicks;\n")
            _started(server)
            psql.send_signal(signal.SIGINT)
            _reads(leader, "ERROR:  canceling statement due to user request")
            _gone(server)
            os.write(leader, b"SELECT 'still ' || 'here';\n")
            _reads(leader, "still here")
        finally:
            psql.kill()
    os.close(leader)


@pytest.mark.parametrize(
    "text", [f"SELECT pad {EARLIEST}", "PRINT ENTITY clicks IN STORE streaming_k WITH ('from_beginning')"]
)
def test_cancel_in_the_middle_of_rows(server: Server, db: psycopg.Connection, text: str) -> None:
    rows = db.cursor().stream(text)
    next(rows)
    db.cancel_safe()
    with pytest.raises(psycopg.errors.QueryCanceled, match="canceling statement due to user request"):
        for _ in rows:
            pass
    assert db.execute("SELECT 1").fetchone() == (1,)
    _gone(server)


def _reads(terminal: int, wanted: str) -> None:
    seen = b""

    def found() -> bool:
        nonlocal seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen = seen[-200:] + os.read(terminal, 65536)
        return wanted.encode() in seen

    within(30, found, every=0)


def test_a_killed_client_ends_its_query(server: Server) -> None:
    code = "import psycopg, sys; print(next(psycopg.connect(sys.argv[1]).cursor().stream(sys.argv[2])), flush=True)\n"
    code += "import signal; signal.pause()"
    command = [sys.executable, "-c", code, server.url, f"SELECT pad {EARLIEST}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        _started(server)
        client.kill()
    _gone(server)


def test_a_client_that_does_not_read(server: Server, db: psycopg.Connection) -> None:
    before = _rss(server)
    with Wire(server.port, "admin", PASSWORD) as slow:
        columns = ", ".join(f"pad AS p{n}" for n in range(10))
        slow.send(query(f"SELECT n, {columns} {EARLIEST}"))  # 100 MB
        assert slow.read()[0] == "T"
        rows = db.execute(f"SELECT n {EARLIEST} LIMIT 10000").fetchall()
        assert len(rows) == 10000
        assert _rss(server) - before < 60
    _gone(server)


def _rss(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024
