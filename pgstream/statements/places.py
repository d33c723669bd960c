"""Where a statement acts: stores, schemas and relations that its words mean in its session.

Owns: the session's defaults and the errors for what is not there. Must not know: what is then done.
Start reading at ``store``, ``schema`` and ``relation``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from pgstream import stores
from pgstream.catalog import kinds
from pgstream.catalog.records import ObjectRecord, RelationRecord, StoreRecord
from pgstream.errors import (
    DuplicateObject,
    NoCurrentStore,
    NotReady,
    UndefinedDatabase,
    UndefinedEntity,
    UndefinedSchema,
    UndefinedStore,
    WrongKind,
)
from pgstream.names import FullName, Name, QName
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Context
from pgstream.stores.spec import Admin, OptionTable, StoreType


def in_store(c: Cursor) -> Name | None:
    """``[IN STORE name]``"""
    return c.name() if c.accept("IN", "STORE") else None


def store(ctx: Context, name: Name | None) -> StoreRecord:
    """The named store, or the session's."""
    text = name.text if name is not None else ctx.session.store
    if text is None:
        raise NoCurrentStore()
    found = ctx.snapshot.stores.get(text)
    if found is None:
        raise UndefinedStore(name=text, at=name.at if name is not None else None)
    if found.state != "ready":
        raise NotReady(what=f'store "{text}" is {found.state}: {found.message}')
    return found


def entity(path: QName) -> str:
    """An entity's name in its store."""
    return ".".join(path.parts)


def store_type(record: StoreRecord) -> StoreType:
    return stores.find(record.type)


@asynccontextmanager
async def open_store(ctx: Context, record: StoreRecord, at: int | None = None) -> AsyncIterator[Admin]:
    """The store's face without Spark, closed at the end. ``at``: where the statement names the entity."""
    admin = stores.open_admin(store_type(record), record.name, await ctx.catalog.store_options(record.name))
    try:
        yield admin
    except (UndefinedEntity, DuplicateObject) as e:
        e.at = at if e.at is None else e.at
        raise
    finally:
        await admin.close()


def default(ctx: Context, kind: str) -> str | None:
    """What the user's sessions begin with: SET DEFAULT's, and without one this session's."""
    session = ctx.session
    kept = ctx.catalog.snapshot.defaults.get((session.user, session.organization), {})
    now = {"database": session.database, "schema": session.schema, "store": session.store, "role": session.role,
           "compute_pool": session.pool}  # fmt: skip
    return kept.get(kind, now.get(kind))


def objects(ctx: Context, kind: str) -> list[ObjectRecord]:
    """The simple objects of one kind in the session's organization, by name."""
    return ctx.snapshot.of_kind(ctx.session.organization, kind)


def find(ctx: Context, kind: str, name: str) -> ObjectRecord | None:
    """A simple object by its name."""
    return ctx.snapshot.objects.get((ctx.session.organization, kind, name))


def object(ctx: Context, kind: str, name: Name) -> ObjectRecord:
    """A simple object that a statement names."""
    found = find(ctx, kind, name.text)
    if found is None:
        raise kinds.missing(kind, name.text, name.at)
    return found


def check_named(ctx: Context, table: OptionTable, given: Options, checked: Mapping[str, str]) -> None:
    """Every option that names an object names one that is there."""
    for g in given.values():
        option = table.find(g.name)
        if option is None or option.names is None or option.name not in checked:
            continue
        if find(ctx, option.names, checked[option.name]) is None:
            raise kinds.missing(option.names, checked[option.name], g.value_at)


def database(ctx: Context, name: Name | None) -> str:
    """The named database, or the session's; it exists."""
    text = name.text if name is not None else ctx.session.database
    if text not in ctx.snapshot.databases:
        raise UndefinedDatabase(name=text, at=name.at if name is not None else None)
    return text


def schema(ctx: Context, name: QName | None) -> tuple[str, str]:
    """Database and schema of ``[database.]schema``, or the session's; both exist."""
    snapshot = ctx.snapshot
    parts = name.parts if name is not None else (ctx.session.schema,)
    in_database = parts[-2] if len(parts) > 1 else ctx.session.database
    at = name.at if name is not None else None
    if in_database not in snapshot.databases:
        raise UndefinedDatabase(name=in_database, at=at)
    if (in_database, parts[-1]) not in snapshot.schemas:
        raise UndefinedSchema(name=parts[-1], at=at)
    return in_database, parts[-1]


def new_relation(ctx: Context, name: QName) -> FullName:
    """The full name of a relation to be made; its database and schema exist."""
    full = ctx.snapshot.full_name(name, ctx.session.database, ctx.session.schema)
    schema(ctx, QName((full.database, full.schema), name.at))
    return full


def relation(ctx: Context, name: QName, kind: str | None = None) -> RelationRecord:
    """The relation a name means; of this kind, if one is wanted."""
    found = ctx.snapshot.relation(name, ctx.session.database, ctx.session.schema)
    if found is None:
        raise ctx.snapshot.no_relation(name, ctx.session.database, ctx.session.schema)
    if kind is not None and found.kind != kind:
        raise WrongKind(
            name=str(name),
            is_a=found.label,
            wanted=kind.replace("_", " "),
            at=name.at,
            hint=f"Use {found.label.upper()} or RELATION instead.",
        )
    return found
