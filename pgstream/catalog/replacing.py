"""Replacing the query of a materialized view: the new one fills a table beside the view, then the view becomes like it.

A query that is to replace another is one whose plan keeps the view while the view's record names another query. The
view stays the same table throughout, so that grants, indexes, policies, views over it and publications stay, too; it is
changed in one transaction, in which both queries stand still (docs/decisions/0045).
Owns: what PostgreSQL has of it: the table beside, the ledger's rows, the exchange.
Must not know: when (``engine.replacements``), rows of the catalogue. Start reading at ``exchange``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

import psycopg

from pgstream.catalog import difference, expiry, ledger, objects, own_tables, view_logs
from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import Connection, run
from pgstream.catalog.records import RelationRecord
from pgstream.names import beside, quote_literal
from pgstream.names import quote_always as q

_LOOK_S = 0.05
_READERS_WAIT_S, _READERS_GO_S = 0.25, 0.5
"""Who asks for a view while the exchange waits for it alone waits, too: so short, and then has it for so long."""
Consumed = list[dict[str, Any]]
Enough = Callable[[Consumed, Consumed], bool]
Waiting = Callable[[], Awaitable[Mapping[str, int]]]


async def begin(conn: Connection, query: str, view: RelationRecord) -> None:
    """Make the table beside a view, of the new columns and mode; inside the caller's transaction."""
    await run(
        conn,
        *objects.table(view, beside(query)),
        f"INSERT INTO {STATE}.ledger (query, batch, attempt) VALUES ({quote_literal(query)}, -1, 0)",
    )


async def end(conn: Connection, query: str, view: RelationRecord, *, alone: bool) -> None:
    """A query that does not keep a view, any more or at all, is over: what was its own goes, unless it has come to keep
    the view meanwhile. ``alone``: no other one
    is filling a table beside the view, so that of a worker's staging tables for such tables none is in use; the one of
    a query that has taken over may have stayed, where its worker could not drop it.
    """
    own = f"query = '{query}'::uuid AND (sink = '' OR attempt = {ledger.NEVER})"
    await run(conn, f"DELETE FROM {STATE}.ledger WHERE {own}")
    await own_tables.drop(conn, beside(query))
    if alone:
        await objects.drop_staging(conn, view.id, "r_")


async def consumed(conn: Connection, queries: Collection[str]) -> dict[str, tuple[int, Consumed]]:
    """The last batch of each query, and how far it had read its sources by then."""
    found = await conn.execute(
        f"SELECT query::text, batch, consumed FROM {STATE}.ledger WHERE query = ANY (%s::uuid[])".encode(),
        [list(queries)],
    )
    return {query: (batch, at or []) for query, batch, at in await found.fetchall()}


async def exchange(
    conn: Connection,
    before: RelationRecord,
    after: RelationRecord,
    attempt: int,
    enough: Enough,
    *,
    waiting: Waiting,
    indexes: Iterable[str],
    within_s: float,
) -> bool:
    """Make the view what the new query's table is; inside the caller's transaction. False: the new query is not as far
    as the old one, and nothing was done.

    ``attempt``: the last start of the new query, which is fenced. ``waiting``: how far the views that the new query
    reads have been changed. ``indexes``: the names of those that clients made.
    Whoever writes the view waits meanwhile; who reads it does not, unless its columns or its key change.
    """
    old, new = before.query or "", after.query or ""
    await run(
        conn,
        f"SET LOCAL lock_timeout = '{within_s}s'",
        f"SELECT FROM {STATE}.ledger WHERE query = '{old}'::uuid FOR UPDATE",
    )
    if not await _caught_up(conn, old, new, enough, newest=await waiting(), within_s=within_s):
        return False
    await run(conn, f"SELECT FROM {STATE}.ledger WHERE query = '{new}'::uuid FOR UPDATE")
    table = ledger.table(before)
    await expiry.leave_out(conn, after, beside(new))
    if same_shape(before, after):
        await difference.bring(conn, after, table, beside(new))
    else:
        await _reshape(conn, before, after, set(indexes), within_s)
    await view_logs.take_turns_with(conn, after)
    await run(
        conn,
        f"UPDATE {STATE}.ledger SET sink = '', attempt = {ledger.NEVER} WHERE query = '{old}'::uuid",
        f"UPDATE {STATE}.ledger SET sink = {quote_literal(table)}, attempt = greatest(attempt, {attempt}) + 1"
        f" WHERE query = '{new}'::uuid",
    )
    await own_tables.drop(conn, beside(new))
    for channel in {v.properties[ledger.NOTIFY] for v in (before, after) if ledger.NOTIFY in v.properties}:
        await _tell(conn, channel, after)
    return True


