"""Compiled code relays and counts as Python does, however the two take turns."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gc
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from pgstream.catalog.records import Snapshot
from pgstream.config import Config
from pgstream.embedded.compiler import find_compiler
from pgstream.server import memory, native
from pgstream.server.backend import LONG, Backend
from pgstream.server.flight import Flight
from pgstream.server.inbound import Inbound
from pgstream.server.native import Native
from pgstream.server.relay import Relay
from pgstream.server.session import ClientSession
from pgstream.server.settled import KEPT, Settled
from tests.unit.server.test_shapes import Client as Bare
from tests.unit.server.test_shapes import cut, message, seen, sent, state

LIBRARY = native.load(Config())
GATHER_NS = LIBRARY.gather_ns.value if LIBRARY is not None else 0
pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")


class Listener(SimpleNamespace):
    """One that a set can hold."""

    __hash__ = object.__hash__


class Client(Bare):
    """A session as far as both ways need it. Its connection is ``transport``, if there is a real one."""

    data_received = ClientSession.data_received
    is_plain, has_settled_texts = ClientSession.is_plain, ClientSession.has_settled_texts
    flight: Flight

    def __init__(self, backend: Backend, library: Native | None) -> None:
        super().__init__()
        self.inbound = Inbound(self)  # type: ignore[arg-type]
        self.backend, self.flight, backend.client = backend, backend.flight, self  # type: ignore[assignment]
        self.listener = Listener(**vars(self.listener) | {"settled": Settled(library)})
        self.received, self._framer, self._task, self.pair = 0, None, None, None
        self.is_drained, self.ended = True, False

    def begin(self, work: Any) -> None:
        """What is not PostgreSQL's at a glance waits for nothing here."""
        super().begin(work)
        self.held, rest, self.inbound.waiting = False, bytes(self.inbound.waiting), b""
        if rest:
            self.received -= len(rest)
            self.data_received(rest)

    def backend_lost(self, backend: Backend) -> None: ...

    def write_before_more(self, data: bytes) -> None:
        self.write(data)

    def end(self, error: object = None) -> None:
        self.ended = True


class Near(asyncio.Protocol):
    """What a client's connection reports to."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Both:
    """Two far ends, and what is between them: a relay with compiled code, or Python's alone."""

    def __init__(self, library: Native | None) -> None:
        self.library, self.backend, self.near = library, Backend(), Near()
        self.client = Client(self.backend, library)
        self.at_client, self.at_backend = bytearray(), bytearray()
        self.relay: Relay | None = None
        self.far: list[socket.socket] = []

    async def open(self) -> None:
        if self.library is None:
            self.client.write = self.at_client.extend
            self.backend.write = self.at_backend.extend
            return
        transports = []
        for protocol in (self.near, self.backend):
            far, near = socket.socketpair()
            self.far.append(far)
            transport, _ = await asyncio.get_running_loop().create_connection(lambda p=protocol: p, sock=near)
            transports.append(transport)
        self.client.write = transports[0].write
        self.relay = Relay(self.library)
        self.relay.join(self.client, transports[0], self.backend, transports[1])  # type: ignore[arg-type]
        self.client.pair.lend()
        self.transports = transports

    async def close(self) -> None:
        if self.relay is not None:
            self.relay.close()
            for transport in self.transports:
                transport.close()
            for far in self.far:
                far.close()
            await asyncio.sleep(0)

    def send(self, side: int, chunk: bytes) -> None:
        """A chunk comes from one side: 0 the client, 1 PostgreSQL."""
        if self.relay is None:
            (self.backend if side else self.client).data_received(chunk)
            return
        self.far[side].sendall(chunk)
        self.relay._run()
        self.at_client += self._arrived(0)
        self.at_backend += self._arrived(1)

    def _arrived(self, side: int) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return self.far[side].recv(1 << 20, socket.MSG_DONTWAIT)
        return b""

    def account(self) -> tuple[object, ...]:
        client = self.client
        if client.pair is not None:
            client.pair.take_back()
        return (
            *state(self.backend.flight), self.backend._skip, self.backend._head, bytes(client.inbound.waiting),
            client.inbound._passing, client.inbound.bound, client.received, client.relayed, client.rounds,
            client.errors, client.ended, bytes(self.at_client), bytes(self.at_backend),
        )  # fmt: skip


@contextlib.asynccontextmanager
async def opened(library: Native | None) -> AsyncIterator[Both]:
    both = Both(library)
    await both.open()
    try:
        yield both
    finally:
        await both.close()


async def relayed(library: Native | None, steps: list[tuple[int, bytes]], asked: set[int]) -> list[tuple[object, ...]]:
    """The account after those steps that are ``asked`` for, and in the end."""
    out = []
    async with opened(library) as both:
        both.backend.gather = lambda: None  # type: ignore[method-assign]
        for i, (side, chunk) in enumerate(steps):
            both.send(side, chunk)
            if i in asked:
                out.append(both.account())
                if both.client.pair is not None:
                    both.client.pair.lend()
        out.append(both.account())
    return out


