"""The sessions that are relayed by compiled code (``relay.c``), and what comes back from it.

Of a session whose two connections are plain sockets, what needs no look is received and sent on without a turn of
Python. All else goes the way that it goes without compiled code: through the ``data_received`` of both protocols, which
stay the only ones to know what a message means. While a pair is *lent*, the account of what PostgreSQL owes is in its
state; ``take_back`` brings it home, and is called by whatever reads or changes the account.

The transports stay: they write what does not go out at once, and reading goes back to them at a connection's end.

Owns: the descriptors, which sockets are watched, the account's way there and back. Must not know: messages.
Start reading at ``Relay._run``.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from pgstream.server.native import (
    BACKEND,
    CLIENT,
    ENDED,
    NOTHING,
    OWED,
    RELAYED,
    REST,
    TEXT,
    UNKNOWN,
    Native,
    State,
    Told,
)
from pgstream.server.run import as_error

if TYPE_CHECKING:
    from pgstream.server.backend import Backend
    from pgstream.server.listener import Listener
    from pgstream.server.session import ClientSession

log = structlog.get_logger(__name__)

MOST = 64
"""Chunks that Python looks at before others of the loop have their turn."""


class Relay:
    """Of one process. One descriptor tells the event loop that some session has something."""

    def __init__(self, native: Native) -> None:
        self.native, hub = native, native.open()
        if hub is None:
            raise OSError("could not open an epoll descriptor")
        self.hub, self.told, self._descriptor = hub, Told.from_address(hub), native.descriptor(hub)
        self._pairs: dict[int, Pair] = {}
        self._listeners: Counter[Listener] = Counter()  # of the pairs
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._run)

    def join(self, client: ClientSession, ours: asyncio.Transport, backend: Backend, its: asyncio.Transport) -> None:
        """Relay a session here, if both of its connections are plain sockets."""
        for transport in (ours, its):
            if transport.is_closing() or transport.get_extra_info("ssl_object") is not None:
                return
            if transport.get_extra_info("socket") is None:
                return
        try:
            fds = _twice(ours, its)
        except OSError as e:  # no descriptor is left: Python relays
            log.info("relaying without compiled code", why=str(e))
            return
        pair = Pair(self, client, backend, (ours, its), fds)
        self._pairs[pair.handle] = client.pair = backend.pair = pair
        self._listeners[pair.listener] += 1
        pair.begin()

    def leave(self, pair: Pair) -> None:
        del self._pairs[pair.handle]
        self._listeners[pair.listener] -= 1
        if not self._listeners[pair.listener]:
            del self._listeners[pair.listener]

    def close(self) -> None:
        """All sessions have ended."""
        for pair in list(self._pairs.values()):
            pair.close()
        self._loop.remove_reader(self._descriptor)
        self.native.close(self.hub)

    def _run(self) -> None:
        for listener in self._listeners:
            if listener.settled.snapshot is not (snapshot := listener.catalog.snapshot):
                listener.settled.known(snapshot)
        native, hub = self.native, self.hub
        for turn in range(MOST):
            # Once Python has looked at something, what it then wants to do is not kept waiting.
            result = native.run(hub, turn == 0)
            kind = result & 255
            if kind == NOTHING:
                return
            self._pairs[self.told.pair].came(kind, result >> 8, self.told.side)


def _twice(ours: asyncio.Transport, its: asyncio.Transport) -> tuple[int, int]:
    """Second descriptors of two sockets. Errors: OSError, and none is left open."""
    one = os.dup(ours.get_extra_info("socket").fileno())
    try:
        return one, os.dup(its.get_extra_info("socket").fileno())
    except OSError:
        os.close(one)
        raise


class Pair:
    """A session's two sockets. ``handle``: the address of its state."""

    __slots__ = ("_backend", "_client", "_fds", "_relay", "_state", "_transports", "_watched", "handle", "listener")

    def __init__(
        self,
        relay: Relay,
        client: ClientSession,
        backend: Backend,
        transports: tuple[asyncio.Transport, asyncio.Transport],
        fds: tuple[int, int],
    ) -> None:
        self._relay, self._client, self._backend, self._transports = relay, client, backend, transports
        self._fds, self.listener = fds, client.listener
        self.handle: int = relay.native.new_pair(*fds)
        self._state = State.from_address(self.handle)
        self._watched = [False, False]

    def begin(self) -> None:
        """Read what the transports read until now."""
        for side, transport in enumerate(self._transports):
            if self.handle and transport.is_reading():
                transport.pause_reading()
                self.resume(side)

    # Reading

    def pause(self, side: int) -> None:
        """Leave what comes in the socket."""
        if self._watched[side]:
            self._relay.native.leave(self._relay.hub, self.handle, side)
            self._watched[side] = False

    def resume(self, side: int) -> None:
        if not self._watched[side] and self.handle:
            self._watched[side] = True
            if not self._relay.native.watch(self._relay.hub, self.handle, side):
                self.close()  # the system watches no more sockets: the transports do

    def close(self) -> None:
        """Reading goes back to the transports, for good."""
        if not self.handle:
            return
        self.take_back()
        watched = list(self._watched)
        for side in (CLIENT, BACKEND):
            self.pause(side)
            os.close(self._fds[side])
        self._relay.leave(self)
        self._relay.native.free_pair(self.handle)
        self.handle, self._client.pair, self._backend.pair = 0, None, None
        for transport, reads in zip(self._transports, watched, strict=True):
            if reads and not transport.is_closing():
                transport.resume_reading()

    # The account

    def lend(self) -> None:
        """Relay without Python from now on, if nothing is to be known but headers."""
        client, backend, state = self._client, self._backend, self._state
        if not self.handle or state.live or not (client.is_plain and backend.is_plain):
            return
        flight, waiting = backend.flight, [t.get_write_buffer_size() for t in self._transports]
        if any(waiting) or not flight.is_plain or len(flight.pending) > OWED:
            return
        state.open, state.answered, state.status = flight.open, flight.answered, flight.status
        state.bound = client.inbound.bound
        state.owed, state.first = len(flight.pending), 0
        for i, kind in enumerate(flight.pending):
            state.kinds[i] = kind
        state.skip, state.streamed, head = backend.place
        state.heads = len(head)
        state.head[: len(head)] = list(head)
        state.settled, state.texts = client.listener.settled.handle, client.has_settled_texts
        state.live = 1

    def take_back(self) -> None:
        """The account is Python's again, until the next ``lend``."""
        state = self._state
        if not self.handle or not state.live:
            return
        state.live = 0
        flight = self._backend.flight
        flight.open, flight.answered, flight.status = state.open, state.answered, state.status
        self._client.inbound.bound = bool(state.bound)
        flight.pending.clear()
        flight.pending.extend(state.kinds[(state.first + i) % OWED] for i in range(state.owed))
        self._backend.place = (state.skip, state.streamed, bytes(state.head[: state.heads]))
        self.count()

    def count(self) -> None:
        """What was relayed without Python is counted with the rest."""
        client, state = self._client, self._state
        client.received += state.received
        client.relayed += state.relayed
        client.rounds += state.rounds
        state.received = state.relayed = state.rounds = 0

    # What comes back

    def came(self, kind: int, n: int, side: int) -> None:
        """A chunk that compiled code did not relay, or not all of it."""
        try:
            self._came(kind, n, side)
        except Exception as e:  # the session's edge, as a transport would do
            self._client.end(as_error(e))

    def _came(self, kind: int, n: int, side: int) -> None:
        relay = self._relay
        native, hub = relay.native, relay.hub
        while kind == TEXT and self._client.inbound.is_settled(native.chunk(hub, n), relay.told.at):
            result = native.again(hub, n)
            kind, n = result & 255, result >> 8
        if kind == RELAYED:
            return
        if kind == ENDED:
            self.close()
        elif kind == REST:
            self.take_back()
            if side == CLIENT:
                self._backend.write(native.chunk(hub, n))
            else:
                self._client.write_before_more(native.chunk(hub, n))
        elif kind in (UNKNOWN, TEXT):
            self.take_back()
            (self._client if side == CLIENT else self._backend).data_received(native.chunk(hub, n))
            self.lend()
