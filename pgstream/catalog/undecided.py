"""Schemas that a client made in a transaction of its own which may not have ended: its end decides whether they stay.

Owns: the mark on such a schema in PostgreSQL, which outlives a crash, and how the transaction ended.
Must not know: rows of the catalogue, sessions. Start reading at ``mark``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from psycopg import errors as pg

from pgstream.catalog.postgres import Connection, run
from pgstream.names import quote_always as q
from pgstream.names import quote_literal

_PREFIX = "pgstream: made in transaction "
_MARKS = "SELECT nspname, obj_description(oid, 'pg_namespace') FROM pg_namespace"
ABORTED, COMMITTED, IN_PROGRESS = "aborted", "committed", "in progress"
"""What PostgreSQL says of a transaction, unless it is too old to be remembered: then nothing is dropped."""
WAIT_S = 10
HURRY = "SET LOCAL lock_timeout = '100ms'"
"""Before a lock on a schema: its holder may be a client's transaction that waits for a change itself, and changes take
turns."""
READ_ONLY = "SELECT current_setting('transaction_read_only') FROM pg_logical_emit_message(true, 'pgstream', '')"
"""Whether a client's transaction is read-only. The message, which nobody reads, gives its innermost savepoint an id."""
TRANSACTION = """
SELECT max(((top >> 32) + (low < (top & 4294967295))::int << 32) + low)::text
FROM (SELECT pg_current_xact_id()::text::bigint AS top, transactionid::text::bigint AS low FROM pg_locks
    WHERE locktype = 'transactionid' AND pid = pg_backend_pid() AND mode = 'ExclusiveLock') held"""
"""That id. Those of savepoints around it are smaller; a greater one was released, and so shares its end."""


def mark(schema: str, transaction: str) -> str:
    return f"COMMENT ON SCHEMA {q(schema)} IS {quote_literal(_PREFIX + transaction)}"


async def unmark(conn: Connection, schema: str) -> None:
    with suppress(pg.InvalidSchemaName):  # somebody has dropped it
        await run(conn, f"COMMENT ON SCHEMA {q(schema)} IS NULL")


async def marks(conn: Connection) -> dict[str, str]:
    """The marked schemas of a database, and their transactions."""
    found = await (await conn.execute(_MARKS)).fetchall()
    return {name: words.removeprefix(_PREFIX) for name, words in found if words and words.startswith(_PREFIX)}


async def end(conn: Connection, transaction: str, wait: bool) -> str | None:
    """How a transaction ended. ``wait``: its client is gone, so it will end soon."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while True:
        asked = await conn.execute("SELECT pg_xact_status(%s::text::xid8)", [transaction])
        found: str | None = (await asked.fetchone() or (None,))[0]
        if found != IN_PROGRESS or not wait or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(0.02)
