"""The session's own connection to PostgreSQL.

Owns: the byte relay from PostgreSQL to the client, its exact framing (for the account in ``flight``), and *taking* the
stream: whole messages go to a callback instead of the client, for start-up and for what we ask ourselves.
Must not know: the client's messages, statements, what we ask (``ask``). Start reading at ``Backend.data_received``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pgstream.errors import RelayedError
from pgstream.server import shapes
from pgstream.server.flight import ANSWERS, IDLE, Flight
from pgstream.server.native import BACKEND
from pgstream.server.reach import channel_binding
from pgstream.server.runs import Runs
from pgstream.wire import frontend
from pgstream.wire.encodings import CODECS, UTF8, named
from pgstream.wire.framing import header

if TYPE_CHECKING:
    from pgstream.server.relay import Pair, Relay
    from pgstream.server.session import ClientSession

DATA_ROW, COPY_DATA, READY, ERROR, STATUS = b"DdZES"
COPY_IN, COPY_BOTH = b"GW"
NOTIFICATION = ord("A")
UNASKED = frozenset(b"NAS")
"""NoticeResponse, NotificationResponse, ParameterStatus: may come at any time and belong to the client."""
ANSWERING = ANSWERS | {DATA_ROW}
WHOLE = frozenset((READY, STATUS))
"""Messages whose contents are read too."""
MANY = 4096
"""Bytes of a chunk from which rows are looked for in runs."""
LONG = 1 << 16
"""Bytes of an answer after which nobody waits for its next few kilobytes."""
GATHER_S = 0.001
"""How long a long answer then gathers in the socket before it is read. PostgreSQL sends 8 KiB at a time: to relay each
by itself costs as many system calls on both sides, on a core that PostgreSQL and the client could use."""
ENCODING = b"client_encoding\0"
_CHUNK = 1 << 16
LINGER_S = 5
"""How long a closed connection may take to get rid of what was written to it. PostgreSQL does not read while it waits
for somebody to take its rows, and nobody takes them any more: without an end the two would wait for each other."""

Taker = Callable[[int, bytes], None]


def discard(data: bytes | bytearray | memoryview) -> None:
    """Write to a connection that is not there."""


def lost() -> RelayedError:
    """The error of a session whose backend is gone."""
    return RelayedError(
        code="57P01", text="the connection to PostgreSQL was lost", severity="FATAL", hint="Connect again."
    )


class Backend(asyncio.Protocol):
    """One connection. ``client`` is set once the session may see what comes."""

    def __init__(self) -> None:
        self.flight = Flight()
        self.client: ClientSession | None = None
        self.pid, self.key = 0, b""
        self.canceled = False
        self.canceling: set[asyncio.Future[None]] = set()  # cancel requests on their way to PostgreSQL
        self.encoding = "UTF8"  # of the client, as PostgreSQL names it
        self.codec = UTF8  # that of ``encoding``, if Python has one
        self.closed = asyncio.get_running_loop().create_future()
        self.write: Callable[[bytes | bytearray | memoryview], None] = discard
        """The transport's own: a method between costs each relayed chunk a call."""
        self.pair: Pair | None = None  # while it is relayed by compiled code
        self.clogged = False  # PostgreSQL does not take what was written to it
        self._transport: asyncio.Transport | None = None
        self._head = b""  # a part of a header, already relayed
        self._skip = 0  # rest of a message whose header has been seen
        self._runs = Runs()
        self._streamed = 0  # bytes of an answer since it last gathered
        self._gathering = False
        self._taker: Taker | None = None
        self._taken = bytearray()  # a part of a message, not relayed
        self.asking = asyncio.Lock()
        self._held: bytearray | None = None  # notifications while an answer of ours is under way
        self.mute: Callable[[bytes], bool] | None = None  # notices that are not for the client

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        self.write = self._transport.write

    def data_received(self, data: bytes) -> None:
        client = self.client
        if self._taker is not None or client is None:
            self._take(data)
            return
        client.write(data)
        client.relayed += len(data)
        # Runs for every chunk of every backend: no calls on the common path.
        shape = None if self._skip or self._head else shapes.answers.get(len(data))
        if shape is None or shape[0](data) != shape[1]:
            self._scan(data)
            return
        self.flight.ready(data[-1])
        client.rounds += 1
        if client.alert:
            client.ready(data[-1])
        if self.flight.waiter is not None:
            self.flight.settle()

    def _scan(self, data: bytes) -> None:
        """Walk the message headers of relayed bytes. Runs once a row: keep it short."""
        pos = self._skip
        if self._head:
            data, pos, self._head = self._head + data, 0, b""
        end = len(data)
        whole = not pos
        many = end - pos > MANY
        if many:
            self._gather(end)
        while end - pos >= 5:
            kind, length = header(data, pos)
            if kind in (DATA_ROW, COPY_DATA):
                if many:
                    pos = self._runs.after(data, pos, length)
                    continue
            elif kind in ANSWERS:
                self.flight.answered += 1
            elif kind in WHOLE and end - pos <= length:
                break
            else:
                self._note(kind, data, pos)
            pos += length + 1
        if pos >= end:
            self._head, self._skip = b"", pos - end
            if whole and pos == end <= shapes.LONGEST:
                shapes.learn(shapes.answers, data, ANSWERING, READY)
        else:
            self._head, self._skip = data[pos:], 0
        if self.flight.waiter is not None:
            self.flight.settle()

    def _gather(self, length: int) -> None:
        self._streamed += length
        if self._streamed > LONG:
            self.gather()

    def gather(self) -> None:
        """A long answer comes: let it gather in the socket for a moment."""
        if not self._gathering:
            self._gathering, self._streamed = True, 0
            self.pause_reading()
            asyncio.get_running_loop().call_later(GATHER_S, self._gathered)

    def _gathered(self) -> None:
        self._gathering = False
        # Otherwise the client reads slowly, and its session says when to go on.
        if self.client is None or self.client.is_drained:
            self.resume_reading()

    def _note(self, kind: int, data: bytes | bytearray, pos: int) -> None:
        flight = self.flight
        if kind == READY:
            self._streamed = 0
            flight.ready(data[pos + 5])
            # What is taken answers questions of ours.
            if self._taker is None and self.client is not None:
                self.client.rounds += 1
                if self.client.alert:
                    self.client.ready(flight.status)
        elif kind in ANSWERS:
            flight.answered += 1
        elif kind == ERROR:
            flight.error()
            if self._taker is None and self.client is not None:
                self.client.errors += 1
        elif kind == STATUS and data.startswith(ENCODING, pos + 5):
            _, length = header(data, pos)
            self.encoding = named(bytes(data[pos + 5 + len(ENCODING) : pos + length]).decode("ascii", "replace"))
            self.codec = CODECS.get(self.encoding, UTF8)
        elif kind in (COPY_IN, COPY_BOTH):
            flight.copy_in()

    def _take(self, data: bytes) -> None:
        """Whole messages to the taker; a message that was begun before the stream was taken still goes through."""
        data = self._finish_begun(data)
        buffer = self._taken
        buffer += data
        pos = 0
        while len(buffer) - pos >= 5:
            kind, length = header(buffer, pos)
            if len(buffer) - pos < length + 1:
                break
            whole = bytes(buffer[pos : pos + length + 1])
            pos += length + 1
            self._note(kind, whole, 0)
            if self.client is not None and kind in UNASKED:
                if kind == NOTIFICATION and self._held is not None:
                    self._held += whole
                elif self.mute is None or not self.mute(whole):
                    self.client.write(whole)
            elif self._taker is not None:
                self._taker(kind, whole)
            elif self.client is not None:  # given back by the taker just now
                self.client.write(whole)
        del buffer[:pos]
        if self._taker is None and self.client is not None:
            self._give_back()
        self.flight.settle()

    def _finish_begun(self, data: bytes) -> bytes:
        if self._head:
            joined = self._head + data
            if len(joined) < 5:
                self._head = joined
                self._relay(data)
                return b""
            self._skip = header(joined)[1] + 1 - len(self._head)
            self._head = b""
        if self._skip:
            begun, data = data[: self._skip], data[self._skip :]
            self._skip -= len(begun)
            self._relay(begun)
        return data

    def _relay(self, data: bytes) -> None:
        if self.client is not None:
            self.client.write(data)

    def _give_back(self) -> None:
        rest = bytes(self._taken)
        self._taken.clear()
        if rest:
            self._relay(rest)
            self._scan(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.pair is not None:
            self.pair.close()
        self.write = discard
        if exc is not None:
            self._read_last_words()
        if not self.closed.done():
            self.closed.set_result(None)
        if self.client is not None:
            self.client.backend_lost(self)

    def _read_last_words(self) -> None:
        """PostgreSQL had hung up when we wrote to it: what it said before, and why, is still to be read."""
        transport = self._transport
        if transport is None or transport.get_extra_info("ssl_object") is not None:
            return
        there = transport.get_extra_info("socket")
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(there.fileno())) as s:
            s.setblocking(False)
            while data := s.recv(_CHUNK):
                self.data_received(data)

    def pause_writing(self) -> None:
        self.clogged = True
        if self.client is not None:
            self.client.pause_reading()

    def resume_writing(self) -> None:
        self.clogged = False
        if self.client is not None:
            self.client.resume_reading()

    # The session's side

    def pause_reading(self) -> None:
        if self.pair is not None:
            self.pair.pause(BACKEND)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.pair is not None:
            self.pair.resume(BACKEND)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def relay_by(self, relay: Relay, client: ClientSession, transport: asyncio.Transport) -> None:
        """Let compiled code relay between this connection and its client's, if it can."""
        if self._transport is not None:
            relay.join(client, transport, self, self._transport)

    @property
    def is_plain(self) -> bool:
        """Nothing that comes next is to be looked at but for its headers."""
        return not (self._taken or self._gathering) and self._taker is None

    @property
    def place(self) -> tuple[int, int, bytes]:
        """Where in PostgreSQL's stream we are: the rest of a message begun, the bytes since an answer last gathered,
        and those of a header that is not whole.
        """
        return self._skip, self._streamed, self._head

    @place.setter
    def place(self, place: tuple[int, int, bytes]) -> None:
        self._skip, self._streamed, self._head = place

    @property
    def channel_binding(self) -> bytes | None:
        """That of the connection's TLS, if it has any."""
        return channel_binding(self._transport) if self._transport is not None else None

    def take(self, taker: Taker | None) -> Taker | None:
        """Send whole messages to ``taker`` from now on; None: back to the client. Only while caught up.

        Gives the taker before.
        """
        if self.pair is not None:
            self.pair.take_back()
        before, self._taker = self._taker, taker
        if taker is None and self.client is not None:
            self._give_back()
        return before

    @property
    def at_rest(self) -> bool:
        """Idle, whole and owed nothing: what comes next is asked for by whoever has the connection then.

        Not after a cancel request, which may still be on its way and meet another statement.
        """
        flight = self.flight
        owed = flight.pending or flight.open or flight.failed or flight.copying or flight.status != IDLE
        begun = self._head or self._skip or self._taken or self._taker is not None
        return not (owed or begun or self.canceled or self.closed.done())

    def hold(self) -> None:
        """An answer of ours begins: what comes unasked stands between its messages, never inside one.

        PostgreSQL delivers notifications between statements; so do we. An error is PostgreSQL's last word.
        """
        self._held = bytearray()
        client = self.client
        self.take(lambda kind, message: client.write(message) if kind == ERROR and client is not None else None)

    def release(self) -> None:
        """The answer of ours is complete, but for its ReadyForQuery."""
        if self._held is None:
            return
        held, self._held = self._held, None
        if held and self.client is not None:
            self.client.write(held)
        self.take(None)

    def close(self) -> None:
        """Say goodbye and close; what a task that is being ended writes from now on goes nowhere."""
        if self.pair is not None:
            self.pair.close()
        self.write = discard
        if self._transport is None or self._transport.is_closing():
            return
        with contextlib.suppress(RuntimeError):  # uvloop's transport, when connecting it was canceled
            self._transport.write(frontend.TERMINATE)
            self._transport.close()
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)
