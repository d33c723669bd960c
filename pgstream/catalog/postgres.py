"""Connections to PostgreSQL for the objects that are derived from the catalogue, and the roles behind them.

Owns: administrative connections, the translation of PostgreSQL's errors, built-in roles, the first user, the worker's
role. Passwords leave this process only as SCRAM verifiers, so neither a log nor ``pg_stat_statements`` holds one.
Must not know: rows of the catalogue. ``objects`` makes databases and relations. Start reading at ``Administrator``.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import structlog
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from pgstream.catalog.privileges import BUILT_IN, PUBLIC, Access
from pgstream.catalog.roles import EVERYBODY, pg_role, reader
from pgstream.errors import ConfigurationError, DependentsExist, PgStreamError, RelayedError
from pgstream.names import quote_always, quote_literal
from pgstream.wire.scram import Verifier

WORKER = "pgstream_worker"
LOCK_WAIT_S = 10
"""How long a change waits for a lock of PostgreSQL's. Changes take turns: one that waited for the end of a client's
transaction, which need not ever come, would stop them all."""
ALIVE: dict[str, Any] = {
    "connect_timeout": 10, "keepalives_idle": 3, "keepalives_interval": 1, "keepalives_count": 3
}  # fmt: skip
"""How a connection that only hears is opened: that its other end is gone without a word is found out in seconds."""
DEFINER = "search_path=pg_catalog, pg_temp"
"""What a function that runs with its owner's rights is to have. A session's temporary relations and types come before
all others where they are not named: who calls it would write what it reads."""
LOCKED = "55P03"
"""What a lock that does not come ends with."""
# What decides whether a user may come in through the front door; one row, or none for an unknown user.
# ``verifier``: PostgreSQL's, never of the worker, of a superuser, or of who may become one. ``sure``: nothing that
# PostgreSQL looks at when a connection begins would refuse this one. ``mark`` changes when anything does that a
# connection takes from its begin: role, database, their settings, the roles that it may take, the configuration files.
ADMISSION = """
WITH RECURSIVE above(id, through) AS (
    SELECT oid, NULL::text FROM pg_authid WHERE rolname = %(user)s
    UNION SELECT m.roleid, concat_ws(',', m.roleid, m.member, m.xmin)
        FROM pg_auth_members m JOIN above ON m.member = id)
SELECT CASE WHEN may THEN a.rolpassword END AS verifier, may,
    a.rolconnlimit = -1 AND d.datallowconn AND d.datconnlimit = -1 AND has_database_privilege(a.oid, d.oid, 'CONNECT')
        IS TRUE AS sure,
    concat_ws(' ', a.oid, a.xmin, d.oid, d.xmin, pg_postmaster_start_time(), pg_conf_load_time(),
        (SELECT string_agg(through, ';' ORDER BY through) FROM above),
        (SELECT string_agg(concat_ws(',', s.xmin, s.setdatabase, s.setrole), ';' ORDER BY s.setdatabase, s.setrole)
         FROM pg_db_role_setting s WHERE s.setdatabase IN (0, d.oid) AND s.setrole IN (0, a.oid))) AS mark
FROM pg_authid a LEFT JOIN pg_database d ON d.datname = %(database)s
    CROSS JOIN LATERAL (SELECT a.rolcanlogin AND a.rolname <> %(worker)s
        AND NOT EXISTS (SELECT FROM above JOIN pg_authid s ON s.oid = id WHERE s.rolsuper)
        AND NOT starts_with(a.rolname, %(worker)s || '~')
        AND (a.rolvaliduntil IS NULL OR a.rolvaliduntil > now()) AS may) m
WHERE a.rolname = %(user)s"""
# What an admitted token leaves behind; asked in the control database.
USED = """
INSERT INTO token_uses (login, used_at) VALUES (%(login)s, now())
ON CONFLICT (login) DO UPDATE SET used_at = excluded.used_at"""
log = structlog.get_logger(__name__)

Connection = psycopg.AsyncConnection[Any]


def relayed(e: psycopg.Error) -> PgStreamError:
    """An error of PostgreSQL as ours, with its code and words."""
    d = e.diag
    held = "A transaction of another session holds it: try again when that has ended."
    return RelayedError(
        code=e.sqlstate or "58000",
        text=d.message_primary or str(e),
        detail=d.message_detail,
        hint=d.message_hint or (held if e.sqlstate == LOCKED else None),
    )


async def run(conn: Connection, *statements: str) -> None:
    """Run statements that were built here from quoted names; errors stay psycopg's, for callers that know them."""
    for statement in statements:
        await conn.execute(statement.encode())


