"""Any sequence of messages, cut anywhere: the shape of the answer is PostgreSQL's, and nobody hangs.

PostgreSQL is the model. Each step has two forms, ours for the door and one of PostgreSQL's that must be answered by
the same kinds of messages; both are sent, and what comes back is compared message type by message type.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from itertools import pairwise

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pgstream.wire import frontend
from tests.pg.door import double
from tests.pg.door.double import Door
from tests.pg.door.raw import FLUSH, SYNC, Wire, bind, close, describe, execute, frame, parse, query
from tests.pg.door.test_session import until

TEXTS = {
    "rows": ("LIST DOORS", "SELECT * FROM (VALUES ('front'), ('back')) v"),
    "many": ("COUNT TO 5", "SELECT generate_series(1, 5)"),
    "none": ("QUIET", "DO 'BEGIN END'"),
    "syntax": ("LIST !", "SELEC !"),
    "broken": ("BREAK", "DO $$ BEGIN RAISE EXCEPTION 'x'; END $$"),
    "theirs": ("SELECT 1", "SELECT 1"),
    "their error": ("SELECT 1/0", "SELECT 1/0"),
    "begin": ("BEGIN", "BEGIN"),
    "commit": ("COMMIT", "COMMIT"),
    "empty": ("", ""),
}
Step = tuple[str, ...]
steps = st.one_of(
    st.tuples(st.just("query"), st.sampled_from(list(TEXTS))),
    st.tuples(st.just("parse"), st.sampled_from(list(TEXTS))),
    st.tuples(st.just("parse"), st.sampled_from(["rows", "many"])),
    st.just(("bind",)),
    st.tuples(st.just("execute"), st.sampled_from(["0", "1", "2", "5"])),
    st.sampled_from([("describe", "S"), ("describe", "P"), ("close", "S"), ("close", "P")]),
    st.just(("flush",)),
    st.just(("sync",)),
    st.just(("whole", "rows")),
    st.tuples(st.just("whole"), st.sampled_from(list(TEXTS))),
)


def _message(step: Step, side: int) -> bytes:
    match step:
        case ("query", text):
            return query(TEXTS[text][side])
        case ("parse", text):
            return parse(TEXTS[text][side])
        case ("whole", text):
            return parse(TEXTS[text][side]) + bind() + describe("P") + execute() + SYNC
        case ("bind",):
            return bind()
        case ("execute", limit):
            return execute("", int(limit))
        case ("describe", kind):
            return describe(kind)
        case ("close", kind):
            return close(kind)
        case ("flush",):
            return FLUSH
    return SYNC


END = SYNC + query("ROLLBACK") + close("S", "x") * 7 + SYNC


def _kinds(wire: Wire, pieces: Sequence[bytes]) -> str:
    for piece in pieces:
        wire.send(piece)
    out = ""
    while not out.endswith("3333333Z"):
        kind, payload = wire.read()
        if kind != "N":  # a warning that ours takes effect at once, or that there is no transaction
            out += kind + (payload.decode() if kind == "Z" else "")
            out = out.removesuffix("I") if kind == "Z" and out.endswith("ZI") else out
    return out


class Wires:
    """One connection through the door and one past it; new ones after a difference, which leaves answers unread."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.open()

    def open(self) -> None:
        self.through = Wire(self.door.port, self.door.USER, self.door.PASSWORD)
        self.direct = Wire(self.door.postgres.port, self.door.USER, self.door.PASSWORD)

    def close(self) -> None:
        self.through.close()
        self.direct.close()


@pytest.fixture(scope="module")
def wires(door: Door):
    pair = Wires(door)
    yield pair
    pair.close()


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(sequence=st.lists(steps, max_size=12), cuts=st.lists(st.integers(0, 600), max_size=6))
@example(sequence=[("parse", "rows"), ("bind",), ("parse", "theirs"), ("execute", "0")], cuts=[])
def test_any_sequence(wires: Wires, sequence: list[Step], cuts: list[int]) -> None:
    ours, theirs = (b"".join(_message(s, side) for s in sequence) + END for side in (0, 1))
    borders = [0, *sorted(c for c in set(cuts) if 0 < c < len(ours)), len(ours)]
    pieces = [ours[a:b] for a, b in pairwise(borders)]
    try:
        assert _kinds(wires.through, pieces) == _kinds(wires.direct, [theirs])
    except BaseException:
        wires.close()
        wires.open()
        raise


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(junk=st.binary(min_size=1, max_size=60))
@example(junk=b"Q\xff\xff\xff\xff")
@example(junk=b"Q\x00\x00\x00\x00")
@example(junk=b"B\x00\x00\x00\x05\x00")
@example(junk=b"E\x7f\xff\xff\xff")
def test_garbage_ends_only_its_session(door: Door, junk: bytes) -> None:
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        _kinds(wire, [parse("LIST DOORS", "ours") + END])
        wire.send(junk)
        wire.socket.shutdown(socket.SHUT_WR)
        wire.rest()
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        assert _kinds(wire, [query("LIST DOORS") + END])


@pytest.mark.parametrize(
    "junk", [b"\x00\0\0\0\4", b"z\0\0\0\4", b"Q\0\0\0\3", b"S\0\1\0\0", b"Q\x7f\0\0\0", b"p\0\0\0\5x"]
)
def test_a_message_that_cannot_be(door: Door, junk: bytes) -> None:
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(junk)
        answer = wire.rest()
        assert answer[:1] == b"E" and b"SFATAL\0" in answer and b"C08P01\0" in answer


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(junk=st.binary(max_size=40))
@example(junk=frontend.SSL_REQUEST * 3)
@example(junk=struct.pack(">II", 8, 80877104) * 3)
@example(junk=frontend.encode_startup({}))
@example(junk=frontend.encode_startup({"user": "alice"}) + frame("p"))
@example(junk=frontend.encode_startup({"user": "alice"}) + frame("p", b"SCRAM-SHA-256\0\xff\xff\xff\xfe"))
@example(junk=frontend.encode_startup({"user": "alice"}) + query("SELECT 1"))
@example(junk=frontend.encode_cancel(1, b""))
@example(junk=frontend.encode_cancel(1, b"x" * 300))
def test_garbage_at_the_start(door: Door, junk: bytes) -> None:
    with Wire(door.port) as wire:
        wire.send(junk)
        wire.socket.shutdown(socket.SHUT_WR)
        wire.rest()


def test_nothing_is_left(door: Door) -> None:
    """200 clients who come and go in every way leave no sessions, keys or backend connections behind."""

    def backends() -> int:
        with psycopg.connect(door.direct) as conn:
            row = conn.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'alice'").fetchone()
        return row[0] if row else 0

    held, before = set(door.listener.sessions), backends()
    for n in range(200):
        if n % 4 == 3:
            Wire(door.port).close()
            continue
        with Wire(door.port, door.USER, door.PASSWORD) as wire:
            wire.send(
                [query("COUNT FOREVER"), parse("COUNT FOREVER") + bind() + execute("", 2), query("SELECT 1")][n % 3]
            )
    until(lambda: door.listener.sessions <= held and len(door.listener.keys) <= len(held))
    until(lambda: backends() <= before)
    assert not double.LIVE
