"""Open a backend connection to PostgreSQL as the client's own user, with the keys recovered from the client's proof.

Owns: start-up and SCRAM as a client, with channel binding where the connection has TLS.
Must not know: the client's connection, how PostgreSQL is reached (``reach``). Start reading at ``open_backend``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgstream.errors import AuthorizationRefused, RelayedError
from pgstream.server.backend import ERROR, READY, Backend, lost
from pgstream.server.reach import Address
from pgstream.wire import backend as messages
from pgstream.wire import frontend, scram

AUTHENTICATION, KEY = b"RK"
OK, SASL, CONTINUE, FINAL = 0, 10, 11, 12


def unreachable(e: Exception) -> RelayedError:
    """The error of a session that PostgreSQL could not be reached for."""
    return RelayedError(
        code="57P03", text=f"could not connect to PostgreSQL: {e}", severity="FATAL", hint="Try again shortly."
    )


@dataclass(slots=True)
class _Start:
    """What start-up gathers."""

    keys: scram.Keys | None
    binding: str
    backend: Backend
    done: asyncio.Future[None]
    greeting: list[bytes] = field(default_factory=list)
    exchange: scram.ClientExchange | None = None

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
        if self.keys is None:
            raise AuthorizationRefused(
                what="PostgreSQL asks for a password, and the client proved itself by its certificate",
                hint="Let PostgreSQL take this server in as that user without a password, by its own pg_hba.conf, "
                "or ask for scram-sha-256 in the access table.",
            )
        if kind == SASL:
            self._begin(self.keys, data.split(b"\0"))
        elif kind == CONTINUE and self.exchange is not None:
            self.backend.write(frontend.encode_sasl(self.exchange.final(data)))
        elif kind == FINAL and self.exchange is not None:
            if not self.exchange.check(data):
                raise AuthorizationRefused(what="PostgreSQL did not prove that it knows the user")
        else:
            raise AuthorizationRefused(
                what="PostgreSQL asks for an authentication method other than scram-sha-256",
                hint="Set scram-sha-256 for this server's address in its pg_hba.conf.",
            )

    def _begin(self, keys: scram.Keys, offered: Sequence[bytes]) -> None:
        """With channel binding, if there is TLS and PostgreSQL offers it: nobody in between passes the proof on."""
        binding = self.backend.channel_binding if self.binding != "disable" else None
        plus = scram.MECHANISM_PLUS.encode() in offered
        if self.binding == "require" and (binding is None or not plus):
            raise AuthorizationRefused(what="channel binding is required, and PostgreSQL does not offer it")
        self.exchange = scram.ClientExchange(keys=keys, binding=binding, offered=plus)
        self.backend.write(frontend.encode_sasl_initial(self.exchange.mechanism, self.exchange.first()))


async def open_backend(
    address: Address, parameters: Mapping[str, str], keys: scram.Keys | None, timeout_s: float = 30
) -> tuple[Backend, list[bytes]]:
    """Connect and start a session. Gives the backend and its greeting (ParameterStatus and notices), ready for queries.

    ``parameters`` are those of the client, user and database included; ``keys`` None: it gave no password.
    Errors: RelayedError as PostgreSQL worded it.
    """
    backend = Backend()
    start = _Start(keys, address.encryption.binding, backend, asyncio.get_running_loop().create_future())
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
