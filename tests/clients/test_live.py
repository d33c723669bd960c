"""Rows of a SELECT on a stream that arrive one after the other: in psql, drivers' cursors and COPY, as they come.

Each client reads a key of its own. The second record is sent only after the client has shown the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal

import asyncpg
import psycopg
import psycopg2
import pytest

from tests.clients.test_streaming import _gone, _started, jdbc
from tests.server import Kafka, Server, within

pytestmark = pytest.mark.clients
COLUMNS = (
    "tiny TINYINT, small SMALLINT, whole INTEGER, big BIGINT, single FLOAT, twice DOUBLE, price DECIMAL(12,3), "
    "name VARCHAR, raw BYTES, ok BOOLEAN, day DATE, at TIMESTAMP(3), zoned TIMESTAMP_LTZ(3), numbers ARRAY<INTEGER>, "
    "prices ARRAY<DECIMAL(5,2)>, names ARRAY<VARCHAR>, flags ARRAY<BOOLEAN>, counts MAP<VARCHAR, BIGINT>, "
    "place STRUCT<city VARCHAR, at ARRAY<DOUBLE>>, places ARRAY<STRUCT<city VARCHAR>>"
)
VALUES = {
    "tiny": -128, "small": 32767, "whole": -2147483648, "big": 9007199254740993, "single": 0.5, "twice": 1e300,
    "price": 123456789.125, "name": "ü✓ \\ \" ' ,", "raw": "AP8=", "ok": True, "day": "2024-02-29",
    "at": "2024-02-29 23:59:59.125", "zoned": "2024-02-29 23:59:59.125Z", "numbers": [1, None, -3],
    "prices": [1.25, 0], "names": ["a b", "", "NULL", "{}\"\\"], "flags": [True, False], "counts": {"a": 1},
    "place": {"city": "x", "at": [1.5]}, "places": [{"city": "x"}, {"city": None}],
}  # fmt: skip
ROW = (
    -128, 32767, -2147483648, 9007199254740993, 0.5, 1e300, Decimal("123456789.125"), "ü✓ \\ \" ' ,", b"\0\xff", True,
    dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 23, 59, 59, 125000),
    dt.datetime(2024, 2, 29, 23, 59, 59, 125000, dt.UTC), [1, None, -3], [Decimal("1.25"), Decimal("0.00")],
    ["a b", "", "NULL", "{}\"\\"], [True, False], {"a": 1}, {"city": "x", "at": [1.5]}, [{"city": "x"}, {"city": None}],
)  # fmt: skip


def _select(who: str, more: str = "") -> str:
    return f"SELECT n, who FROM live WITH ('starting.position' = 'earliest') WHERE who = '{who}'{more}"


@pytest.fixture(scope="module", autouse=True)
def live(server: Server, kafka: Kafka) -> None:
    kafka.topic("live")
    kafka.topic("every_type")
    kafka.produce("every_type", [("1", json.dumps(VALUES)), ("2", "{}")])
    with server.connect() as c:
        c.execute(
            f"CREATE STORE live_k WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE, "
            "'kafka.sasl.hash_function' = NONE)"
        )
        c.execute(
            "CREATE STREAM live (n BIGINT, who VARCHAR) "
            "WITH ('store' = live_k, 'topic' = 'live', 'value.format' = 'json')"
        )
        c.execute(
            f"CREATE STREAM every_type ({COLUMNS}) "
            "WITH ('store' = live_k, 'topic' = 'every_type', 'value.format' = 'json')"
        )


@pytest.fixture
def say(kafka: Kafka) -> Callable[[str, int], None]:
    """Send a record for ``who``."""

    def send(who: str, n: int) -> None:
        kafka.produce("live", [(who, json.dumps({"n": n, "who": who}))])

    return send


# Types


EVERY = "FROM every_type WITH ('starting.position' = 'earliest') LIMIT 2"
NAMES = ", ".join(VALUES)


@pytest.mark.parametrize("binary", [False, True])
def test_every_type_in_psycopg(db: psycopg.Connection, binary: bool) -> None:
    first, second = db.cursor(binary=binary).execute(f"SELECT {NAMES} {EVERY}").fetchall()
    assert first == ROW
    assert second == (None,) * len(ROW)


async def test_every_type_in_asyncpg(server: Server) -> None:
    c = await asyncpg.connect(server.url)
    try:
        first, second = await c.fetch(f"SELECT {NAMES} {EVERY}")
        given = [json.loads(v) if k in ("counts", "place", "places") else v for k, v in first.items()]
        assert tuple(given) == ROW
        assert set(second.values()) == {None}
    finally:
        await c.close()


PARAMETERS = {
    "tiny": -128, "small": 32767, "whole": -2147483648, "big": 9007199254740993, "single": 0.5, "twice": 1e300,
    "price": Decimal("123456789.125"), "name": "ü✓ \\ \" ' ,", "raw": b"\0\xff", "ok": True,
    "day": dt.date(2024, 2, 29), "at": dt.datetime(2024, 2, 29, 23, 59, 59, 125000),
    "zoned": dt.datetime(2024, 2, 29, 23, 59, 59, 125000, dt.UTC),
}  # fmt: skip


@pytest.mark.parametrize("binary", [False, True])
def test_a_parameter_of_every_type(db: psycopg.Connection, binary: bool) -> None:
    form = "%b" if binary else "%t"
    equal = ", ".join(f"{name} = {form}" for name in PARAMETERS)
    text = f"SELECT {equal} FROM every_type WITH ('starting.position' = 'earliest') LIMIT 1"
    row = db.execute(text, list(PARAMETERS.values())).fetchone()
    assert row is not None and dict(zip(PARAMETERS, row, strict=True)) == dict.fromkeys(PARAMETERS, True)


@pytest.mark.parametrize("binary", [False, True])
def test_arrays_as_parameters(db: psycopg.Connection, binary: bool) -> None:
    form = "%b" if binary else "%t"
    checks = {
        f"whole = ANY({form})": ([1, -2147483648], True),
        f"big <> ALL({form})": ([2**60, 9007199254740993], False),
        f"name = ANY({form})": (["x", "ü✓ \\ \" ' ,"], True),
        f"price = ANY({form})": ([Decimal("123456789.125")], True),
        f"day = ANY({form})": ([dt.date(2024, 2, 28)], False),
        f"twice < SOME({form})": ([0.5, 1e301], True),
        f"(small = ANY({form})) IS NULL": ([1, None], True),
        f"{form} = ANY(names)": ("a b", True),
        f"(name, ok) = ('x', {form})": (True, False),
        f"(whole, ok) IN ((1, true), (-2147483648, {form}))": (True, True),
    }
    text = f"SELECT {', '.join(checks)} FROM every_type WITH ('starting.position' = 'earliest') LIMIT 1"
    row = db.execute(text.encode(), [value for value, _ in checks.values()]).fetchone()
    assert row is not None and dict(zip(checks, row, strict=True)) == {k: v for k, (_, v) in checks.items()}


# Rows as they come


def test_psycopg_stream(db: psycopg.Connection, say: Callable[[str, int], None]) -> None:
    say("stream", 1)
    rows = db.cursor().stream(_select("stream"))
    assert next(rows) == (1, "stream")
    say("stream", 2)
    assert next(rows) == (2, "stream")
    db.cancel_safe()
    with pytest.raises(psycopg.errors.QueryCanceled):
        next(rows)


@pytest.mark.parametrize("withhold", [False, True])
def test_psycopg_server_cursor(server: Server, say: Callable[[str, int], None], withhold: bool) -> None:
    who = f"server{withhold}"
    say(who, 1)
    with psycopg.connect(server.url) as c, c.cursor("named", withhold=withhold) as cur:
        cur.itersize = 1
        cur.execute(_select(who))
        assert [d.name for d in cur.description or ()] == ["n", "who"]
        assert cur.fetchone() == (1, who)
        if withhold:
            c.commit()
        say(who, 2)
        assert next(iter(cur)) == (2, who)
    _gone(server)


def test_psycopg2_named_cursor(server: Server, say: Callable[[str, int], None]) -> None:
    say("psycopg2", 1)
    with contextlib.closing(psycopg2.connect(server.url)) as c, c.cursor("named") as cur:
        cur.execute(_select("psycopg2"))
        assert cur.fetchone() == (1, "psycopg2")
        say("psycopg2", 2)
        assert cur.fetchmany(1) == [(2, "psycopg2")]
    _gone(server)


async def test_asyncpg_cursor_of_many(server: Server, say: Callable[[str, int], None]) -> None:
    """Rows come at once, however many are asked for at a time."""
    c = await asyncpg.connect(server.url)
    try:
        say("many", 1)
        async with c.transaction():
            text = _select("many", " LIMIT 3").replace("= 'many'", "= ANY($1)")
            rows = aiter(c.cursor(text, ["many", None, "it's"], prefetch=50))
            assert await anext(rows) == (1, "many")
            for n in (2, 3):
                say("many", n)
                assert await anext(rows) == (n, "many")
            with pytest.raises(StopAsyncIteration):
                await anext(rows)
            rows = await c.cursor(text, ["many"])
            assert [tuple(r) for r in await rows.fetch(2)] == [(1, "many"), (2, "many")]
            assert [tuple(r) for r in await rows.fetch(20)] == [(3, "many")]
        # Without a cursor the limit is a number of rows, not of a piece.
        asked = asyncio.ensure_future(c.fetchrow(_select("fetchrow")))
        say("fetchrow", 1)
        assert await asked == (1, "fetchrow")
    finally:
        await c.close()
    _gone(server)


async def test_asyncpg_cursor(server: Server, say: Callable[[str, int], None]) -> None:
    c = await asyncpg.connect(server.url)
    try:
        say("asyncpg", 1)
        async with c.transaction():
            rows = await c.cursor(_select("asyncpg"))
            assert await rows.fetchrow() == (1, "asyncpg")
            say("asyncpg", 2)
            assert await rows.fetchrow() == (2, "asyncpg")
    finally:
        await c.close()
    _gone(server)


@pytest.mark.parametrize("fetch_size", [1, 100])
def test_jdbc_fetch_size(server: Server, say: Callable[[str, int], None], fetch_size: int) -> None:
    who = f"jdbc{fetch_size}"
    say(who, 1)
    command = jdbc(server, "JdbcLive.java", _select(who, " LIMIT 3"), str(fetch_size), "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == f"1 {who}\n"
        for n in (2, 3):
            say(who, n)
            assert client.stdout.readline() == f"{n} {who}\n"
        assert client.wait(60) == 0 and not client.stdout.read()
    _gone(server)


def test_jdbc_max_rows(server: Server, say: Callable[[str, int], None]) -> None:
    """A limit without a fetch size is what the client wants in all."""
    say("most", 1)
    with subprocess.Popen(
        jdbc(server, "JdbcLive.java", _select("most"), "0", "2"), stdout=subprocess.PIPE, text=True
    ) as client:
        _started(server)
        say("most", 2)
        assert client.stdout is not None and client.stdout.read() == "1 most\n2 most\n"
        assert client.wait(60) == 0
    _gone(server)


def test_copy(db: psycopg.Connection, say: Callable[[str, int], None]) -> None:
    say("copy", 1)
    with db.cursor().copy(f"COPY ({_select('copy', ' LIMIT 2')}) TO STDOUT (FORMAT csv)") as copy:
        assert bytes(copy.read()) == b"1,copy\n"
        say("copy", 2)
        assert bytes(copy.read()) == b"2,copy\n"
        assert not copy.read()
    assert db.execute("SELECT 1").fetchone() == (1,)


class Terminal:
    """psql on a terminal."""

    def __init__(self, url: str) -> None:
        self._leader, follower = pty.openpty()
        command = ["psql", "-X", "-P", "pager=off", url]
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True
        )
        os.close(follower)
        self._seen = b""

    def type(self, line: str) -> None:
        os.write(self._leader, line.encode() + b"\n")

    def shows(self, wanted: str, seconds: float = 30) -> None:
        """Wait for a text; what comes up to it is not looked at again."""

        def found() -> bool:
            if wanted.encode() not in self._seen and select.select([self._leader], [], [], 0.1)[0]:
                self._seen += os.read(self._leader, 65536)
            return wanted.encode() in self._seen

        within(seconds, found, every=0)
        self._seen = self._seen.split(wanted.encode(), 1)[1]

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._leader)


@pytest.fixture
def psql(server: Server) -> Iterator[Terminal]:
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    terminal = Terminal(server.url)
    yield terminal
    terminal.close()
    _gone(server)


def test_psql_fetch_count(server: Server, psql: Terminal, say: Callable[[str, int], None]) -> None:
    say("psql", 1)
    psql.type("\\set FETCH_COUNT 1")
    psql.type("\\pset format unaligned")
    psql.type(_select("psql") + ";")
    psql.shows("\n1|psql")
    say("psql", 2)
    psql.shows("\n2|psql")

    def answers() -> bool:
        psql.interrupt()
        psql.type("SELECT 'still ' || 'here';")
        psql.shows("still here", 3)
        return True

    # psql sends a FETCH after it has asked whether Ctrl-C was pressed: one in between cancels nothing, as in PostgreSQL
    within(60, answers)


def test_psql_copy(server: Server, psql: Terminal, say: Callable[[str, int], None]) -> None:
    say("psqlcopy", 1)
    psql.type(f"\\copy ({_select('psqlcopy')}) TO STDOUT CSV")
    psql.shows("1,psqlcopy")
    say("psqlcopy", 2)
    psql.shows("2,psqlcopy")
    psql.interrupt()
    psql.shows("canceling statement due to user request")


def test_psql_plain(server: Server, psql: Terminal, say: Callable[[str, int], None]) -> None:
    """psql shows a result when it is whole: with LIMIT."""
    say("plain", 1)
    psql.type(_select("plain", " LIMIT 2") + ";")
    _started(server)
    say("plain", 2)
    psql.shows("(2 rows)")


# What ends it, what goes on


def test_limit_ends_the_query(server: Server, db: psycopg.Connection, say: Callable[[str, int], None]) -> None:
    for n in range(5):
        say("limit", n)
    assert [n for n, _ in db.cursor().stream(_select("limit", " LIMIT 3"))] == [0, 1, 2]
    _gone(server)


def test_statement_timeout(server: Server, db: psycopg.Connection) -> None:
    db.execute("SET statement_timeout = '2s'")
    with pytest.raises(psycopg.errors.QueryCanceled, match="canceling statement due to statement timeout"):
        db.execute(_select("nobody"))
    db.execute("RESET statement_timeout")
    _gone(server)


def test_a_held_cursor_outlives_a_canceled_fetch(
    server: Server, db: psycopg.Connection, say: Callable[[str, int], None]
) -> None:
    say("held", 1)
    db.execute(f"DECLARE held CURSOR WITH HOLD FOR {_select('held')}")
    assert db.execute("FETCH 1 FROM held").fetchall() == [(1, "held")]
    for n in (2, 3):
        canceler = threading.Timer(0.5, db.cancel_safe)
        canceler.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            db.execute("FETCH 1 FROM held")
        canceler.join()
        say("held", n)
        assert db.execute("FETCH 1 FROM held").fetchall() == [(n, "held")]
    db.execute("CLOSE held")
    _gone(server)


def test_a_short_answer_if_asked_for(db: psycopg.Connection, say: Callable[[str, int], None]) -> None:
    say("short", 1)
    db.execute("SET pgstream.fetch_wait = '100'")
    with db.transaction():
        db.execute(f"DECLARE c CURSOR FOR {_select('short')}")
        assert db.execute("FETCH 100 FROM c").fetchall() == [(1, "short")]
        say("short", 2)
        assert db.execute("FETCH 100 FROM c").fetchall() == [(2, "short")]


def test_a_view_is_copied_and_held(server: Server, db: psycopg.Connection, say: Callable[[str, int], None]) -> None:
    """PostgreSQL's own, over what a query of ours keeps up to date."""
    db.execute(
        "CREATE MATERIALIZED VIEW live_counts AS SELECT who, COUNT(*) AS n FROM live "
        "WITH ('starting.position' = 'earliest') WHERE who = 'view' GROUP BY who "
        "QUERY WITH ('query.name' = live_counting)"
    )
    say("view", 1)
    say("view", 2)
    within(30, lambda: db.execute("SELECT n FROM live_counts").fetchone() == (2,))
    with db.cursor().copy("COPY live_counts TO STDOUT") as copy:
        assert b"".join(bytes(data) for data in copy) == b"view\t2\n"
    with server.connect() as other:
        other.execute("DECLARE h CURSOR WITH HOLD FOR SELECT * FROM live_counts")
        say("view", 3)
        within(30, lambda: db.execute("SELECT n FROM live_counts").fetchone() == (3,))
        assert other.execute("FETCH ALL FROM h").fetchall() == [("view", 2)]
    db.execute("TERMINATE QUERY live_counting")
    _gone(server)