_UNSEEN = "SELECT set_config('track_activities', 'off', true), set_config('log_min_error_statement', 'panic', true)"
"""A verifier is for nobody to see: not for who may look at others' statements, nor in the log of one that fails."""


async def run_unseen(conn: Connection, *statements: str) -> None:
    """As ``run``, in a transaction, with statements that hold a verifier."""
    async with conn.transaction():
        await run(conn, _UNSEEN, *statements)


class Administrator:
    """Opens administrative connections, one a piece of work: DDL is rare, and idle connections cost memory."""

    def __init__(self, url: Callable[..., str]) -> None:
        self._url = url

    @asynccontextmanager
    async def connect(self, database: str) -> AsyncIterator[Connection]:
        """A connection in autocommit mode; any error of PostgreSQL inside becomes ours."""
        try:
            # What users may make in their schemas must never be called here in a system function's stead.
            conn = await psycopg.AsyncConnection.connect(
                self._url(database),
                autocommit=True,
                connect_timeout=10,
                options=f"-c search_path=pg_catalog -c standard_conforming_strings=on -c lock_timeout={LOCK_WAIT_S}s",
            )
            try:
                # Clients make functions and operators in schemas of the default search path: one that fits better than
                # PostgreSQL's own would run with our rights.
                await conn.execute("SET search_path = pg_catalog")
                yield conn
            finally:
                await conn.close()
        except psycopg.Error as e:
            raise relayed(e) from None


TURN_S = 600
"""How long a server waits for its turn: a view that is replaced takes one for as long as its rows are compared."""
CHANGE, OPEN = "pgstream:change", "pgstream:open"
TAKE_TURN = (
    f"SELECT set_config('lock_timeout', '{TURN_S}s', true), pg_advisory_xact_lock(hashtextextended('{CHANGE}', 0)),"
    f" set_config('lock_timeout', '{LOCK_WAIT_S}s', true)"
)
"""Servers on one PostgreSQL take turns: to change the catalogue (for a transaction), and to open it. Turns are locks in
the control database: in any other a client could hold them. Only it itself is made under one in ``postgres``."""


@asynccontextmanager
async def turn(administrator: Administrator, database: str, what: str) -> AsyncIterator[None]:
    """Alone among the servers. Errors: RelayedError (55P03) when another one takes too long."""
    async with administrator.connect(database) as conn:
        await run(conn, f"SET lock_timeout = '{TURN_S}s'", f"SELECT pg_advisory_lock(hashtextextended('{what}', 0))")
        yield


def scram(conn: Connection, user: str, password: str) -> str:
    """PostgreSQL's SCRAM-SHA-256 verifier of a password, computed on this side."""
    return conn.pgconn.encrypt_password(password.encode(), user.encode(), b"scram-sha-256").decode()


async def has_role(conn: Connection, name: str) -> bool:
    found = await conn.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name])
    return await found.fetchone() is not None


async def execute(session: AsyncSession, sql: str) -> None:
    """DDL of roles, in the catalogue's own transaction: roles are the whole cluster's, so both commit or neither."""
    # A sign of a name is none of a placeholder.
    await (await session.connection()).exec_driver_sql(sql.replace("%", "%%"))


async def has_role_in(session: AsyncSession, name: str) -> bool:
    return await has_login(session, pg_role(name))


async def has_login(session: AsyncSession, name: str) -> bool:
    found = await session.scalar(text("SELECT 1 FROM pg_roles WHERE rolname = :name"), {"name": name})
    return found is not None


async def create_role(session: AsyncSession, name: str) -> None:
    await execute(session, f"CREATE ROLE {quote_always(pg_role(name))} NOLOGIN")
    if name != PUBLIC:
        await execute(session, f"GRANT {EVERYBODY} TO {quote_always(name)}")


async def drop_role(session: AsyncSession, name: str, at: int | None = None) -> None:
    """Errors: DependentsExist while PostgreSQL's own tables belong to it, or are granted to it."""
    try:
        await execute(session, f"DROP ROLE IF EXISTS {quote_always(reader(name))}")
        await execute(session, f"DROP ROLE IF EXISTS {quote_always(name)}")
    except DBAPIError as e:
        if isinstance(e.orig, psycopg.errors.DependentObjectsStillExist):
            detail = e.orig.diag.message_detail
            raise DependentsExist(kind="role", name=name, detail=detail, at=at, hint=_REASSIGN) from None
        raise