rows = st.builds(lambda n, m: message("D", bytes(n)) * m, st.integers(0, 90), st.integers(1, 120)).map(lambda r: [r])
exchange = st.lists(st.tuples(st.just(0), sent) | st.tuples(st.just(1), seen | rows), min_size=1, max_size=10)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One loop for all examples: to make one takes longer than to run one."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


@given(exchange, st.lists(st.integers(0, 40), min_size=1, max_size=4), st.sets(st.integers(0, 30)))
def test_both_count_alike(
    runner: asyncio.Runner, chunks: list[tuple[int, list[bytes]]], cuts: list[int], asked: set[int]
) -> None:
    steps = [(side, b"".join(messages)) for side, messages in chunks]
    # Again, in pieces: the two sides each in their order.
    for side in (0, 1):
        pieces = cut([chunk for s, chunk in steps[: len(chunks)] if s == side], cuts)
        steps += [(side, piece) for piece in pieces]
    steps = [step for step in steps if step[1]]
    LIBRARY.gather_ns.value = 0  # no time passes
    try:
        assert runner.run(relayed(LIBRARY, steps, asked)) == runner.run(relayed(None, steps, asked))
    finally:
        LIBRARY.gather_ns.value = GATHER_NS


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The server's event loop."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(**given))

    return run


def query(text: bytes) -> bytes:
    return message("Q", text + b"\0")


READY = message("Z", b"I")
PARSE = message("P", b"\0SELECT $1\0\0\0")
BIND = message("B", b"\0\0\0\0\0\1\0\0\0\0011\0\0") + message("E", bytes(5)) + message("S")


@on_uvloop
async def test_what_was_seen_before_does_not_come_to_python() -> None:
    async with opened(LIBRARY) as both:
        for _ in range(2):
            both.send(0, PARSE + BIND)
            both.send(0, query(b"SELECT 12"))
            both.send(1, READY)
            both.send(1, READY)
        looked: list[bytes] = []
        both.client.data_received = looked.append  # type: ignore[method-assign]
        both.client.inbound.is_settled = lambda data, pos: looked.append(data)  # type: ignore[method-assign]
        for n in range(300):
            both.send(0, PARSE + BIND)
            both.send(0, query(b"SELECT %d" % (n % 90 + 10)))
            both.send(1, message("D", bytes(9)) + message("C", b"SELECT 1\0") + READY)
            both.send(1, READY)
        assert looked == []
        assert both.client.rounds == 0
        both.client.pair.count()
        assert both.client.rounds == 604
        both.send(0, query(b"SELECT 123"))
        assert looked


@on_uvloop
async def test_another_catalogue_is_asked_anew() -> None:
    async with opened(LIBRARY) as both:
        both.send(0, PARSE + BIND)
        both.send(1, READY)
        asked: list[bytes] = []
        both.client.inbound.is_settled = lambda data, pos: not asked.append(data)  # type: ignore[method-assign,func-returns-value]
        both.send(0, PARSE + BIND)
        both.send(1, READY)
        assert asked == []
        both.client.listener.catalog.snapshot = Snapshot()
        both.send(0, PARSE + BIND)
        assert asked == [PARSE + BIND]


@on_uvloop
async def test_more_texts_than_are_kept() -> None:
    async with opened(LIBRARY) as both:
        for n in range(0, KEPT * 2 + 100, 50):
            both.send(0, b"".join(message("P", b"\0SELECT a%d\0\0\0" % (n + i)) for i in range(50)) + BIND)
            both.send(1, READY)
        assert both.client.inbound.whole and both.account()[0] == []


@on_uvloop
async def test_who_sends_far_ahead() -> None:
    async with opened(LIBRARY) as both:
        for _ in range(native.OWED * 3):
            both.send(0, BIND)
        assert len(both.account()[0]) == native.OWED * 3  # type: ignore[arg-type]
        both.client.pair.lend()
        for _ in range(native.OWED * 3):
            both.send(1, READY)
        assert both.account()[0] == []
        assert bytes(both.at_backend) == BIND * native.OWED * 3


@on_uvloop
async def test_a_client_that_takes_nothing() -> None:
    """What does not go out at once waits in the transport, in its order; what comes behind it, too."""
    async with opened(LIBRARY) as both:
        long = [message("D", bytes([n]) * 60000) for n in range(40)]
        for row in long:
            both.far[1].setblocking(False)
            left = row
            while left:
                with contextlib.suppress(BlockingIOError):
                    left = left[both.far[1].send(left) :]
                await asyncio.sleep(0)
        got = bytearray()
        loop = asyncio.get_running_loop()
        both.far[0].setblocking(False)
        while len(got) < sum(map(len, long)):
            got += await asyncio.wait_for(loop.sock_recv(both.far[0], 1 << 16), 20)
        assert bytes(got) == b"".join(long)


