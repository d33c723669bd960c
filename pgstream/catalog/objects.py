"""PostgreSQL objects derived from the catalogue: databases, schemas, unreadable views, tables of materialized views.

Owns: their DDL. Everything is idempotent or made in one transaction, so that ``heal`` can do it again.
Streams and changelogs are views with the right columns that raise when read: tools list the columns, and a read that
reaches PostgreSQL is refused with a sentence. A materialized view is a table. All of them belong to the worker's role,
so that a client cannot drop, replace or put a trigger on one behind the catalogue's back, and ``heal`` knows its own.
None names a hidden object, so that a dump of them can be restored anywhere (docs/decisions/0007).
Must not know: SQLAlchemy, sessions. Start reading at ``create_relation``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import psycopg
import structlog
from psycopg import errors as pg
from psycopg.errors import Diagnostic

from pgstream.catalog import ledger, own_tables, undecided
from pgstream.catalog.databases import CONTROL, STATE
from pgstream.catalog.postgres import WORKER, Connection, relayed, run
from pgstream.catalog.records import RelationRecord
from pgstream.catalog.roles import pg_role
from pgstream.errors import (
    DependentsExist,
    DuplicateDatabase,
    DuplicateRelation,
    DuplicateSchema,
    NotSupported,
    ObjectInUse,
    PgStreamError,
)
from pgstream.names import FullName, quote_anywhere, quote_literal
from pgstream.names import quote_always as q

log = structlog.get_logger(__name__)
DROPPED = "pgstream: being dropped"
_LIMIT = "CONNECTION LIMIT"
UNFINISHED = 1_886_876_532
"""A limit that nobody sets: what a database has in the statement that makes it can be no comment."""
Notice = tuple[str, str | None]
"""What PostgreSQL says on the way, and its detail."""
_UNREADABLE = """
CREATE OR REPLACE FUNCTION pg_catalog.pgstream_unreadable(kind text, name text) RETURNS tsvector
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog AS $$
BEGIN
    RAISE EXCEPTION '% "%" cannot be read as a table', kind, name USING
        ERRCODE = '0A000',
        HINT = CASE kind WHEN 'table' THEN 'It lies in a store, where its rows are read. A stream looks them up: '
            'FROM stream [LEFT] JOIN table ON …. CREATE CHANGELOG over a table of a PostgreSQL store reads its changes.'
            ELSE 'A SELECT that pgstream can run streams it: send it as a statement of its own, outside functions, '
            'COPY and cursors. A materialized view over it can be read everywhere.' END;
END $$"""
_INTEGER = re.compile(r"-?[0-9]+")
_GUARDED = f"""
SELECT FROM pg_database, aclexplode(datacl) WHERE datname = coalesce(%s, current_database())
    AND grantee = (SELECT oid FROM pg_roles WHERE rolname = '{WORKER}')"""
_MARKED = "(shobj_description(oid, 'pg_database') = %s OR (datconnlimit = %s AND NOT datallowconn))"
_FOREIGN_DATABASE = "PostgreSQL has a database of this name that is not pgstream's."
# What is in a database beside PostgreSQL's own, what extensions brought, and the server's. Types of tables and arrays
# go with what they are of.
_OTHERS = """
WITH named(oid, name) AS (
    SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
found(name, class, id) AS (
    SELECT n.name || '.' || c.relname, 'pg_class'::regclass, c.oid
        FROM pg_class c JOIN named n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
    UNION ALL SELECT pg_describe_object('pg_proc'::regclass, p.oid, 0), 'pg_proc'::regclass, p.oid
        FROM pg_proc p JOIN named n ON n.oid = p.pronamespace
    UNION ALL SELECT pg_describe_object('pg_type'::regclass, t.oid, 0), 'pg_type'::regclass, t.oid
        FROM pg_type t JOIN named n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
        WHERE NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = t.oid) AND t.typtype <> 'm'
            AND coalesce(c.relkind = 'c', true)
    UNION ALL SELECT 'large object ' || oid, 'pg_largeobject'::regclass, oid FROM pg_largeobject_metadata
    UNION ALL SELECT 'extension ' || extname, 'pg_extension'::regclass, oid
        FROM pg_extension WHERE extname <> 'plpgsql'
    UNION ALL SELECT 'schema ' || name, 'pg_namespace'::regclass, oid FROM named WHERE name <> ALL (%s))
