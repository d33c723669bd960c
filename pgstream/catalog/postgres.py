"""Connections to PostgreSQL for the objects that are derived from the catalogue, and the roles behind them.

Owns: administrative connections, the translation of PostgreSQL's errors, built-in roles, the first user, the worker's
role. Passwords leave this process only as SCRAM verifiers, so neither a log nor ``pg_stat_statements`` holds one.
Must not know: rows of the catalogue. ``objects`` makes databases and relations. Start reading at ``Administrator``.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import structlog

from pgstream.errors import ConfigurationError, PgStreamError, RelayedError
from pgstream.names import quote_always, quote_literal

WORKER = "pgstream_worker"
# Built-in roles and the roles each of them inherits. PostgreSQL's own PUBLIC stands for the role "public".
BUILT_IN = {
    "useradmin": (),
    "sysadmin": (),
    "securityadmin": ("useradmin",),
    "orgadmin": ("sysadmin", "securityadmin"),
}
# What decides whether a user may come in through the front door; one row, or none for an unknown user.
# ``verifier``: PostgreSQL's, never of a superuser or of the worker. ``sure``: nothing that PostgreSQL looks at when a
# connection begins would refuse this one. ``mark`` changes when anything does that a connection takes from its begin:
# role, database, their settings, the configuration files.
ADMISSION = """
SELECT CASE WHEN may THEN a.rolpassword END AS verifier, may,
    a.rolconnlimit = -1 AND d.datallowconn AND d.datconnlimit = -1 AND has_database_privilege(a.oid, d.oid, 'CONNECT')
        IS TRUE AS sure,
    concat_ws(' ', a.oid, a.xmin, d.oid, d.xmin, pg_postmaster_start_time(), pg_conf_load_time(),
        (SELECT string_agg(concat_ws(',', s.xmin, s.setdatabase, s.setrole), ';' ORDER BY s.setdatabase, s.setrole)
         FROM pg_db_role_setting s WHERE s.setdatabase IN (0, d.oid) AND s.setrole IN (0, a.oid))) AS mark
FROM pg_authid a LEFT JOIN pg_database d ON d.datname = %(database)s
    CROSS JOIN LATERAL (SELECT a.rolcanlogin AND NOT a.rolsuper AND a.rolname <> %(worker)s
        AND (a.rolvaliduntil IS NULL OR a.rolvaliduntil > now()) AS may) m
WHERE a.rolname = %(user)s"""
log = structlog.get_logger(__name__)

Connection = psycopg.AsyncConnection[Any]


def relayed(e: psycopg.Error) -> PgStreamError:
    """An error of PostgreSQL as ours, with its code and words."""
    d = e.diag
    return RelayedError(
        code=e.sqlstate or "58000", text=d.message_primary or str(e), detail=d.message_detail, hint=d.message_hint
    )


async def run(conn: Connection, *statements: str) -> None:
    """Run statements that were built here from quoted names; errors stay psycopg's, for callers that know them."""
    for statement in statements:
        await conn.execute(statement.encode())


class Administrator:
    """Opens administrative connections, one a piece of work: DDL is rare, and idle connections cost memory."""

    def __init__(self, url: Callable[..., str]) -> None:
        self._url = url

    @asynccontextmanager
    async def connect(self, database: str) -> AsyncIterator[Connection]:
        """A connection in autocommit mode; any error of PostgreSQL inside becomes ours."""
        try:
            conn = await psycopg.AsyncConnection.connect(self._url(database), autocommit=True, connect_timeout=10)
            try:
                # Clients make functions and operators in schemas of the default search path: one that fits better than
                # PostgreSQL's own would run with our rights.
                await conn.execute("SET search_path = pg_catalog")
                yield conn
            finally:
                await conn.close()
        except psycopg.Error as e:
            raise relayed(e) from None


def scram(conn: Connection, user: str, password: str) -> str:
    """PostgreSQL's SCRAM-SHA-256 verifier of a password, computed on this side."""
    return conn.pgconn.encrypt_password(password.encode(), user.encode(), b"scram-sha-256").decode()


async def has_role(conn: Connection, name: str) -> bool:
    found = await conn.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name])
    return await found.fetchone() is not None


async def ensure_roles(conn: Connection) -> None:
    """Make the built-in roles that are missing."""
    for role, inherited in BUILT_IN.items():
        if await has_role(conn, role):
            continue
        async with conn.transaction():
            await run(conn, f"CREATE ROLE {role} NOLOGIN", *(f"GRANT {r} TO {role}" for r in inherited))


async def ensure_worker(conn: Connection, password: str) -> None:
    """Make the worker's role if it is missing. It may log in, and owns nothing but the state of views."""
    if not await has_role(conn, WORKER):
        verifier = quote_literal(scram(conn, WORKER, password))
        await run(conn, f"CREATE ROLE {WORKER} LOGIN NOINHERIT PASSWORD {verifier}")
    # As in ``Administrator.connect``: what it runs is PostgreSQL's own.
    await run(conn, f"ALTER ROLE {WORKER} SET search_path = pg_catalog")


async def set_worker_password(conn: Connection, password: str) -> None:
    await run(conn, f"ALTER ROLE {WORKER} PASSWORD {quote_literal(scram(conn, WORKER, password))}")


async def ensure_first_user(conn: Connection, user: str, password: str) -> str | None:
    """Make the first user if it is missing. Returns the password if one had to be generated."""
    found = await (await conn.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", [user])).fetchone()
    if user in BUILT_IN or user in (WORKER, "public") or user.startswith("pg_") or (found and found[0]):
        raise ConfigurationError(
            what=f'setting "admin_user" cannot be "{user}": the name belongs to PostgreSQL or pgstream',
            hint="Choose another name for the first user.",
        )
    if found:
        if password:
            log.info("first user exists, its password is kept", user=user)
        return None
    generated = None if password else secrets.token_urlsafe(16)
    verifier = quote_literal(scram(conn, user, password or generated or ""))
    async with conn.transaction():
        await run(
            conn,
            f"CREATE ROLE {quote_always(user)} LOGIN PASSWORD {verifier}",
            f"GRANT orgadmin TO {quote_always(user)}",
        )
    log.info("first user created", user=user, generated=generated is not None)
    return generated
