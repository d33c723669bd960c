"""Cursors and COPY over rows of ours, as psql and drivers use them; PostgreSQL says when they end."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Iterator

import asyncpg
import psycopg
import psycopg2
import pytest

from tests.pg.door import double
from tests.pg.door.raw import SYNC, Wire, bind, describe, execute, parse, query
from tests.pg.door.test_own import _psql
from tests.server import within


def quiet() -> bool:
    return not double.LIVE


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    within(5, quiet, every=0.01)


def numbers(cur: psycopg.Cursor) -> list[int]:
    return [row[0] for row in cur.fetchall()]


@pytest.fixture
def block(conn: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """In a transaction block, with the cursor c."""
    conn.execute("BEGIN")
    conn.execute("DECLARE c CURSOR FOR COUNT FOREVER")
    yield conn
    conn.execute("ROLLBACK")


def test_fetch(block):
    cur = block.execute("FETCH 3 FROM c")
    assert (cur.statusmessage, [d.name for d in cur.description]) == ("FETCH 3", ["n", "text"])
    assert numbers(cur) == [1, 2, 3]
    for text, found in [
        ("FETCH c", [4]), ("FETCH NEXT FROM c", [5]), ("FETCH FORWARD 2 IN c", [6, 7]), ("fetch relative 3 c", [10]),
        ("FETCH ABSOLUTE 15 FROM c", [15]), ("FETCH FORWARD c", [16]), ("FETCH BACKWARD -2 FROM c", [17, 18]),
        ('FETCH +1 FROM "c" -- next', [19]), ("FETCH /* one */ 1 /* of */ FROM c;", [20]),
    ]:  # fmt: skip
        assert numbers(block.execute(text)) == found, text
    assert block.execute("MOVE FORWARD 5 IN c").statusmessage == "MOVE 5"
    assert numbers(block.execute("FETCH c")) == [26]
    assert block.execute("CLOSE c").statusmessage == "CLOSE CURSOR"
    assert quiet()


@pytest.mark.parametrize(
    "text",
    ["FETCH PRIOR FROM c", "FETCH BACKWARD 1 FROM c", "FETCH FIRST FROM c", "FETCH LAST c", "FETCH ABSOLUTE -1 FROM c",
     "FETCH -1 c", "MOVE BACKWARD ALL IN c", "FETCH 0 c"],
)  # fmt: skip
def test_backwards(block, text):
    block.execute("FETCH 2 FROM c")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cursor can only scan forward"):
        block.execute(text)


def test_the_end(conn):
    with conn.transaction():
        conn.execute("DECLARE c NO SCROLL CURSOR WITHOUT HOLD FOR COUNT TO 5")
        assert numbers(conn.execute("FETCH 3 c")) == [1, 2, 3]
        assert numbers(conn.execute("FETCH ALL c")) == [4, 5]
        assert conn.execute("FETCH 3 c").statusmessage == "FETCH 0"
    with conn.transaction():
        conn.execute("DECLARE c CURSOR FOR COUNT TO 5")
        assert numbers(conn.execute("FETCH FORWARD ALL IN c")) == [1, 2, 3, 4, 5]


def test_a_name_with_a_backslash(conn):
    with conn.transaction(force_rollback=True):
        conn.execute("SET LOCAL standard_conforming_strings = off")
        conn.execute('DECLARE "a\\" CURSOR FOR COUNT TO 5')
        assert numbers(conn.execute('FETCH 2 FROM "a\\"')) == [1, 2]


def test_names(block):
    assert block.execute("SELECT name FROM pg_cursors").fetchall() == [("c",)]
    with pytest.raises(psycopg.errors.DuplicateCursor), block.transaction():
        block.execute("DECLARE c CURSOR FOR COUNT TO 1")
    with pytest.raises(psycopg.errors.DuplicateCursor), block.transaction():
        block.execute("DECLARE c CURSOR FOR SELECT 1")
    block.execute("DECLARE theirs CURSOR FOR SELECT generate_series(7, 9)")
    assert numbers(block.execute("FETCH 2 FROM theirs")) == [7, 8]
    assert numbers(block.execute("FETCH 2 FROM c")) == [1, 2]
    with pytest.raises(psycopg.errors.InvalidCursorName, match='cursor "nobody" does not exist'):
        block.execute("FETCH 1 FROM nobody")


def test_declare_outside_a_block(conn):
    with pytest.raises(psycopg.errors.NoActiveSqlTransaction, match="DECLARE CURSOR can only be used in transaction"):
        conn.execute("DECLARE c CURSOR FOR COUNT FOREVER")
    with pytest.raises(psycopg.errors.SyntaxError):
        conn.execute("DECLARE c CURSOR WITH FOR COUNT FOREVER")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        conn.execute("DECLARE c SCROLL CURSOR FOR COUNT FOREVER")


@pytest.mark.parametrize("text", ["COMMIT", "ROLLBACK", "CLOSE ALL", "CLOSE c", "ROLLBACK TO s", "SELECT 1/0"])
def test_what_ends_a_cursor(conn, text):
    conn.execute("BEGIN; SAVEPOINT s")
    conn.execute("DECLARE c CURSOR FOR COUNT FOREVER")
    conn.execute("FETCH 1 FROM c")
    assert not quiet()
    with contextlib.suppress(psycopg.errors.DivisionByZero):
        conn.execute(text)
    if text == "SELECT 1/0":
        conn.execute("ROLLBACK")
    within(5, quiet, every=0.01)
    with pytest.raises((psycopg.errors.InvalidCursorName, psycopg.errors.InFailedSqlTransaction)):
        conn.execute("FETCH 1 FROM c")
    conn.execute("ROLLBACK")


def test_a_savepoint_keeps_what_is_older(conn):
    with conn.transaction():
        conn.execute("DECLARE c CURSOR FOR COUNT FOREVER")
        conn.execute("SAVEPOINT s")
        conn.execute("FETCH 2 FROM c")
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1/0")
        conn.execute("ROLLBACK TO s")
        assert numbers(conn.execute("FETCH 2 FROM c")) == [3, 4]


def test_with_hold(conn):
    conn.execute("DECLARE h CURSOR WITH HOLD FOR COUNT FOREVER")
    assert numbers(conn.execute("FETCH 2 FROM h")) == [1, 2]
    with conn.transaction():
        assert numbers(conn.execute("FETCH 2 FROM h")) == [3, 4]
    assert numbers(conn.execute("FETCH 2 FROM h")) == [5, 6]
    conn.execute("CLOSE h")
    assert quiet()
    conn.execute("DECLARE h CURSOR WITH HOLD FOR COUNT FOREVER")
    conn.execute("FETCH h")
    conn.execute("DISCARD ALL")
    within(5, quiet, every=0.01)
    conn.execute("BEGIN")
    conn.execute("DECLARE h CURSOR WITH HOLD FOR COUNT FOREVER")
    conn.execute("FETCH h")
    conn.execute("ROLLBACK")
    within(5, quiet, every=0.01)
    conn.execute("DECLARE h CURSOR WITH HOLD FOR COUNT FOREVER")
    conn.execute("FETCH h")  # the session's end closes it


def test_a_short_fetch_only_if_asked_for(door):
    with psycopg.connect(door.url, autocommit=True) as conn:
        conn.execute("SET pgstream.fetch_wait = '50'")
        conn.execute("BEGIN")
        conn.execute("DECLARE c CURSOR FOR COUNT FOREVER")
        got = conn.execute("FETCH 100000 FROM c").rowcount
        assert 0 < got < 100000
        assert numbers(conn.execute("FETCH 1 FROM c")) == [got + 1]
        conn.execute("ROLLBACK")


@pytest.mark.parametrize("wait", ["²", "9" * 400, "9" * 5000, "-1", "1s"])
def test_a_wait_that_is_none(block, wait):
    block.execute("SELECT set_config('pgstream.fetch_wait', %s, false)", (wait,))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="fetch_wait is not a number of milliseconds"):
        block.execute("FETCH 1 FROM c")


def test_cancel(block):
    async def canceled() -> None:
        await asyncio.to_thread(within, 5, lambda: not quiet())
        block.cancel_safe()

    with contextlib.closing(asyncio.new_event_loop()) as loop, pytest.raises(psycopg.errors.QueryCanceled):
        task = loop.create_task(canceled())
        try:
            loop.run_until_complete(asyncio.to_thread(block.execute, "FETCH ALL FROM c"))
        finally:
            loop.run_until_complete(task)
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        block.execute("FETCH 1 FROM c")
    block.execute("ROLLBACK")
    within(5, quiet, every=0.01)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("withhold", [False, True])
def test_psycopg_server_cursor(door, binary, withhold):
    with psycopg.connect(door.url, autocommit=withhold) as conn:
        with conn.cursor("named", withhold=withhold) as cur:
            cur.itersize = 10
            cur.execute("COUNT TO 25", binary=binary)
            assert [d.name for d in cur.description] == ["n", "text"]
            assert cur.fetchone() == (1, "x" * 20)
            assert [r[0] for r in cur.fetchmany(3)] == [2, 3, 4]
            assert [r[0] for r in cur] == list(range(5, 26))
        assert conn.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("withhold", [False, True])
def test_psycopg2_named_cursor(door, withhold):
    with contextlib.closing(psycopg2.connect(door.url)) as conn:
        with conn.cursor("named", withhold=withhold) as cur:
            cur.itersize = 10
            cur.execute("COUNT TO 25")
            assert [r[0] for r in cur] == list(range(1, 26))
        conn.commit()


async def test_asyncpg_fetches_a_declared_cursor(door):
    conn = await asyncpg.connect(host="127.0.0.1", port=door.port, user=door.USER, password=door.PASSWORD,
                                 database="main")  # fmt: skip
    try:
        async with conn.transaction():
            await conn.execute("DECLARE c CURSOR FOR COUNT FOREVER")
            assert [r["n"] for r in await conn.fetch("FETCH 3 FROM c")] == [1, 2, 3]
            assert [r["n"] for r in await conn.fetch("FETCH 3 FROM c")] == [4, 5, 6]
    finally:
        await conn.close()


def test_psql_fetch_count(door):
    out = _psql(door, "\\set FETCH_COUNT 1\nDECLARE x CURSOR WITH HOLD FOR COUNT TO 3;\nFETCH ALL FROM x;\n")
    assert "1|xxx" in out and "3|xxx" in out, out


def test_binary_cursor(door):
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(query("BEGIN; DECLARE b BINARY CURSOR FOR COUNT TO 3; FETCH 1 FROM b"))
        messages = wire.until_ready()
        assert ("D", b"\0\2\0\0\0\4\0\0\0\1\0\0\0\x14" + b"x" * 20) in messages
        wire.send(describe("P", "b") + parse("FETCH 1 FROM b") + bind() + execute() + SYNC)
        kinds = [kind for kind, _ in wire.until_ready()]
        assert kinds == list("T12DCZ")


def test_a_cursor_is_a_portal(door):
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(query("BEGIN; DECLARE b CURSOR FOR COUNT TO 3"))
        wire.until_ready()
        wire.send(execute("b", 2) + execute("b", 2) + bind("b", "") + SYNC)
        assert "".join(kind for kind, _ in wire.until_ready()) == "DDsDCEZ"


def test_pipeline_with_begin(door):
    """JDBC sends BEGIN with the first statement, without a Sync between."""
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        declare = parse("DECLARE c CURSOR FOR COUNT FOREVER") + bind() + describe("P") + execute()
        fetch = parse("FETCH 2 FROM c") + bind() + describe("P") + execute()
        wire.send(parse("BEGIN") + bind() + execute() + declare + fetch + SYNC)
        messages = wire.until_ready()
        assert "".join(kind for kind, _ in messages) == "12C12nC12TDDCZ"
        assert messages[-1][1] == b"T"
        wire.send(fetch + parse("COMMIT") + bind() + execute() + SYNC)
        assert "".join(kind for kind, _ in wire.until_ready()) == "12TDDC12CZ"
        within(5, quiet, every=0.01)


def copied(conn: psycopg.Connection, text: str) -> bytes:
    with conn.cursor().copy(text) as copy:
        return b"".join(bytes(data) for data in copy)


DOORS = (
    "SELECT 'front'::varchar AS name, 1::bigint AS number, true AS open, 12.50::numeric(10,2) AS price, "
    "'2024-01-02 03:04:05.678+00'::timestamptz AS at, ARRAY['a', 'b c']::varchar[] AS tags, "
    "jsonb_build_object('a', 1) AS shape "
    "UNION ALL SELECT 'back', 9223372036854775807, false, NULL, NULL, NULL, NULL"
)


@pytest.mark.parametrize(
    "options",
    ["", "WITH CSV HEADER", "(FORMAT csv, HEADER, FORCE_QUOTE *)", "(FORMAT csv, DELIMITER ';', NULL 'no', QUOTE '''')",
     "(FORMAT csv, ESCAPE '\\', FORCE_QUOTE (name, tags))", "(DELIMITER '|', NULL '')", "DELIMITER AS '|' NULL AS 'x'",
     "(FORMAT binary)", "BINARY", "(FORMAT text, HEADER true)", "(DELIMITER E'\\x1f')",
     "WITH DELIMITER ',' CSV FORCE QUOTE name", "(FORMAT csv, HEADER off, ENCODING 'LATIN1')"],
)  # fmt: skip
def test_copy_is_as_postgresql_writes_it(conn, options):
    ours = copied(conn, f"COPY (LIST DOORS) TO STDOUT {options}")
    theirs = copied(conn, f"COPY ({DOORS}) TO STDOUT {options}")
    assert ours == theirs
    assert conn.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("options", ["(FORMAT xml)", "(DELIMITER 'ab')", "(FORMAT csv, FORCE_QUOTE (nobody))",
                                     "(NULL 'x', NULL 'y')", "(QUOTE '\"')"])  # fmt: skip
def test_copy_options_are_checked_by_postgresql(conn, options):
    with pytest.raises(psycopg.Error) as ours, conn.cursor().copy(f"COPY (LIST DOORS) TO STDOUT {options}"):
        pass
    with pytest.raises(psycopg.Error) as theirs, conn.cursor().copy(f"COPY ({DOORS}) TO STDOUT {options}"):
        pass
    assert (ours.value.sqlstate, ours.value.diag.message_primary) == (
        theirs.value.sqlstate, theirs.value.diag.message_primary)  # fmt: skip


def test_copy_streams_until_cancel(conn):
    with pytest.raises(psycopg.errors.QueryCanceled), conn.cursor().copy("COPY (COUNT FOREVER) TO STDOUT") as copy:
        assert bytes(copy.read()) == b"1\t" + b"x" * 20 + b"\n"
        conn.cancel_safe()
        for _ in copy:
            pass
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_copy_in_psycopg2_and_in_a_pipeline(door):
    with contextlib.closing(psycopg2.connect(door.url)) as conn:
        out = io.StringIO()
        conn.cursor().copy_expert("COPY (COUNT TO 3) TO STDOUT CSV", out)
        assert out.getvalue() == "".join(f"{n},{'x' * 20}\n" for n in (1, 2, 3))
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(parse("COPY (COUNT TO 2) TO STDOUT") + bind() + describe("P") + execute("", 1) + SYNC)
        assert "".join(kind for kind, _ in wire.until_ready()) == "12nHddcCZ"


def test_copy_to_a_file(conn):
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="COPY of a stream to a file"):
        conn.execute("COPY (LIST DOORS) TO '/tmp/x'")