SELECT name FROM found f WHERE NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = f.class AND d.objid = f.id AND d.deptype = 'e')
ORDER BY 1 LIMIT 5"""


def staging_stem(relation_id: str) -> str:
    """What a view's staging tables in the hidden schema are named after."""
    return "v_" + relation_id.replace("-", "")


async def has_control(conn: Connection) -> bool:
    """Whether the control database is there, and closed to clients: a first start may have ended between the two."""
    found = await conn.execute(
        "SELECT datname FROM pg_database WHERE datname = %s AND NOT has_database_privilege('public', oid, 'CONNECT')",
        [CONTROL],
    )
    return await found.fetchone() is not None


async def ensure_control(conn: Connection) -> bool:
    """Make the control database if it is missing; True when it was."""
    there = await (await conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", [CONTROL])).fetchone()
    if not there:
        await run(conn, f"CREATE DATABASE {CONTROL} TEMPLATE template0 ENCODING 'UTF8'")
    await run(conn, f"REVOKE ALL ON DATABASE {CONTROL} FROM PUBLIC")
    return not there


@asynccontextmanager
async def making_database(control: Connection, name: str, options: Mapping[str, str]) -> AsyncIterator[None]:
    """Make the PostgreSQL database on entry. Until this is left without an error it is marked as one to be dropped,
    from the statement on that makes it: what a crash leaves is told from what somebody else has made. The former is
    taken up again. Errors: DuplicateDatabase for the latter, which is not touched.
    """
    more = "".join(f" {option} {_value(value)}" for option, value in options.items() if option != _LIMIT)
    unfinished = f"ALLOW_CONNECTIONS false {_LIMIT} {UNFINISHED}"
    try:
        await run(control, f"CREATE DATABASE {q(name)} TEMPLATE template0 ENCODING 'UTF8'{more} {unfinished}")
    except pg.DuplicateDatabase:
        if not await _is_ours(control, name):
            raise DuplicateDatabase(name=name, detail=_FOREIGN_DATABASE) from None
        await reopen_database(control, name)
        yield
        return
    try:
        await run(
            control,
            f"COMMENT ON DATABASE {q(name)} IS {quote_literal(DROPPED)}",
            f"ALTER DATABASE {q(name)} {_LIMIT} {_value(options.get(_LIMIT, '-1'))}",
            f"ALTER DATABASE {q(name)} ALLOW_CONNECTIONS true",
        )
        yield
    except BaseException:
        await run(control, f"DROP DATABASE IF EXISTS {q(name)}")
        raise
    await run(control, f"COMMENT ON DATABASE {q(name)} IS NULL")


async def reopen_database(control: Connection, name: str) -> None:
    """It is not to be dropped any more."""
    await run(control, f"ALTER DATABASE {q(name)} ALLOW_CONNECTIONS true", f"COMMENT ON DATABASE {q(name)} IS NULL")


async def marked_databases(control: Connection) -> list[str]:
    """Those to be dropped, unless the catalogue has them."""
    found = await control.execute(f"SELECT datname FROM pg_database WHERE {_MARKED}".encode(), [DROPPED, UNFINISHED])
    return [name for (name,) in await found.fetchall()]


async def _is_ours(control: Connection, name: str) -> bool:
    """Whether a database is what a crash has left, or was restored from a dump of one of ours."""
    guarded = await (await control.execute(_GUARDED.encode(), [name])).fetchone()
    return guarded is not None or name in await marked_databases(control)


def _value(text: str) -> str:
    return text if _INTEGER.fullmatch(text) else quote_literal(text)


async def guard_database(control: Connection, name: str) -> None:
    """A database is as it was made, whatever an earlier version took from everybody."""
    await run(
        control,
        # Who enters is decided at the front door: CONNECT is asked of the user, who inherits nothing from its roles.
        f"GRANT CONNECT, TEMPORARY ON DATABASE {q(name)} TO PUBLIC",
    )


async def furnish_database(conn: Connection, name: str) -> None:
    """Make the hidden schema and what stands in it, in one transaction; run again it changes nothing."""
    if (await (await conn.execute(f"SELECT to_regclass('{STATE}.ledger')")).fetchone()) != (None,):
        return
    # A guarded database is ours: restored from a dump, which leaves the hidden schema out.
    guarded = await (await conn.execute(_GUARDED.encode(), [None])).fetchone()
    if guarded is None and await others(conn, ["public"]):
        raise DuplicateDatabase(name=name, detail=_FOREIGN_DATABASE)
    async with conn.transaction():
        await run(
            conn,
            # PostgreSQL keeps names that begin with pg_ for itself, unless told otherwise.
            "SET LOCAL allow_system_table_mods = on",
            f"CREATE SCHEMA IF NOT EXISTS {STATE}",
            "SET LOCAL allow_system_table_mods = off",
            _UNREADABLE,
            ledger.TABLE,
            *ledger.OURS,
        )


async def make_unreadable(conn: Connection) -> None:
    """The function behind streams and changelogs, in every database; all of them may call it."""
    await run(conn, _UNREADABLE)


async def others(conn: Connection, schemas: Collection[str]) -> list[str]:
    """What is in this database that is not the catalogue's: made by clients as PostgreSQL's own. ``schemas``: those
    that may be there.
    """
    return [name for (name,) in await (await conn.execute(_OTHERS.encode(), [list(schemas)])).fetchall()]


def refuse_others(found: list[str], kind: str, name: str, at: int | None) -> None:
    """Raise DependentsExist when what clients have made themselves would go with a database."""
    if found:
        raise DependentsExist(kind=kind, name=name, detail=f"It holds {', '.join(found)}.", at=at)


@asynccontextmanager
async def dropping_database(control: Connection, name: str, force: bool = False) -> AsyncIterator[None]:
    """Close a database on entry, drop it on leaving; an error in between opens it again. ``force``: end its sessions.

    DROP DATABASE knows no transaction, so the intention is written down first: ``heal`` finishes it after a crash.
    """
    await run(
        control,
        f"ALTER DATABASE {q(name)} ALLOW_CONNECTIONS false",
        f"COMMENT ON DATABASE {q(name)} IS {quote_literal(DROPPED)}",
    )
    try:
        await _wait_unused(control, name, force)
        yield
    except BaseException:
        await reopen_database(control, name)
        raise
    await run(control, f"DROP DATABASE IF EXISTS {q(name)}")


async def _wait_unused(control: Connection, name: str, force: bool, timeout_s: float = 5) -> None:
    """End the worker's connections, with ``force`` everybody's; refuse when a client's own stay, as PostgreSQL does."""
    end = asyncio.get_running_loop().time() + timeout_s
    while True:
        await control.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND (usename = %s OR %s)",
            [name, WORKER, force],
        )
        found = await control.execute(
            "SELECT count(*) FILTER (WHERE backend_type = 'client backend'), count(*) FROM pg_stat_activity"
            " WHERE datname = %s",
            [name],
        )
        clients, users = await found.fetchone() or (0, 0)
        if not users:
            return
        if asyncio.get_running_loop().time() > end:
            raise ObjectInUse(kind="database", name=name, detail=f"There are {clients} other sessions in it.")
        await asyncio.sleep(0.05)


