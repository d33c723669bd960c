"""Logins with which workers read for a role: what a continuous query looks up is read with its owner's rights.

Owns: the login ``pgstream_worker~role`` of each role whose queries look something up. It may take that role and nothing
else, so whatever runs in its session can do no more than the role. Its password is made of the worker's.
Must not know: what is read. Start reading at ``Readers.ensure``.
"""

from __future__ import annotations

import asyncio
import hmac

from psycopg import errors as pg

from pgstream.catalog.postgres import Administrator, Connection, has_role, run, run_unseen, scram
from pgstream.catalog.roles import pg_role, reader
from pgstream.names import quote_always, quote_literal


class Readers:
    """The logins that this server has made sure of."""

    def __init__(self, administrator: Administrator, secret: str) -> None:
        self._administrator = administrator
        self._secret = secret
        self._making = asyncio.Lock()

    def password(self, role: str) -> str:
        return hmac.digest(self._secret.encode(), b"pgstream reader " + role.encode(), "sha256").hex()

    async def ensure(self, role: str) -> None:
        """Make a role's login, or give it its password and role again."""
        async with self._making, self._administrator.connect("postgres") as conn:
            await _ensure(conn, role, self.password(role))


async def _ensure(conn: Connection, role: str, password: str) -> None:
    name = quote_always(reader(role))
    member = await conn.execute(
        "SELECT FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member"
        " WHERE r.rolname = %s AND m.rolname = %s",
        [pg_role(role), reader(role)],
    )
    if await member.fetchone() is not None:
        return
    if not await has_role(conn, reader(role)):
        try:
            await run(conn, f"CREATE ROLE {name} LOGIN NOINHERIT")
        except pg.DuplicateObject:
            pass  # another server was faster
    verifier = quote_literal(scram(conn, reader(role), password))
    await run_unseen(conn, f"ALTER ROLE {name} PASSWORD {verifier}", f"GRANT {quote_always(pg_role(role))} TO {name}")
