"""View logs: the changes of a materialized view that a query has still to read.

A query that reads a view has a table of its own in the hidden schema. Triggers write each change of the view into it,
in the change's transaction; the view's rows of the query's first moment stand before them. Who writes a view holds its
row of the ledger from its first statement to its end, so the numbers in a log are in the order of the commits.
Owns: making a log and its triggers, their repair, and their end. PostgreSQL takes the triggers for internal ones, so
that a dump of the view names nothing that another PostgreSQL lacks (docs/decisions/0007).
Must not know: who reads a log (``spark/kernel/ViewSource.scala``). Start reading at ``create``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from psycopg import errors as pg

from pgstream.catalog import own_tables
from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import DEFINER, WORKER, Connection, run
from pgstream.catalog.records import RelationRecord
from pgstream.names import FullName, quote_literal, view_log
from pgstream.names import quote_always as q

_FUNCTION = f"""
CREATE OR REPLACE FUNCTION {STATE}.log_changes() RETURNS trigger
LANGUAGE plpgsql SET {DEFINER} AS $$
BEGIN
    IF TG_WHEN = 'BEFORE' THEN
        PERFORM FROM {STATE}.ledger WHERE query = TG_ARGV[1]::uuid FOR UPDATE;
    ELSE
        EXECUTE format('INSERT INTO {STATE}.%I SELECT *, %L::boolean FROM changed', TG_ARGV[0], TG_OP = 'DELETE');
    END IF;
    RETURN NULL;
END $$"""
_HIDDEN = (
    "__delete boolean NOT NULL, __time timestamptz NOT NULL DEFAULT clock_timestamp(),"
    " __tx xid8 NOT NULL DEFAULT pg_current_xact_id(), __seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
)
# Clients' own triggers may be called anything.
_OURS = f"""
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.tgfoid = to_regproc('{STATE}.log_changes')"""
_TRIGGERS = f"""
SELECT n.nspname, c.relname, t.tgname, t.tgenabled <> 'D' {_OURS} AND starts_with(t.tgname, %s) ORDER BY 1, 2, 3"""
_LOGS = f"""
SELECT relname, pg_total_relation_size(oid) FROM pg_class
WHERE relnamespace = '{STATE}'::regnamespace AND relkind = 'r' AND starts_with(relname, %s)"""
_READERS = f"""
SELECT DISTINCT split_part(t.tgname, '_', 2)::uuid::text {_OURS}
    AND n.nspname = %s AND c.relname = %s AND t.tgenabled <> 'D' ORDER BY 1"""
_MARK = "c_"
_PREFIX, _VIEW = len(view_log("0" * 32)), len(view_log(""))


async def hold_writer(conn: Connection, view: RelationRecord) -> None:
    """Let who writes a view wait for the end of the caller's transaction, by its row of the ledger, which it takes
    first: one that writes several views is not met in the midst of them.
    """
    await conn.execute(f"SELECT FROM {STATE}.ledger WHERE query = %s::uuid FOR UPDATE".encode(), [view.query])


async def create(conn: Connection, query: str, view: RelationRecord) -> None:
    """Begin to log a view's changes for a query, after the rows that it has. Inside the caller's transaction, which
    waits for the end of a batch that is being written; readers of the view do not wait.
    """
    name = view_log(query, view.id)
    table, rows = _of(name, view)
    await run(
        conn,
        _FUNCTION,
        # Not the worker's: the superuser writes into views, too.
        f"ALTER FUNCTION {STATE}.log_changes() OWNER TO CURRENT_USER",
        *table,
        f"LOCK TABLE {_table(view)} IN SHARE ROW EXCLUSIVE MODE",
        *_made(name, view).values(),
        _internal(name, view),
        rows,
    )


async def copy(conn: Connection, query: str, view: RelationRecord) -> int:
    """A log of the rows that a view has, to which nothing is added; how many they are, and the number of the last.
    Inside the caller's transaction, whose snapshot says which rows."""
    table, rows = _of(view_log(query, view.id), view)
    await run(conn, *table)
    return (await conn.execute(rows.encode())).rowcount


async def is_read(conn: Connection, query: str, view: RelationRecord, until: int) -> bool:
    """Whether a view has no changes for a query beyond a place in its log."""
    sql = f"SELECT FROM {STATE}.{q(view_log(query, view.id))} WHERE __seq > %s LIMIT 1"
    return (await conn.execute(sql.encode(), [until])).rowcount == 0


def _of(name: str, view: RelationRecord) -> tuple[list[str], str]:
    """The statements that make a log, and the one that writes into it the rows of now."""
    log = f"{STATE}.{q(name)}"
    made = [f"CREATE TABLE {log} (LIKE {_table(view)}, {_HIDDEN})", f"ALTER TABLE {log} OWNER TO {WORKER}"]
    return made, f"INSERT INTO {log} SELECT *, false FROM {_table(view)}"


def _table(view: RelationRecord) -> str:
    return f"{q(view.full.schema)}.{q(view.full.name)}"