async def _tell(conn: Connection, channel: str, view: RelationRecord) -> None:
    """Who listens for a view's changes hears of this one, as of a batch: of the last one that is in it now."""
    told = """'{"view":' || to_json(%s::text) || ',"batch":' || batch || '}'"""
    await conn.execute(
        f"SELECT pg_notify(%s, {told}) FROM {STATE}.ledger WHERE query = %s::uuid".encode(),
        [channel, str(view.full), view.query],
    )


async def _caught_up(
    conn: Connection, old: str, new: str, enough: Enough, *, newest: Mapping[str, int], within_s: float
) -> bool:
    """Wait for the new query, which goes on, to pass the place of the old one, which stands."""
    end = asyncio.get_running_loop().time() + within_s
    while True:
        found = await consumed(conn, (old, new))
        at = found.get(new, (-1, []))[1]
        read = {view: int(n) for s in at if s["store"] == "" for view, of in s["at"].items() for n in of.values()}
        past = all(read.get(view, 0) >= n for view, n in newest.items())
        if past and enough(found.get(old, (-1, []))[1], at):
            return True
        if asyncio.get_running_loop().time() >= end:
            return False
        await asyncio.sleep(_LOOK_S)


def same_shape(one: RelationRecord, other: RelationRecord) -> bool:
    """Whether two records of a view are of the same columns, key and mode."""
    return _shape(one) == _shape(other)


def _shape(view: RelationRecord) -> tuple[object, ...]:
    return view.mode, view.primary_key, tuple((c.name, c.type.pg) for c in view.columns)


def follows(before: RelationRecord, after: RelationRecord) -> bool:
    """Whether queries that read the view's changes go on: its shape stays, and rows that go are told to them."""
    return same_shape(before, after) and before.mode != "append"


async def _have_alone(conn: Connection, table: str, within_s: float) -> None:
    """Lock a table against all others, also readers; inside the caller's transaction.

    A transaction that has read it may stay open, and who comes after us waits behind us: each attempt is short.
    """
    end = asyncio.get_running_loop().time() + within_s
    while True:
        try:
            async with conn.transaction():  # a savepoint: what the failed attempt waited for is let go
                await run(
                    conn,
                    f"SET LOCAL lock_timeout = '{_READERS_WAIT_S}s'",
                    f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
                    f"SET LOCAL lock_timeout = '{within_s}s'",
                )
                return
        except psycopg.errors.LockNotAvailable:
            if asyncio.get_running_loop().time() >= end:
                raise
        await asyncio.sleep(_READERS_GO_S)


async def _reshape(
    conn: Connection, before: RelationRecord, after: RelationRecord, indexes: set[str], within_s: float
) -> None:
    """New columns at the end, or another key: all rows anew. Readers wait for the end of the transaction."""
    table, listed = ledger.table(before), ", ".join(q(c.name) for c in after.columns)
    more = after.columns[len(before.columns) :]
    found = await conn.execute(
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %s::regclass",
        [table],
    )
    ours = [name for (name,) in await found.fetchall() if name not in indexes]
    await _have_alone(conn, table, within_s)
    await run(
        conn,
        *(f"DROP INDEX {q(before.full.schema)}.{q(name)}" for name in ours),
        *(f"ALTER TABLE {table} ADD COLUMN {q(c.name)} {c.type.pg}" for c in more),
        f"DELETE FROM {table}",
        f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {beside(after.query or '')}",
        *objects.indexes(after, table),
    )


async def done(conn: Connection, views: Mapping[str, RelationRecord]) -> dict[str, RelationRecord]:
    """Exchanges that the catalogue has not heard of: views by the query that keeps them now. ``views``: by query.

    There the query that the catalogue names keeps nothing any more. Where it does, another row of that view was left
    over by a view of the same name.
    """
    by_table = {ledger.table(v): v for v in views.values()}
    asked = await conn.execute(
        f"SELECT sink, query::text FROM {STATE}.ledger WHERE sink <> '' AND attempt <> {ledger.NEVER}".encode()
    )
    found = set(await asked.fetchall())
    return {
        query: view
        for sink, query in found
        if (view := by_table.get(sink)) is not None and (sink, view.query) not in found
    }
