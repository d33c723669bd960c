"""The relay judged by PostgreSQL: the same bytes sent through the door and directly get the same messages back."""

# ruff: noqa: E501 (tables of texts)

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Sequence

import pytest

from tests.pg.door.double import Door
from tests.pg.door.raw import (
    FLUSH,
    SYNC,
    TERMINATE,
    Message,
    Wire,
    bind,
    close,
    describe,
    execute,
    frame,
    parse,
    query,
)

TYPES = (
    "SELECT true, 1::int2, 2::int4, 3::int8, 1.5::float4, 'NaN'::float8, 1e1000::numeric, 'x'::\"char\", 'n'::name, "
    "'t'::text, 'v'::varchar(3), 'c'::bpchar, '\\xff00'::bytea, '2024-01-02'::date, '03:04:05.6'::time, "
    "'2024-01-02 03:04:05.678901+00'::timestamptz, '2024-01-02'::timestamp, '1 mon 2 days'::interval, "
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, '{\"a\": [1, null]}'::jsonb, '{}'::json, ARRAY[1, NULL, 3], "
    "ARRAY['a,b', 'NULL', ''], ARRAY[[1, 2], [3, 4]], '[1,5)'::int4range, '10.0.0.1'::inet, '101'::bit(3), "
    "'(1,2)'::point, 'a b'::tsvector, ROW(1, 'x'), 12.34::money, NULL, 16::oid, 'pg_class'::regclass"
)

