"""Reaching PostgreSQL: its address, and a connection there, encrypted as the address asks.

Owns: unix sockets and TCP, the step to TLS, cancel requests to PostgreSQL.
Must not know: what is said over a connection. Start reading at ``Address.connect``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from pgstream.server.encryption import PLAIN, Encryption
from pgstream.server.tls import binding
from pgstream.wire import frontend

YES = b"S"


@dataclass(frozen=True, slots=True)
class Address:
    """Where PostgreSQL listens. A ``host`` with a slash is a folder of unix sockets, which need no TLS."""

    host: str
    port: int
    encryption: Encryption = PLAIN

    @property
    def socket(self) -> str | None:
        return f"{self.host}/.s.PGSQL.{self.port}" if self.host.startswith("/") else None

    async def connect(self, factory: Callable[[], asyncio.Protocol]) -> None:
        """A connection for the protocol that ``factory`` makes. Errors: OSError, of which ssl.SSLError is one."""
        loop = asyncio.get_running_loop()
        if self.socket:
            await loop.create_unix_connection(factory, self.socket)
        elif self.encryption.mode == "disable" or not await self._connect_encrypted(factory):
            await loop.create_connection(factory, self.host, self.port)

    async def _connect_encrypted(self, factory: Callable[[], asyncio.Protocol]) -> bool:
        """False: there is no TLS to be had, and it was only preferred."""
        loop = asyncio.get_running_loop()
        asking = _Asking()
        plain, _ = await loop.create_connection(lambda: asking, self.host, self.port)
        prefers = self.encryption.mode == "prefer"
        try:
            if await asking.answer != YES:
                if prefers:
                    return False
                raise ConnectionError(f"PostgreSQL does not support TLS, but sslmode is {self.encryption.mode}")
            transport = await loop.start_tls(plain, asking, self.encryption.context, server_hostname=self.host)
            if transport is None:
                raise ConnectionResetError("the connection was closed during the TLS handshake")
        except (ssl.SSLError, ConnectionResetError):
            if prefers:
                return False
            raise
        else:
            plain = transport
            protocol = factory()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            return True
        finally:
            if plain.get_protocol() is asking:
                plain.abort()

    async def cancel(self, pid: int, key: bytes) -> None:
        """Ask PostgreSQL to end what a backend runs. Silent when it cannot be reached: the protocol has no answer."""
        protocol = _Cancel(frontend.encode_cancel(pid, key))
        try:
            await self.connect(lambda: protocol)
        except OSError:
            return
        await protocol.closed


def channel_binding(transport: asyncio.BaseTransport) -> bytes | None:
    """The ``tls-server-end-point`` binding of a connection; None without TLS."""
    layer = transport.get_extra_info("ssl_object")
    certificate = layer.getpeercert(binary_form=True) if layer is not None else None
    return _binding(certificate) if certificate else None


@lru_cache(maxsize=8)
def _binding(certificate: bytes) -> bytes:
    return binding(certificate)


class _Asking(asyncio.Protocol):
    """Asks for TLS. ``answer``: PostgreSQL's one byte, and nothing that somebody put behind it."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(frontend.SSL_REQUEST)

    def data_received(self, data: bytes) -> None:
        if self.answer.done():
            return
        if len(data) == 1:
            self.answer.set_result(data)
        else:
            self.answer.set_exception(ConnectionError("received unencrypted data after the answer to the SSL request"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionResetError("the connection was closed in place of an answer"))


class _Cancel(asyncio.Protocol):
    """A connection that carries one CancelRequest and is closed by PostgreSQL."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
