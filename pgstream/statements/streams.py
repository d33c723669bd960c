"""CREATE STREAM and CREATE CHANGELOG over a topic: columns, types and event time for records that are there.

Owns: the grammar and the checks. ``create_as.py`` has the forms with AS; ``relations.py`` LIST, DESCRIBE and DROP.
Must not know: what a store's options mean (``declared`` and the store type).
Manual: "CREATE STREAM", "CREATE CHANGELOG".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.errors import DuplicateColumn, DuplicateRelation, InvalidStatement, MissingOption, UndefinedColumn
from pgstream.names import FullName, Name, QName
from pgstream.properties import Options
from pgstream.sql.columns import ColumnDef
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, declared, descriptors, places, registered, topics
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, exists
from pgstream.statements.base import DDL_ROW, Context, Result, Statement
from pgstream.statements.explained import Explained, relation_facts
from pgstream.stores.spec import Can

_CAN = {"stream": Can.STREAM, "changelog": Can.CHANGELOG, "table": Can.TABLE}


@dataclass(frozen=True, slots=True)
class CreateStream(Statement):
    """CREATE STREAM [IF NOT EXISTS] stream_name [( column_name data_type [NOT NULL] [, ...] )]
    WITH ( 'parameter' = value [, ...] );

    Declare a stream over a topic. Nothing is copied; a topic that does not exist is made, with the
    'topic.partitions' and 'topic.replicas' given. 'value.format' is required; 'topic' is the lower-cased name unless
    given, 'store' the session's store. 'timestamp' names the column that is the event time (BIGINT epoch milliseconds,
    TIMESTAMP or TIMESTAMP_LTZ); without it the record's own timestamp counts. Without columns, those of the newest
    schema in the store's schema registry are taken ('value.format' = 'avro' or 'protobuf'), or those of the Protobuf
    message that 'value.descriptor.name' names or that is attached to the topic. A record in which a NOT NULL column is
    NULL or missing is a bad record; of 'avro' and 'protobuf' their schemas decide that. A record without a value is
    left out.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "STREAM")
    tag: ClassVar[str] = "CREATE STREAM"
    columns: ClassVar = DDL_ROW
    kind: ClassVar[str] = "stream"

    name: QName
    if_not_exists: bool
    elements: tuple[ColumnDef, ...]
    primary_key: tuple[Name, ...]
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = c.qname()
        key_at = c.at
        elements, key = ([], []) if c.peek("WITH") else c.columns()
        c.expect("WITH")
        given = c.properties()
        c.end()
        cls._check_primary_key(elements, key, key_at)
        return cls(name, if_not_exists, tuple(elements), tuple(key), given)

    @classmethod
    def _check_primary_key(cls, elements: list[ColumnDef], key: list[Name], at: int) -> None:
        if key:
            raise InvalidStatement(
                what="a stream cannot have a primary key",
                at=key[0].at,
                hint="CREATE CHANGELOG declares a relation with a primary key.",
            )

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.makes_relation(self.name), access.in_store(self.given))

    async def execute(self, ctx: Context) -> Result:
        full = places.new_relation(ctx, self.name)
        if (full.database, full.schema, full.name) in ctx.snapshot.relations:
            return already(ctx, self, full)
        d, relation = await self.relation(ctx, full)
        async with AsyncExitStack() as undo:
            if await topics.settle(ctx, d, relation):
                undo.push_async_callback(topics.drop, ctx, d)
                if relation.kind == "table":  # whoever meant one that is there has misspelt it
                    ctx.notice(f'table "{d.entity}" was not in store "{d.store.name}", and is made with these columns')
            async with topics.recording(ctx, [relation], undo):
                await ctx.catalog.create_relation(relation, at=self.name.at)
        return done(self.tag, ddl(self.kind, str(full), "CREATE", full.path))

    async def explain(self, ctx: Context) -> Explained:
        full = places.new_relation(ctx, self.name)
        _, relation = await self.relation(ctx, full)
        return Explained(f"CREATE_{self.kind.upper()}", ddl=relation_facts(relation))

    async def relation(self, ctx: Context, full: FullName) -> tuple[declared.Declared, RelationRecord]:
        """What would be made, checked, and where."""
        d = declared.declare(ctx, self.given, self.name.name.lower(), _CAN[self.kind], self.name.at)
        if d.get("value.format") is None:
            raise MissingOption(
                name="value.format", hint="Give 'value.format' = 'json', 'avro', 'protobuf' or 'primitive'."
            )
        d = descriptors.settle(ctx, d)
        registered.check(d, self.name.at)
        d = await registered.key_type(ctx, d)
        columns, key = await self._columns(ctx, d)
        d = declared.check_timestamp(d, columns)
        declared.check_value(d, columns, self.name.at)
        if self.kind == "changelog" and d.get("key.format") is None:
            d = d.also(key_format=d.kind.key_format)
        # A changelog's record key carries its primary key when only the format is said.
        d = declared.check_key(d, columns, key if d.get("key.format") is not None else ())
        declared.excluded(d)
        return d, RelationRecord(
            id=str(uuid.uuid4()), full=full, kind=self.kind, columns=columns, owner=ctx.session.role,
            primary_key=key, store=d.store.name, entity=d.entity, properties=d.properties,
        )  # fmt: skip

    async def _columns(self, ctx: Context, d: declared.Declared) -> tuple[tuple[ColumnRecord, ...], tuple[str, ...]]:
        """The columns, said or out of the registry, and those of the primary key."""
        key = tuple(k.text for k in self.primary_key)
        if self.elements:
            said = (ColumnRecord(e.name.text, e.type, not e.not_null) for e in self.elements)
            return tuple(replace(c, nullable=c.nullable and c.name not in key) for c in said), key
        if d.kind.changes is not None:
            return await self._of_table(ctx, d)
        if d.get("value.format") not in registered.FORMATS:
            raise InvalidStatement(
                what=f"a {self.kind} needs columns",
                at=self.name.at,
                hint="Only those of AVRO and PROTOBUF come with the schema or the descriptor.",
            )
        columns = await registered.columns(ctx, d)
        names = [c.name for c in columns]
        for part in self.primary_key:
            if part.text not in names:
                raise UndefinedColumn(name=part.text, at=part.at)
        if self.kind == "changelog" and not key:
            key = tuple(n for n, _ in types.parse(d.get("key.type") or "VARCHAR").fields)
            if not key or not set(key) <= set(names):
                raise InvalidStatement(
                    what="a changelog needs a primary key",
                    at=self.name.at,
                    hint="Name it: CREATE CHANGELOG … (PRIMARY KEY (column, …)) WITH (…).",
                )
        return tuple(replace(c, nullable=c.nullable and c.name not in key) for c in columns), key

    async def _of_table(self, ctx: Context, d: declared.Declared) -> tuple[tuple[ColumnRecord, ...], tuple[str, ...]]:
        """The columns of a table in a store, or of its changes, and its primary key."""
        async with places.open_store(ctx, d.store, self.name.at) as admin:
            found = await admin.describe(d.entity)
        columns = [c for c in found.columns or () if c.told or self.kind == "table"]
        key = tuple(k.text for k in self.primary_key) or tuple(found.primary_key)
        if self.kind == "stream" and d.kind.changes is not None:
            columns, key = list(d.kind.changes(found)), ()
        if self.kind == "changelog" and not key:
            raise InvalidStatement(
                what=f'a changelog needs a primary key, and entity "{found.name}" has none', at=self.name.at
            )
        made = (ColumnRecord(c.name, types.parse(c.type), c.nullable and c.name not in key) for c in columns)
        return tuple(made), key


