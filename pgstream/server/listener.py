"""The listening socket and what its sessions share.

Owns: the sessions there are, their cancel keys, the connection limits, the end of them all.
Must not know: messages. Start reading at ``Listener``: it accepts clients from ``open`` on, and they are told that the
server is starting until ``begin`` gives what serves them.
"""

from __future__ import annotations

import asyncio
import copy
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from pgstream.config import Config
from pgstream.errors import ConfigurationError, ShuttingDown, TooManyConnections
from pgstream.server import hba, native, proxy
from pgstream.server.access import Access
from pgstream.server.admission import Admissions
from pgstream.server.cancel import CancelKeys
from pgstream.server.counts import Counts, Figures
from pgstream.server.executor import Executor, Here
from pgstream.server.language import Language
from pgstream.server.memory import has_room_for_pairs, room_for
from pgstream.server.organizations import Organizations
from pgstream.server.reach import Address
from pgstream.server.refusals import Refusals
from pgstream.server.relay import Relay
from pgstream.server.reuse import Backends
from pgstream.server.seats import Seats
from pgstream.server.session import ClientSession
from pgstream.server.settled import Settled
from pgstream.server.tls import open_tls

if TYPE_CHECKING:
    from pgstream.catalog.records import ObjectRecord, Snapshot
    from pgstream.catalog.store import Catalog
    from pgstream.engine.engine import Engine

log = structlog.get_logger(__name__)


