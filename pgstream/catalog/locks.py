"""What clients hold in a database, before a change of the catalogue takes its turn.

A client in a transaction holds the tables that it has read and the names of those it has made, for as long as it likes.
A change that waited for that in its turn would keep everybody's changes waiting. Owns: waiting for it outside.
Must not know: what the change is. Start reading at ``free``.
"""

from __future__ import annotations

import asyncio

import psycopg
import structlog
from psycopg import errors as pg

from pgstream.catalog import postgres
from pgstream.catalog.postgres import Administrator, Connection, relayed, run
from pgstream.names import quote_always as q

IN_TURN_MS = 1000
"""How long a change waits, in its turn, for what was free right before."""
log = structlog.get_logger(__name__)
_ATTEMPT_MS, _PAUSE_S = 250, 0.25  # who reads a table waits behind an attempt
_TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = coalesce(%s, c.relname) AND c.relkind IN ('r', 'p')"""


async def free(administrator: Administrator, database: str, schema: str, name: str | None) -> None:
    """Wait until nobody holds a table, or its name; without a name, until nobody holds a table of the schema.

    Errors: RelayedError (55P03) after ``LOCK_WAIT_S``.
    """
    deadline = asyncio.get_running_loop().time() + postgres.LOCK_WAIT_S
    async with administrator.connect(database) as conn:
        tables = await (await conn.execute(_TABLES.encode(), [schema, name])).fetchall()
        statement = f"LOCK TABLE {', '.join(f'{q(s)}.{q(t)}' for s, t in tables)} IN ACCESS EXCLUSIVE MODE"
        if not tables and name is None:
            return
        if not tables:
            statement = f"CREATE TABLE {q(schema)}.{q(name or '')} ()"
        while (held := await _held(conn, statement)) is not None:
            if asyncio.get_running_loop().time() > deadline:
                raise relayed(held) from None
            await asyncio.sleep(_PAUSE_S)


async def _held(conn: Connection, statement: str) -> pg.LockNotAvailable | None:
    """Whether somebody is in the way of a statement, of which nothing stays."""
    try:
        async with conn.transaction(force_rollback=True):
            await run(conn, f"SET LOCAL lock_timeout = '{_ATTEMPT_MS}ms'", statement)
    except pg.LockNotAvailable as e:
        return e
    except psycopg.Error as e:  # there is a view of that name, for one, or the table is gone: the change says so
        log.debug("not looked at before a change", statement=statement, error=str(e))
    return None
