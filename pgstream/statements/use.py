"""USE: the session's database, schema, store and compute pool.

Owns: what changes in the session, and when the backend connection must follow.
Must not know: how a connection moves (``Context.use_database``, ``Context.use_schema``).
Manual: "USE". ``roles.py`` has USE ROLE, ``organizations.py`` USE ORGANIZATION.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.names import Name, QName
from pgstream.sql.cursor import Cursor
from pgstream.statements import places
from pgstream.statements.access import Need
from pgstream.statements.answers import CONTEXT_ROW
from pgstream.statements.base import Context, Result, Statement
from pgstream.statements.heading import expect


def _using(kind: str, name: str) -> Result:
    return Result("USE", CONTEXT_ROW, [[kind, name, "USE", f'using {kind} "{name}"']])


@dataclass(frozen=True, slots=True)
class UseDatabase(Statement):
    """USE DATABASE database_name;

    Make a database the session's, with its schema ``public``. PostgreSQL's own statements follow: the session's
    connection behind the server moves too, so prepared statements and temporary tables end as with a new connection.
    """

    words: ClassVar = ("USE", "DATABASE")
    columns: ClassVar = CONTEXT_ROW

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "database", self.name),)

    async def execute(self, ctx: Context) -> Result:
        name = places.database(ctx, self.name)
        await _move(ctx, name)
        return _using("database", name)


@dataclass(frozen=True, slots=True)
class UseSchema(Statement):
    """USE SCHEMA [database_name.]schema_name;

    Make a schema the session's: unqualified names are looked up in it, by PostgreSQL's statements too.
    """

    words: ClassVar = ("USE", "SCHEMA")
    columns: ClassVar = CONTEXT_ROW

    name: QName

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        name = c.qname()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "schema", self.name),)

    async def execute(self, ctx: Context) -> Result:
        database, schema = places.schema(ctx, self.name)
        await _move(ctx, database)
        await ctx.use_schema(schema)
        ctx.session.schema = schema
        return _using("schema", schema)


@dataclass(frozen=True, slots=True)
class UseStore(Statement):
    """USE STORE store_name;

    Make a store the session's: relations and entities of statements that name no store lie in it.
    """

    words: ClassVar = ("USE", "STORE")
    columns: ClassVar = CONTEXT_ROW

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "store", self.name),)

    async def execute(self, ctx: Context) -> Result:
        ctx.session.store = places.store(ctx, self.name).name
        return _using("store", ctx.session.store)


@dataclass(frozen=True, slots=True)
class UseComputePool(Statement):
    """USE COMPUTE_POOL pool_name;

    Make a compute pool the session's: its SELECTs over streams, and the queries that it makes, run in it.
    """

    words: ClassVar = ("USE", "COMPUTE_POOL")
    columns: ClassVar = CONTEXT_ROW

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need("usage", "compute_pool", self.name),)

    async def execute(self, ctx: Context) -> Result:
        ctx.session.pool = places.object(ctx, "compute_pool", self.name).name
        return _using("compute_pool", ctx.session.pool)


async def _move(ctx: Context, database: str) -> None:
    if database != ctx.session.database:
        await ctx.use_database(database)
        ctx.session.database, ctx.session.schema = database, "public"