async def ensure_schema(conn: Connection, schema: str, owner: str) -> None:
    """Make a schema in which ``owner`` may make ordinary tables too."""
    await run(
        conn,
        f"CREATE SCHEMA IF NOT EXISTS {q(schema)}",
        f"REVOKE ALL ON SCHEMA {q(schema)} FROM PUBLIC",
        f"GRANT USAGE, CREATE ON SCHEMA {q(schema)} TO {q(pg_role(owner))}",
        f"GRANT USAGE ON SCHEMA {q(schema)} TO {WORKER}",
    )


async def create_schema(conn: Connection, schema: str, owner: str, transaction: str | None = None) -> None:
    """As ``ensure_schema``, but one that is there already is somebody else's. ``transaction``: see ``undecided``."""
    try:
        async with conn.transaction():
            await run(conn, f"CREATE SCHEMA {q(schema)}")
            await ensure_schema(conn, schema, owner)
            if transaction is not None:
                await run(conn, undecided.mark(schema, transaction))
    except pg.DuplicateSchema:
        raise DuplicateSchema(name=schema) from None


async def drop_schema(conn: Connection, schema: str, cascade: bool, at: int | None = None) -> list[Notice]:
    """Inside the caller's transaction. Gives what PostgreSQL says of what went with it."""
    said: list[Notice] = []

    def hear(d: Diagnostic) -> None:
        said.append((d.message_primary or "", d.message_detail))

    conn.add_notice_handler(hear)
    try:
        await run(conn, f"DROP SCHEMA IF EXISTS {q(schema)} {'CASCADE' if cascade else 'RESTRICT'}")
    except pg.DependentObjectsStillExist as e:
        raise DependentsExist(kind="schema", name=schema, detail=e.diag.message_detail, at=at) from None
    finally:
        conn.remove_notice_handler(hear)
    return said


