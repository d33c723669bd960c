"""Open a backend connection to PostgreSQL as the client's own user, with the keys recovered from the client's proof.

Owns: where PostgreSQL listens, start-up and SCRAM as a client, cancel requests to PostgreSQL.
Must not know: the client's connection. Start reading at ``open_backend``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from pgstream.errors import AuthorizationRefused, RelayedError
from pgstream.server.backend import ERROR, READY, Backend, lost
from pgstream.wire import backend as messages
from pgstream.wire import frontend, scram

AUTHENTICATION, KEY = b"RK"
OK, SASL, CONTINUE, FINAL = 0, 10, 11, 12


@dataclass(frozen=True, slots=True)
class Address:
    """Where PostgreSQL listens: ``host`` is a folder of unix sockets when it begins with a slash."""

    host: str
    port: int

    @property
    def socket(self) -> str | None:
        return f"{self.host}/.s.PGSQL.{self.port}" if self.host.startswith("/") else None

    async def connect(self, factory: Callable[[], asyncio.Protocol]) -> None:
        loop = asyncio.get_running_loop()
        if self.socket:
            await loop.create_unix_connection(factory, self.socket)
        else:
            await loop.create_connection(factory, self.host, self.port)

    async def cancel(self, pid: int, key: bytes) -> None:
        """Ask PostgreSQL to end what a backend runs. Silent when it cannot be reached: the protocol has no answer."""
        protocol = _Cancel(frontend.encode_cancel(pid, key))
        try:
            await self.connect(lambda: protocol)
        except OSError:
            return
        await protocol.closed


def unreachable(e: Exception) -> RelayedError:
    """The error of a session that PostgreSQL could not be reached for."""
    return RelayedError(
        code="57P03", text=f"could not connect to PostgreSQL: {e}", severity="FATAL", hint="Try again shortly."
    )


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


@dataclass(slots=True)
class _Start:
    """What start-up gathers."""

    exchange: scram.ClientExchange | None
    backend: Backend
    done: asyncio.Future[None]
    greeting: list[bytes] = field(default_factory=list)

    def take(self, kind: int, message: bytes) -> None:
        try:
            self._take(kind, message)
        except Exception as e:  # to the one who waits: this runs in the transport's callback
            if not self.done.done():
                self.done.set_exception(e)

    def _take(self, kind: int, message: bytes) -> None:
        if kind == AUTHENTICATION:
            self._authenticate(*messages.decode_authentication(message[5:]))
        elif kind == KEY:
            self.backend.pid, self.backend.key = int.from_bytes(message[5:9], "big"), message[9:]
        elif kind == ERROR:
            raise messages.decode_error(message[5:])
        elif kind == READY:
            if not self.done.done():
                self.done.set_result(None)
        else:
            self.greeting.append(message)

    def _authenticate(self, kind: int, data: bytes) -> None:
        if kind == OK:
            return
        if self.exchange is None:
            raise AuthorizationRefused(
                what="PostgreSQL asks for a password, and the client proved itself by its certificate",
                hint="Let PostgreSQL take this server in as that user without a password, by its own pg_hba.conf, "
                "or ask for scram-sha-256 in the access table.",
            )
        if kind == SASL:
            self.backend.write(frontend.encode_sasl_initial(scram.MECHANISM, self.exchange.first()))
        elif kind == CONTINUE:
            self.backend.write(frontend.encode_sasl(self.exchange.final(data)))
        elif kind == FINAL:
            if not self.exchange.check(data):
                raise AuthorizationRefused(what="PostgreSQL did not prove that it knows the user")
        else:
            raise AuthorizationRefused(
                what="PostgreSQL asks for an authentication method other than scram-sha-256",
                hint="Set scram-sha-256 for this server's address in its pg_hba.conf.",
            )


async def open_backend(
    address: Address, parameters: Mapping[str, str], keys: scram.Keys | None, timeout_s: float = 30
) -> tuple[Backend, list[bytes]]:
    """Connect and start a session. Gives the backend and its greeting (ParameterStatus and notices), ready for queries.

    ``parameters`` are those of the client, user and database included; ``keys`` None: it gave no password.
    Errors: RelayedError as PostgreSQL worded it.
    """
    backend = Backend()
    start = _Start(
        scram.ClientExchange(keys=keys) if keys else None, backend, asyncio.get_running_loop().create_future()
    )
    backend.take(start.take)
    try:
        async with asyncio.timeout(timeout_s):
            await address.connect(lambda: backend)
            backend.write(frontend.encode_startup(parameters))
            await asyncio.wait({start.done, backend.closed}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done.done():
            raise lost()
        start.done.result()
    except (OSError, TimeoutError) as e:
        backend.close()
        raise unreachable(e) from None
    except BaseException:
        backend.close()
        raise
    return backend, start.greeting
