"""Everything about DATABASE: CREATE, DROP, LIST, DESCRIBE. ``use.py`` has USE DATABASE.

Owns: the grammar and the answers. Must not know: the PostgreSQL database behind one (``catalog``).
Manual: "CREATE DATABASE", "DROP DATABASE", "LIST DATABASES". CREATE DATABASE is PostgreSQL's statement too: here it
is always ours, so PostgreSQL's own options (OWNER, TEMPLATE, …) are a syntax error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog.records import DatabaseRecord
from pgstream.errors import DuplicateDatabase
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, exists, json_text, listing, missing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.heading import expect


@dataclass(frozen=True, slots=True)
class CreateDatabase(Statement):
    """CREATE DATABASE [IF NOT EXISTS] database_name;

    Make a database with an empty schema ``public``. Clients can connect to it at once.
    """

    words: ClassVar = ("CREATE", "DATABASE")
    tag: ClassVar = "CREATE DATABASE"
    columns: ClassVar = DDL_ROW

    name: Name
    if_not_exists: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = c.name()
        c.end()
        return cls(name, if_not_exists)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("create_database"),)

    async def execute(self, ctx: Context) -> Result:
        name = self.name.text
        if name in ctx.snapshot.databases:
            if not self.if_not_exists:
                raise DuplicateDatabase(name=name, at=self.name.at)
            ctx.notice(f'database "{name}" already exists, skipping')
            return done(self.tag, exists("database", name, [name]))
        await ctx.catalog.create_database(name, ctx.session.role, at=self.name.at)
        return done(self.tag, ddl("database", name, "CREATE", [name]))


@dataclass(frozen=True, slots=True)
class DropDatabase(Statement):
    """DROP DATABASE [IF EXISTS] database_name;

    Remove a database and its empty schemas. Refused while a schema holds a relation, or a session uses the database.
    """

    words: ClassVar = ("DROP", "DATABASE")
    tag: ClassVar = "DROP DATABASE"
    columns: ClassVar = DDL_ROW

    name: Name
    if_exists: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_exists = c.accept("IF", "EXISTS")
        name = c.name()
        c.end()
        return cls(name, if_exists)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("database", self.name, self.if_exists),)

    async def execute(self, ctx: Context) -> Result:
        name = self.name.text
        if self.if_exists and name not in ctx.snapshot.databases:
            return missing(ctx, self.tag, "database", name, [name])
        await ctx.catalog.drop_database(name, at=self.name.at)
        return done(self.tag, ddl("database", name, "DROP", [name]))


@dataclass(frozen=True, slots=True)
class ListDatabases(Statement):
    """LIST DATABASES;

    The databases, one a row. Is Default marks the user's default (SET DEFAULT), or without one the
    session's database.
    """

    words: ClassVar = ("LIST", "DATABASES")
    free: ClassVar = "it shows what the role sees"
    columns: ClassVar = (
        Column("Name"), Column("Is Default", types.BOOLEAN), Column("Owner"),
        Column("Created At", types.TIMESTAMP_LTZ), Column("Path"),
    )  # fmt: skip

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        c.end()
        return cls()

    async def execute(self, ctx: Context) -> Result:
        found = sorted(ctx.snapshot.databases.values(), key=lambda d: d.name)
        return listing(self.columns, [_line(ctx, d) for d in found])


def _line(ctx: Context, d: DatabaseRecord) -> Sequence[Any]:
    default = places.default(ctx, "database")
    return d.name, d.name == default, d.owner, d.created_at, json_text([d.name])


@dataclass(frozen=True, slots=True)
class DescribeDatabase(Statement):
    """DESCRIBE DATABASE database_name;

    The row of LIST DATABASES for one database.
    """

    words: ClassVar = ("DESCRIBE", "DATABASE")
    columns: ClassVar = ListDatabases.columns

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, "database", self.name),)

    async def execute(self, ctx: Context) -> Result:
        found = ctx.catalog.snapshot.databases[places.database(ctx, self.name)]
        return listing(self.columns, [_line(ctx, found)])