def _unreadable_view(record: RelationRecord) -> list[str]:
    return [unreadable(record), f"ALTER VIEW {_qualified(record)} OWNER TO {WORKER}"]


def unreadable(record: RelationRecord, *, anew: bool = False) -> str:
    """The statement that makes the view of a stream or changelog. ``anew``: it is there, and the worker's."""
    columns = ", ".join(f"NULL::{c.type.pg} AS {q(c.name)}" for c in record.columns)
    name = str(record.full)
    # The session of who reads the view reads this text, however it takes a backslash in a name of its owner's choice.
    said = quote_anywhere(name) if "\\" in name else quote_literal(name)
    call = f"SELECT pgstream_unreadable({quote_literal(record.label)}, {said})"
    # ts_stat runs a text as SQL when it is read: the view depends on nothing that PostgreSQL does not have itself.
    create = "CREATE OR REPLACE VIEW" if anew else "CREATE VIEW"
    return f"{create} {_qualified(record)} AS SELECT {columns} FROM pg_catalog.ts_stat({quote_literal(call)})"


def table(record: RelationRecord, name: str) -> list[str]:
    """The statements that make a materialized view's table, or another of its shape, with the indexes of its mode."""
    columns = ", ".join(f"{q(c.name)} {c.type.pg}" for c in record.columns)
    return [f"CREATE TABLE {name} ({columns})", f"ALTER TABLE {name} OWNER TO {WORKER}", *indexes(record, name)]


def indexes(record: RelationRecord, name: str) -> list[str]:
    """Those that keeping a view needs."""
    if record.mode == "upsert":
        # No key means one row at most: the unique index is over a constant. A key may hold a NULL, which no primary
        # key allows.
        key = ", ".join(q(k) for k in record.primary_key) or "(true)"
        return [f"CREATE UNIQUE INDEX ON {name} ({key}) NULLS NOT DISTINCT"]
    if record.mode == "retract":
        # Rows that are taken back are found by all their values.
        row = ", ".join(q(c.name) for c in record.columns)
        return [f"CREATE INDEX ON {name} (hash_record(ROW({row})))"]
    return []


def _table(record: RelationRecord) -> list[str]:
    made = table(record, _qualified(record))
    if record.query is not None:
        made.append(ledger.opened(record))
    return made


# What an index depends on beside its table: PostgreSQL's own objects have lower numbers.
_FOREIGN = """
SELECT pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
FROM pg_index i JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
WHERE i.indexrelid = %s::regclass AND d.refobjid >= 16384
    AND NOT (d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid)
    AND NOT EXISTS (
        SELECT FROM pg_depend e WHERE e.classid = d.refclassid AND e.objid = d.refobjid AND e.deptype = 'e')"""


def _index(record: RelationRecord) -> str:
    on = FullName.read(record.properties["on"])
    return f"CREATE INDEX {q(record.full.name)} ON {q(on.schema)}.{q(on.name)} {record.properties['definition']}"


def relkind(record: RelationRecord) -> str:
    """What PostgreSQL's ``pg_class`` has of it: a table, an index, or a view."""
    return {"materialized_view": "r", "index": "i"}.get(record.kind, "v")


def _kind(record: RelationRecord) -> str:
    return {"materialized_view": "TABLE", "index": "INDEX"}.get(record.kind, "VIEW")


def _qualified(record: RelationRecord) -> str:
    return f"{q(record.full.schema)}.{q(record.full.name)}"


def comment(record: RelationRecord) -> str:
    """The words that psql and BI tools show."""
    where = "" if record.store is None else f' of "{record.entity}" in store {record.store}'
    return record.description or f"{record.label}{where}"


def described(record: RelationRecord) -> str:
    """The statement that makes its comment."""
    return f"COMMENT ON {_kind(record)} {_qualified(record)} IS {quote_literal(comment(record))}"


def described_column(record: RelationRecord, column: str) -> str:
    """The statement that makes a column's comment, or takes it away."""
    said = next(c.description for c in record.columns if c.name == column)
    words = quote_literal(said) if said else "NULL"
    return f"COMMENT ON COLUMN {_qualified(record)}.{q(column)} IS {words}"


