"""Retention of materialized views: which rows are over, and their end.

Owns: the SQL that finds and deletes them. A row's age is told by the column named at creation, else by when it was
last written, which PostgreSQL knows with ``track_commit_timestamp``.
Must not know: when this is done (``engine.retention``). Start reading at ``expire``.
"""

from __future__ import annotations

from pgstream.catalog import view_logs
from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import Connection
from pgstream.catalog.records import RelationRecord
from pgstream.names import quote_always as q

RETENTION, TIMESTAMP = "retention.millis", "timestamp"
_AT_ONCE = 20_000
_EVER_MS = 10**14
"""Some 3,000 years: PostgreSQL has no times that are much older."""


async def is_tracked(conn: Connection) -> bool:
    """Whether PostgreSQL knows when a row was written."""
    found = await conn.execute("SELECT current_setting('track_commit_timestamp')")
    row = await found.fetchone()
    return row is not None and row[0] == "on"


async def expire(conn: Connection, record: RelationRecord) -> int:
    """Delete a view's rows that are over, some at a time; how many. Rows that a batch is writing stay for the next
    time: nobody waits for a row here, so there is no deadlock with the query. Where queries read the view, deletes take
    turns with its query by the row of the ledger (``view_logs``): that is locked first, as everybody does.
    """
    over = await _over(conn, record)
    if over is None:
        return 0
    table = f"{q(record.full.schema)}.{q(record.full.name)}"
    some = f"SELECT ctid FROM {table} WHERE {over} LIMIT {_AT_ONCE} FOR UPDATE SKIP LOCKED"
    total = 0
    while True:
        async with conn.transaction():
            if await view_logs.readers(conn, record.full):
                await conn.execute(
                    f"SELECT FROM {STATE}.ledger WHERE query = %s::uuid FOR UPDATE".encode(), [record.query]
                )
            gone = await conn.execute(f"DELETE FROM {table} WHERE ctid = ANY (ARRAY({some}))".encode())
        total += gone.rowcount
        if gone.rowcount < _AT_ONCE:
            return total


async def leave_out(conn: Connection, record: RelationRecord, table: str) -> None:
    """Delete what is over of the rows that a view is to have, from the table that has them; inside the caller's
    transaction.
    """
    if (over := await _over(conn, record)) is not None:
        await conn.execute(f"DELETE FROM {table} WHERE {over}".encode())


async def _over(conn: Connection, record: RelationRecord) -> str | None:
    """The condition of a row that is over; None where rows are kept for ever, or nobody knows how old they are."""
    kept = record.properties.get(RETENTION)
    if kept is None or int(kept) > _EVER_MS or (TIMESTAMP not in record.properties and not await is_tracked(conn)):
        return None
    border = f"now() - {int(kept)} * interval '1 millisecond'"
    name = record.properties.get(TIMESTAMP)
    if name is None:
        # NULL: written before anything that PostgreSQL still remembers.
        return f"COALESCE(pg_xact_commit_timestamp(xmin), '-infinity') < {border}"
    type_ = next(c.type.name for c in record.columns if c.name == name)
    if type_ == "BIGINT":
        return f"{q(name)} < floor(extract(epoch FROM {border}) * 1000)"
    return f"{q(name)} < ({border}) AT TIME ZONE 'UTC'" if type_ == "TIMESTAMP" else f"{q(name)} < {border}"
