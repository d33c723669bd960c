"""Everything about SCHEMA: CREATE, DROP, LIST, DESCRIBE. ``use.py`` has USE SCHEMA.

Owns: the grammar and the answers. Must not know: the PostgreSQL schema behind one (``catalog``).
Manual: "CREATE SCHEMA", "DROP SCHEMA", "LIST SCHEMAS". CREATE and DROP SCHEMA are PostgreSQL's statements too: here
they are always ours, with PostgreSQL's own forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog.records import SchemaRecord
from pgstream.errors import DuplicateSchema, NotSupported, UndefinedSchema
from pgstream.names import Name, QName, quote
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, emptied, owners, places
from pgstream.statements.access import Need
from pgstream.statements.answers import absent, ddl, done, exists, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement, TextRow, Undecided
from pgstream.statements.heading import expect


def _label(database: str, schema: str) -> str:
    return f"{quote(database)}.{quote(schema)}"


@dataclass(frozen=True, slots=True)
class CreateSchema(Statement):
    """CREATE SCHEMA [IF NOT EXISTS] schema_name [AUTHORIZATION role_name] [IN DATABASE database_name];
    CREATE SCHEMA [IF NOT EXISTS] AUTHORIZATION role_name [IN DATABASE database_name];

    Make a schema in the named database, or in the session's. It belongs to the session's role, or to the one that
    AUTHORIZATION names (CURRENT_ROLE is the session's), after which a schema without a name is called. NAMESPACE is an
    older word for SCHEMA, here and in the other statements. Inside a transaction it is rolled back with it. In the
    extended protocol it answers with its command tag alone, as PostgreSQL's statement of this name does.
    """

    words: ClassVar = ("CREATE", "SCHEMA")
    tag: ClassVar = "CREATE SCHEMA"
    columns: ClassVar = DDL_ROW
    rolls_back: ClassVar = True
    as_postgres: ClassVar = True

    name: Name | None
    if_not_exists: bool
    database: Name | None
    owner: Name | None = None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        owner = owners.read(c) if c.accept("AUTHORIZATION") else None
        name = None
        if owner is None:
            name = c.name()
            owner = owners.read(c) if c.accept("AUTHORIZATION") else None
        database = c.name() if c.accept("IN", "DATABASE") else None
        if c.peek("CREATE") or c.peek("GRANT"):
            hint = "Make the schema first, and then what is to be in it."
            raise NotSupported(what="CREATE SCHEMA with statements in it", hint=hint, at=c.at)
        c.end()
        return cls(name, if_not_exists, database, owner)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("create", "database", self.database),)

    async def execute(self, ctx: Context) -> Result:
        owner = owners.owner(ctx, self.owner)
        named = self.name or Name(owner, self.owner.at if self.owner is not None else None)
        database, name = places.database(ctx, self.database), named.text
        label, path = _label(database, name), [database, name]
        transaction = await ctx.transaction(self.tag)
        if _dropped(ctx, database, name):  # it is there still, and empty
            gone = (database, name)
            ctx.session.undecided[:] = [u for u in ctx.session.undecided if u[:2] != gone or not u.dropped]
            return done(self.tag, ddl("schema", label, "CREATE", path))
        if (database, name) in ctx.snapshot.schemas:  # unless it is on its way out with a transaction
            await ctx.catalog.settle_schema(database, name)
        if (database, name) in ctx.snapshot.schemas:
            if not self.if_not_exists:
                raise DuplicateSchema(name=name, at=named.at)
            ctx.notice(f'schema "{name}" already exists, skipping')
            return done(self.tag, exists("schema", label, path))
        if transaction is not None:  # first: who is canceled may have made it
            ctx.session.undecided.append(Undecided(database, name))
        await ctx.catalog.create_schema(database, name, owner, at=named.at, transaction=transaction)
        return done(self.tag, ddl("schema", label, "CREATE", path))


@dataclass(frozen=True, slots=True)
class DropSchema(Statement):
    """DROP SCHEMA [IF EXISTS] [database_name.]schema_name [, ...] [CASCADE | RESTRICT];

    Remove empty schemas, all or none. Refused while one holds a relation; with CASCADE, what PostgreSQL itself keeps in
    them (tables, types, functions) goes with them. Inside a transaction it is rolled back with it, and what is in the
    schemas is dropped with the rights of the session's role. In the extended protocol it answers with its command tag
    alone, as PostgreSQL's statement of this name does.
    """

    words: ClassVar = ("DROP", "SCHEMA")
    tag: ClassVar = "DROP SCHEMA"
    columns: ClassVar = DDL_ROW
    rolls_back: ClassVar = True
    as_postgres: ClassVar = True

    names: tuple[QName, ...]
    if_exists: bool
    cascade: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        if_exists = c.accept("IF", "EXISTS")
        names = [_named(c)]
        while c.accept(","):
            names.append(_named(c))
        cascade = c.accept("CASCADE")
        if not cascade:
            c.accept("RESTRICT")
        c.end()
        return cls(tuple(names), if_exists, cascade)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return tuple(access.owns("schema", name, self.if_exists) for name in self.names)

    async def execute(self, ctx: Context) -> Result:
        there: dict[tuple[str, str], int | None] = {}
        lines: list[TextRow] = []
        for named in self.names:
            if not _exists(ctx, named):
                if not self.if_exists:
                    raise UndefinedSchema(name=named.parts[-1], at=named.at)
                lines.append(absent(ctx, "schema", str(named), named.parts))
                continue
            database, name = places.schema(ctx, named)
            if (database, name) not in there:
                there[database, name] = named.at
                lines.append(ddl("schema", _label(database, name), "DROP", [database, name]))
        if there:
            await self._drop(ctx, there)
        return done(self.tag, *lines)

    async def _drop(self, ctx: Context, there: Mapping[tuple[str, str], int | None]) -> None:
        transaction = await ctx.transaction(self.tag)
        if transaction is None:
            for text, detail in await ctx.catalog.drop_schemas(there, cascade=self.cascade):
                ctx.notice(text, detail=detail)
            return
        for (database, name), at in there.items():
            if database != ctx.session.database:
                hint = "USE that database, or run the statement after COMMIT."
                raise NotSupported(what="DROP SCHEMA of another database in a transaction", hint=hint, at=at)
            await emptied.empty(ctx, name, cascade=self.cascade, at=at)
        ctx.session.undecided += [Undecided(*schema, transaction) for schema in there]


def _named(c: Cursor) -> QName:
    name = c.qname()
    if len(name.parts) > 2:
        raise UndefinedSchema(name=str(name), at=name.at)
    return name


def _exists(ctx: Context, name: QName) -> bool:
    schema = (ctx.session.database, *name.parts)[-2:]
    return schema in ctx.snapshot.schemas and not _dropped(ctx, *schema)


def _dropped(ctx: Context, database: str, name: str) -> bool:
    """Whether the session's own transaction has dropped a schema."""
    return any(u[:2] == (database, name) and u.dropped for u in ctx.session.undecided)


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
        expect(c, *cls.words)
        name = c.qname()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, "schema", self.name),)

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, [_line(ctx.catalog.snapshot.schemas[places.schema(ctx, self.name)])])
