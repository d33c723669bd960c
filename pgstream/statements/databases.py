"""Everything about DATABASE: CREATE, DROP, LIST, DESCRIBE. ``use.py`` has USE DATABASE.

Owns: the grammar and the answers. Must not know: the PostgreSQL database behind one (``catalog``).
Manual: "CREATE DATABASE", "DROP DATABASE", "LIST DATABASES". CREATE and DROP DATABASE are PostgreSQL's statements too:
here they are always ours; what PostgreSQL lets them say is in ``database_options``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog.records import DatabaseRecord
from pgstream.errors import DuplicateDatabase, ObjectInUse
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, database_options, owners, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, exists, json_text, listing, missing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.database_options import DatabaseOptions
from pgstream.statements.shapes import Words


@dataclass(frozen=True, slots=True)
class CreateDatabase(Statement):
    """CREATE DATABASE [IF NOT EXISTS] database_name [WITH] [OWNER [=] role_name] [option [=] value] [...];

    Make a database with an empty schema ``public``. Clients can connect to it at once. It belongs to the session's
    role, or to OWNER. Of PostgreSQL's other options STRATEGY, LOCALE, LC_COLLATE, LC_CTYPE, LOCALE_PROVIDER,
    ICU_LOCALE, ICU_RULES, BUILTIN_LOCALE and CONNECTION LIMIT are PostgreSQL's to judge; TEMPLATE (template0,
    template1), ENCODING (UTF8), TABLESPACE (pg_default), ALLOW_CONNECTIONS and IS_TEMPLATE may say what is so anyway.
    In the extended protocol it answers with its command tag alone, as PostgreSQL's statement of this name does.
    """

    words: ClassVar = ("CREATE", "DATABASE")
    tag: ClassVar = "CREATE DATABASE"
    columns: ClassVar = DDL_ROW
    as_postgres: ClassVar = True

    name: Name
    if_not_exists: bool
    options: DatabaseOptions

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = c.name()
        options = database_options.read(c)
        c.end()
        return cls(name, if_not_exists, options)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("create_database"),)

    async def execute(self, ctx: Context) -> Result:
        name = self.name.text
        if name in ctx.snapshot.databases:
            if not self.if_not_exists:
                raise DuplicateDatabase(name=name, at=self.name.at)
            ctx.notice(f'database "{name}" already exists, skipping')
            return done(self.tag, exists("database", name, [name]))
        owner = owners.owner(ctx, self.options.owner)
        await ctx.catalog.create_database(name, owner, at=self.name.at, options=self.options.passed)
        return done(self.tag, ddl("database", name, "CREATE", [name]))


@dataclass(frozen=True, slots=True)
class DropDatabase(Statement):
    """DROP DATABASE [IF EXISTS] database_name [[WITH] (FORCE)];

    Remove a database and its empty schemas. Refused while a schema holds a relation, or a session uses the database;
    FORCE ends the others' sessions in it. In the extended protocol it answers with its command tag alone, as
    PostgreSQL's statement of this name does.
    """

    words: ClassVar = ("DROP", "DATABASE")
    tag: ClassVar = "DROP DATABASE"
    columns: ClassVar = DDL_ROW
    as_postgres: ClassVar = True

    name: Name
    if_exists: bool
    force: bool = False

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_exists = c.accept("IF", "EXISTS")
        name = c.name()
        force = False
        if c.accept("WITH") or c.peek("("):
            c.expect("(")
            c.expect("FORCE")
            c.expect(")")
            force = True
        c.end()
        return cls(name, if_exists, force)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("database", self.name, self.if_exists),)

    async def execute(self, ctx: Context) -> Result:
        name = self.name.text
        if self.if_exists and name not in ctx.snapshot.databases:
            return missing(ctx, self.tag, "database", name, [name])
        if self.force and name == ctx.session.database:
            raise ObjectInUse(kind="database", name=name, detail="This session is in it.", at=self.name.at)
        await ctx.catalog.drop_database(name, at=self.name.at, force=self.force)
        return done(self.tag, ddl("database", name, "DROP", [name]))


@dataclass(frozen=True, slots=True)
class ListDatabases(Words):
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
