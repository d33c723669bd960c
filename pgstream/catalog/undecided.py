"""Schemas that a client made in a transaction of its own which may not have ended: its end decides whether they stay.

Owns: the mark on such a schema in PostgreSQL, which outlives a crash, and how the transaction ended.
Must not know: rows of the catalogue, sessions. Start reading at ``mark``.
"""

from __future__ import annotations

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
# Asked in a client's session, whose search path may have functions, types and operators of its own before ours: each
# name says where it is.
READ_ONLY = """
SELECT pg_catalog.current_setting('transaction_read_only')
FROM pg_catalog.pg_logical_emit_message(true, 'pgstream', '')"""
"""Whether a client's transaction is read-only. The message, which nobody reads, gives its innermost savepoint an id."""
TRANSACTION = """
SELECT pg_catalog.max(epoch OPERATOR(pg_catalog.*) 4294967296 OPERATOR(pg_catalog.+) low)::pg_catalog.text
FROM (
    SELECT low, (top OPERATOR(pg_catalog.>>) 32) OPERATOR(pg_catalog.+)
        CASE WHEN low OPERATOR(pg_catalog.<) (top OPERATOR(pg_catalog.&) 4294967295) THEN 1 ELSE 0 END AS epoch
    FROM (
        SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text::pg_catalog.int8 AS top,
            transactionid::pg_catalog.text::pg_catalog.int8 AS low
        FROM pg_catalog.pg_locks
        WHERE locktype OPERATOR(pg_catalog.=) 'transactionid' AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
            AND mode OPERATOR(pg_catalog.=) 'ExclusiveLock') AS held) AS whole"""
"""That id. Those of savepoints around it are smaller; a greater one was released, and so shares its end."""


def mark(schema: str, transaction: str) -> str:
    return _commented(schema, _PREFIX + transaction)


async def unmark(conn: Connection, schema: str) -> None:
    with suppress(pg.InvalidSchemaName):  # somebody has dropped it
        _, words = (await _marked(conn)).get(schema, ("", ""))
        await run(conn, _commented(schema, words))


async def describe(conn: Connection, schema: str, words: str) -> None:
    """What clients see as the schema's comment, after the mark as long as there is one."""
    transaction, _ = (await _marked(conn)).get(schema, ("", ""))
    marked = f"{_PREFIX}{transaction}\n" if transaction else ""
    await run(conn, _commented(schema, marked + words))


def is_mark(words: str) -> bool:
    return words.startswith(_PREFIX)


async def marks(conn: Connection) -> dict[str, str]:
    """The marked schemas of a database, and their transactions."""
    return {name: transaction for name, (transaction, _) in (await _marked(conn)).items()}


async def _marked(conn: Connection) -> dict[str, tuple[str, str]]:
    """By schema: the transaction, and what clients said of the schema meanwhile."""
    found = await (await conn.execute(_MARKS)).fetchall()
    said = ((name, words.removeprefix(_PREFIX).partition("\n")) for name, words in found if words and is_mark(words))
    return {name: (transaction, words) for name, (transaction, _, words) in said}


def _commented(schema: str, words: str) -> str:
    return f"COMMENT ON SCHEMA {q(schema)} IS {quote_literal(words) if words else 'NULL'}"


async def end(conn: Connection, transaction: str) -> str | None:
    """How a transaction ended; None of what is none that PostgreSQL has had, as in a mark of another's or of a dump."""
    try:
        async with conn.transaction():
            asked = await conn.execute("SELECT pg_xact_status(%s::text::xid8)", [transaction])
            found: str | None = (await asked.fetchone() or (None,))[0]
    except pg.DataError:
        return None
    return found
