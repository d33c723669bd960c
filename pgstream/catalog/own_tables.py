"""How the server's own tables in the hidden schema go.

A client can read none of them, but name each by its number (``'16384'::regclass``), in a view, a default or an index of
its own: PostgreSQL would keep the table for that. Owns: dropping them all the same.
Must not know: what is in such a table. Start reading at ``drop``.
"""

from __future__ import annotations

import structlog
from psycopg import errors as pg

from pgstream.catalog.postgres import LOCK_WAIT_S, Connection, run

_WAIT_S = 2
# What is not the table's own (its type, indexes, sequence) and names it, or one of these.
_NAMING = """
WITH RECURSIVE own(class, id) AS (
    SELECT 'pg_class'::regclass::oid, to_regclass(%s)::oid
    UNION SELECT d.classid, d.objid FROM pg_depend d JOIN own ON (d.refclassid, d.refobjid) = (own.class, own.id)
    WHERE d.deptype <> 'n')
SELECT DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid)
FROM pg_depend d JOIN own ON (d.refclassid, d.refobjid) = (own.class, own.id) WHERE d.deptype = 'n' ORDER BY 1"""
log = structlog.get_logger(__name__)


async def drop(conn: Connection, *tables: str) -> None:
    """Drop tables, given by their quoted names, where there are any; inside the caller's transaction."""
    for table in tables:
        found = await (await conn.execute(_NAMING.encode(), [table])).fetchall()
        if found:
            log.warning("what names a table of the server goes with it", table=table, what=[w for (w,) in found])
            await _with_all(conn, table)
        else:
            await run(conn, f"DROP TABLE IF EXISTS {table}")


async def _with_all(conn: Connection, table: str) -> None:
    """With what names it. Where a client holds a lock on that, the table stays until a start drops it."""
    try:
        async with conn.transaction():
            await run(
                conn,
                f"SET LOCAL lock_timeout = '{_WAIT_S}s'",
                f"DROP TABLE {table} CASCADE",
                f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'",
            )
    except pg.LockNotAvailable:
        log.warning("left-over kept that is in use", what=table)
