"""Everything about ENTITY (older name TOPIC): CREATE, UPDATE, DROP, LIST, DESCRIBE, PRINT, INSERT INTO.

Owns: the grammar and the answers. Must not know: what an entity is in a store (``pgstream.stores``).
Manual: "CREATE ENTITY", "DROP ENTITY", "LIST ENTITIES", "DESCRIBE ENTITY", "PRINT ENTITY", "INSERT INTO ENTITY".
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog.records import StoreRecord
from pgstream.errors import DependentsExist, InvalidOption, InvalidText, NotSupported, NotYet
from pgstream.names import Name, QName
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import places
from pgstream.statements.access import Need
from pgstream.statements.answers import ROWS, ddl, done, json_text, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement, TextRow
from pgstream.statements.heading import expect
from pgstream.stores.spec import Can


def _entity(path: QName) -> str:
    return ".".join(path.parts)


@dataclass(frozen=True, slots=True)
class CreateEntity(Statement):
    """CREATE ENTITY entity_name [IN STORE store_name] [WITH ( 'parameter' = value [, ...] )];

    Make a topic in a store. Kafka: 'kafka.partitions', 'kafka.replicas', and any topic configuration as
    'kafka.topic.<config>'; the broker's defaults hold for what is not given.
    """

    words: ClassVar = ("CREATE", "ENTITY")
    tag: ClassVar = "CREATE ENTITY"
    columns: ClassVar = DDL_ROW

    path: QName
    store: Name | None
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        path = c.path()
        store = places.in_store(c)
        given = c.properties() if c.accept("WITH") else {}
        c.end()
        return cls(path, store, given)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.store),)

    async def execute(self, ctx: Context) -> Result:
        store, entity = places.store(ctx, self.store), _entity(self.path)
        kind = places.store_type(store)
        kind.require(Can.CREATE_ENTITY, self.path.at)
        options = kind.entity_options.check(self.given)
        async with places.open_store(ctx, store, self.path.at) as admin:
            await admin.create(entity, options)
        summary = f'entity "{entity}" was successfully created in store "{store.name}"'
        return done(self.tag, ddl("entity", entity, "CREATE", [store.name, *self.path.parts], summary))


@dataclass(frozen=True, slots=True)
class UpdateEntity(Statement):
    """UPDATE ENTITY entity_name [IN STORE store_name] WITH ( 'parameter' = { value | NULL } [, ...] );

    Change a topic's configuration, as 'kafka.topic.<config>'; NULL goes back to the broker's default. Partitions can
    grow: 'kafka.partitions'.
    """

    words: ClassVar = ("UPDATE", "ENTITY")
    tag: ClassVar = "UPDATE ENTITY"
    columns: ClassVar = DDL_ROW

    path: QName
    store: Name | None
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        path = c.path()
        store = places.in_store(c)
        c.expect("WITH")
        given = c.properties()
        c.end()
        return cls(path, store, given)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.store),)

    async def execute(self, ctx: Context) -> Result:
        store, entity = places.store(ctx, self.store), _entity(self.path)
        kind = places.store_type(store)
        kind.require(Can.CREATE_ENTITY, self.path.at)
        if (replicas := self.given.get("kafka.replicas") or self.given.get("topic.replicas")) is not None:
            raise NotSupported(what="changing how many replicas an entity has", at=replicas.at)
        options = kind.entity_options.check(self.given)
        unset = frozenset(g.name for g in self.given.values() if g.value is None)
        async with places.open_store(ctx, store, self.path.at) as admin:
            await admin.update(entity, options, unset)
        summary = f'entity "{entity}" was successfully updated in store "{store.name}"'
        return done(self.tag, ddl("entity", entity, "UPDATE", [store.name, *self.path.parts], summary))


@dataclass(frozen=True, slots=True)
class DropEntity(Statement):
    """DROP ENTITY entity_name [IN STORE store_name];

    Delete the topic itself, with its records; it cannot be undone. Refused while a relation is defined on it.
    """

    words: ClassVar = ("DROP", "ENTITY")
    tag: ClassVar = "DROP ENTITY"
    columns: ClassVar = DDL_ROW

    path: QName
    store: Name | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        path = c.path()
        store = places.in_store(c)
        c.end()
        return cls(path, store)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.store),)

    async def execute(self, ctx: Context) -> Result:
        store, entity = places.store(ctx, self.store), _entity(self.path)
        places.store_type(store).require(Can.DROP_ENTITY, self.path.at)
        relations = ctx.catalog.snapshot.relations.values()
        users = sorted(str(r.full) for r in relations if r.store == store.name and r.entity == entity)
        if users:
            raise DependentsExist(
                kind="entity",
                name=entity,
                at=self.path.at,
                detail=f"Relations defined on it: {', '.join(users)}.",
                hint="Drop the relations first.",
            )
        async with places.open_store(ctx, store, self.path.at) as admin:
            await admin.drop(entity)
        summary = f'entity "{entity}" was successfully dropped from store "{store.name}"'
        return done(self.tag, ddl("entity", entity, "DROP", [store.name, *self.path.parts], summary))


@dataclass(frozen=True, slots=True)
class ListEntities(Statement):
    """LIST ENTITIES [IN path[.path...]] [IN STORE store_name];

    What a store holds: topics. A path lists what lies below it, in stores whose entities are nested.
    """

    words: ClassVar = ("LIST", "ENTITIES")
    columns: ClassVar = (Column("Name"), Column("Is Leaf", types.BOOLEAN))

    path: QName | None
    store: Name | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        path = None
        if not c.peek("IN", "STORE") and c.accept("IN"):
            path = c.path()
        store = places.in_store(c)
        c.end()
        return cls(path, store)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.store),)

    async def execute(self, ctx: Context) -> Result:
        store = places.store(ctx, self.store)
        places.store_type(store).require(Can.LIST)
        async with places.open_store(ctx, store, self.path.at if self.path is not None else None) as admin:
            found = await admin.list_entities(self.path.parts if self.path is not None else ())
        return listing(self.columns, [(e.name, e.is_leaf) for e in found])


@dataclass(frozen=True, slots=True)
class DescribeEntity(Statement):
    """DESCRIBE ENTITY entity_path [IN STORE store_name];

    One row about a topic: its partitions, replicas and configuration (JSON).
    """

    words: ClassVar = ("DESCRIBE", "ENTITY")
    columns: ClassVar = (
        Column("Name"), Column("Is Leaf", types.BOOLEAN), Column("Partitions", types.INTEGER),
        Column("Replicas", types.INTEGER), Column("Key Descriptor"), Column("Value Descriptor"), Column("Configs"),
    )  # fmt: skip

    path: QName
    store: Name | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        path = c.path()
        store = places.in_store(c)
        c.end()
        return cls(path, store)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.store),)

    async def execute(self, ctx: Context) -> Result:
        store = places.store(ctx, self.store)
        places.store_type(store).require(Can.DESCRIBE, self.path.at)
        async with places.open_store(ctx, store, self.path.at) as admin:
            e = await admin.describe(_entity(self.path))
        return listing(self.columns, [(e.name, True, e.partitions, e.replicas, None, None, json_text(e.configs))])


@dataclass(frozen=True, slots=True)
class PrintEntity(Statement):
    """PRINT ENTITY entity_path [IN STORE store_name] [WITH ('from_beginning')] [LIMIT count];

    Show raw records as they arrive, key and value, until LIMIT, cancel, or the client goes away. It begins with
    records written after the statement, or with the first one. Bytes that are not text are shown as ``\\x…``.
    LIMIT is an addition of ours.
    """

    words: ClassVar = ("PRINT", "ENTITY")
    columns: ClassVar = (Column("Key"), Column("Value"))

    path: QName
    store: Name | None
    from_beginning: bool
    limit: int | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        path = c.path()
        store = places.in_store(c)
        given = c.properties() if c.accept("WITH") else {}
        limit = c.integer() if c.accept("LIMIT") else None
        c.end()
        for g in given.values():
            if g.name.lower() != "from_beginning":
                raise InvalidOption(
                    what=f'unknown parameter "{g.name}" for PRINT ENTITY', at=g.at, hint="Known: 'from_beginning'."
                )
        from_beginning = "from_beginning" in given and given["from_beginning"].value == "true"
        return cls(path, store, from_beginning, limit)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.store),)

    async def execute(self, ctx: Context) -> Result:
        store = places.store(ctx, self.store)
        places.store_type(store).require(Can.PRINT, self.path.at)
        # Asked here, so that a missing topic is an error of the statement and not of its first row.
        async with places.open_store(ctx, store, self.path.at) as admin:
            await admin.describe(_entity(self.path))
        return Result(ROWS, self.columns, self._records(ctx, store))

    async def _records(self, ctx: Context, store: StoreRecord) -> AsyncIterator[TextRow]:
        left = self.limit
        if left == 0:
            return
        async with (
            places.open_store(ctx, store, self.path.at) as admin,
            aclosing(admin.read(_entity(self.path), self.from_beginning)) as records,  # type: ignore[type-var]
        ):
            async for record in records:
                yield [_text(record.key), _text(record.value)]
                left = left - 1 if left is not None else None
                if left == 0:
                    return


@dataclass(frozen=True, slots=True)
class InsertIntoEntity(Statement):
    """INSERT INTO ENTITY entity_name [IN STORE store_name] VALUE('json document');

    Write one record, as it is given, without a key. For trying things out.
    """

    words: ClassVar = ("INSERT", "INTO", "ENTITY")
    tag: ClassVar = "INSERT 0 1"

    path: QName
    store: Name | None
    document: str
    document_at: int

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        path = c.path()
        store = places.in_store(c)
        c.expect("VALUE", "(")
        at = c.at
        document = c.string()
        c.expect(")")
        if c.peek("WITH"):
            raise NotYet(what="WITH in INSERT INTO ENTITY", at=c.at)
        c.end()
        return cls(path, store, document, at)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.store),)

    async def execute(self, ctx: Context) -> Result:
        store = places.store(ctx, self.store)
        places.store_type(store).require(Can.INSERT, self.path.at)
        try:
            json.loads(self.document)
        except json.JSONDecodeError as e:
            raise InvalidText(type="json", at=self.document_at, detail=f"{e.msg} at character {e.pos + 1}.") from None
        async with places.open_store(ctx, store, self.path.at) as admin:
            await admin.insert(_entity(self.path), self.document.encode())
        return Result(self.tag)


def _text(data: bytes | None) -> str | None:
    """Bytes as text; what PostgreSQL's text cannot hold is shown as its bytea form."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "\\x" + data.hex()
    return "\\x" + data.hex() if "\x00" in text else text