SIMPLE: dict[str, Sequence[str | bytes]] = {
    "types": [TYPES],
    "several": ["SELECT 1; SELECT 2; SELECT 'a;b' AS x; "],
    "empty": ["", " ", ";", ";;", "-- only a comment", "/* and /* nested */ */", "/* a */ ; -- b", "SELECT"],
    "errors": [
        "selec", "SELECT nope", "SELECT 1/0", "SELECT 'open", "SELECT * FROM nowhere", "SELECT 1; SELECT 1/0; SELECT 2",
        "CREATE TEMP TABLE u (a int PRIMARY KEY CHECK (a > 0), b text NOT NULL)", "INSERT INTO u VALUES (1, NULL)",
        "INSERT INTO u VALUES (-1, 'x')", "INSERT INTO u VALUES (1, 'x'), (1, 'x')", "SELECT 'ü'::int", "/* unclosed",
        "DO $$ BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = 'P1234', DETAIL = 'd', HINT = 'h'; END $$",
    ],
    "transactions": [
        "BEGIN; SELECT 1", "SELECT 1/0", "SELECT 1", "ROLLBACK", "COMMIT", "BEGIN", "BEGIN", "SAVEPOINT a", "SELECT 1/0",
        "ROLLBACK TO a", "SELECT 2", "COMMIT AND CHAIN", "SHOW transaction_isolation", "END", "BEGIN READ ONLY; CREATE TABLE z ()",
        "ABORT", "START TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT 1; COMMIT",
    ],
    "cursors": [
        "DECLARE c CURSOR FOR SELECT 1", "BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT g FROM generate_series(1, 9) g",
        "FETCH 2 FROM c", "MOVE 3 IN c", "FETCH BACKWARD 1 FROM c", "FETCH ALL FROM c", "CLOSE c", "FETCH c", "ROLLBACK",
        "BEGIN", "DECLARE h CURSOR WITH HOLD FOR SELECT 1 UNION ALL SELECT 2", "COMMIT", "FETCH ALL FROM h", "CLOSE ALL",
    ],
    "notices": [
        "DO $$ BEGIN FOR i IN 1..50 LOOP RAISE NOTICE 'n%', i; END LOOP; END $$", "SET client_min_messages = debug1",
        "DROP TABLE IF EXISTS nowhere", "DO $$ BEGIN RAISE WARNING 'w'; RAISE DEBUG 'd'; END $$; SELECT 1",
    ],
    "settings": [
        "SET application_name = 'changed'", "SET DateStyle = 'German'", "SELECT '2024-01-02'::date", "SET TimeZone = 'Asia/Tokyo'",
        "SELECT '2024-01-02 00:00+00'::timestamptz", "RESET ALL", "SET LOCAL lock_timeout = 5", "SHOW nothing", "DISCARD ALL",
        "SET client_encoding = 'LATIN1'", "SELECT U&'\\00FC'", b"SELECT '\xfc'", "RESET client_encoding",
    ],
    "prepared": [
        "PREPARE p (int) AS SELECT $1 + 1", "EXECUTE p (41)", "EXECUTE p ('x')", "PREPARE p AS SELECT 1", "DEALLOCATE p", "EXECUTE p(1)",
    ],
    "copy out": [
        "COPY (SELECT g, 'x' || g FROM generate_series(1, 5000) g) TO STDOUT", "COPY (SELECT 1/0) TO STDOUT",
        "SELECT 1; COPY (SELECT 1) TO STDOUT; SELECT 2", "COPY (SELECT 1, 'a') TO STDOUT (FORMAT binary)",
        "COPY (SELECT 1/(g - 900) FROM generate_series(1, 1000) g) TO STDOUT",
    ],
    "explain": ["EXPLAIN (COSTS OFF) SELECT * FROM pg_class WHERE oid = 1", "EXPLAIN (FORMAT json, COSTS OFF) SELECT 1"],
    "long": ["SELECT length('" + "x" * 5_000_000 + "')", "SELECT " + " + ".join(["1"] * 2000), "SELECT repeat('y', 5000000)"],
    "wide": ["SELECT " + ", ".join(f"{n} AS c{n}" for n in range(1600)), "SELECT " + ", ".join("1" for n in range(1700))],
    "bytes": [b"SELECT '\xff\xfe'", b"\xc3\x28", "SELECT 'ünï✓🦆'", "SELECT chr(0)"],
    "sequences": ["CREATE TEMP SEQUENCE s", "SELECT nextval('s')", "SELECT currval('s')", "LOCK TABLE nowhere", "VACUUM; SELECT 1"],
    "functions": [
        "CREATE FUNCTION pg_temp.f() RETURNS SETOF int LANGUAGE plpgsql AS $f$ BEGIN RETURN NEXT 1; RETURN NEXT 2; END $f$",
        "SELECT * FROM pg_temp.f()", "CREATE FUNCTION pg_temp.g() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END", "SELECT pg_temp.g()",
        "CALL nowhere()", "MERGE INTO nowhere USING x ON true WHEN MATCHED THEN DO NOTHING",
    ],
    "listen": ["LISTEN here", "NOTIFY here, 'one'", "BEGIN; NOTIFY here, 'two'; COMMIT", "SELECT pg_notify('here', 'three')", "UNLISTEN *"],
    "like ours": ["SELECT 'LIST DOORS'", "/* LIST DOORS */ SELECT 1", "-- LIST DOORS\nSELECT 1", "CREATE TEMP TABLE list (doors int)", "TABLE list"],
}  # fmt: skip