def shown(record: RelationRecord) -> list[str]:
    """Its comments, and the right of its owner to read it."""
    return [
        described(record),
        *(described_column(record, c.name) for c in record.columns if c.description),
        f"GRANT SELECT ON {_qualified(record)} TO {q(pg_role(record.owner))}",
    ]


_LEFT_OVER = f"""
SELECT c.relkind = 'r' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'v') AND c.relowner = '{WORKER}'::regrole"""


async def _drop_left_over(conn: Connection, record: RelationRecord) -> None:
    """What is ours and the catalogue does not know: another server died over it, or drops it right now."""
    found = await (await conn.execute(_LEFT_OVER.encode(), [record.full.schema, record.full.name])).fetchone()
    if found is not None:
        log.warning("left-over relation dropped", relation=str(record.full))
        await run(conn, f"DROP {'TABLE' if found[0] else 'VIEW'} IF EXISTS {_qualified(record)} CASCADE")
        await ledger.drop_of(conn, record)


async def create_relation(conn: Connection, record: RelationRecord, at: int | None = None) -> None:
    """Make everything that stands for a relation, inside the caller's transaction."""
    try:
        if record.kind == "index":
            # Part of it is the client's text: the extended protocol takes a single statement.
            await conn.execute(_index(record).encode(), binary=True)
            await _check_index(conn, record, at)
            return
        await _drop_left_over(conn, record)
        made = _table(record) if record.kind == "materialized_view" else _unreadable_view(record)
        await run(conn, *made, *shown(record))
    except (pg.DuplicateTable, pg.DuplicateObject):
        raise DuplicateRelation(
            name=str(record.full), at=at, detail="It is a table, view or type of PostgreSQL itself."
        ) from None
    except psycopg.Error as e:
        raise _at(relayed(e), at) from None


async def _check_index(conn: Connection, record: RelationRecord, at: int | None) -> None:
    """Refuse one that depends on something that a client can drop or change, such as a text search configuration:
    PostgreSQL's own objects and extensions' are no client's.
    """
    asked = await conn.execute(_FOREIGN.encode(), [_qualified(record)])
    if (found := await asked.fetchone()) is not None:
        raise NotSupported(
            what=f"{found[0]} in an index of a materialized view", at=at,
            hint="Use the view's columns and PostgreSQL's own functions, types and operators.",
        )  # fmt: skip


def _at(error: PgStreamError, at: int | None) -> PgStreamError:
    error.at = at
    return error


async def drop_staging(conn: Connection, relation_id: str, more: str = "") -> None:
    """Staging tables that the worker left: ``s_<relation id>_<attempt>``, beside a view ``s_<relation id>_r_…``."""
    found = await conn.execute(
        f"SELECT relname FROM pg_class WHERE relnamespace = '{STATE}'::regnamespace AND relkind = 'r'"
        " AND starts_with(relname, %s)".encode(),
        [f"s_{relation_id.replace('-', '')}_{more}"],
    )
    await own_tables.drop(conn, *(f"{STATE}.{q(name)}" for (name,) in await found.fetchall()))


async def truncate(conn: Connection, record: RelationRecord) -> None:
    """Take away a view's rows. DELETE, not TRUNCATE: readers go on with what they see, and its query is not blocked."""
    await run(conn, f"DELETE FROM {_qualified(record)}")


async def reindex(conn: Connection, record: RelationRecord, *, concurrently: bool) -> None:
    """Build an index anew, or all of a materialized view."""
    kind = "INDEX" if record.kind == "index" else "TABLE"
    await run(conn, f"REINDEX {kind} {'CONCURRENTLY ' if concurrently else ''}{_qualified(record)}")


async def drop_relation(conn: Connection, record: RelationRecord, at: int | None = None) -> None:
    """Remove what stands for a relation, inside the caller's transaction; a client's own view over it refuses."""
    try:
        await run(conn, f"DROP {_kind(record)} IF EXISTS {_qualified(record)}")
        if record.kind == "materialized_view":
            await drop_staging(conn, record.id)
        if record.query is not None:
            await conn.execute(f"DELETE FROM {STATE}.ledger WHERE query = %s::uuid".encode(), [record.query])
    except pg.DependentObjectsStillExist as e:
        raise DependentsExist(kind=record.label, name=str(record.full), detail=e.diag.message_detail, at=at) from None
