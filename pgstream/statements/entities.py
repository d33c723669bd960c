"""Entities as a whole (older name TOPIC): CREATE, UPDATE, DROP, LIST, DESCRIBE.

Owns: the grammar and the answers. Must not know: what an entity is in a store (``pgstream.stores``).
Their records are in ``entity_records``. Manual: "CREATE ENTITY", "DROP ENTITY", "LIST ENTITIES", "DESCRIBE ENTITY".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog.records import StoreRecord
from pgstream.errors import DependentsExist, InvalidOption, NotSupported, RegistryUnreachable
from pgstream.names import Name, QName
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import descriptors, places, registered
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, json_text, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.entity import OfEntity
from pgstream.statements.heading import expect
from pgstream.stores.spec import Can


@dataclass(frozen=True, slots=True)
class CreateEntity(OfEntity):
    """CREATE ENTITY entity_name [IN STORE store_name] [WITH ( 'parameter' = value [, ...] )];

    Make a topic in a store. Kafka: 'kafka.partitions', 'kafka.replicas', and any topic configuration as
    'kafka.topic.<config>'; the broker's defaults hold for what is not given. 'value.descriptor' and 'key.descriptor'
    attach Protobuf messages, source.message. PostgreSQL: a table, schema.table, with 'postgresql.columns' and
    'postgresql.primary.key'.
    """

    words: ClassVar = ("CREATE", "ENTITY")
    tag: ClassVar = "CREATE ENTITY"
    columns: ClassVar = DDL_ROW

    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        path, store = cls.head(c)
        given = c.properties() if c.accept("WITH") else {}
        c.end()
        return cls(path, store, given)

    async def execute(self, ctx: Context) -> Result:
        store, entity = places.store(ctx, self.store), places.entity(self.path)
        kind = places.store_type(store)
        kind.require(Can.CREATE_ENTITY, self.path.at)
        attached, options = descriptors.said(ctx, self.given, kind.entity_options.check(self.given))
        async with places.open_store(ctx, store, self.path.at) as admin:
            await admin.create(entity, options)
        await descriptors.attach(ctx, store.name, entity, attached)
        summary = f'entity "{entity}" was successfully created in store "{store.name}"'
        return done(self.tag, ddl("entity", entity, "CREATE", [store.name, *self.path.parts], summary))


@dataclass(frozen=True, slots=True)
class UpdateEntity(OfEntity):
    """UPDATE ENTITY entity_name [IN STORE store_name] WITH ( 'parameter' = { value | NULL } [, ...] );

    Change a topic's configuration, as 'kafka.topic.<config>'; NULL goes back to the broker's default. Partitions can
    grow: 'kafka.partitions'. 'value.descriptor' and 'key.descriptor' attach Protobuf messages, source.message; NULL
    takes them away. Relations that are there keep theirs.
    """

    words: ClassVar = ("UPDATE", "ENTITY")
    tag: ClassVar = "ALTER ENTITY"
    columns: ClassVar = DDL_ROW

    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        path, store = cls.head(c)
        c.expect("WITH")
        given = c.properties()
        c.end()
        return cls(path, store, given)

    async def execute(self, ctx: Context) -> Result:
        store, entity = places.store(ctx, self.store), places.entity(self.path)
        kind = places.store_type(store)
        kind.require(Can.CREATE_ENTITY, self.path.at)
        for g in self.given.values():
            option = kind.entity_options.find(g.name)
            if option is not None and option.fixed is not None:
                raise NotSupported(what=f"changing {option.fixed}", at=g.at)
        attached, options = descriptors.said(ctx, self.given, kind.entity_options.check(self.given))
        others = {k: g for k, g in self.given.items() if k not in {f"{side}.descriptor" for side in attached}}
        unset = frozenset(g.name for g in others.values() if g.value is None)
        async with places.open_store(ctx, store, self.path.at) as admin:
            if others:
                await admin.update(entity, options, unset)
            else:
                await admin.describe(entity)
        await descriptors.attach(ctx, store.name, entity, attached)
        summary = f'entity "{entity}" was successfully updated in store "{store.name}"'
        return done(self.tag, ddl("entity", entity, "UPDATE", [store.name, *self.path.parts], summary))


@dataclass(frozen=True, slots=True)
class DropEntity(OfEntity):
    """DROP ENTITY entity_name [IN STORE store_name];

    Delete the topic or table itself, with what it holds; it cannot be undone. Refused while a relation is defined
    on it.
    """

    words: ClassVar = ("DROP", "ENTITY")
    tag: ClassVar = "DROP ENTITY"
    columns: ClassVar = DDL_ROW

    async def execute(self, ctx: Context) -> Result:
        store, entity = places.store(ctx, self.store), places.entity(self.path)
        kind = places.store_type(store)
        kind.require(Can.DROP_ENTITY, self.path.at)
        relations = ctx.catalog.snapshot.relations.values()
        spelled = kind.spelled(entity, store.options)
        users = sorted(
            str(r.full) for r in relations if r.store == store.name and spelled in kind.several(r.entity or "")
        )
        if users:
            raise DependentsExist(
                kind="entity",
                name=entity,
                at=self.path.at,
                users=[("relation", name) for name in users],
                says="Relations defined on it:",
                bare=True,
                hint="Drop the relations first.",
            )
        async with places.open_store(ctx, store, self.path.at) as admin:
            await admin.drop(entity)
        await descriptors.attach(ctx, store.name, entity, dict.fromkeys(descriptors.SIDES))
        summary = f'entity "{entity}" was successfully dropped from store "{store.name}"'
        return done(self.tag, ddl("entity", entity, "DROP", [store.name, *self.path.parts], summary))


@dataclass(frozen=True, slots=True)
class ListEntities(Statement):
    """LIST ENTITIES [IN path[.path...]] [IN STORE store_name] [LIKE 'pattern'];

    What a store holds: topics, or schemas and below them tables (IN schema). LIKE keeps the names that a
    pattern of SQL fits (``%`` any text, ``_`` any character); it is an addition of ours.
    """

    words: ClassVar = ("LIST", "ENTITIES")
    columns: ClassVar = (Column("Name"), Column("Is Leaf", types.BOOLEAN))

    path: QName | None
    store: Name | None
    like: str | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        path = None
        if not c.peek("IN", "STORE") and c.accept("IN"):
            path = c.path()
        store = places.in_store(c)
        like, like_at = None, 0
        if c.accept("LIKE"):
            like_at = c.at
            like = c.string()
        c.end()
        if like is not None and len(like) > _LONGEST_LIKE:
            raise InvalidOption(what=f"a pattern of LIKE has at most {_LONGEST_LIKE} characters", at=like_at)
        return cls(path, store, like)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.store),)

    async def execute(self, ctx: Context) -> Result:
        store = places.store(ctx, self.store)
        places.store_type(store).require(Can.LIST)
        async with places.open_store(ctx, store, self.path.at if self.path is not None else None) as admin:
            found = await admin.list_entities(self.path.parts if self.path is not None else ())
        fits = _pattern(self.like).fullmatch if self.like is not None else bool
        return listing(self.columns, [(e.name, e.is_leaf) for e in found if fits(e.name)])


_LONGEST_LIKE = 1000


def _pattern(like: str) -> re.Pattern[str]:
    """A pattern of LIKE, with a backslash before what stands for itself.

    Between two % the first place where the part fits is the right one: trying others would take for ever.
    """
    parts: list[str] = [""]
    for sign in re.findall(r"\\.|.", like, re.S):
        if sign == "%":
            parts.append("")
        else:
            parts[-1] += "." if sign == "_" else re.escape(sign.removeprefix("\\") or sign)
    first, *middle = parts
    last = f".*{middle.pop()}" if middle else ""
    return re.compile(first + "".join(f"(?>.*?{part})" for part in middle if part) + last, re.S)


@dataclass(frozen=True, slots=True)
class DescribeEntity(OfEntity):
    """DESCRIBE ENTITY entity_path [IN STORE store_name];

    One row about a topic: its partitions, replicas and configuration (JSON), the Protobuf messages attached to it, the
    first and the next offset of each partition (JSON), how many offsets lie between them, and the newest schemas of its
    subjects in the store's registry. Of a data stream: its shards, message, configuration, positions and schema. Of a
    table: its columns and primary key, replica identity and size (JSON), and how many rows its PostgreSQL estimates.
    """

    words: ClassVar = ("DESCRIBE", "ENTITY")
    columns: ClassVar = (
        Column("Name"), Column("Is Leaf", types.BOOLEAN), Column("Partitions", types.INTEGER),
        Column("Replicas", types.INTEGER), Column("Key Descriptor"), Column("Value Descriptor"), Column("Configs"),
        Column("Offsets"), Column("Records", types.BIGINT), Column("Key Schema"), Column("Value Schema"),
    )  # fmt: skip

    async def describe(self, ctx: Context) -> tuple[Column, ...]:
        return self._layout(places.store(ctx, self.store))

    def _layout(self, store: StoreRecord) -> tuple[Column, ...]:
        headings = places.store_type(store).described
        return tuple(_DESCRIBED[h] for h in headings) if headings else self.columns

    async def execute(self, ctx: Context) -> Result:
        store = places.store(ctx, self.store)
        places.store_type(store).require(Can.DESCRIBE, self.path.at)
        async with places.open_store(ctx, store, self.path.at) as admin:
            e = await admin.describe(places.entity(self.path))
            held = await admin.extents(e.name)
        counts = [x.records for x in held]
        found: dict[str, object] = {
            "Name": e.name,
            "Is Leaf": True,
            "Partitions": e.partitions,
            "Shards": e.partitions,
            "Replicas": e.replicas,
            "Columns": ", ".join(f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in e.columns or ()),
            "Primary Key": ", ".join(e.primary_key),
            "Configs": json_text(e.configs),
            "Offsets": json_text({str(x.partition): {"first": x.first, "next": x.next} for x in held}),
            "Records": sum(c for c in counts if c is not None) if held and None not in counts else None,
        }
        layout = self._layout(store)
        for side in ("key", "value"):
            found[f"{side.title()} Descriptor"] = descriptors.attached(ctx, store.name, e.name, side)
            if (schema := f"{side.title()} Schema") in [c.name for c in layout]:
                found[schema] = await self._schema(ctx, store, f"{e.name}-{side}")
        return listing(layout, [[found[c.name] for c in layout]])

    async def _schema(self, ctx: Context, store: StoreRecord, subject: str) -> str | None:
        """The newest schema of a subject; a registry that is away is told in a notice."""
        if "schema_registry.name" not in store.options:
            return None
        try:
            async with registered.connected(ctx, store) as registry:
                found = await registry.latest(subject)
        except RegistryUnreachable as e:
            ctx.notice(e.text)
            return None
        return None if found is None else json_text({"id": found.id, "type": found.kind, "schema": found.text})


_DESCRIBED = {c.name: c for c in (*DescribeEntity.columns, Column("Shards", types.INTEGER), Column("Columns"),
                                  Column("Primary Key"))}  # fmt: skip
"""The columns that DESCRIBE ENTITY may have, by their headings."""