def _made(log: str, view: RelationRecord) -> dict[str, str]:
    """The triggers of a log by name, and the statements that make them."""
    table = _table(view)
    call = f"EXECUTE FUNCTION {STATE}.log_changes({quote_literal(log)}, {quote_literal(view.query or '')})"
    changed = {"DELETE": "OLD", "INSERT": "NEW", "UPDATE": "NEW"}
    if view.mode == "append":  # what retention takes away has still come
        del changed["DELETE"]
    first = f"CREATE TRIGGER {q(log + '_b')} BEFORE {' OR '.join(changed)} ON {table} FOR EACH STATEMENT {call}"
    return {f"{log}_b": first} | {
        (name := f"{log}_{what[0].lower()}"): f"CREATE TRIGGER {q(name)} AFTER {what} ON {table}"
        f" REFERENCING {rows} TABLE AS changed FOR EACH STATEMENT {call}"
        for what, rows in changed.items()
    }


async def take_turns_with(conn: Connection, view: RelationRecord) -> None:
    """Let the writers of a view wait for the ledger row of its new query: readers go on with the logs that they have.
    Inside the caller's transaction; waits for who writes the view.
    """
    of = view.full.schema, view.full.name
    for schema, name, trigger, on in await _rows(conn, _TRIGGERS, _MARK):
        if on and (schema, name) == of and trigger.endswith("_b"):
            made = _made(log := trigger[:-2], view)[trigger]
            visible = _internal(log, view).replace("tgisinternal = true", "tgisinternal = false")
            anew = made.replace("CREATE TRIGGER", "CREATE OR REPLACE TRIGGER", 1)
            await run(conn, visible, anew, _internal(log, view))


def _internal(log: str, view: RelationRecord) -> str:
    return (
        f"UPDATE pg_trigger SET tgisinternal = true WHERE tgrelid = {quote_literal(_table(view))}::regclass"
        f" AND starts_with(tgname, {quote_literal(log)})"
    )


async def drop(conn: Connection, query: str) -> bool:
    """End a query's logs; whether there were any. Nobody who reads the view waits for it."""
    return await _drop(conn, view_log(query))


async def readers(conn: Connection, view: FullName) -> list[str]:
    """The ids of the queries that read a view's changes."""
    found = await conn.execute(_READERS.encode(), [view.schema, view.name])
    return [id for (id,) in await found.fetchall()]


async def newest(conn: Connection, logs: Mapping[str, str]) -> dict[str, int]:
    """The number of the newest change of each view in a query's log. ``logs``: views by log, all of one database."""
    found = {}
    for log, view in logs.items():
        row = await (await conn.execute(f"SELECT coalesce(max(__seq), 0) FROM {STATE}.{q(log)}".encode())).fetchone()
        found[view] = int(row[0]) if row is not None else 0
    return found


async def sizes(conn: Connection, query: str) -> dict[str, int]:
    """The bytes of each of a query's logs."""
    return dict(await _rows(conn, _LOGS, view_log(query)))


async def heal(conn: Connection, live: Collection[str], relations: Iterable[RelationRecord]) -> list[str]:
    """Drop what was left over by queries that are none of these, or whose log was given up; set the triggers of the
    others again where a view has lost them, with its table. Says what it did.
    """
    kept = {view_log(id) for id in live}
    logs = dict(await _rows(conn, _LOGS, _MARK))
    triggers = await _rows(conn, _TRIGGERS, _MARK)
    stray = {n[:-2] for _, _, n, _ in triggers} - logs.keys()
    over = {n[:_PREFIX] for n in (*logs, *(t[2] for t in triggers))} - kept
    for prefix in sorted(over | stray):
        await _drop(conn, prefix)
    done = [f"left-over view log {prefix} dropped" for prefix in sorted(over)]
    views = {view_log("", r.id)[_VIEW:]: r for r in relations if r.kind == "materialized_view"}
    for log in sorted(n for n in logs if n[:_PREFIX] in kept):
        if (view := views.get(log[_PREFIX:])) is not None and await _set(conn, log, view, triggers):
            done.append(f"view log {log} of {view.full} goes on")
    return done


async def _set(conn: Connection, log: str, view: RelationRecord, triggers: list[tuple[Any, ...]]) -> bool:
    """Make a log's triggers that its view lacks; whether there were any."""
    made = _made(log, view)
    of = view.full.schema, view.full.name
    missing = made.keys() - {name for schema, table, name, on in triggers if on and (schema, table) == of}
    if missing:
        async with conn.transaction():
            await run(conn, *(f"DROP TRIGGER IF EXISTS {q(n)} ON {_table(view)}" for n in sorted(missing)))
            await run(conn, *(made[n] for n in sorted(missing)), _internal(log, view))
    return bool(missing)


async def _rows(conn: Connection, sql: str, prefix: str) -> list[tuple[Any, ...]]:
    return await (await conn.execute(sql.encode(), [prefix])).fetchall()


async def _drop(conn: Connection, prefix: str) -> bool:
    """Disabled first: a trigger that is dropped waits for all who read its table, and others wait behind."""
    triggers = await _rows(conn, _TRIGGERS, prefix)
    logs = await _rows(conn, _LOGS, prefix)
    async with conn.transaction():
        for schema, table, trigger, enabled in triggers:
            if enabled:
                await run(conn, f"ALTER TABLE {q(schema)}.{q(table)} DISABLE TRIGGER {q(trigger)}")
        await own_tables.drop(conn, *(f"{STATE}.{q(log)}" for log, _ in logs))
    try:
        async with conn.transaction():
            await run(conn, "SET LOCAL lock_timeout = '50ms'")
            for schema, table, trigger, _ in triggers:
                await run(conn, f"DROP TRIGGER {q(trigger)} ON {q(schema)}.{q(table)}")
    except pg.LockNotAvailable:
        pass  # the next start does it; until then it does nothing
    return bool(logs)
