"""A session's start: TLS, protocol version, the access table, the backend connection.

Owns: everything before the first ReadyForQuery. ``greet`` ends with a session that is ready, or with None: the
connection was a CancelRequest or went away.
Must not know: how a client proves who it is (``authenticate``), statements, relay. Start reading at ``greet``.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgstream.catalog.roles import pg_role
from pgstream.errors import (
    AuthorizationRefused,
    ProtocolViolation,
    RelayedError,
    ShuttingDown,
    StartingUp,
)
from pgstream.server import proxy
from pgstream.server.access import Rule, Visit, is_in
from pgstream.server.authenticate import authenticate
from pgstream.server.backend import Backend
from pgstream.server.reuse import Pass
from pgstream.statements import defaults
from pgstream.wire import backend, frontend

if TYPE_CHECKING:
    from pgstream.catalog.records import Snapshot
    from pgstream.server.listener import Listener
    from pgstream.server.session import ClientSession

MINOR = 2
"""The newest minor version of protocol 3 that we speak: 3.2 knows longer cancel keys."""
TLS_HANDSHAKE = b"\x16"
NAME_BYTES = 63
"""What PostgreSQL keeps of a name."""
MAINTENANCE = "postgres"
"""The database that tools connect to when none is named: psql -l, createdb, pgAdmin. It holds nothing of ours."""
_FOLLOWED = ("role", "search_path")
_ESCAPED, _BEHIND_BACKSLASH = re.compile(r"[\s\\]"), r"\\\g<0>"
_TRUE, _FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


@dataclass(frozen=True, slots=True)
class Greeted:
    """Who the client is, by which rule, what it was told, and its backend; None: it is opened at the first message."""

    user: str
    database: str
    rule: Rule
    role: str
    given: Pass
    backend: Backend | None
    greeting: Sequence[bytes]


async def greet(client: ClientSession, front: Listener) -> Greeted | None:
    """Take a client from its first byte to the point where ReadyForQuery is due. Errors are FATAL for the client."""
    await _through_proxy(client, front)
    startup = await _first_packet(client, front)
    if startup is None:
        return None
    _negotiate(client, startup)
    user = _fitting(startup.parameters.get("user", ""))
    if not user:
        raise AuthorizationRefused(what="no PostgreSQL user name specified in startup packet")
    _check_replication(startup.parameters.get("replication"))
    _check_open(front)
    place = front.organizations.place(startup.parameters.get("database", ""), user)
    listener = place.listener or front
    database = _fitting(place.database) or defaults.database(user, listener.snapshot)
    rule = front.access.find(_visit(client, listener, user, place.prefix + database))
    unknown = place.prefix if place.listener is None else ""
    keys, admission = await authenticate(client, listener, rule, user, database, unknown=unknown)
    front.admit(client)
    client.listener = listener
    if user in listener.snapshot.access.tokens:
        await listener.admissions.note(user)
    client.write(backend.AUTHENTICATION_OK)
    check_database(database, user, listener.snapshot)
    role = listener.snapshot.first_role(user)
    # The user inherits nothing: a session works in a role from its first statement on.
    ours = {"role": pg_role(role)}
    if (path := defaults.search_path(user, database, listener.snapshot.seen_by(role))) is not None:
        ours["search_path"] = path
    parameters = {**_settings(startup.parameters, ours), "user": user, "database": database}
    given = listener.backends.admit(parameters, keys, admission)
    connection, greeting = await listener.backends.start(given)
    client.write(b"".join(greeting))
    return Greeted(user, database, rule, role, given, connection, greeting)


def _settings(given: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """The client's start-up parameters, before them what a session begins with otherwise.

    Names of settings ignore case. PostgreSQL takes parameters after ``options``: what may be set there, ours set first.
    """
    known = {k.lower() if k.lower() in _FOLLOWED else k: v for k, v in given.items() if not k.startswith("_pq_.")}
    options = known.get("options", "")
    there = [name for name in ours if name in options.lower()]
    if there:
        first = (f"-c {name}={_ESCAPED.sub(_BEHIND_BACKSLASH, ours[name])}" for name in there)
        known["options"] = " ".join((*first, options))
    return {**{name: value for name, value in ours.items() if name not in there}, **known}


def _fitting(name: str) -> str:
    """As much of a name as PostgreSQL looks at, so that the access table is asked about the same one."""
    return name if len(name) <= NAME_BYTES // 4 else name.encode()[:NAME_BYTES].decode(errors="ignore")


def _visit(client: ClientSession, listener: Listener, login: str, database: str) -> Visit:
    """A token may come in from where its user may."""
    return Visit(client.address, database, listener.snapshot.access.user_of(login), tls=client.binding is not None)


def _check_open(listener: Listener) -> None:
    """Whether clients are served now. Errors: StartingUp, ShuttingDown, TooManyConnections."""
    if listener.ending:
        raise ShuttingDown()
    if not listener.ready:
        raise StartingUp()
    listener.check_room()


def _check_replication(asked: str | None) -> None:
    """PostgreSQL's words of this parameter; what they ask for would show changes of hidden tables."""
    if asked is None or asked.lower() in _FALSE:
        return
    if asked.lower() not in (*_TRUE, "database"):
        raise RelayedError(
            code="22023",
            text=f'invalid value for parameter "replication": "{asked}"',
            hint='Valid values are: "false", 0, "true", 1, "database".',
            severity="FATAL",
        )
    raise RelayedError(
        code="0A000",
        text="replication connections are not supported",
        hint="Read changes with a SELECT on a changelog, or connect to the PostgreSQL behind pgstream itself.",
        severity="FATAL",
    )