class CreateChangelog(CreateStream):
    """CREATE CHANGELOG [IF NOT EXISTS] changelog_name
    [( [column_name data_type [NOT NULL] [, ...],] PRIMARY KEY ( column_name [, ...] ) )]
    WITH ( 'parameter' = value [, ...] );

    Declare a changelog over a topic: the first record of a key is an insert, later ones replace it; a record whose
    value is null removes it when the record key carries the primary key: as 'key.format' and 'key.type' say, without
    them as a JSON object of its columns, which is what INSERT INTO writes beside JSON. Parameters as CREATE STREAM.
    Without columns they come out of the schema registry, as CREATE STREAM's do; without PRIMARY KEY it is the fields
    of the key's schema.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "CHANGELOG")
    tag: ClassVar[str] = "CREATE CHANGELOG"
    kind: ClassVar[str] = "changelog"

    @classmethod
    def _check_primary_key(cls, elements: list[ColumnDef], key: list[Name], at: int) -> None:
        if not elements:  # They come out of the registry, and the key perhaps too.
            return
        if not key:
            raise InvalidStatement(
                what="a changelog needs a primary key",
                at=at,
                hint="Add PRIMARY KEY (column, …) after the columns, or use CREATE STREAM.",
            )
        check_key_columns(elements, key)


def check_key_columns(elements: list[ColumnDef], key: list[Name]) -> None:
    """A primary key names columns that are there, each once."""
    seen: set[str] = set()
    for part in key:
        if part.text in seen:
            raise DuplicateColumn(name=part.text, at=part.at)
        seen.add(part.text)
        if part.text not in {e.name.text for e in elements}:
            raise UndefinedColumn(name=part.text, at=part.at)


def already(ctx: Context, statement: Any, full: FullName) -> Result:
    """What CREATE answers when the relation's name is taken: the IF NOT EXISTS row, or the error."""
    if not statement.if_not_exists:
        raise DuplicateRelation(name=str(full), at=statement.name.at)
    ctx.notice(f'relation "{full}" already exists, skipping')
    return done(statement.tag, exists(statement.kind, str(full), full.path))
