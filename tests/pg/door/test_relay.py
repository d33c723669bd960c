"""What is PostgreSQL's comes back as PostgreSQL sends it: the same texts through the door and directly."""

from __future__ import annotations

import select

import asyncpg
import psycopg
import pytest

from pgstream.embedded.compiler import find_compiler
from pgstream.server.backend import Backend
from tests.pg.door.test_start import second
from tests.server import within

TEXTS = [
    "SELECT 1",
    "SELECT 'a;b', $$c;d$$, 1.50::numeric, now() - now(), NULL, ARRAY[1,2], '{\"a\": 1}'::jsonb",
    "SELECT 'Größe ✓'",
    "SELECT n, repeat('x', n) FROM generate_series(1, 1000) n",
    "CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (1), (2); SELECT * FROM t; DROP TABLE t",
    "SELECT nope",
    "SELECT 1/0",
    "selec 1",
    "",
    ";",
    "SELECT repeat('y', 300000)",
    "EXPLAIN (COSTS OFF) SELECT 1",
    "SHOW search_path",
]


def _all(conn: psycopg.Connection, text: str) -> list[object]:
    out: list[object] = []
    try:
        cur = conn.execute(text)
    except psycopg.Error as e:
        d = e.diag
        return [type(e), d.sqlstate, d.message_primary, d.statement_position, d.severity]
    while True:
        columns = [(c.name, c.type_code, c.internal_size) for c in cur.description or ()]
        out.append((cur.statusmessage, columns, cur.fetchall() if cur.description else None))
        if not cur.nextset():
            return out


@pytest.mark.parametrize("text", TEXTS)
def test_same_as_direct(door, text):
    with psycopg.connect(door.url, autocommit=True) as a, psycopg.connect(door.direct, autocommit=True) as b:
        assert _all(a, text) == _all(b, text)
        assert a.info.transaction_status == b.info.transaction_status


@pytest.mark.parametrize("binary", [False, True])
def test_extended(door, binary):
    sql = "SELECT %s::int + 1, %s::text, %b::bigint, %t::timestamptz"
    values = (41, "a'b", 7, "2024-01-02 03:04:05+00")
    with psycopg.connect(door.url) as a, psycopg.connect(door.direct) as b:
        for conn in (a, b):
            conn.cursor(binary=binary).execute("SET TimeZone = 'UTC'")
        one = a.cursor(binary=binary).execute(sql, values).fetchall()
        assert one == b.cursor(binary=binary).execute(sql, values).fetchall()
        assert one[0][0] == 42


def test_transactions(conn):
    conn.execute("CREATE TEMP TABLE tx (a int)")
    with pytest.raises(ZeroDivisionError), conn.transaction():
        conn.execute("INSERT INTO tx VALUES (1)")
        1 / 0  # noqa: B018
    assert conn.execute("SELECT count(*) FROM tx").fetchone() == (0,)


def test_copy_both_ways(conn):
    conn.execute("CREATE TEMP TABLE c (a int, b text)")
    with conn.cursor() as cur:
        with cur.copy("COPY c FROM STDIN") as copy:
            for n in range(20000):
                copy.write_row((n, "x" * 50))
        with cur.copy("COPY (SELECT a FROM c ORDER BY a) TO STDOUT") as copy:
            assert sum(1 for _ in copy.rows()) == 20000
    assert conn.execute("SELECT count(*) FROM c").fetchone() == (20000,)
    assert conn.execute("LIST DOORS").rowcount == 2


def test_copy_in_that_fails(conn):
    conn.execute("CREATE TEMP TABLE f (a int)")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation), conn.cursor() as cur:  # noqa: SIM117
        with cur.copy("COPY f FROM STDIN") as copy:
            for _ in range(1000):
                copy.write("no number\n")
    assert conn.execute("LIST DOORS").rowcount == 2


def test_notify(door, conn):
    conn.execute("LISTEN here")
    with psycopg.connect(door.url, autocommit=True) as other:
        other.execute("NOTIFY here, 'hello'")
    for note in conn.notifies(timeout=5, stop_after=1):
        assert (note.channel, note.payload) == ("here", "hello")


def test_server_side_cursor(conn):
    with conn.transaction(), conn.cursor("named") as cur:
        cur.execute("SELECT generate_series(1, 250)")
        assert len(list(cur)) == 250