async def create_login(session: AsyncSession, name: str, password: str, until: dt.datetime | None = None) -> None:
    """Nothing is inherited by a user: it works in the role that it takes. ``until``: when nobody comes in any more."""
    await execute(session, _UNSEEN)
    await execute(session, f"CREATE ROLE {quote_always(name)} LOGIN NOINHERIT {_secret(password)}{_until(until)}")


async def alter_login(session: AsyncSession, name: str, password: str, until: dt.datetime | None = None) -> None:
    await execute(session, _UNSEEN)
    await execute(session, f"ALTER ROLE {quote_always(name)} {_secret(password)}{_until(until)}")


def _secret(password: str) -> str:
    """As a verifier, also when the client has made it one."""
    verifier = Verifier.parse(password) or Verifier.make(password, secrets.token_bytes(16))
    return f"PASSWORD {quote_literal(str(verifier))}"


def _until(moment: dt.datetime | None) -> str:
    return f" VALID UNTIL {quote_literal(moment.isoformat())}" if moment is not None else ""


async def numbers(session: AsyncSession, logins: Iterable[str]) -> list[int]:
    """By which sessions are known once the login roles are gone."""
    found = await session.execute(text("SELECT oid FROM pg_roles WHERE rolname = ANY(:names)"), {"names": list(logins)})
    return [oid for (oid,) in found]


async def end_sessions(conn: Connection, numbers: list[int]) -> None:
    """Of those who may no longer be here; it waits a moment for each to be gone."""
    await conn.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usesysid = ANY(%s::oid[])", [numbers]
    )


async def grant_role(session: AsyncSession, role: str, member: str, is_user: bool) -> None:
    roles = {pg_role(role), EVERYBODY} if is_user else {pg_role(role)}  # who loses all others still has everybody's
    listed = ", ".join(map(quote_always, sorted(roles)))
    await execute(session, f"GRANT {listed} TO {quote_always(member if is_user else pg_role(member))}")


async def revoke_role(session: AsyncSession, role: str, member: str, is_user: bool) -> None:
    if role == PUBLIC and not is_user:
        return  # everybody has it, whoever granted it
    await execute(
        session, f"REVOKE {quote_always(pg_role(role))} FROM {quote_always(member if is_user else pg_role(member))}"
    )


async def granted(session: AsyncSession, logins: Iterable[str]) -> dict[str, set[str]]:
    """PostgreSQL's roles that were granted to these, directly."""
    out: dict[str, set[str]] = {name: set() for name in logins}
    for role, member in await session.execute(text(_MEMBERS)):
        if member in out:
            out[member].add(role)
    return out


async def disinherit(session: AsyncSession, user: str) -> None:
    """Later memberships give a user their roles to work in, and no rights by themselves."""
    await execute(session, f"ALTER ROLE {quote_always(user)} NOINHERIT")


async def check_free(session: AsyncSession) -> None:
    """Before the first start writes a role: none of ours is there that somebody else has made.

    Errors: ConfigurationError.
    """
    ours = [WORKER, *map(pg_role, BUILT_IN)]
    found = await session.scalars(text("SELECT rolname FROM pg_roles WHERE rolname = ANY(:n) ORDER BY 1"), {"n": ours})
    if names := [f'"{name}"' for name in found]:
        raise ConfigurationError(
            what="PostgreSQL has roles of names that are to be pgstream's",
            detail=f"They are: {', '.join(names)}.",
            hint="Rename them (ALTER ROLE … RENAME TO …), drop them, or use a PostgreSQL of pgstream's own.",
        )


_POWERS = """
SELECT rolname, concat_ws(', ', CASE WHEN rolsuper THEN 'SUPERUSER' END, CASE WHEN rolcreaterole THEN 'CREATEROLE' END,
    CASE WHEN rolbypassrls THEN 'BYPASSRLS' END, CASE WHEN rolreplication THEN 'REPLICATION' END,
    CASE WHEN rolcanlogin AND rolname <> :worker THEN 'LOGIN' END)
FROM pg_roles WHERE rolname = ANY(:names) ORDER BY 1"""