PES = bind() + describe("P") + execute() + SYNC
EXTENDED: dict[str, Sequence[bytes]] = {
    "types text": [parse(TYPES) + describe("S") + PES],
    "types binary": [parse(TYPES) + bind(results=[1]) + describe("P") + execute() + SYNC],
    "parameters": [
        parse("SELECT $1::int + 1, $2, $3::bytea, $4::timestamptz", "p", [0, 25]) + describe("S", "p")
        + bind("", "p", [b"41", b"x'y", b"\xde\xad", None], [0, 0, 1, 0], [0, 1, 1, 0]) + execute() + SYNC,
        bind("", "p", [b"x", None, None, None]) + execute() + SYNC,
        bind("", "p", [b"1"]) + execute() + SYNC,
        bind("", "p", [b"\0\0\0\1\2", None, None, None], [1]) + execute() + SYNC,
    ],
    "limits": [
        parse("SELECT generate_series(1, 10)") + bind() + execute("", 3) + execute("", 3) + execute("", 5) + execute("", 5) + SYNC,
        parse("SELECT generate_series(1, 3)") + bind() + execute("", 3) + execute("", 3) + execute() + SYNC, execute() + SYNC,
    ],
    "named portals": [
        query("BEGIN"),
        parse("SELECT generate_series(1, 9)", "s") + bind("a", "s") + bind("b", "s") + execute("a", 2) + execute("b", 1) + SYNC,
        execute("a", 2) + execute("b", 9) + FLUSH + close("P", "a") + execute("a") + SYNC, query("COMMIT"), bind("a", "s") + bind("a", "s") + SYNC,
        close("S", "s") + close("S", "s") + close("P", "none") + SYNC, bind("", "s") + SYNC,
    ],
    "errors skip": [
        parse("SELECT 1/0") + PES + parse("SELECT 1") + PES, parse("selec") + bind() + execute() + query("SELECT 1") + SYNC,
        SYNC + SYNC + SYNC, bind("", "nowhere") + describe("P") + SYNC, execute("nowhere") + SYNC, describe("S", "nowhere") + SYNC,
    ],
    "empty": [parse("") + describe("S") + PES, parse("-- only\n/* comments */") + PES, parse(";") + PES],
    "several in one": [parse("SELECT 1; SELECT 2") + PES],
    "implicit transaction": [
        query("CREATE TEMP TABLE t (a int UNIQUE)"),
        parse("INSERT INTO t VALUES (1)") + bind() + execute() + parse("INSERT INTO t VALUES (1)") + bind() + execute() + SYNC,
        parse("SELECT count(*) FROM t") + PES, parse("BEGIN") + PES + parse("INSERT INTO t VALUES (2)") + PES + parse("ROLLBACK") + PES,
    ],
    "duplicate name": [parse("SELECT 1", "d") + SYNC, parse("SELECT 2", "d") + SYNC, bind("", "d") + execute() + SYNC],
    "no columns": [parse("CREATE TEMP TABLE nc ()") + describe("S") + PES, parse("SELECT") + describe("S") + PES],
    "flush": [parse("SELECT 1") + FLUSH + bind() + FLUSH + FLUSH + execute() + FLUSH + SYNC],
    "copy in": [
        query("CREATE TEMP TABLE ci (a int)"), query("COPY ci FROM STDIN") + frame("d", b"1\n2\n") + frame("d", b"3\n") + frame("c"),
        query("COPY ci FROM STDIN") + frame("d", b"x\n") + frame("c"), query("COPY ci FROM STDIN") + frame("f", b"no more\0"),
        parse("COPY ci FROM STDIN") + bind() + execute() + frame("d", b"4\n") + frame("c") + SYNC,
        parse("COPY ci FROM STDIN") + bind() + execute() + frame("H") + frame("S") + frame("d", b"4\n") + frame("c") + SYNC,
        query("COPY ci FROM STDIN; SELECT 1; COPY ci FROM STDIN") + frame("d", b"5\n") + frame("c") + frame("d", b"6\n") + frame("c"),
        query("SELECT sum(a) FROM ci"), frame("d", b"stray") + frame("c") + frame("f", b"\0") + query("SELECT 1"),
    ],
    "copy out": [parse("COPY (SELECT generate_series(1, 1000)) TO STDOUT") + PES],
    "unnamed and query": [parse("SELECT 1") + SYNC, query("SELECT 2"), bind() + execute() + SYNC],
    "function call": [frame("F", struct.pack(">IHHHIIH", 1598, 0, 0, 0, 0, 0, 0)[:12]), frame("F", struct.pack(">IHHH", 861, 0, 0, 0))],
    "function call skipped": [
        parse("selec") + frame("F", struct.pack(">IHHH", 861, 0, 0, 0)) + query("SELECT 1") + SYNC, query("LISTEN a"),
        parse("SELECT 1") + bind() + frame("F", struct.pack(">IHHH", 861, 0, 0, 0)) + execute() + SYNC,
    ],
    "copy ends that end nothing": [
        query("CREATE TEMP TABLE ce (a int)"), query("SELECT 1") + frame("c") + query("COPY ce FROM STDIN") + frame("d", b"1\n") + frame("c"),
        parse("SELECT 1") + frame("c") + bind() + SYNC + query("COPY ce FROM STDIN") + frame("d", b"2\n") + frame("c"),
        query("SELECT count(*) FROM ce"),
    ],
}  # fmt: skip