def test_500k_rows(conn):
    with conn.cursor(binary=True) as cur:
        cur.execute("SELECT n, 'row ' || n FROM generate_series(1, 500000) n")
        rows = cur.fetchall()
    assert len(rows) == 500000 and rows[-1] == (500000, "row 500000")
    assert conn.execute("LIST DOORS").rowcount == 2


def test_bytes_that_look_like_ready_for_query(conn):
    # Binary rows full of a ReadyForQuery's bytes: framing must not be fooled.
    fake = bytes.fromhex("5a0000000549") * 20000
    with conn.cursor(binary=True) as cur:
        assert cur.execute("SELECT %b::bytea FROM generate_series(1, 20)", (fake,)).fetchall() == [(fake,)] * 20
    assert conn.execute("LIST DOORS").rowcount == 2


async def test_asyncpg(door):
    conn = await asyncpg.connect(host="127.0.0.1", port=door.port, user=door.USER, password=door.PASSWORD,
                                 database="main")  # fmt: skip
    try:
        assert await conn.fetchval("SELECT $1::int + 1", 1) == 2
        async with conn.transaction():
            assert len([r async for r in conn.cursor("SELECT generate_series(1, 100)", prefetch=7)]) == 100
        await conn.execute("CREATE TEMP TABLE ap (a int, b text)")
        await conn.copy_records_to_table("ap", records=[(n, str(n)) for n in range(1000)])
        await conn.executemany("INSERT INTO ap VALUES ($1, $2)", [(1, "x")] * 100)
        assert await conn.fetchval("SELECT count(*) FROM ap") == 1100
    finally:
        await conn.close()


async def test_async_pipeline(door):
    async with await psycopg.AsyncConnection.connect(door.url, autocommit=True) as conn, conn.pipeline():
        cursors = [await conn.execute("SELECT %s::int", (n,)) for n in range(200)]
        assert [(await c.fetchone())[0] for c in cursors] == list(range(200))


def test_without_compiled_code(door):
    """Both ways in one: what Python relays by itself is the same, in long answers, pipelines and errors too."""
    with (
        second(door, native_relay=False) as (listener, port),
        psycopg.connect(door.url, port=port, autocommit=True) as a,
        psycopg.connect(door.direct, autocommit=True) as b,
    ):
        assert listener.relay is None
        for text in TEXTS * 2:
            assert _all(a, text) == _all(b, text)
        for conn in (a, b):
            with conn.pipeline():
                cursors = [conn.execute("SELECT %s::int", (n,)) for n in range(100)]
                assert [c.fetchone() for c in cursors] == [(n,) for n in range(100)]


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_compiled_code_is_there(door):
    """Where a compiler is. What was seen once is counted without a look at it."""
    with psycopg.connect(door.url, autocommit=True) as conn:
        (session,) = (s for s in door.listener.sessions if s.pair is not None and s.pid == conn.info.backend_pid)
        for n in range(20):
            assert conn.execute("SELECT %s::int", (n,), prepare=True).fetchone() == (n,)
        assert session.rounds < 20
        session.pair.count()
        assert session.rounds >= 20


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_what_a_slow_reader_takes_at_last_is_relayed_by_compiled_code(door, monkeypatch):
    """Nothing is read on for a client that is behind: Python would relay it, and all that follows."""
    looked, whole = [], Backend.data_received
    monkeypatch.setattr(Backend, "data_received", lambda self, data: looked.append(len(data)) or whole(self, data))
    with psycopg.connect(door.url, autocommit=True) as conn:
        (session,) = (s for s in door.listener.sessions if s.pair is not None and s.pid == conn.info.backend_pid)
        conn.execute("SELECT 1")
        for _ in range(2):
            looked.clear()
            conn.pgconn.send_query(b"SELECT n, repeat('x', 90) FROM generate_series(1, 200000) n")
            within(20, lambda: not session.is_drained, every=0.01)
            while conn.pgconn.is_busy():
                select.select([conn.fileno()], [], [], 20)
                conn.pgconn.consume_input()
            result = conn.pgconn.get_result()
            assert conn.pgconn.get_result() is None and result.ntuples == 200000
            assert result.get_value(199999, 0) == b"200000"
            assert sum(looked) < 1 << 20  # of 22 million
        assert session.is_drained
        assert conn.execute("LIST DOORS").rowcount == 2
