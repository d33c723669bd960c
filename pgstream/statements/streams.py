"""CREATE STREAM and CREATE CHANGELOG over a topic: columns, types and event time for records that are there.

Owns: the grammar and the checks. ``create_as.py`` has the forms with AS; ``relations.py`` LIST, DESCRIBE and DROP.
Must not know: what a store's options mean (``declared`` and the store type).
Manual: "CREATE STREAM", "CREATE CHANGELOG".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.errors import DuplicateColumn, DuplicateRelation, InvalidStatement, MissingOption, NotYet, UndefinedColumn
from pgstream.names import FullName, Name, QName
from pgstream.properties import Options
from pgstream.sql.columns import ColumnDef
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, declared, places, topics
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, exists
from pgstream.statements.base import DDL_ROW, Context, Result, Statement
from pgstream.statements.explained import Explained, relation_facts
from pgstream.stores.spec import Can

_CAN = {"stream": Can.STREAM, "changelog": Can.CHANGELOG, "table": Can.TABLE}


@dataclass(frozen=True, slots=True)
class CreateStream(Statement):
    """CREATE STREAM [IF NOT EXISTS] stream_name ( column_name data_type [NOT NULL] [, ...] )
    WITH ( 'parameter' = value [, ...] );

    Declare a stream over a topic. Nothing is copied; a topic that does not exist is made, with the
    'topic.partitions' and 'topic.replicas' given. 'value.format' is required; 'topic' is the lower-cased name unless
    given, 'store' the session's store. 'timestamp' names the column that is the event time (BIGINT epoch milliseconds,
    TIMESTAMP or TIMESTAMP_LTZ); without it the record's own timestamp counts.
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
        if c.peek("WITH"):
            raise NotYet(
                what=f"CREATE {cls.kind.upper()} without columns",
                at=c.at,
                detail="Columns taken from a schema registry come with the AVRO and PROTOBUF formats.",
            )
        key_at = c.at
        elements, key = c.columns()
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
        d, relation = self._relation(ctx, full)
        async with AsyncExitStack() as undo:
            if await topics.settle(ctx, d):
                undo.push_async_callback(topics.drop, ctx, d)
            await ctx.catalog.create_relation(relation, at=self.name.at)
            undo.pop_all()
        return done(self.tag, ddl(self.kind, str(full), "CREATE", full.path))

    async def explain(self, ctx: Context) -> Explained:
        full = places.new_relation(ctx, self.name)
        _, relation = self._relation(ctx, full)
        return Explained(f"CREATE_{self.kind.upper()}", ddl=relation_facts(relation))

    def _relation(self, ctx: Context, full: FullName) -> tuple[declared.Declared, RelationRecord]:
        d = declared.declare(ctx, self.given, self.name.name.lower(), _CAN[self.kind], self.name.at)
        if d.get("value.format") is None:
            raise MissingOption(name="value.format", hint="Give 'value.format' = 'json' or 'primitive'.")
        key = tuple(k.text for k in self.primary_key)
        columns = tuple(
            ColumnRecord(e.name.text, e.type, not e.not_null and e.name.text not in key) for e in self.elements
        )
        d = declared.check_timestamp(d, columns)
        declared.check_value(d, columns, self.name.at)
        # A changelog's record key carries its primary key when only the format is said.
        d = declared.check_key(d, columns, key if d.get("key.format") is not None else ())
        declared.excluded(d)
        return d, RelationRecord(
            id=str(uuid.uuid4()), full=full, kind=self.kind, columns=columns, owner=ctx.session.role,
            primary_key=key, store=d.store.name, entity=d.entity, properties=d.properties,
        )  # fmt: skip


class CreateChangelog(CreateStream):
    """CREATE CHANGELOG [IF NOT EXISTS] changelog_name
    ( column_name data_type [NOT NULL] [, ...], PRIMARY KEY ( column_name [, ...] ) )
    WITH ( 'parameter' = value [, ...] );

    Declare a changelog over a topic: the first record of a key is an insert, later ones replace it; a record whose
    value is null removes it when the record key carries the primary key. Parameters as CREATE STREAM.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "CHANGELOG")
    tag: ClassVar[str] = "CREATE CHANGELOG"
    kind: ClassVar[str] = "changelog"

    @classmethod
    def _check_primary_key(cls, elements: list[ColumnDef], key: list[Name], at: int) -> None:
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