@on_uvloop
async def test_a_long_answer_gathers() -> None:
    async with opened(LIBRARY) as both:
        pair, relay = both.client.pair, both.relay
        for _ in range(LONG // 8192 + 1):
            both.far[1].sendall(message("D", bytes(8187)))
            assert not pair._state.gathers
            relay.native.run(relay.hub, False)
            both.at_client += both._arrived(0)
        assert pair._state.gathers and not both.backend._gathering  # by a timer of compiled code
        both.far[1].sendall(READY)
        end = asyncio.get_running_loop().time() + 10
        while both.client.rounds == 0 and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.001)
            both.client.pair.count()
        assert both.client.rounds == 1


@on_uvloop
async def test_who_talks_without_end_does_not_keep_the_loop() -> None:
    """What comes next is waited for in compiled code, but not for ever; and not when the talk has ended."""
    async with opened(LIBRARY) as both:
        over, reached, rounds = threading.Event(), asyncio.Event(), 0
        loop = asyncio.get_running_loop()

        def talk() -> None:
            nonlocal rounds
            while not over.is_set():
                if rounds == 2000:
                    loop.call_soon_threadsafe(reached.set)
                both.far[0].sendall(BIND)
                assert both.far[1].recv(1 << 16) == BIND
                both.far[1].sendall(READY)
                assert both.far[0].recv(1 << 16) == READY
                rounds += 1

        both.send(0, BIND)
        both.send(1, READY)
        talking = loop.run_in_executor(None, talk)
        await asyncio.wait_for(reached.wait(), 60)  # a turn of the loop, while they talk
        over.set()
        await asyncio.wait_for(talking, 10)
        runs = 0

        def run(hub: int, patient: bool) -> int:
            nonlocal runs
            runs += 1
            return native_run(hub, patient)

        native_run = both.relay.native.run  # type: ignore[union-attr]
        for pause in (0.05, 0.001):  # the timer of the last turn rings, and is heard
            await asyncio.sleep(pause)
        both.relay.native.run = run  # type: ignore[union-attr]
        try:
            await asyncio.sleep(0.1)
        finally:
            both.relay.native.run = native_run  # type: ignore[union-attr]
        assert runs == 0
        both.client.pair.count()
        assert both.client.rounds == rounds + 1


@pytest.mark.parametrize("side", [0, 1])
@on_uvloop
async def test_an_end_is_the_transports(side: int) -> None:
    async with opened(LIBRARY) as both:
        lost = both.backend.closed if side else both.near.lost.wait()
        both.far[side].sendall(READY if side else BIND)
        both.far[side].close()
        await asyncio.wait_for(lost, 10)
        assert both.client.pair is None and not both.relay._pairs  # type: ignore[union-attr]


@on_uvloop
async def test_no_descriptor_is_left() -> None:
    async def once() -> None:
        async with opened(LIBRARY) as both:
            both.send(0, PARSE + BIND)
        await asyncio.sleep(0.001)

    await once()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await once()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_compiler", lambda: None)
    assert native.load(Config(cache_dir=tmp_path)) is None
    assert native.load(Config(native_relay=False)) is None
    monkeypatch.setattr(native, "find_compiler", lambda: ["false"])
    assert native.load(Config(cache_dir=tmp_path / "another")) is None


@pytest.mark.parametrize(("allowed", "fits"), [(4100, True), (4099, False), (resource.RLIM_INFINITY, True)])
def test_descriptors_for_all_sessions(monkeypatch: pytest.MonkeyPatch, allowed: int, fits: bool) -> None:
    """Sessions come before compiled code, which takes as many descriptors again."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert memory.has_room_for_pairs(1000) is fits


@on_uvloop
async def test_no_descriptor_or_watch_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the transports read, as without compiled code."""
    async with opened(LIBRARY) as both:
        relay, ends = both.relay, (both.client, both.transports[0], both.backend, both.transports[1])
        assert relay is not None
        both.client.pair.close()
        before = len(os.listdir("/proc/self/fd"))
        one = iter([os.dup(0)])
        with monkeypatch.context() as m:
            m.setattr(os, "dup", lambda _: next(one, None) or _full())
            relay.join(*ends)  # type: ignore[arg-type]
        assert both.client.pair is None
        with monkeypatch.context() as m:
            m.setattr(relay.native, "watch", lambda *_: 0)
            relay.join(*ends)  # type: ignore[arg-type]
        assert both.client.pair is None and not relay._pairs and not relay._listeners
        assert both.transports[1].is_reading() and len(os.listdir("/proc/self/fd")) == before
        both.far[1].sendall(READY)
        received = await asyncio.wait_for(asyncio.to_thread(both.far[0].recv, 100), 10)
        assert received == READY


def _full() -> int:
    raise OSError(errno.EMFILE, "too many open files")


@on_uvloop
async def test_a_fault_ends_its_session_only() -> None:
    async with opened(LIBRARY) as both:
        both.client.inbound.is_settled = lambda data, pos: 1 / 0  # type: ignore[method-assign]
        both.send(0, query(b"SELECT 'a'"))
        assert both.client.ended
