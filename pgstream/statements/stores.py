"""Everything about STORE: CREATE, DROP, LIST, DESCRIBE.

Owns: the grammar and the answers. Must not know: the options of any store type (``pgstream.stores``).
Manual: "CREATE STORE", "DROP STORE", "LIST STORES", "DESCRIBE STORE".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream import stores, types
from pgstream.errors import DuplicateObject, MissingOption
from pgstream.names import Name
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import places
from pgstream.statements.answers import ddl, done, exists, json_text, listing, missing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.heading import expect
from pgstream.stores.spec import StoreType

MASK = "********"


@dataclass(frozen=True, slots=True)
class CreateStore(Statement):
    """CREATE STORE [IF NOT EXISTS] store_name WITH ( 'type' = store_type, 'parameter' = value [, ...] );

    Register a system that holds data. The connection is tried before anything is recorded, so a wrong address or
    password is an error at once. Passwords and keys are kept encrypted and never shown again.
    The parameters are those of the store type; ``docs/stores`` has a page for each.
    """

    words: ClassVar = ("CREATE", "STORE")
    tag: ClassVar = "CREATE STORE"
    columns: ClassVar = DDL_ROW

    name: Name
    if_not_exists: bool
    given: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect("CREATE", "STORE")
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = c.name()
        c.expect("WITH")
        given = c.properties()
        c.end()
        return cls(name, if_not_exists, given)

    def kind(self) -> StoreType:
        """The store type that 'type' names."""
        given = self.given.get("type")
        if given is None or given.value is None:
            raise MissingOption(name="type", hint=f"Known types: {', '.join(stores.names())}.")
        return stores.find(given.value, given.value_at)

    async def execute(self, ctx: Context) -> Result:
        kind, name = self.kind(), self.name.text
        options = kind.options.check({k: g for k, g in self.given.items() if k != "type"})
        if name in ctx.catalog.snapshot.stores:
            if not self.if_not_exists:
                raise DuplicateObject(kind="store", name=name, at=self.name.at)
            ctx.notice(f'store "{name}" already exists, skipping')
            return done(self.tag, exists("store", name, [name]))
        admin = stores.open_admin(kind, name, options)
        try:
            await admin.check()
        finally:
            await admin.close()
        await ctx.catalog.create_store(name, kind.name, options, kind.options.secrets(), ctx.session.role)
        return done(self.tag, ddl("store", name, "CREATE", [name]))


@dataclass(frozen=True, slots=True)
class DropStore(Statement):
    """DROP STORE [IF EXISTS] store_name;

    Forget a store. Nothing in it changes. Refused while relations lie in it.
    """

    words: ClassVar = ("DROP", "STORE")
    tag: ClassVar = "DROP STORE"
    columns: ClassVar = DDL_ROW

    name: Name
    if_exists: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect("DROP", "STORE")
        if_exists = c.accept("IF", "EXISTS")
        name = c.name()
        c.end()
        return cls(name, if_exists)

    async def execute(self, ctx: Context) -> Result:
        name = self.name.text
        if self.if_exists and name not in ctx.catalog.snapshot.stores:
            return missing(ctx, self.tag, "store", name, [name])
        await ctx.catalog.drop_store(name, at=self.name.at)
        if ctx.session.store == name:
            ctx.session.store = None
        return done(self.tag, ddl("store", name, "DROP", [name]))


@dataclass(frozen=True, slots=True)
class ListStores(Statement):
    """LIST STORES;

    The stores, one a row. IsDefault marks the session's store.
    """

    words: ClassVar = ("LIST", "STORES")
    columns: ClassVar = (
        Column("Name"), Column("Type"), Column("State"), Column("Message"), Column("IsDefault", types.BOOLEAN),
        Column("Owner"), Column("CreatedAt", types.TIMESTAMP_LTZ), Column("UpdatedAt", types.TIMESTAMP_LTZ),
        Column("Path"),
    )  # fmt: skip

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        c.end()
        return cls()

    async def execute(self, ctx: Context) -> Result:
        found = sorted(ctx.catalog.snapshot.stores.values(), key=lambda s: s.name)
        lines = [
            (s.name, places.store_type(s).label, s.state, s.message, s.name == ctx.session.store, s.owner,
             s.created_at, s.updated_at, json_text([s.name]))
            for s in found
        ]  # fmt: skip
        return listing(self.columns, lines)


@dataclass(frozen=True, slots=True)
class DescribeStore(Statement):
    """DESCRIBE STORE store_name;

    One row about a store. Details are its parameters as JSON; passwords and keys appear as ``********``.
    """

    words: ClassVar = ("DESCRIBE", "STORE")
    columns: ClassVar = (
        Column("Metadata"), Column("Uris"), Column("Details"), Column("Tls Enabled", types.BOOLEAN),
        Column("Verify Hostname", types.BOOLEAN), Column("Schema Registry"), Column("Path"),
    )  # fmt: skip

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    async def execute(self, ctx: Context) -> Result:
        s = places.store(ctx, self.name)
        kind = places.store_type(s)
        kept = set(await ctx.catalog.store_options(s.name)) & kind.options.secrets()
        details = {**s.options, **dict.fromkeys(kept, MASK)}
        metadata = {"name": s.name, "type": kind.label, "state": s.state, "message": s.message, "owner": s.owner}
        line = (
            json_text(metadata),
            s.options.get("uris"),
            json_text(dict(sorted(details.items()))),
            s.options.get("tls.disabled") != "true",
            s.options.get("tls.verify_server_hostname", "true") == "true",
            s.options.get("schema_registry.name"),
            json_text([s.name]),
        )
        return listing(self.columns, [line])