class Listener:
    """Accepts clients. ``address`` is PostgreSQL's; ``tls`` the context and its channel binding; ``access`` the table
    where another process of the server has read it.
    """

    catalog: Catalog
    engine: Engine
    address: Address
    admissions: Admissions
    backends: Backends
    language: Language

    def __init__(
        self, config: Config, tls: tuple[ssl.SSLContext, bytes] | None = None, access: Access | None = None
    ) -> None:
        self.config, self.tls = config, tls
        self.front = self
        """Where clients come in, of whatever organization they are: it has what holds for all of them."""
        self.organizations = Organizations(self)
        self.executor: Executor = Here()
        self.proxies = proxy.networks(config.proxy_protocol_from)
        self.access = hba.load(config) if access is None else access
        self.sessions: set[ClientSession] = set()
        self.starting: dict[ClientSession, None] = {}
        """Those not yet authenticated, oldest first."""
        self.admitted: set[ClientSession] = set()
        self.keys: CancelKeys[ClientSession] = CancelKeys()
        self.refusals = Refusals()
        self.counts = Counts()
        self._native = native.load(config)
        self.settled = Settled(self._native)
        self.relay: Relay | None = None
        self.seats, self.room = Seats(), config.max_connections
        self.cancel_elsewhere: Callable[[int, bytes, str], Awaitable[bool]] = _nowhere
        self.ready = self.ending = False
        self.on_close: Callable[[], None] = lambda: None
        self._server: asyncio.Server | None = None
        self._held: list[socket.socket] = []

    def begin(
        self, *, catalog: Catalog, engine: Engine, address: Address, admissions: Admissions, language: Language
    ) -> None:
        """From now on clients are served."""
        self.catalog, self.engine, self.address, self.language = catalog, engine, address, language
        self.admissions, self.backends = admissions, Backends(self.config, address)
        self.room = room_for(self.config.max_connections)
        if self._native is not None and self.front is self and has_room_for_pairs(self.config.max_connections):
            self.relay = Relay(self._native)
        self.ready = True

    def annex(self, config: Config) -> Listener:
        """What serves the clients of another organization, who come in here too: ``begin`` makes it ready."""
        other = copy.copy(self)
        other.config, other.settled = config, Settled(self._native)
        return other

    def reload(self, access: Access | None = None) -> None:
        """Read certificates anew, and the access table unless it is given, for clients that come from now on.

        Errors: ConfigurationError; then all is as before.
        """
        tls = open_tls(self.config, self.config.data_dir, make=False)
        self.tls, self.access = tls, hba.load(self.config) if access is None else access

    @property
    def snapshot(self) -> Snapshot:
        return self.catalog.snapshot

    @property
    def organization(self) -> ObjectRecord:
        return self.catalog.snapshot.organization

    def arrived(self, session: ClientSession) -> None:
        """A connection was made. Of those that do not get on with it, the oldest makes room."""
        self.sessions.add(session)
        self.counts.connections += 1
        self.starting[session] = None
        if len(self.starting) > self.config.max_starting:
            oldest = next(iter(self.starting))
            del self.starting[oldest]
            self.refusals.say("too many connections that are not yet authenticated", oldest.address)
            oldest.end()

    def check_room(self) -> None:
        """Errors: TooManyConnections."""
        if self.seats.taken >= self.config.max_connections or len(self.admitted) >= self.room:
            raise TooManyConnections()

    def admit(self, session: ClientSession) -> None:
        """An authenticated client takes its place. Errors: TooManyConnections."""
        self.check_room()
        self.starting.pop(session, None)
        self.admitted.add(session)
        self.seats.mine = len(self.admitted)

    def gone(self, session: ClientSession) -> None:
        """A connection was lost, or never came to be a session. May be called twice."""
        self.counts.take(session)
        self.sessions.discard(session)
        self.starting.pop(session, None)
        self.admitted.discard(session)
        self.seats.mine = len(self.admitted)

    def figures(self) -> Figures:
        """What this process has counted, up to now."""
        for session in self.sessions:
            self.counts.take(session)
        return self.counts.figures(len(self.admitted), len(self.starting), self.refusals.counted)

    async def open(self, *, joining: bool = False) -> tuple[str, int]:
        """Begin to accept; gives host and port. ``joining`` others of this server. Errors: ConfigurationError."""
        host, port = self.config.host_port
        loop = asyncio.get_running_loop()
        shared = self.config.workers > 1
        try:
            if shared and not joining:
                _check_free(host, port)
            self._server = await loop.create_server(
                lambda: ClientSession(self), host, port, backlog=512, reuse_port=shared or None
            )
        except OSError as e:
            raise ConfigurationError(
                what=f'could not listen on "{self.config.listen}": {(e.strerror or str(e)).lower()}',
                hint="Stop what listens there, or choose another HOST:PORT with --listen; port 0 picks a free one.",
            ) from None
        for listening in self._server.sockets:
            self._keep_alive(listening)
        return host, self._server.sockets[0].getsockname()[1]

    def _keep_alive(self, listening: socket.socket) -> None:
        """Probe idle clients, so that those whose host is gone do not stay. Accepted sockets inherit this."""
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        config = self.config
        for option, value in (
            ("TCP_KEEPIDLE", config.tcp_keepalives_idle_s),
            ("TCP_KEEPINTVL", config.tcp_keepalives_interval_s),
            ("TCP_KEEPCNT", config.tcp_keepalives_count),
        ):
            if value and hasattr(socket, option):
                listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    async def cancel(self, pid: int, key: bytes) -> None:
        """End what the session of this key runs; a wrong key does nothing, and nobody is told."""
        if not (await self.cancel_here(pid, key) or await self.cancel_elsewhere(pid, key, "")):
            self.refusals.say("wrong key in cancel request", "")

    async def cancel_here(self, pid: int, key: bytes) -> bool:
        """The same in this process; whether the key is of one of its sessions."""
        session = self.keys.find(pid, key)
        if session is None:
            return False
        await session.cancel()
        return True

    async def cancel_own(self, pid: int, user: str) -> bool:
        """End the statement of ours that the user's own session with this backend runs, whichever process has it."""
        return self.cancel_own_here(pid, user) or await self.cancel_elsewhere(pid, b"", user)

    def cancel_own_here(self, pid: int, user: str) -> bool:
        """The same in this process; whether there was one. The same name in another organization is somebody else."""
        found = [s for s in self.admitted if s.listener is self and s.runs_own(pid, user)]
        for session in found:
            session.runner.cancel()
        return bool(found)

    def hand_over(self) -> None:
        """Listener processes accept from now on: this one only holds the port."""
        if self._server is None:
            return
        for listening in self._server.sockets:
            held = socket.socket(listening.family, socket.SOCK_STREAM)
            self._held.append(held)
            if listening.family == socket.AF_INET6:
                held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(listening.getsockname())
        self._server.close()

    async def close(self) -> None:
        """Refuse new clients; end idle sessions now and busy ones after the grace."""
        if self._server is None:
            return
        self.ending = True
        self.on_close()
        self._server.close()
        self._server = None
        for held in self._held:
            held.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.shutdown_grace_s
        while self.sessions:
            late = loop.time() >= deadline
            for session in list(self.sessions):
                if late or not session.is_busy:
                    session.end(ShuttingDown())
            if late and loop.time() >= deadline + 2:
                break  # a client that takes no bytes; the process ends it
            await asyncio.sleep(0.02)
        if self.ready:
            await self.leave()
        if self.relay is not None:
            self.relay.close()
            self.relay = None
        await self.organizations.close()
        self.refusals.flush()
        log.info("sessions ended")

    async def leave(self) -> None:
        """Close what clients were served with; they are gone."""
        self.backends.close()
        await self.admissions.close()


async def _nowhere(pid: int, key: bytes, user: str) -> bool:
    """There is no other listener process."""
    return False


def _check_free(host: str, port: int) -> None:
    """Refuse a port that another server shares too: the system would give each of them a part of the clients."""
    for family, kind, protocol, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