def check_database(database: str, user: str, snapshot: Snapshot) -> None:
    """Databases that one of the user's roles sees exist for it, and PostgreSQL's own; not the control database or the
    templates.
    """
    seen = (snapshot.seen_by(role).databases for role in snapshot.access.usable(user))
    if database != MAINTENANCE and not any(database in databases for databases in seen):
        raise RelayedError(code="3D000", text=f'database "{database}" does not exist', severity="FATAL")


def first_database(user: str, listener: Listener) -> str:
    """Where a session goes on that comes from another organization."""
    snapshot = listener.snapshot
    seen = snapshot.seen_by(snapshot.first_role(user)).databases
    wanted = (defaults.database(user, snapshot), listener.config.database)
    return next((name for name in wanted if name in seen), MAINTENANCE)


def check_move(client: ClientSession, listener: Listener, greeted: Greeted, database: str) -> None:
    """Whether a session may go on in another database, or another organization's: its start has shown all that the
    access table asks for there.

    Errors: AuthorizationRefused, RelayedError.
    """
    asked = listener.organizations.prefix(listener) + database
    rule = listener.front.access.find(_visit(client, listener, greeted.user, asked))
    if not rule.is_met_by(greeted.rule):
        raise AuthorizationRefused(
            what=f'database "{database}" asks for another proof than this session has given',
            hint="Connect to it anew.",
        )
    check_database(database, greeted.user, listener.snapshot)


async def _through_proxy(client: ClientSession, listener: Listener) -> None:
    """Read the header of a load balancer that must send one, for the client's own address."""
    if listener.proxies and is_in(client.address, listener.proxies):
        head = await client.next_bytes(proxy.HEAD)
        rest = await client.next_bytes(proxy.rest(head))
        client.address = proxy.decode(head, rest) or client.address


async def _first_packet(client: ClientSession, listener: Listener) -> frontend.Startup | None:
    """The StartupMessage, after what may come before it; None when the connection is over."""
    asked: set[type] = set()
    if listener.tls is not None and await client.peek_bytes(1) == TLS_HANDSHAKE:
        await client.start_direct_tls(listener.tls)
        asked.update((frontend.SSLRequest, frontend.GSSENCRequest))
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
                    text=f"unsupported frontend protocol {packet.major}.{packet.minor}: "
                    f"server supports 3.0 to 3.{MINOR}",
                    severity="FATAL",
                )
            return packet
        if type(packet) in asked:
            raise ProtocolViolation(what="repeated encryption request")
        asked.add(type(packet))
        if isinstance(packet, frontend.SSLRequest) and listener.tls is not None:
            asked.add(frontend.GSSENCRequest)
            await client.start_tls(listener.tls)
        else:
            client.write(b"N")


def _negotiate(client: ClientSession, startup: frontend.Startup) -> None:
    """Agree on a minor version; what we do not know is named, and the client goes on without it."""
    client.minor = min(startup.minor, MINOR)
    unknown = [name for name in startup.parameters if name.startswith("_pq_.")]
    if startup.minor > MINOR or unknown:
        client.write(backend.negotiate_protocol_version(client.minor, unknown))


def new_pid() -> int:
    """In the place of a process id that is not known yet: beyond those that an operating system gives."""
    return 1 << 30 | secrets.randbits(30)
