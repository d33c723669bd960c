"""One client's session: its connection, its backend, and the order of relayed and own answers.

Owns: the client's transport and its back-pressure, the session's start and end, cancel, and the one task that answers a
message of ours (``_task``); meanwhile later bytes wait in ``inbound``.
Must not know: whose a message is (``inbound``), how statements of ours are answered (``simple``, ``extended``), how a
session starts (``startup``). Start reading at ``ClientSession.data_received``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

import structlog

from pgstream.catalog.roles import pg_role
from pgstream.errors import (
    ActiveTransaction,
    AuthenticationTimeout,
    AuthorizationRefused,
    NoStartUp,
    PgStreamError,
    ProtocolViolation,
    RelayedError,
    SlowReader,
)
from pgstream.server import ask, startup, undecided
from pgstream.server.backend import Backend, discard
from pgstream.server.connect import open_backend
from pgstream.server.cursors import Cursors
from pgstream.server.extended import Extended
from pgstream.server.flight import BLOCK, COPY_END, IDLE, Flight
from pgstream.server.handshake import secure
from pgstream.server.inbound import Inbound
from pgstream.server.link import adopt
from pgstream.server.native import CLIENT
from pgstream.server.run import Runner, as_error
from pgstream.server.search_path import SearchPath
from pgstream.server.tls import ALPN
from pgstream.statements import defaults
from pgstream.statements.base import Session
from pgstream.wire import backend as messages
from pgstream.wire import frontend
from pgstream.wire.framing import Framer
from pgstream.wire.scram import Keys

if TYPE_CHECKING:
    from pgstream.server.listener import Listener
    from pgstream.server.relay import Pair

log = structlog.get_logger(__name__)

INBOX_LIMIT = 1 << 20
"""Bytes that a client may send ahead while a statement of ours runs, before its socket is no longer read."""
WRITE_LIMIT = 1 << 20
"""Bytes that wait for a slow client before what feeds it is stopped."""
STARTUP_INBOX = 1 << 16
"""The same before a client is known."""
LAST_WORDS_S = 30
"""How long a client that is being ended has to read what was written to it. One that never reads would keep its place,
and its connection to PostgreSQL, for ever."""
GOODBYE_S = 5
"""How long a statement of ours goes on at least for a client that has said goodbye behind it and half-closed: it may
read the answer, or be gone for good. Twice that at most."""


class ClientSession(asyncio.Protocol):
    """The protocol object of one client connection."""

    backend: Backend
    context: Session
    flight: Flight
    path: SearchPath

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.address = ""  # of the client, behind a load balancer too
        self.binding: bytes | None = None  # of TLS; None without it
        self.certificate: bytes | None = None  # of the client, signed as asked (DER)
        self.minor = -1  # of protocol 3, once the start-up packet has come
        self.runner = Runner(self)
        self.extended = Extended(self)
        self.inbound = Inbound(self)
        self.cursors = Cursors(self)
        self.alert = False
        """Something is to be done when PostgreSQL is ready, or a message names something: see ``ready``."""
        self.pid = 0  # as the client knows it
        self.write: Callable[[bytes | bytearray | memoryview], None] = discard
        """The transport's own: a method between costs each relayed chunk a call."""
        self.received = self.relayed = self.rounds = self.errors = 0
        """Since they were last counted (``counts``): bytes from the client, bytes of PostgreSQL's to it, its answers to
        Query and Sync, its errors."""
        self.asked = -1
        """``relayed`` when PostgreSQL was asked last what is in force: more has come since, and may have changed it."""
        self._greeted: startup.Greeted | None = None
        self._attached = False  # to a backend: ``backend`` and ``flight`` are there
        self._moved = False  # to another database than that of its start
        self.pair: Pair | None = None  # while it is relayed by compiled code
        self._transport: asyncio.Transport | None = None
        self._framer: Framer | None = Framer(startup=True)
        self._arrived: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._full = False  # the client is not read: it sent too much ahead
        self._closed = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        self._transport.set_write_buffer_limits(high=WRITE_LIMIT)
        self.write = self._transport.write
        peer = self._transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        self.listener.arrived(self)
        self.begin(self._start())

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self._framer is not None:
            self._framer.feed(data)
            if len(self._framer) > STARTUP_INBOX:
                self._full = True
                self.pause_reading()
            if self._arrived is not None and not self._arrived.done():
                self._arrived.set_result(None)
            elif self._greeted is not None and self._task is None:
                self._first_message(data)
            return
        if self.inbound.waiting:
            if not isinstance(self.inbound.waiting, bytearray):
                self.inbound.waiting = bytearray(self.inbound.waiting)
            self.inbound.waiting += data
            data = self.inbound.waiting  # type: ignore[assignment]
        if self._task is None:
            try:
                self.inbound.pump(data)
            except Exception as e:  # the session's edge
                self.end(as_error(e))
            return
        self.inbound.waiting = data
        if self._attached and self.flight.copying:
            self._pump_copy()
        elif len(data) > INBOX_LIMIT:
            self._full = True
            self.pause_reading()

    def eof_received(self) -> bool:
        """Whether to stay: some clients half-close behind their goodbye, and still read their answers (not in TLS)."""
        if self.inbound.left or self.binding is not None:
            return self.binding is None
        ahead = self._framer.held if self._framer is not None else self.inbound.waiting
        if self._task is None or self._greeted is None or not ahead.endswith(frontend.TERMINATE):
            return False
        asyncio.get_running_loop().call_later(GOODBYE_S, self._look_at_guest)
        return True

    def _look_at_guest(self, before: asyncio.Task[Any] | None = None) -> None:
        """A client has half-closed: end the session once nothing is done for it, or the same statement for long.

        What looked like a goodbye may have been the end of a part of another message. Those whom PostgreSQL was told
        of go with its connection.
        """
        if self._closed or self.inbound.left:
            return
        running = self.runner.running
        if self._task is None or (running is not None and running is before):
            self.end()
        else:
            asyncio.get_running_loop().call_later(GOODBYE_S, self._look_at_guest, running)

    def _pump_copy(self) -> None:
        try:
            self.inbound.pump_copy()
        except Exception as e:  # the session's edge
            self.end(as_error(e))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.pair is not None:
            self.pair.close()
        self._closed, self.write = True, discard
        self.listener.gone(self)
        self.listener.keys.forget(self, self.pid)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self._task is not None:
            self._task.cancel()
        if self._attached and self._greeted is not None:
            as_begun = self._task is None and self.inbound.whole and not self._moved
            self.listener.backends.leave(self.backend, self._greeted.given if as_begun else None)
            self.spawn(self._close_portals(self._task))

    async def _close_portals(self, running: asyncio.Task[None] | None) -> None:
        """The client is gone: end its portals, after the task that may be in the middle of one."""
        portals = self.extended.take_portals()
        if running is not None:
            await asyncio.wait({running})
        await self.extended.close_portals(portals)
        await self.cursors.close_all()
        await undecided.settle(self, gone=True)

    def write_before_more(self, data: bytes) -> None:
        """Write what the socket did not take. PostgreSQL is read on when it has: until then Python would relay."""
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=0)
        self.write(data)

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()
        if self._attached:
            self.backend.pause_reading()

    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=WRITE_LIMIT)
        if self.pair is not None:
            self.pair.lend()
        if self._attached:
            self.backend.resume_reading()

    # What the others of this package use

    @property
    def is_drained(self) -> bool:
        return self._drained is None

    async def drained(self) -> None:
        """Wait for a slow client. Errors: SlowReader when it has taken nothing for too long."""
        seconds = self.listener.config.slow_reader_timeout_s
        while self._drained is not None and self._transport is not None:
            left = self._transport.get_write_buffer_size()
            done, _ = await asyncio.wait({self._drained}, timeout=seconds or None)
            if not done and self._transport.get_write_buffer_size() >= left:
                raise SlowReader(seconds=seconds)

    def pause_reading(self) -> None:
        if self.pair is not None:
            self.pair.pause(CLIENT)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read the client, unless PostgreSQL or a statement of ours does not take what it has sent already."""
        if self._full or (self._attached and self.backend.clogged):
            return
        if self.pair is not None:
            self.pair.resume(CLIENT)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def next_message(self) -> tuple[int, bytes]:
        """A whole message during start-up."""
        assert self._framer is not None
        while (message := self._framer.next()) is None:
            await self._more()
        if message[0] == 0 and len(message[1]) >= 4 and message[1][:2] == b"\0\3":
            self._framer.typed()
        return message

    async def peek_bytes(self, n: int) -> bytes:
        """The next ``n`` bytes, which stay: to tell what a connection begins with."""
        assert self._framer is not None
        while len(self._framer) < n:
            await self._more()
        return self._framer.peek(n)

    async def next_bytes(self, n: int) -> bytes:
        """The next ``n`` bytes, before the first message."""
        await self.peek_bytes(n)
        assert self._framer is not None
        return self._framer.take(n)

    async def _more(self) -> None:
        self._arrived = asyncio.get_running_loop().create_future()
        await self._arrived

    async def start_tls(self, tls: tuple[ssl.SSLContext, bytes]) -> None:
        """Answer an SSLRequest with yes and become a TLS server."""
        assert self._framer is not None and self._transport is not None
        if len(self._framer):
            # Bytes sent before the handshake would be believed to have come through TLS.
            raise ProtocolViolation(what="received unencrypted data after SSL request")
        self._transport.write(b"S")
        await self._become_tls(tls, b"")

    async def start_direct_tls(self, tls: tuple[ssl.SSLContext, bytes]) -> None:
        """Become a TLS server for a client that began with its handshake."""
        assert self._framer is not None
        await self._become_tls(tls, self._framer.rest())
        layer = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        if layer is None or layer.selected_alpn_protocol() != ALPN:
            raise ProtocolViolation(
                what="received direct SSL connection request without ALPN protocol negotiation extension"
            )

    async def _become_tls(self, tls: tuple[ssl.SSLContext, bytes], begun: bytes) -> None:
        context, binding = tls
        assert self._transport is not None
        try:
            transport = await secure(self._transport, self, context, begun)
        except BaseException:
            self.listener.gone(self)
            raise
        self._transport, self.write = transport, transport.write
        transport.set_write_buffer_limits(high=WRITE_LIMIT)
        self.binding = binding
        self.certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)

    @property
    def has_own_schema(self) -> bool:
        """The database has a schema of the user's name, in which PostgreSQL looks first."""
        return (self.context.database, self.context.user) in self.listener.snapshot.schemas

    @property
    def must_follow(self) -> bool:
        """In the search path ``"$user"`` may not mean the user yet, for prepared statements neither."""
        return self.path.stale and self.has_own_schema

    @property
    def is_plain(self) -> bool:
        """The next message of PostgreSQL's needs no look but at its header, and at its text."""
        extended = self.extended
        ours = self._task is not None or self.alert or extended.prepared or extended.portals
        return not (ours or self.inbound.waiting) and self.inbound.whole

    @property
    def has_settled_texts(self) -> bool:
        """What a text names is known by the text alone."""
        return not (self.path.stale or self.cursors.doubtful)

    @property
    def is_busy(self) -> bool:
        """A statement runs. Idle in a transaction block is not busy."""
        if self.pair is not None:
            self.pair.take_back()
        return self._greeted is not None and (self._task is not None or (self._attached and not self.flight.caught_up))

    def runs_own(self, pid: int, user: str) -> bool:
        """Whether a statement of ours runs in this session of a user's, known by its process id or its backend's."""
        return self.runner.is_running and self.context.user == user and pid in (self.pid, self.backend.pid)

    async def cancel(self) -> None:
        """A CancelRequest came for this session. Ends when it has been delivered, as a client may rely on it."""
        if self.pair is not None:
            self.pair.take_back()
        if self.runner.is_running:
            self.runner.cancel()
        elif self._attached and not self.inbound.cancel() and not self.flight.caught_up:
            backend = self.backend
            backend.canceled = True
            # A task of its own: some clients hang up at once, and it goes on.
            sent = asyncio.ensure_future(self.listener.address.cancel(backend.pid, backend.key))
            backend.canceling.add(sent)
            sent.add_done_callback(backend.canceling.discard)
            await asyncio.shield(sent)

    def end(self, e: PgStreamError | None = None) -> None:
        """Close, with a last word; what is written from now on goes nowhere."""
        if self.pair is not None:
            self.pair.close()
        if e is not None:
            self.write(messages.error(e, severity="FATAL"))
        self.write = discard
        if self._transport is not None:
            self._transport.close()
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LAST_WORDS_S, self._transport.abort)

    def report(self, e: PgStreamError, offset: int = 0) -> None:
        """Send an error of a statement; one of severity FATAL is the session's last word."""
        self.write(messages.error(e, offset=offset, codec=self.backend.codec))
        if e.severity == "FATAL":
            self.end()

    def backend_lost(self, backend: Backend) -> None:
        if self._attached and backend is self.backend:
            self.end()

    def ready(self, status: int) -> None:
        """A ReadyForQuery goes to the client, who is on the alert: outside a transaction block portals do not outlive
        it; cursors and the search path may have changed.
        """
        if status == IDLE and self.extended.portals:
            self.spawn(self.extended.close_portals(self.extended.take_portals()))
        self.path.ready(status)
        self.cursors.ready(status)
        context, path = self.context, self.path
        self.alert = bool(
            self.extended.portals or context.cursors or context.undecided or path.touched or path.statements
            or self.must_follow
        )  # fmt: skip
        if self.cursors.doubtful and self._task is None and self.inbound.whole and self.flight.caught_up:
            self.begin(self.inbound.follow_ahead())

    async def fail_transaction(self, *, extended: bool) -> None:
        """A statement of ours failed: so does the block, or the pipeline's implicit transaction, that it stands in."""
        if not self.flight.failed and (self.flight.status == BLOCK or self.flight.open):
            await ask.fail(self.backend, extended=extended)

    async def own_ready(self) -> None:
        """End the answer to a Query of ours, and with it a pipeline's transaction that has had no Sync."""
        if self.flight.open:
            error = await ask.sync(self.backend)
            if error is not None:
                self.report(error)
        self.asked = -1  # a transaction may have ended
        self.backend.release()
        self.write(messages.ready_for_query(self.flight.status))
        if self.alert:
            self.ready(self.flight.status)

    async def catch_up(self) -> bool:
        """Wait until PostgreSQL has answered all that was relayed before. False when it skips to Sync, or wants COPY
        data, and so takes the next message for itself (``eat``).
        """
        flight = self.flight
        if not flight.caught_up:
            if flight.open or COPY_END in flight.pending:  # a Sync before that end may be one that a COPY ignores
                self.backend.write(frontend.FLUSH)
            await asyncio.wait({flight.wait(), self.backend.closed}, return_when=asyncio.FIRST_COMPLETED)
        flight.caught_up_with()
        return not flight.failed and not flight.copying

    def eat(self, message: bytes) -> None:
        """A message of ours came where PostgreSQL wants COPY data: it says what it thinks of it, and ends the COPY."""
        if self.flight.copying:
            self.flight.copying = False
            self.backend.write(message)

    def copy_wanted(self) -> None:
        """A piece of a mixed text is PostgreSQL's COPY: the data that has come, and that comes, passes."""
        self._pump_copy()
        if self._full:
            self._full = False
            self.resume_reading()

    async def use_database(self, name: str) -> None:
        """Move the session to another database."""
        await self._move(self.listener, name, self.context.role, "USE DATABASE")
        self.context.database, self.context.schema = name, "public"

    async def use_organization(self, listener: Listener) -> None:
        """Move the session to another organization, as if it had begun there."""
        user, snapshot = self.context.user, listener.snapshot
        database, role = startup.first_database(user, listener), snapshot.first_role(user)
        if self.context.undecided:
            raise ActiveTransaction(what="USE ORGANIZATION")
        await self._move(listener, database, role, "USE ORGANIZATION")
        adopt(self.context, defaults.begin(user, database, role, snapshot))

    async def _move(self, listener: Listener, database: str, role: str, what: str) -> None:
        """A new backend connection as the same user."""
        assert self._greeted is not None
        await self._end_pipeline(what)
        given = self._greeted.given
        parameters = {**given.parameters, "database": database, "role": pg_role(role)}
        try:
            startup.check_move(self, listener, self._greeted, database)
            backend, greeting = await open_backend(listener.address, parameters, given.keys)
        except (AuthorizationRefused, RelayedError) as e:
            e.severity = "ERROR"  # type: ignore[misc]  # fatal for the new connection, not for this session
            raise
        if self._closed:  # the client has left, and what it had been closed, while this one was opened
            backend.close()
            return
        # Nothing is awaited before the session has it: who is canceled there would leave it behind.
        old = self.backend
        if self.pair is not None:
            self.pair.close()
        old.client = None
        old.close()
        self._attach(backend)
        self._moved, self.listener, self.asked = True, listener, -1
        self.path.known, self.path.stale = False, True  # what the client began with may name a schema there
        self._relay_natively()
        for message in greeting:
            self.write(message)
        self.extended.keep(frozenset())  # PostgreSQL holds no names of statements in a new connection
        self.path.statements.clear()
        await self.cursors.close_all()

    async def _end_pipeline(self, what: str) -> None:
        """Before the connection is left: what messages without a Sync have done is kept or, if they wrote, in the way.

        Errors: ActiveTransaction; RelayedError when their transaction does not commit.
        """
        if self.flight.status == IDLE and self.flight.open:
            if await ask.ask(self.backend, "SELECT pg_catalog.pg_current_xact_id_if_assigned()") is not None:
                raise ActiveTransaction(what=what)
            if (error := await ask.sync(self.backend)) is not None:
                raise error
        if self.flight.status != IDLE:
            raise ActiveTransaction(what=what)

    @property
    def keys(self) -> Keys | None:
        """What opens PostgreSQL as the user; None: there was no password."""
        return self._greeted.given.keys if self._greeted is not None else None

    # Start and end

    async def _start(self) -> None:
        greeted: startup.Greeted | None = None
        try:
            async with asyncio.timeout(self.listener.config.authentication_timeout_s):
                greeted = await startup.greet(self, self.listener)
        except TimeoutError:
            self._refuse(AuthenticationTimeout())
            return
        except (ConnectionError, ssl.SSLError) as e:
            self.listener.refusals.say(f"could not start TLS: {e}", self.address)
            self.end()
            return
        except Exception as e:  # the session's edge
            self._refuse(as_error(e))
            return
        if greeted is None or self._closed:
            if greeted is not None and greeted.backend is not None:
                self.listener.backends.leave(greeted.backend, None)
            self.end()
            return
        self._greeted = greeted
        if greeted.backend is not None:
            self._attach(greeted.backend)  # first of all: from here on it goes when the session does
        self.context = defaults.begin(greeted.user, greeted.database, greeted.role, self.listener.snapshot)
        ours = ("role", pg_role(greeted.role))
        parameters = {k: v for k, v in greeted.given.parameters.items() if (k, v) != ours}
        self.path = SearchPath(parameters, own_schema=self.has_own_schema)
        self.pid = greeted.backend.pid if greeted.backend is not None else startup.new_pid()
        key = self.listener.keys.issue(self, self.pid, self.minor)
        if greeted.backend is not None:
            self._begin_relay()  # before the client is told: whoever then looks finds all that a session takes
        self.write(messages.backend_key_data(self.pid, key) + messages.ready_for_query(IDLE))

    def _begin_relay(self) -> None:
        assert self._framer is not None
        self.inbound.waiting, self._framer = self._framer.rest(), None
        self._relay_natively()

    def _relay_natively(self) -> None:
        """Let compiled code relay what needs no look, if there is any and nothing is in its way."""
        relay = self.listener.front.relay
        if relay is not None and self._transport is not None and self.binding is None:
            self.backend.relay_by(relay, self, self._transport)

    def _first_message(self, data: bytes) -> None:
        """A session whose backend could wait has something to ask."""
        if data == frontend.TERMINATE:
            self.end()
        elif data:
            self.begin(self._finish_start())

    async def _finish_start(self) -> None:
        assert self._greeted is not None
        backend, changed = await self.listener.backends.finish(self._greeted.given, self._greeted.greeting)
        if self._closed:
            self.listener.backends.leave(backend, None)
            return
        self._attach(backend)
        self.write(b"".join(changed))
        self._begin_relay()

    def _refuse(self, e: PgStreamError) -> None:
        """Start-up failed. Whoever did not even send a start-up packet gets no answer."""
        self.listener.refusals.note(e, self.address)
        unsaid = isinstance(e, NoStartUp) or (isinstance(e, AuthenticationTimeout) and self.minor < 0)
        self.end(None if unsaid else e)

    def _attach(self, backend: Backend) -> None:
        self.backend, self.flight, self._attached = backend, backend.flight, True
        backend.client = self
        backend.take(None)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self.pair is not None:
            self.pair.take_back()
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._closed or task.cancelled():
            return
        if (e := task.exception()) is not None:
            self.end(as_error(e))
            return
        if self._framer is not None:
            if self._greeted is not None:
                self._first_message(self._framer.held)
            return
        data, self.inbound.waiting = bytes(self.inbound.waiting), b""
        if data:
            self.received -= len(data)  # it comes a second time
            self.data_received(data)
        if self._full and self._has_room():
            self._full = False
            self.resume_reading()
        if self.pair is not None:
            self.pair.lend()

    def _has_room(self) -> bool:
        """Not while the next message of ours, of many sent ahead, is answered: each would let in another chunk."""
        return self._task is None or len(self.inbound.waiting) <= INBOX_LIMIT

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(self._logged(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _logged(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as e:  # the session's edge: nobody waits for it
            as_error(e)
