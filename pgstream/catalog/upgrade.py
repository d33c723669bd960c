"""PostgreSQL objects of earlier layouts brought to the present one, at the first start that finds them.

Owns: how the layout was. Before 0007 the hidden schema was ``pgstream_state``, and a materialized view was a PostgreSQL
view over a table in it. Before 0014 a user inherited its roles, and owned the tables that it made.
Must not know: rows of the catalogue, which Alembic migrates. Start reading at ``upgrade``.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog
from psycopg import errors as pg

from pgstream.catalog import objects
from pgstream.catalog.databases import BEFORE, STATE
from pgstream.catalog.postgres import WORKER, Administrator, Connection, run
from pgstream.catalog.privileges import ADMIN, WORKING
from pgstream.catalog.records import RelationRecord
from pgstream.errors import ConfigurationError
from pgstream.names import quote_always as q

log = structlog.get_logger(__name__)


async def upgrade(conn: Connection, relations: Iterable[RelationRecord]) -> None:
    """One transaction: a database has the earlier layout or this one."""
    if (await (await conn.execute(f"SELECT to_regclass('{BEFORE}.ledger')")).fetchone()) == (None,):
        return
    log.info("layout of an earlier version found", schema=BEFORE)
    try:
        async with conn.transaction():
            await run(conn, "SET LOCAL allow_system_table_mods = on", f"ALTER SCHEMA {BEFORE} RENAME TO {STATE}")
            for record in relations:
                await _upgrade_relation(conn, record)
            await run(conn, f"DROP FUNCTION {STATE}.unreadable")
            await objects.make_unreadable(conn)
    except pg.DependentObjectsStillExist as e:
        raise ConfigurationError(
            what="a database of an earlier version cannot be brought up to date",
            detail=e.diag.message_detail,
            hint="Start the earlier version again, drop these views, then start this one and make them anew.",
        ) from None


async def _upgrade_relation(conn: Connection, record: RelationRecord) -> None:
    schema, name = q(record.full.schema), q(record.full.name)
    await run(conn, f"DROP VIEW IF EXISTS {schema}.{name}", f"GRANT USAGE ON SCHEMA {schema} TO {WORKER}")
    if record.kind != "materialized_view":
        return  # ``heal`` makes it again
    table = q(objects.staging_stem(record.id))
    await run(
        conn,
        f"ALTER TABLE {STATE}.{table} SET SCHEMA {schema}",
        f"ALTER TABLE {schema}.{table} RENAME TO {name}",
        *objects.shown(record),
    )


async def users(administrator: Administrator) -> list[str]:
    """Users of an earlier version. What they own, tables of PostgreSQL's own, goes to the role that they work in."""
    async with administrator.connect("postgres") as conn:
        found = [r[0] for r in await (await conn.execute(_USERS.encode())).fetchall()]
        databases = [r[0] for r in await (await conn.execute(_DATABASES)).fetchall()]
    for database in databases if found else ():
        async with administrator.connect(database) as conn:
            await run(conn, f"REASSIGN OWNED BY {', '.join(map(q, found))} TO {WORKING}")
    log.info("users of an earlier version found", users=found)
    return found


_USERS = f"""
SELECT m.rolname FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member
WHERE r.rolname = '{ADMIN}' AND m.rolcanlogin AND NOT m.rolsuper"""
_DATABASES = b"SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate"