async def _check_powers(session: AsyncSession, roles: Iterable[str]) -> None:
    """Who may work in one of our roles, or becomes the worker, would have what the catalogue knows nothing of.

    Errors: ConfigurationError.
    """
    given = {"names": [WORKER, *map(pg_role, roles)], "worker": WORKER}
    found = [(name, powers) for name, powers in await session.execute(text(_POWERS), given) if powers]
    if found:
        name, powers = found[0]
        undo = " ".join(f"NO{power}" for power in powers.split(", "))
        raise ConfigurationError(
            what="a role of pgstream's has more rights in PostgreSQL than pgstream gave it",
            detail="; ".join(f'"{name}" has {powers}' for name, powers in found) + ".",
            hint=f"Take them back: ALTER ROLE {quote_always(name)} {undo};",
        )


async def sync_roles(session: AsyncSession, roles: Iterable[str], access: Access) -> None:
    """PostgreSQL's roles and memberships as the catalogue has them; those of others are nobody's business here."""
    present = {r for (r,) in await session.execute(text("SELECT rolname FROM pg_roles"))}
    known = [PUBLIC, *(r for r in roles if r != PUBLIC)]
    await _check_powers(session, known)
    for role in known:
        if pg_role(role) not in present:
            log.info("role created", role=role)
            await create_role(session, role)
    found = await session.execute(text(_MEMBERS))
    actual = {(role, member) for role, member in found}
    wanted = {(pg_role(m.role), m.member if m.is_user else pg_role(m.member)) for m in access.memberships}
    wanted |= {(pg_role(t.role), login) for login, t in access.tokens.items() if access.roles_of(login)}
    users = {m.member for m in access.memberships if m.is_user} | set(access.tokens)
    wanted |= {(EVERYBODY, m) for m in {*known, *users} - {PUBLIC}}
    wanted.add((OVERSIGHT, pg_role("sysadmin")))
    wanted = {w for w in wanted if w[1] in present or w[1] in map(pg_role, known)}
    for role, member in wanted - actual:
        await execute(session, f"GRANT {quote_always(role)} TO {quote_always(member)}")
    ours = {pg_role(r) for r in known}
    for role, member in actual - wanted:
        if role in ours and (member in ours or member in users):
            log.warning("left-over membership revoked", role=role, member=member)
            await execute(session, f"REVOKE {quote_always(role)} FROM {quote_always(member)}")


OVERSIGHT = "pg_read_all_stats"
"""PostgreSQL's own role that sysadmin has: it sees the statements of all users in pg_stat_activity. Other roles see
those of the session's own user (``activity``)."""
_MEMBERS = """
SELECT r.rolname, m.rolname FROM pg_auth_members a
JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member"""
_REASSIGN = "REASSIGN OWNED gives its tables to another role; DROP OWNED takes its privileges."


async def ensure_worker(conn: Connection, password: str) -> None:
    """Make the worker's role if it is missing. It may log in, and owns nothing but the state of views."""
    if not await has_role(conn, WORKER):
        verifier = quote_literal(scram(conn, WORKER, password))
        await run_unseen(conn, f"CREATE ROLE {WORKER} LOGIN NOINHERIT PASSWORD {verifier}")
    # As in ``Administrator.connect``: what it runs is PostgreSQL's own.
    await run(conn, f"ALTER ROLE {WORKER} SET search_path = pg_catalog")


async def ensure_first_user(conn: Connection, user: str, password: str) -> str | None:
    """Make the first user if it is missing. Returns the password if one had to be generated."""
    asked = await conn.execute("SELECT rolsuper, rolinherit FROM pg_roles WHERE rolname = %s", [user])
    found = await asked.fetchone()
    if user in BUILT_IN or user in (WORKER, EVERYBODY) or user.startswith("pg_") or (found and found[0]):
        raise ConfigurationError(
            what=f'setting "admin_user" cannot be "{user}": the name belongs to PostgreSQL or pgstream',
            hint="Choose another name for the first user.",
        )
    if found:
        if found[1]:
            await run(conn, f"ALTER ROLE {quote_always(user)} NOINHERIT")
        if password:
            log.info("first user exists, its password is kept", user=user)
        return None
    generated = None if password else secrets.token_urlsafe(16)
    # Nothing is inherited by a user: it works in the role that it takes.
    await run_unseen(conn, f"CREATE ROLE {quote_always(user)} LOGIN NOINHERIT {_secret(password or generated or '')}")
    log.info("first user created", user=user, generated=generated is not None)
    return generated
