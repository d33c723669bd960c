"""Bringing PostgreSQL's objects back to what the catalogue says, after a crash between the two.

Owns: the comparison of one database with its records. What is missing is made, what is left over is dropped; ordinary
tables that clients made are nobody's business here. Must not know: who changed what, or when.
Start reading at ``heal_database``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import psycopg
import structlog
from psycopg import errors as pg

from pgstream.catalog import acl, activity, ledger, objects, policies, replacing, view_logs
from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import WORKER, Connection, run
from pgstream.catalog.privileges import Access
from pgstream.catalog.records import RelationRecord, SchemaRecord
from pgstream.catalog.upgrade import upgrade
from pgstream.errors import PgStreamError
from pgstream.names import quote_always as q
from pgstream.names import quote_literal

log = structlog.get_logger(__name__)

# What belongs to the worker's role outside the hidden schema is ours: clients cannot make such a thing. Then whether it
# may be the index by which a view's query finds the rows that it takes back, and of which view.
_OURS = f"""
SELECT n.nspname, c.relname, c.relkind::text, obj_description(c.oid, 'pg_class'),
    coalesce(starts_with(pg_get_expr(i.indexprs, i.indrelid), 'hash_record('), false), t.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.indrelid
WHERE (c.relkind IN ('r', 'v') OR c.relkind = 'i' AND NOT i.indisunique)
    AND c.relowner = (SELECT oid FROM pg_roles WHERE rolname = '{WORKER}')
    AND n.nspname !~ '^pg_'"""
_WORDS = {"r": "TABLE", "v": "VIEW", "i": "INDEX"}
_TABLES = f"SELECT relname FROM pg_class WHERE relnamespace = '{STATE}'::regnamespace AND relkind = 'r'"
_SCHEMAS = "SELECT nspname FROM pg_namespace"
_WAIT_MS = 1000


async def _column(conn: Connection, sql: str) -> set[str]:
    return {r[0] for r in await (await conn.execute(sql.encode())).fetchall()}


async def heal_database(
    conn: Connection,
    name: str,
    schemas: Iterable[SchemaRecord],
    relations: Iterable[RelationRecord],
    access: Access,
    *,
    live: Collection[str],
) -> list[str]:
    """Make one database what its records say; says what it did. Quick when there is nothing to do: ten reads.
    ``live``: queries that have not ended.
    """
    done: list[str] = []
    schemas, relations = list(schemas), list(relations)
    await upgrade(conn, relations)
    await objects.furnish_database(conn, name)
    await activity.ensure(conn)
    await ledger.ensure(conn)
    present = await _column(conn, _SCHEMAS)
    for schema in schemas:
        if schema.name not in present:
            done.append(f"schema {name}.{schema.name} made again")
            await objects.ensure_schema(conn, schema.name, schema.owner)
    records = {(r.full.schema, r.full.name): r for r in relations}
    found, finding = dict[tuple[str, str], tuple[str, str | None]](), set[tuple[str, str]]()
    for s, n, kind, words, finds, of in await (await conn.execute(_OURS.encode())).fetchall():
        if finds and (s, n) not in records:
            finding.add((s, of))
        else:
            found[s, n] = kind, words
    await _drop_left_over(conn, name, records, found, done, live=live)
    # Indexes after the tables that they are on.
    for key, record in sorted(records.items(), key=lambda r: r[1].kind == "index"):
        if key not in found:
            if await _made(conn, record):
                done.append(f"{record.label} {record.full} made again")
        elif record.kind != "index" and found[key][1] != objects.comment(record):
            done.append(f"comment on {record.full} made again")
            await run(conn, objects.described(record))
    for key, record in records.items():
        if "\\" in str(record.full) and objects.relkind(record) == "v" and key in found:
            done += await _said_anew(conn, record)
        if record.mode == "retract" and (record.full.schema, record.full.name) not in finding:
            done += await _made_findable(conn, record)
    done += await acl.heal(conn, schemas, relations, access)
    done += await policies.heal(conn, relations)
    done += await view_logs.heal(conn, live, relations)
    await ledger.heal(conn, relations)
    done += await _drop_rows(conn, name, relations, live)
    for words in done:
        log.warning("repaired", what=words)
    return done


async def _said_anew(conn: Connection, record: RelationRecord) -> list[str]:
    """Views of an earlier version hold a name with a backslash as some sessions of those who read them do not read it.
    Says what it did.
    """
    asked, view = b"SELECT pg_get_viewdef(%s::regclass)", [ledger.table(record)]
    try:
        async with conn.transaction() as whole:
            await run(conn, f"SET LOCAL lock_timeout = '{_WAIT_MS}ms'")
            before = await (await conn.execute(asked, view)).fetchone()
            await run(conn, objects.unreadable(record, anew=True))
            if await (await conn.execute(asked, view)).fetchone() == before:
                raise psycopg.Rollback(whole)
            return [f"{record.label} {record.full} made anew"]
    except pg.LockNotAvailable:
        log.warning("view not made anew that is in use", relation=str(record.full))
    return []


async def _made_findable(conn: Connection, view: RelationRecord) -> list[str]:
    """Make the index again that keeping a view needs; one that is just made has it. Says what it did."""
    asked = await conn.execute(
        "SELECT FROM pg_index WHERE indrelid = %s::regclass AND starts_with(pg_get_expr(indexprs, indrelid), %s)",
        [ledger.table(view), "hash_record("],
    )
    if await asked.fetchone() is not None:
        return []
    try:
        async with conn.transaction():
            made = objects.indexes(view, ledger.table(view))
            await run(conn, f"SET LOCAL lock_timeout = '{_WAIT_MS}ms'", *made)
    except pg.LockNotAvailable:
        log.warning("index not made again of a view that is being written", view=str(view.full))
        return []
    return [f"index of {view.full} made again"]


async def _drop_rows(
    conn: Connection, name: str, relations: Iterable[RelationRecord], live: Collection[str]
) -> list[str]:
    """Drop from the ledger what a view has left that never came to be, or went. Says what it did."""
    kept = {r.query: r for r in relations if r.kind == "materialized_view" and r.query is not None}
    unfinished = await replacing.done(conn, kept)
    gone = await ledger.drop_others(conn, {*live, *kept, *unfinished})
    return [f"left-over row of query {query} in the ledger of {name} dropped" for query in gone]


async def _made(conn: Connection, record: RelationRecord) -> bool:
    """Whether it could be made. An index that cannot, as when what it names is gone, keeps nobody from starting."""
    try:
        async with conn.transaction():
            await objects.create_relation(conn, record)
    except PgStreamError as e:
        if record.kind != "index":
            raise
        log.warning("index is missing and cannot be made; drop it, or restart when it can", index=str(record.full),
                    why=str(e))  # fmt: skip
        return False
    return True


async def _drop_left_over(
    conn: Connection,
    name: str,
    records: dict[tuple[str, str], RelationRecord],
    found: dict[tuple[str, str], tuple[str, str | None]],
    done: list[str],
    *,
    live: Collection[str],
) -> None:
    """``found``: PostgreSQL's kind of it and its comment, by schema and name. ``live``: ids of queries."""
    alive = {id.replace("-", "") for id in live}
    for (schema, relation), (kind, _) in list(found.items()):
        record = records.get((schema, relation))
        if record is None or kind != objects.relkind(record):
            if await _dropped(conn, f"{_WORDS[kind]} IF EXISTS {q(schema)}.{q(relation)}"):
                done.append(f"left-over relation {name}.{schema}.{relation} dropped")
            del found[schema, relation]
    state = {objects.staging_stem(r.id) for r in records.values()}
    for staging in await _column(conn, _TABLES):
        # s_<id>_<attempt>: the worker's staging for v_<id>.
        unknown = staging.startswith("s_") and "v_" + staging[2:].partition("_")[0] not in state
        if unknown and await _dropped(conn, f"TABLE {STATE}.{q(staging)}"):
            done.append(f"left-over staging table {staging} in {name} dropped")
        if (
            staging.startswith("r_")
            and staging[2:] not in alive
            and await _dropped(conn, f"TABLE {STATE}.{q(staging)}")
        ):
            done.append(f"left-over table {staging} beside a view in {name} dropped")
            of = f"replace(query::text, '-', '') = {quote_literal(staging[2:])}"
            await run(conn, f"DELETE FROM {STATE}.ledger WHERE {of}")


async def _dropped(conn: Connection, what: str) -> bool:
    """Whether it could be dropped. What somebody uses, such as another server's comparison, is for a later start."""
    try:
        async with conn.transaction():
            await run(conn, f"SET LOCAL lock_timeout = '{_WAIT_MS}ms'", f"DROP {what} CASCADE")
    except pg.LockNotAvailable:
        log.warning("left-over kept that is in use", what=what)
        return False
    return True
