"""A session's start: TLS, protocol version, SCRAM-SHA-256, the backend connection.

Owns: everything before the first ReadyForQuery. ``greet`` ends with a session that is ready, or with None: the
connection was a CancelRequest or went away.
Must not know: statements, relay. Start reading at ``greet``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgstream.errors import (
    AuthorizationRefused,
    PasswordRefused,
    ProtocolViolation,
    RelayedError,
    ShuttingDown,
    TooManyConnections,
)
from pgstream.server.backend import Backend
from pgstream.server.connect import open_backend
from pgstream.wire import backend, frontend, scram

if TYPE_CHECKING:
    from pgstream.catalog.records import Snapshot
    from pgstream.server.listener import Listener
    from pgstream.server.session import ClientSession

PASSWORD = ord("p")


@dataclass(frozen=True, slots=True)
class Greeted:
    """Who the client is, and the backend that is theirs."""

    user: str
    database: str
    parameters: Mapping[str, str]
    keys: scram.Keys
    backend: Backend


async def greet(client: ClientSession, listener: Listener) -> Greeted | None:
    """Take a client from its first byte to the point where ReadyForQuery is due. Errors are FATAL for the client."""
    startup = await _first_packet(client, listener)
    if startup is None:
        return None
    if listener.ending:
        raise ShuttingDown()
    if listener.full:
        raise TooManyConnections()
    _negotiate(client, startup)
    user = startup.parameters.get("user", "")
    if not user:
        raise AuthorizationRefused(what="no PostgreSQL user name specified in startup packet")
    database = startup.parameters.get("database") or user
    keys = await _authenticate(client, listener, user)
    client.write(backend.AUTHENTICATION_OK)
    check_database(database, listener.snapshot)
    parameters = {k: v for k, v in startup.parameters.items() if not k.startswith("_pq_.")}
    parameters |= {"user": user, "database": database}
    connection, greeting = await open_backend(listener.address, parameters, keys)
    for message in greeting:
        client.write(message)
    return Greeted(user, database, parameters, keys, connection)


def check_database(database: str, snapshot: Snapshot) -> None:
    """Only databases of the catalogue exist for clients: not the control database, ``postgres`` or the templates."""
    if database not in snapshot.databases:
        raise RelayedError(code="3D000", text=f'database "{database}" does not exist', severity="FATAL")


async def _first_packet(client: ClientSession, listener: Listener) -> frontend.Startup | None:
    secured = refused = False
    while True:
        _, payload = await client.next_message()
        packet = frontend.decode_startup(payload)
        if isinstance(packet, frontend.CancelRequest):
            await listener.cancel(packet.pid, packet.key)
            return None
        if isinstance(packet, frontend.Startup):
            if packet.major != 3:
                raise RelayedError(
                    code="0A000",
                    text=f"unsupported frontend protocol {packet.major}.{packet.minor}: server supports 3.0",
                    severity="FATAL",
                )
            return packet
        if isinstance(packet, frontend.SSLRequest) and listener.tls is not None and not secured:
            await client.start_tls(listener.tls)
            secured = True
        elif refused and secured:
            raise ProtocolViolation(what="repeated encryption request")
        else:
            refused = True
            client.write(b"N")


def _negotiate(client: ClientSession, startup: frontend.Startup) -> None:
    unknown = [name for name in startup.parameters if name.startswith("_pq_.")]
    if startup.minor > 0 or unknown:
        client.write(backend.negotiate_protocol_version(0, unknown))


async def _authenticate(client: ClientSession, listener: Listener, user: str) -> scram.Keys:
    """SCRAM with the verifier that PostgreSQL keeps. An unknown user looks like a wrong password."""
    text = await listener.verifier(user)
    verifier = scram.Verifier.parse(text) if text else scram.Verifier.mock(user, listener.secret)
    if verifier is None:
        raise AuthorizationRefused(
            what=f'user "{user}" has no SCRAM-SHA-256 password',
            hint="Set the password again while password_encryption is scram-sha-256.",
        )
    exchange = scram.ServerExchange(verifier, binding=client.binding)
    client.write(backend.authentication_sasl(exchange.mechanisms))
    initial = frontend.decode_sasl_initial(await _password_message(client))
    client.write(backend.authentication_sasl_continue(exchange.first(initial.mechanism, initial.data)))
    final = exchange.final(await _password_message(client))
    if final is None:
        raise PasswordRefused(user=user)
    client.write(backend.authentication_sasl_final(final[0]))
    return final[1]


async def _password_message(client: ClientSession) -> bytes:
    kind, payload = await client.next_message()
    if kind != PASSWORD:
        raise ProtocolViolation(what=f"expected SASL response, got message type {kind}")
    return payload


def new_key() -> bytes:
    """A cancel key of protocol 3.0: four random bytes."""
    return secrets.token_bytes(4)