def _masked(message: Message) -> Message:
    """Without what must differ: oids of temporary tables, the process that notifies, temporary schemas' numbers."""
    kind, payload = message
    if kind == "A":
        return kind, payload[4:]
    if kind == "T":
        at, out = 2, payload[:2]
        for _ in range(int.from_bytes(payload[:2], "big")):
            end = payload.index(0, at) + 1
            out += payload[at:end] + bytes(4) + payload[end + 4 : end + 18]
            at = end + 18
        return kind, out
    return kind, re.sub(rb"pg_temp_\d+", b"pg_temp_n", payload) if kind in "EN" else payload


MARKER = SYNC + close("S", "m") * 5 + SYNC


def _answers(wire: Wire, batch: bytes) -> list[Message]:
    """The batch's answer. A marker that works in every state goes behind it: skipped messages need not be counted."""
    wire.send(batch + MARKER)
    out: list[Message] = []
    while "".join(m[0] for m in out[-6:]) != "33333Z":
        out.append(wire.read())
    return [_masked(m) for m in out]


def _both(door: Door, batches: Sequence[bytes]) -> None:
    """One session after the other: they share a database, and so notifications and locks."""
    sides = []
    for port in (door.postgres.port, door.port):
        with Wire(port, door.USER, door.PASSWORD) as wire:
            sides.append([_answers(wire, batch) for batch in batches])
    for batch, direct, through in zip(batches, *sides, strict=True):
        assert through == direct, batch[:100]


@pytest.mark.parametrize("name", SIMPLE)
def test_simple(door: Door, name: str) -> None:
    _both(door, [query(text) for text in SIMPLE[name]])


@pytest.mark.parametrize("name", EXTENDED)
def test_extended(door: Door, name: str) -> None:
    _both(door, EXTENDED[name])


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_chopped(door: Door, size: int) -> None:
    """Bytes arrive in pieces that respect no message's border."""
    batch = b"".join((*EXTENDED["parameters"], *EXTENDED["limits"], *EXTENDED["copy in"]))
    with Wire(door.postgres.port, door.USER, door.PASSWORD) as direct:
        whole = _answers(direct, batch)
    with Wire(door.port, door.USER, door.PASSWORD) as through:
        for at in range(0, len(batch), size):
            through.send(batch[at : at + size])
        assert _answers(through, b"") == whole


def test_notifications_come_while_idle(door: Door) -> None:
    with Wire(door.port, door.USER, door.PASSWORD) as wire, Wire(door.port, door.USER, door.PASSWORD) as other:
        _answers(wire, query("LISTEN idle"))
        _answers(other, query("NOTIFY idle, 'now'"))
        assert _masked(wire.read()) == ("A", b"idle\0now\0")


@pytest.mark.parametrize(
    "asked",
    [
        b"",
        query("SELECT count(*) FROM generate_series(1, 300000)"),
        query("SELECT count(*) FROM generate_series(1, 300000)") + query("SELECT 1/0"),
        parse("SELECT n FROM generate_series(1, 20000) n") + bind() + execute() + SYNC,
        query("COPY (SELECT n FROM generate_series(1, 20000) n) TO STDOUT"),
        parse("SELECT 1/0") + bind() + execute() + parse("SELECT 1") + SYNC,
    ],
    ids=["nothing", "a query", "two queries", "a portal", "a copy", "an error"],
)
@pytest.mark.parametrize("half_closed", [False, True])
def test_a_client_that_says_goodbye_gets_its_answers_first(door: Door, asked: bytes, half_closed: bool) -> None:
    said = []
    for port in (door.port, door.postgres.port):
        with Wire(port, door.USER, door.PASSWORD) as wire:
            wire.send(asked + TERMINATE)
            if half_closed:
                wire.socket.shutdown(socket.SHUT_WR)
            said.append(wire.rest())
    assert said[0] == said[1]
    assert bool(said[1]) is bool(asked)


def test_what_comes_after_goodbye_is_not_looked_at(door: Door) -> None:
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(query("SELECT 1") + TERMINATE + query("SELECT 2") + query("LIST STORES") + b"nonsense")
        assert wire.rest().count(b"SELECT 1\0") == 1
