"""Clients that leave, or stop reading, at the worst moment: nothing of them stays, and nobody else pays for them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import psycopg
import pytest

from pgstream.server import backend, session
from tests.pg.door import double
from tests.pg.door.double import Door
from tests.pg.door.raw import SYNC, TERMINATE, Wire, bind, close, execute, parse, query
from tests.server import within

LARGE = query("SELECT repeat('x', 300000)")
SENT = 300
"""So many that neither the answers nor the questions fit into the buffers of sockets on the way."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "LINGER_S", 0.2)
    monkeypatch.setattr(session, "LAST_WORDS_S", 0.2)


@pytest.fixture
def alone(door: Door) -> Iterator[None]:
    """What a test leaves behind is seen at its end."""

    def backends() -> int:
        with psycopg.connect(door.direct) as conn:
            row = conn.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'alice'").fetchone()
        return row[0] if row else 0

    sessions, before = set(door.listener.sessions), backends()
    yield
    within(20, lambda: door.listener.sessions <= sessions, every=0.02)
    within(20, lambda: backends() <= before, every=0.02)
    assert not double.LIVE


def _pad(text: str) -> bytes:
    """A Query that takes room on its way to PostgreSQL too."""
    return query(f"/* {'y' * 60_000} */ {text}")


@pytest.mark.parametrize("first", [b"", query("COUNT TO 1")])  # what comes while we answer, or start, waits with us
@pytest.mark.parametrize("reset", [True, False])
def test_gone_while_postgres_waits_for_a_reader(
    door: Door, quick: None, alone: None, reset: bool, first: bytes
) -> None:
    """PostgreSQL sends and does not read, we have more to send it and nobody to read for: neither waits for ever."""
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.socket.setblocking(False)
        data, stuck = memoryview(first + _pad("SELECT repeat('x', 300000)") * SENT), 0
        while data and stuck < 20:  # nobody takes any more
            try:
                data, stuck = data[wire.socket.send(data) :], 0
            except BlockingIOError:
                stuck += 1
                door.run(_turn())
        assert data, "the client is never kept from sending"
        if reset:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _turn() -> None:
    import asyncio

    await asyncio.sleep(0.01)


def test_ended_without_reading(door: Door, quick: None, alone: None) -> None:
    """A client that breaks the protocol with its answers unread keeps neither its place nor its connection."""
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(query("COUNT TO 1"))
        wire.until_ready()
        pid = _pid(door)
        wire.send(LARGE * SENT)
        within(20, lambda: not _session(door, pid).is_drained, every=0.01)
        door.loop.call_soon_threadsafe(_session(door, pid).end, None)
        within(20, lambda: not any(s.pid == pid for s in door.listener.sessions), every=0.01)


def _pid(door: Door) -> int:
    """Of the session that came last."""
    return next(reversed(door.listener.keys._by_pid))


def _session(door: Door, pid: int) -> session.ClientSession:
    return next(s for s in door.listener.sessions if s.pid == pid)


@pytest.mark.parametrize("batch", [query("LIST !"), parse("LIST !") + SYNC, query("QUIET"), query("LIST DOORS")])
def test_who_asks_and_never_reads(door: Door, alone: None, batch: bytes) -> None:
    """Answers of ours that nobody takes are not made: the client waits, the server's memory does not grow."""
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        pid = _pid(door)
        wire.socket.setblocking(False)
        data, stuck = memoryview(batch * (32_000_000 // len(batch))), 0
        while data and stuck < 50:
            try:
                data, stuck = data[wire.socket.send(data[: 1 << 20]) :], 0
            except BlockingIOError:
                stuck += 1
                door.run(_turn())
        held = _session(door, pid)._transport.get_write_buffer_size()
        assert data and held < 3 * session.WRITE_LIMIT


def test_a_long_message_is_not_copied_for_each_piece(door: Door, alone: None) -> None:
    """While it comes, it lies where it came: the same buffer from the second piece on."""
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        pid = _pid(door)
        text = query("SELECT length('" + "x" * 8_000_000 + "')")
        wire.send(text[:1_000_000])
        inbound = _session(door, pid).inbound
        within(20, lambda: len(inbound.waiting) == 1_000_000, every=0.01)
        wire.send(text[1_000_000:2_000_000])
        within(20, lambda: len(inbound.waiting) == 2_000_000, every=0.01)
        held = inbound.waiting
        wire.send(text[2_000_000:3_000_000])
        within(20, lambda: len(inbound.waiting) == 3_000_000, every=0.01)
        assert inbound.waiting is held
        wire.send(text[3_000_000:])
        assert dict(wire.until_ready())["D"].endswith(b"8000000")


def test_statements_and_portals_have_a_bound(door: Door, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from pgstream.server import extended

    monkeypatch.setattr(extended, "MOST", 20)
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(b"".join(parse("LIST DOORS", f"s{n}") for n in range(21)) + SYNC)
        answers = wire.until_ready()
        assert [kind for kind, _ in answers] == ["1"] * 20 + ["E", "Z"] and b"C54000\0" in answers[-2][1]
        wire.send(close("S", "s0") + parse("LIST DOORS", "s0") + SYNC)
        assert [kind for kind, _ in wire.until_ready()] == ["3", "1", "Z"]
        wire.send(b"".join(bind(f"p{n}", "s0") for n in range(21)) + SYNC)
        answers = wire.until_ready()
        assert [kind for kind, _ in answers] == ["2"] * 20 + ["E", "Z"] and b"C54000\0" in answers[-2][1]
        monkeypatch.setattr(extended, "ROOM", 100_000)
        long = "ECHO " + " " * 60_000 + "$1"
        wire.send(close("S", "s0") + close("S", "s1") + parse(long, "s0") + SYNC + parse(long, "s1") + SYNC)
        assert [kind for kind, _ in wire.until_ready(2)] == ["3", "3", "1", "Z", "E", "Z"]
        wire.send(parse("ECHO $1") + bind("", "", [b"v" * 60_000]) + execute() + SYNC)
        assert [kind for kind, _ in wire.until_ready()] == ["1", "2", "D", "C", "Z"]


def test_names_of_statements_end_with_the_connection(door: Door, alone: None) -> None:
    """USE DATABASE moves to another connection of PostgreSQL's, which holds no names: nor do we."""
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(parse("LIST DOORS", "s") + SYNC + query("USE DATABASE other"))
        wire.until_ready(2)
        wire.send(bind("", "s") + execute() + SYNC)
        answers = wire.until_ready()
        assert [kind for kind, _ in answers] == ["E", "Z"] and b"C26000\0" in answers[0][1]
        wire.send(parse("SELECT 'theirs'", "s") + bind("", "s") + execute() + SYNC)
        answers = wire.until_ready()
        assert [kind for kind, _ in answers] == ["1", "2", "D", "C", "Z"] and answers[2][1].endswith(b"theirs")


def test_gone_while_moving_to_another_database(door: Door, alone: None) -> None:
    """With cursors open, which take a moment to close, and at every moment in between."""
    for n in range(40):
        with Wire(door.port, door.USER, door.PASSWORD) as wire:
            wire.send(query("BEGIN") + query("DECLARE c CURSOR WITH HOLD FOR COUNT FOREVER") + query("COMMIT"))
            wire.until_ready(3)
            wire.send(query("FETCH 1 FROM c"))
            wire.until_ready()
            wire.send(query("USE DATABASE other") + (TERMINATE if n % 2 else b""))
            if n % 4 > 1:
                door.run(_turn())
