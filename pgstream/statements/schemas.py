"""Everything about SCHEMA: CREATE, DROP, LIST, DESCRIBE. ``use.py`` has USE SCHEMA.

Owns: the grammar and the answers. Must not know: the PostgreSQL schema behind one (``catalog``).
Manual: "CREATE SCHEMA", "DROP SCHEMA", "LIST SCHEMAS". CREATE SCHEMA is PostgreSQL's statement too: here it is always
ours, so PostgreSQL's AUTHORIZATION and schema elements are a syntax error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog.records import SchemaRecord
from pgstream.errors import DuplicateSchema, UndefinedSchema
from pgstream.names import Name, QName, quote
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, exists, listing, missing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.heading import expect


def _label(database: str, schema: str) -> str:
    return f"{quote(database)}.{quote(schema)}"


@dataclass(frozen=True, slots=True)
class CreateSchema(Statement):
    """CREATE SCHEMA [IF NOT EXISTS] schema_name [IN DATABASE database_name];

    Make a schema in the named database, or in the session's.
    """

    words: ClassVar = ("CREATE", "SCHEMA")
    tag: ClassVar = "CREATE SCHEMA"
    columns: ClassVar = DDL_ROW

    name: Name
    if_not_exists: bool
    database: Name | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = c.name()
        database = c.name() if c.accept("IN", "DATABASE") else None
        c.end()
        return cls(name, if_not_exists, database)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("create", "database", self.database),)

    async def execute(self, ctx: Context) -> Result:
        database, name = places.database(ctx, self.database), self.name.text
        label, path = _label(database, name), [database, name]
        if (database, name) in ctx.snapshot.schemas:
            if not self.if_not_exists:
                raise DuplicateSchema(name=name, at=self.name.at)
            ctx.notice(f'schema "{name}" already exists, skipping')
            return done(self.tag, exists("schema", label, path))
        await ctx.catalog.create_schema(database, name, ctx.session.role, at=self.name.at)
        return done(self.tag, ddl("schema", label, "CREATE", path))


@dataclass(frozen=True, slots=True)
class DropSchema(Statement):
    """DROP SCHEMA [IF EXISTS] [database_name.]schema_name [CASCADE | RESTRICT];

    Remove an empty schema. Refused while it holds a relation; with CASCADE, what PostgreSQL itself keeps in it (tables,
    types, functions) goes with it.
    """

    words: ClassVar = ("DROP", "SCHEMA")
    tag: ClassVar = "DROP SCHEMA"
    columns: ClassVar = DDL_ROW

    name: QName
    if_exists: bool
    cascade: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_exists = c.accept("IF", "EXISTS")
        name = c.qname()
        if len(name.parts) > 2:
            raise UndefinedSchema(name=str(name), at=name.at)
        cascade = c.accept("CASCADE")
        if not cascade:
            c.accept("RESTRICT")
        c.end()
        return cls(name, if_exists, cascade)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("schema", self.name, self.if_exists),)

    async def execute(self, ctx: Context) -> Result:
        if self.if_exists and not self._exists(ctx):
            return missing(ctx, self.tag, "schema", str(self.name), self.name.parts)
        database, name = places.schema(ctx, self.name)
        await ctx.catalog.drop_schema(database, name, at=self.name.at, cascade=self.cascade)
        return done(self.tag, ddl("schema", _label(database, name), "DROP", [database, name]))

    def _exists(self, ctx: Context) -> bool:
        return ((ctx.session.database, *self.name.parts)[-2:]) in ctx.snapshot.schemas


@dataclass(frozen=True, slots=True)
class ListSchemas(Statement):
    """LIST SCHEMAS [IN DATABASE database_name];

    The schemas of the named database, or of the session's. Is Default marks ``public``.
    """

    words: ClassVar = ("LIST", "SCHEMAS")
    columns: ClassVar = (
        Column("Name"), Column("Is Default", types.BOOLEAN), Column("Owner"),
        Column("Created At", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    database: Name | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        database = c.name() if c.accept("IN", "DATABASE") else None
        c.end()
        return cls(database)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, "database", self.database),)

    async def execute(self, ctx: Context) -> Result:
        database = places.database(ctx, self.database)
        found = sorted((s for s in ctx.snapshot.schemas.values() if s.database == database), key=lambda s: s.name)
        return listing(self.columns, [_line(s) for s in found])


def _line(s: SchemaRecord) -> Sequence[Any]:
    return s.name, s.name == "public", s.owner, s.created_at


@dataclass(frozen=True, slots=True)
class DescribeSchema(Statement):
    """DESCRIBE SCHEMA [database_name.]schema_name;

    The row of LIST SCHEMAS for one schema.
    """

    words: ClassVar = ("DESCRIBE", "SCHEMA")
    columns: ClassVar = ListSchemas.columns

    name: QName

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.qname()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, "schema", self.name),)

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, [_line(ctx.catalog.snapshot.schemas[places.schema(ctx, self.name)])])
