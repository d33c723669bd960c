"""Everything about STORE: CREATE, UPDATE, DROP, LIST, DESCRIBE.

Owns: the grammar and the answers. Must not know: the options of any store type (``pgstream.stores``).
Manual: "CREATE STORE", "UPDATE STORE", "DROP STORE", "LIST STORES", "DESCRIBE STORE".
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pgstream import stores, types
from pgstream.embedded.jars import fetch_part
from pgstream.errors import MissingOption
from pgstream.statements import attachments, descriptors, places
from pgstream.statements.answers import ddl, done, json_text, listing
from pgstream.statements.base import Column, Context, Result
from pgstream.statements.shapes import MASK, Create, Describe, Drop, List, OfKind, Update
from pgstream.stores.spec import StoreType


class _OfStore(OfKind):
    """Stores have a table of their own."""

    kind: ClassVar[str] = "store"

    def found(self, ctx: Context) -> bool:
        return self.label in ctx.snapshot.stores


class CreateStore(_OfStore, Create):
    """CREATE STORE [IF NOT EXISTS] store_name WITH ( 'type' = store_type, 'parameter' = value [, ...] );

    Register a system that holds data. The connection is tried before anything is recorded, so a wrong address or
    password is an error at once. Passwords and keys are kept encrypted and never shown again.
    The parameters are those of the store type; ``docs/stores`` has a page for each. A file is ``'@name'`` in the folder
    that the administrator allows, ``'base64:…'``, or its text; ``'properties.file'`` is YAML that holds parameters.
    """

    kind: ClassVar[str] = "store"

    async def make(self, ctx: Context) -> Result:
        kind, name = self._type(), self.label
        rest = {k: g for k, g in self.given.items() if k != "type"}
        given = await attachments.resolve(ctx, rest, kind.options)
        options = kind.options.check(given)
        places.check_named(ctx, kind.options, given, options)
        await _check(ctx, kind, name, options)
        await ctx.catalog.create_store(
            name, kind.name, options, kind.options.hidden(options), ctx.session.role, at=self.name.at
        )
        return done(self.tag, ddl("store", name, "CREATE", [name]))

    def _type(self) -> StoreType:
        given = self.given.get("type")
        if given is None or given.value is None:
            raise MissingOption(name="type", hint=f"Known types: {', '.join(stores.names())}.")
        return stores.find(given.value, given.value_at)


class UpdateStore(_OfStore, Update):
    """UPDATE STORE store_name WITH ( 'parameter' = { value | NULL } [, ...] );

    Change parameters of a store; NULL takes one away. The connection is tried with the new ones first. The type cannot
    change. Queries that run keep the parameters they began with until RESTART QUERY.
    """

    kind: ClassVar[str] = "store"

    async def execute(self, ctx: Context) -> Result:
        store = places.store(ctx, self.name)
        kind = places.store_type(store)
        options = await self.changed(ctx, kind.options, await ctx.catalog.store_options(store.name))
        await _check(ctx, kind, store.name, options)
        await ctx.catalog.update_store(store.name, options, kind.options.hidden(options), at=self.name.at)
        return done(self.tag, ddl("store", store.name, "UPDATE", [store.name]))


async def _check(ctx: Context, kind: StoreType, name: str, options: Mapping[str, str]) -> None:
    """Whether the store answers. What its queries need beyond the usual is fetched now: somebody reads the error."""
    for part in kind.parts(options):
        await asyncio.to_thread(fetch_part, part, ctx.config)
    admin = stores.open_admin(kind, name, options)
    try:
        await admin.check()
    finally:
        await admin.close()


class DropStore(_OfStore, Drop):
    """DROP STORE [IF EXISTS] store_name;

    Forget a store. Nothing in it changes. Refused while relations lie in it.
    """

    kind: ClassVar[str] = "store"

    async def drop(self, ctx: Context) -> None:
        await ctx.catalog.drop_store(self.label, at=self.name.at)
        await descriptors.forget(ctx, self.label)
        if ctx.session.store == self.label:
            ctx.session.store = None


class ListStores(List):
    """LIST STORES;

    The stores, one a row. IsDefault marks the user's default store, or without one the session's.
    """

    kind: ClassVar[str] = "store"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Name"), Column("Type"), Column("State"), Column("Message"), Column("IsDefault", types.BOOLEAN),
        Column("Owner"), Column("CreatedAt", types.TIMESTAMP_LTZ), Column("UpdatedAt", types.TIMESTAMP_LTZ),
        Column("Path"),
    )  # fmt: skip

    async def lines(self, ctx: Context) -> list[Sequence[Any]]:
        default = places.default(ctx, "store")
        found = sorted(ctx.snapshot.stores.values(), key=lambda s: s.name)
        return [
            (s.name, places.store_type(s).label, s.state, s.message, s.name == default, s.owner, s.created_at,
             s.updated_at, json_text([s.name]))
            for s in found
        ]  # fmt: skip


class DescribeStore(Describe):
    """DESCRIBE STORE store_name;

    One row about a store. Details are its parameters as JSON; passwords and keys appear as ``********``.
    """

    kind: ClassVar[str] = "store"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Metadata"), Column("Uris"), Column("Details"), Column("Tls Enabled", types.BOOLEAN),
        Column("Verify Hostname", types.BOOLEAN), Column("Schema Registry"), Column("Path"),
    )  # fmt: skip

    async def execute(self, ctx: Context) -> Result:
        s = places.store(ctx, self.name)
        kind = places.store_type(s)
        kept = kind.options.hidden(await ctx.catalog.store_options(s.name))
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
