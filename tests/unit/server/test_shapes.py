"""Whether a chunk told by its headers alone counts as one that is walked."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstream.catalog.records import Snapshot
from pgstream.errors import PgStreamError
from pgstream.server import shapes
from pgstream.server.backend import Backend
from pgstream.server.flight import FAILED, Flight
from pgstream.server.inbound import Inbound
from pgstream.server.language import Language
from pgstream.server.search_path import SearchPath
from pgstream.server.settled import Settled
from pgstream.statements.base import Session


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    shapes.requests.clear()
    shapes.answers.clear()


def message(kind: str, payload: bytes = b"") -> bytes:
    return struct.pack(">cI", kind.encode(), 4 + len(payload)) + payload


class Client:
    """What ``Inbound`` and ``Backend`` need of a session; keeps what is relayed."""

    def __init__(self) -> None:
        self.flight = Flight()
        self.relayed = self.rounds = self.errors = 0
        self.extended = SimpleNamespace(prepared={}, portals={}, takes_name=lambda name: False)
        self.listener = SimpleNamespace(
            language=Language.ours(),
            snapshot=Snapshot(),
            catalog=SimpleNamespace(snapshot=Snapshot()),
            settled=Settled(),
        )
        self.context, self.path = Session("alice", "main"), SearchPath({})
        self.cursors = SimpleNamespace(doubtful=False)
        self.seen = bytearray()
        self.readies: list[int] = []
        self.reported: list[PgStreamError] = []
        self.report = self.reported.append
        self.alert = self.held = False
        self.write = self.seen.extend
        self.backend = SimpleNamespace(write=self.seen.extend, codec="utf-8")

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """A Query behind messages without Sync waits for PostgreSQL, which answers at once here."""
        with pytest.raises(StopIteration):
            work.send(None)
        self.held = True

    async def catch_up(self) -> bool:
        return True

    def ready(self, status: int) -> None:
        self.readies.append(status)


def state(flight: Flight) -> tuple[object, ...]:
    return list(flight.pending), flight.open, flight.answered, flight.failed, flight.copying, flight.status


payloads = st.sampled_from([b"", b"ab", b"\0\0\0\4", b"1234567", bytes(300)])
texts = st.sampled_from([b"SELECT 1", b"select 22;", b"BEGIN", b"ROLLBACK TO s", b"SELECT '\xe9'", b"SET a = 1", b""])
sent = st.lists(
    st.one_of(
        st.builds(message, st.sampled_from("BDESS"), payloads),
        st.just(message("H")),
        st.builds(lambda text: message("P", b"\0" + text + b"\0\0\0"), texts),
        st.builds(lambda text: message("Q", text + b"\0"), texts),
    ),
    min_size=1,
    max_size=6,
)
seen = st.lists(
    st.one_of(
        st.builds(message, st.sampled_from("12TDCnE"), payloads),
        st.builds(message, st.just("Z"), st.sampled_from([b"I", b"T", b"E"])),
        st.just(message("G", b"\0\0\0")),
    ),
    min_size=1,
    max_size=6,
)


def requested(chunks: list[bytes], *, learning: bool) -> tuple[object, ...]:
    client = Client()
    inbound = Inbound(client)  # type: ignore[arg-type]
    for chunk in chunks:
        if not learning:
            forget()
        if inbound.waiting:  # as a session does
            inbound.waiting = bytearray(inbound.waiting)
            inbound.waiting += chunk
            inbound.pump(inbound.waiting)
        else:
            inbound.pump(chunk)
        while client.held:
            client.held, rest, inbound.waiting = False, bytes(inbound.waiting), b""
            inbound.pump(rest)
    return *state(client.flight), inbound.bound, bytes(client.seen), bytes(inbound.waiting)


async def answered(chunks: list[bytes], *, learning: bool) -> tuple[object, ...]:
    client, backend = Client(), Backend()
    client.alert = True
    backend.client = client  # type: ignore[assignment]
    for chunk in chunks:
        if not learning:
            forget()
        backend.flight.sent(ord("S"))
        backend.data_received(chunk)
    return *state(backend.flight), bytes(client.seen), client.readies


def cut(chunks: list[bytes], cuts: list[int]) -> list[bytes]:
    """The chunks as they are, then again, each cut in two at one of the places."""
    again = [part for chunk, at in zip(chunks, cuts * len(chunks), strict=False) for part in (chunk[:at], chunk[at:])]
    return [*chunks, *(part for part in again if part), *chunks]


cuts = st.lists(st.integers(0, 40), min_size=1, max_size=8)


@given(st.lists(st.builds(b"".join, sent), min_size=1, max_size=8), cuts)
def test_requests_count_as_walked(chunks: list[bytes], cuts: list[int]) -> None:
    forget()
    parts = cut(chunks, cuts)
    learnt = requested(parts, learning=True)
    assert learnt == requested(parts, learning=False)
    assert learnt[-2] == b"".join(parts)[: len(learnt[-2])]


@given(st.lists(st.builds(b"".join, seen), min_size=1, max_size=8), cuts)
def test_answers_count_as_walked(chunks: list[bytes], cuts: list[int]) -> None:
    forget()
    parts = cut(chunks, cuts)
    learnt = asyncio.run(answered(parts, learning=True))
    assert learnt == asyncio.run(answered(parts, learning=False))
    assert learnt[-2] == b"".join(parts)


def test_a_layout_is_learnt_once_and_told_by_its_headers() -> None:
    client = Client()
    inbound = Inbound(client)  # type: ignore[arg-type]
    read = message("B", b"\0one\0\0") + message("E", bytes(5)) + message("S")
    inbound.pump(read)
    assert set(shapes.requests) == {len(read)}
    inbound.pump(message("P", b"\0SELECT 1\0\0\0") + read)
    assert set(shapes.requests) == {len(read)}
    kept = shapes.requests[len(read)]
    inbound.pump(read.replace(b"one", b"two"))
    assert shapes.requests[len(read)] is kept
    assert list(client.flight.pending) == [ord("S")] * 3
    other = message("B", b"\0") + message("E", bytes(10)) + message("S")
    assert len(other) == len(read)
    inbound.pump(other)
    assert shapes.requests[len(read)] is not kept


@pytest.mark.parametrize(
    "chunk",
    [
        message("B", b"\0\0"),  # no Sync
        message("S") + message("B", b"\0\0"),  # a Sync in the middle
        message("B", b"\0\0") + message("S") + message("S"),  # two
        message("B", bytes(shapes.LONGEST)) + message("S"),  # long
        message("B", b"\0\0") + message("H") + message("S"),  # a Flush
    ],
)
def test_other_layouts_are_not_kept(chunk: bytes) -> None:
    Inbound(Client()).pump(chunk)  # type: ignore[arg-type]
    assert not shapes.requests


SYNC, UNNAMED = message("S"), message("E", bytes(5))


@pytest.mark.parametrize(
    ("before", "chunk"),
    [
        ([], UNNAMED + SYNC),
        ([message("B", b"\0one\0") + UNNAMED + SYNC], UNNAMED + SYNC),  # the layout of the end of the one before
        ([message("B", b"\0one\0"), UNNAMED + SYNC], UNNAMED + SYNC),
        ([message("B", b"\0one\0"), message("Q", b"SELECT 1\0")], UNNAMED + SYNC),
        ([message("B", b"\0one\0") + UNNAMED + SYNC], message("B", b"one\0\0") + UNNAMED + SYNC),  # lengths are alike
        ([], message("P", b"\0SELECT 1\0\0\0") + UNNAMED + SYNC),
        ([], message("B") + UNNAMED + SYNC),
        ([message("B", b"\0one\0") + message("P", b"q\0SELECT 1\0\0\0") + UNNAMED + SYNC], UNNAMED + SYNC),
        ([message("B", b"\0one\0"), message("F", b"1234")], UNNAMED + SYNC),
    ],
)
def test_an_execute_of_what_nothing_was_bound_to_waits(before: list[bytes], chunk: bytes) -> None:
    client = Client()
    client.flight.status = FAILED
    inbound = Inbound(client)  # type: ignore[arg-type]
    for one in before:
        inbound.pump(one)
        client.held = False  # a Query behind messages without a Sync has waited
    assert not client.reported
    inbound.pump(chunk)
    assert client.held and bytes(inbound.waiting) == SYNC
    assert [e.sqlstate for e in client.reported] == ["34000"] and not client.seen.endswith(UNNAMED)


@pytest.mark.parametrize("chunks", [
    [message("B", b"\0one\0") + UNNAMED + SYNC] * 3,
    [message("B", b"\0one\0"), message("H"), UNNAMED, UNNAMED + SYNC],
    [message("E", b"one\0" + bytes(4)) + SYNC] * 2,
    [message("B", b"\0one\0")[:5], message("B", b"\0one\0")[5:] + UNNAMED[:7], UNNAMED[7:] + SYNC],
])  # fmt: skip
def test_other_executes_do_not(chunks: list[bytes]) -> None:
    client = Client()
    client.flight.status = FAILED
    inbound = Inbound(client)  # type: ignore[arg-type]
    for chunk in chunks:
        if inbound.waiting:
            inbound.waiting = bytearray(inbound.waiting)
            inbound.waiting += chunk
        inbound.pump(inbound.waiting or chunk)
        assert not client.held
    assert bytes(client.seen) == b"".join(chunks)
