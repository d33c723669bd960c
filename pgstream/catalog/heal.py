"""Bringing PostgreSQL's objects back to what the catalogue says, after a crash between the two.

Owns: the comparison of one database with its records. What is missing is made, what is left over is dropped; ordinary
tables that clients made are nobody's business here. Must not know: who changed what, or when.
Start reading at ``heal_database``.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from pgstream.catalog import objects
from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import Connection, run
from pgstream.catalog.records import RelationRecord, SchemaRecord
from pgstream.names import quote_always as q

log = structlog.get_logger(__name__)

# A view of ours is one that depends on the hidden schema's function, or on a state table.
_OURS = f"""
SELECT n.nspname, v.relname, coalesce(t.relname, '') FROM pg_class v
JOIN pg_namespace n ON n.oid = v.relnamespace
JOIN pg_rewrite r ON r.ev_class = v.oid
JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
LEFT JOIN pg_class t ON d.refclassid = 'pg_class'::regclass AND t.oid = d.refobjid
    AND t.relnamespace = '{STATE}'::regnamespace
LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
    AND p.pronamespace = '{STATE}'::regnamespace
WHERE v.relkind = 'v' AND v.relowner = (SELECT oid FROM pg_roles WHERE rolname = current_user)
    AND (t.oid IS NOT NULL OR p.oid IS NOT NULL)
GROUP BY 1, 2, 3"""
_TABLES = f"SELECT relname FROM pg_class WHERE relnamespace = '{STATE}'::regnamespace AND relkind = 'r'"
_SCHEMAS = "SELECT nspname FROM pg_namespace"


async def _column(conn: Connection, sql: str) -> set[str]:
    return {r[0] for r in await (await conn.execute(sql.encode())).fetchall()}


async def heal_database(
    conn: Connection, name: str, schemas: Iterable[SchemaRecord], relations: Iterable[RelationRecord]
) -> None:
    """Make one database what its records say. Quick when there is nothing to do: three reads."""
    await objects.furnish_database(conn, name)
    present = await _column(conn, _SCHEMAS)
    for schema in schemas:
        if schema.name not in present:
            log.warning("schema made again", database=name, schema=schema.name)
            await objects.ensure_schema(conn, schema.name, schema.owner)
    records = {(r.full.schema, r.full.name): r for r in relations}
    views = {(s, v): t for s, v, t in await (await conn.execute(_OURS.encode())).fetchall()}
    await _drop_left_over(conn, name, records, views)
    tables = await _column(conn, _TABLES)
    for key, record in records.items():
        table = objects.state_table(record.id)
        if key in views and (record.kind != "materialized_view" or table in tables):
            continue
        log.warning("relation made again", relation=str(record.full))
        async with conn.transaction():
            # State that is still there is kept: only the view in front of it is made again.
            await run(conn, f"DROP VIEW IF EXISTS {q(record.full.schema)}.{q(record.full.name)}")
            await objects.create_relation(conn, record)


async def _drop_left_over(
    conn: Connection,
    name: str,
    records: dict[tuple[str, str], RelationRecord],
    views: dict[tuple[str, str], str],
) -> None:
    for (schema, view), table in list(views.items()):
        record = records.get((schema, view))
        wanted = objects.state_table(record.id) if record and record.kind == "materialized_view" else ""
        if record is None or table != wanted:
            log.warning("left-over view dropped", database=name, schema=schema, view=view)
            await run(conn, f"DROP VIEW {q(schema)}.{q(view)} CASCADE")
            del views[schema, view]
    state = {objects.state_table(r.id) for r in records.values()}
    for table in await _column(conn, _TABLES):
        # v_<id>: state; s_<id>_<attempt>: the worker's staging for it.
        if table[:2] in ("v_", "s_") and "v_" + table[2:].partition("_")[0] not in state:
            log.warning("left-over state dropped", database=name, table=table)
            await run(conn, f"DROP TABLE {STATE}.{q(table)} CASCADE")
