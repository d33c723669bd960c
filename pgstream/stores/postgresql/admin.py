"""A PostgreSQL store without Spark: check, list, describe, print, create, drop, insert, through psycopg.

Owns: ``PostgresAdmin``. Why something failed, for a person, is ``reasons``; types are ``columns``.
Must not know: statements, Spark. Start reading at ``PostgresAdmin``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgstream.errors import (
    DuplicateObject,
    InvalidOption,
    InvalidText,
    NotSupported,
    StoreUnreachable,
    UndefinedEntity,
)
from pgstream.stores.postgresql import bounded, reasons
from pgstream.stores.postgresql import columns as cols
from pgstream.stores.postgresql.bounded import Bounded, TooMuch
from pgstream.stores.postgresql.client import files, libpq
from pgstream.stores.postgresql.values import own_prefix, several, split
from pgstream.stores.spec import EntityColumn, EntityInfo, EntityRow, Extent, NewRecord, Record

PATIENCE_MS = 8000
MOST_VALUES = 500_000
"""In the rows of one answer."""
_PAGE, _FIRST_PAGE, _PAGE_BYTES = 100, 2, 8 << 20
"""Rows that PRINT fetches at once, and the bytes that those may have by the longest before them."""

_SCHEMAS = r"""SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
    AND has_schema_privilege(oid, 'usage') ORDER BY 1"""
_TABLES = """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind IN ('r', 'p') ORDER BY 1"""
_TABLE = """SELECT c.oid, c.reltuples::bigint, c.relreplident::text, pg_total_relation_size(c.oid), c.relkind::text
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')"""
# The last: what a domain is of.
_COLUMNS = """SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull, attndims, format_type(own.oid, own.mod),
      attgenerated = ''
    FROM pg_attribute a, LATERAL (WITH RECURSIVE d(oid, mod, typtype, base, more) AS (
        SELECT oid, a.atttypmod, typtype, typbasetype, typtypmod FROM pg_type WHERE oid = a.atttypid
        UNION ALL SELECT t.oid, d.more, t.typtype, t.typbasetype, t.typtypmod FROM d JOIN pg_type t ON t.oid = d.base
      ) SELECT oid, mod FROM d WHERE typtype <> 'd') own
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_KEY = """SELECT a.attname FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, n)
    JOIN pg_attribute a ON a.attnum = k.attnum
    WHERE i.indrelid = %s AND i.indisprimary AND a.attrelid = i.indrelid ORDER BY k.n"""
_UNIQUE = """SELECT array_agg(a.attname::text ORDER BY k.n)
    FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, n) JOIN pg_attribute a ON a.attnum = k.attnum
    WHERE i.indrelid = %s AND (to_jsonb(i) ->> 'indnullsnotdistinct')::bool AND i.indpred IS NULL AND i.indexprs IS NULL
      AND i.indisvalid AND k.n <= i.indnkeyatts AND a.attrelid = i.indrelid
    GROUP BY i.indexrelid ORDER BY i.indexrelid"""
_OWN_SLOTS = """
SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, %s) AND database = current_database()"""
_OWN_PUBLICATIONS = "SELECT pubname FROM pg_publication WHERE starts_with(pubname, %s)"
_DROP_SLOT = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
_SLOTS = """SELECT slot_name, active, wal_status, pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery()
      THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn)::bigint
    FROM pg_replication_slots WHERE database = current_database() AND plugin = 'pgoutput' ORDER BY 1"""
_NULL_IN_KEYS = 150000
"""The server that has UNIQUE NULLS NOT DISTINCT. Tables of older ones get a primary key, where a NULL is an error."""
_IDENTITIES = {"d": "default", "n": "nothing", "f": "full", "i": "index"}


class PostgresAdmin:
    """One store for one statement. See ``stores.spec.Admin`` for the contract."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name = name
        self._options = options
        self._database = libpq(options)["dbname"]
        self._connection: Bounded | None = None

    async def check(self) -> None:
        async with self._open("") as c:
            await c.execute("SELECT 1")

    async def list_entities(self, path: Sequence[str] = ()) -> list[EntityRow]:
        """Schemas, and below one its tables; the store's database may stand before the schema."""
        parts = list(path)
        if parts and parts[0] == self._database:
            parts = parts[1:]
        if len(parts) > 1:
            raise UndefinedEntity(name=".".join(path), store=self.name)
        async with self._open(".".join(path)) as c:
            schemas = [name for (name,) in await self._rows(c, _SCHEMAS)]
            if not parts:
                return [EntityRow(name, is_leaf=False) for name in schemas]
            if parts[0] not in schemas:
                raise UndefinedEntity(name=".".join(path), store=self.name)
            return [EntityRow(name) for (name,) in await self._rows(c, _TABLES, parts[0])]

    async def describe(self, entity: str) -> EntityInfo:
        """Of several tables: that they are there; what they have is not the same."""
        if len(tables := several(entity)) > 1:
            async with self._open(entity) as c:
                for table in tables:
                    await self._table(c, table)
            return EntityInfo(entity)
        schema, table = split(entity, self._database)
        async with self._open(entity) as c:
            oid, rows, identity, size, kind = await self._table(c, entity)
            found = await self._rows(c, _COLUMNS, oid)
            key = [name for (name,) in await self._rows(c, _KEY, oid)]
            unique = [names for (names,) in await self._rows(c, _UNIQUE, oid)]
            slots = await self._rows(c, _SLOTS)
        configs = {
            "columns": ", ".join(f"{n} {t}{'' if null else ' not null'}" for n, t, null, *_ in found),
            "primary.key": ", ".join(key),
            "replica.identity": _IDENTITIES[identity],
            "kind": "partitioned table" if kind == "p" else "table",
            "estimated.rows": str(max(0, rows)),
            "bytes": str(size),
        }
        if slots:
            configs["database.slots"] = "; ".join(map(_slot, slots))
        listed = [EntityColumn(n, cols.deltastream(base, dims), null, told) for n, _, null, dims, base, told in found]
        return EntityInfo(f"{schema}.{table}", configs=configs, columns=listed, primary_key=key, unique=unique)

    async def extents(self, entity: str) -> list[Extent]:
        """How many rows PostgreSQL believes that a table has: counting them all would take its time."""
        async with self._open(entity) as c:
            rows = (await self._table(c, entity))[1]
        return [Extent(0, 0, max(0, rows))]

    async def create(
        self,
        entity: str,
        options: Mapping[str, str],
        columns: Sequence[EntityColumn] = (),
        primary_key: Sequence[str] = (),
    ) -> None:
        said = cols.given(options["postgresql.columns"]) if "postgresql.columns" in options else list(columns)
        key = [k.strip() for k in options.get("postgresql.primary.key", "").split(",") if k.strip()]
        if key:
            said = [replace(c, nullable=c.nullable and c.name not in key) for c in said]
        key = key or list(primary_key)
        if not said:
            raise InvalidOption(
                what=f'entity "{entity}" needs columns',
                hint="Give 'postgresql.columns' = 'id BIGINT NOT NULL, name VARCHAR', or use CREATE TABLE.",
            )
        if missing := set(key) - {c.name for c in said}:
            raise InvalidOption(what=f'column "{min(missing)}" of the primary key is not one of the columns')
        async with self._open(entity) as c:
            if await self._rows(c, _TABLE, *split(entity, self._database)):
                raise DuplicateObject(kind="entity", name=entity)
            if cols.holds_null(said, key) and c.info.server_version < _NULL_IN_KEYS:
                said = [replace(c, nullable=c.nullable and c.name not in key) for c in said]
            made = f"CREATE TABLE {self._quoted(entity)} ({cols.ddl(said, key)})"
            if cols.holds_null(said, key):
                # Without a primary key its rows could not be changed once a publication has them.
                made += f"; ALTER TABLE {self._quoted(entity)} REPLICA IDENTITY FULL"
            await c.execute(made.encode())

    async def update(self, entity: str, options: Mapping[str, str], unset: frozenset[str]) -> None:
        raise NotSupported(
            what="changing a table of a PostgreSQL store", hint="ALTER TABLE in that PostgreSQL does it."
        )

    async def drop(self, entity: str) -> None:
        async with self._open(entity) as c:
            await self._table(c, entity)
            await c.execute(f"DROP TABLE {self._quoted(entity)}".encode())

    async def read(self, entity: str, from_beginning: bool) -> AsyncIterator[Record]:
        """The rows that a table has, each as a JSON object; its changes are a stream's to tell."""
        info = await self.describe(entity)
        key = sql.SQL(", ").join(sql.SQL("{}, t.{}").format(k, sql.Identifier(k)) for k in info.primary_key)
        keyed = sql.SQL("json_build_object({})::text").format(key) if info.primary_key else sql.SQL("NULL::text")
        text = sql.SQL("SELECT {}, row_to_json(t.*)::text, t.ctid::text FROM {} t").format(
            keyed, sql.Identifier(*split(entity, self._database))
        )
        page, longest = _FIRST_PAGE, 1
        async with self._open(entity, whole=False) as c, c.cursor("rows") as cursor:
            await cursor.execute(text)
            while found := await cursor.fetchmany(page):
                for k, value, place in found:
                    longest = max(longest, len(value))
                    yield Record(k.encode() if k is not None else None, value.encode(), None, place)
                page = max(1, min(_PAGE, _PAGE_BYTES // longest))

    async def insert(self, entity: str, records: Sequence[NewRecord]) -> None:
        for record in records:
            await self._insert(entity, record)

    async def _insert(self, entity: str, record: NewRecord) -> None:
        info = await self.describe(entity)
        row = json.loads(record.value) if record.value is not None else None
        if not isinstance(row, dict):
            raise InvalidText(type="json", detail="A row is an object of columns and values.")
        known = {c.name for c in info.columns or ()}
        if unknown := row.keys() - known:
            raise InvalidOption(what=f'column "{min(unknown)}" does not exist in entity "{entity}"')
        table = sql.Identifier(*split(entity, self._database))
        names = sql.SQL(", ").join(map(sql.Identifier, row))
        text = sql.SQL(
            "INSERT INTO {0} ({1}) SELECT {1} FROM pg_catalog.json_populate_record(NULL::{0}, %s::pg_catalog.json)"
        ).format(table, names)
        async with self._open(entity, triggers=True) as c:
            if not row:
                await c.execute(sql.SQL("INSERT INTO {} DEFAULT VALUES").format(table))
            else:
                await c.execute(text, [record.value.decode() if record.value is not None else ""])

    async def answers(self, entity: str, query: str) -> None:
        """See ``stores.spec.Asked``: the query's plan is made, with the rights of the store's user."""
        async with self._open(entity) as c:
            await c.execute(query.encode())

    async def forget(self, left: Mapping[str, Any]) -> None:
        """Drop the slot and the publication that were made for a query (``TableSlot.scala`` wrote down which)."""
        async with self._open(left["table"]) as c:
            if left["made"]:
                await self._inactive(c, left["slot"])
                await c.execute(_DROP_SLOT.encode(), [left["slot"]])
            if left["published"]:
                await c.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(left["publication"])))

    async def forget_own(self, query: str, entity: str) -> None:
        """Drop the slots and publications that have the query's name."""
        own = own_prefix(query)
        async with self._open(entity) as c:
            slots = await self._rows(c, _OWN_SLOTS, own)
            publications = await self._rows(c, _OWN_PUBLICATIONS, own)
        for (name,) in slots:
            async with self._open(entity) as c:
                await self._inactive(c, name)
                await c.execute(_DROP_SLOT.encode(), [name])
        for (name,) in publications:
            async with self._open(entity) as c:
                await c.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))

    async def _inactive(self, c: Bounded, slot: str) -> None:
        """Wait a while: its reader has died a moment ago, and the server may not have seen it yet."""
        for _ in range(50):
            if not await self._rows(c, "SELECT FROM pg_replication_slots WHERE slot_name = %s AND active", slot):
                return
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _table(self, c: Bounded, entity: str) -> tuple[Any, ...]:
        found = await self._rows(c, _TABLE, *split(entity, self._database))
        if not found:
            raise UndefinedEntity(name=entity, store=self.name)
        return found[0]

    async def _rows(self, c: Bounded, text: str, *given: Any) -> list[tuple[Any, ...]]:
        cursor = await c.execute(text.encode(), given or None)
        if cursor.rowcount * len(cursor.description or ()) > MOST_VALUES:
            raise TooMuch(f"its server answers with more than {MOST_VALUES} values")
        return await cursor.fetchall()

    def _quoted(self, entity: str) -> str:
        return ".".join(map(cols.quote_pg, split(entity, self._database)))

    @asynccontextmanager
    async def _open(self, entity: str, whole: bool = True, triggers: bool = False) -> AsyncIterator[Bounded]:
        """The connection, in a transaction whose statements answer in time, and so do all of them where it is known how
        many they are (``whole``); errors are ours. What others in that database have made is not called in the place
        of PostgreSQL's own; ``triggers`` of a table find theirs.
        """
        try:
            async with asyncio.timeout(bounded.WHOLE_S if whole else None):
                if self._connection is None or self._connection.closed:
                    self._connection = await self._connect()
                async with self._connection.transaction():
                    names = "" if triggers else "SET LOCAL search_path = pg_catalog;"
                    await self._connection.execute(f"{names}SET LOCAL statement_timeout = {PATIENCE_MS}".encode())
                    yield self._connection
        except TimeoutError:
            raise StoreUnreachable(name=self.name, why=bounded.LATE) from None
        except psycopg.Error as e:
            raise reasons.translate(e, self.name, entity) from None

    async def _connect(self) -> Bounded:
        settings = libpq(self._options)
        with files(self._options) as tls:
            place = f"{settings['host']}:{settings['port']}"
            return await Bounded.log_in(make_conninfo(**(settings | tls)), place)


def _slot(row: tuple[Any, ...]) -> str:
    """A replication slot, and how much of its log the server keeps for it."""
    name, active, status, kept = row
    state = "lost" if status == "lost" else "read" if active else "not read"
    return f"{name}: {state}, {(kept or 0) >> 20} MB kept"
