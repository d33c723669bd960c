"""The entity under a relation: there already with the counts that were said, or made now.

Owns: the rule of "CREATE STREAM" (a missing topic is made; counts of an existing one must be equal), the defaults of
a query's sink (the leftmost source's counts), whether a table has the columns that a relation says, whether a made one
stays when the relation's recording is stopped, and the warning about retention (``semantics.md`` §28.1). Which counts
there are is the store type's (``StoreType.counts``).
Must not know: how a store makes one. Start reading at ``settle``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from pgstream import types
from pgstream.catalog.records import RelationRecord, StoreRecord
from pgstream.errors import (
    InvalidOption,
    MissingOption,
    NotSupported,
    PgStreamError,
    TypeMismatch,
    UndefinedColumn,
    UndefinedEntity,
)
from pgstream.planner.plan import Plan, sources
from pgstream.statements import places
from pgstream.statements.base import Context
from pgstream.statements.declared import Declared
from pgstream.stores.spec import Can, EntityColumn, EntityInfo
from pgstream.tasks import whole

log = structlog.get_logger(__name__)


async def settle(
    ctx: Context,
    d: Declared,
    relation: RelationRecord,
    like: RelationRecord | None = None,
    extra: Mapping[str, str] | None = None,
) -> bool:
    """See that the entity of a relation is there; True when it was made now.

    ``like``: a source whose entity's counts are the defaults. ``extra``: options of a made entity, unless given.
    """
    async with places.open_store(ctx, d.store) as admin:
        try:
            found = await admin.describe(d.entity)
        except UndefinedEntity:
            if relation.kind not in d.kind.makes:
                raise
            options = {**(extra or {}), **d.entity_options}
            if not d.kind.counts.keys() <= options.keys():
                options = {**await _like(ctx, d, like), **options}
            _check_counts_given(d, options)
            d.kind.require(Can.CREATE_ENTITY)
            columns = [EntityColumn(c.name, str(c.type), c.nullable) for c in relation.columns]
            await admin.create(d.entity, options, columns, relation.primary_key)
            return True
        _check_equal(d, found)
        if relation.kind != "stream":
            if len(d.kind.several(d.entity)) > 1:
                raise NotSupported(
                    what=f"a {relation.kind} over several entities", hint="Declare one for each, or a stream over all."
                )
            _check_columns(relation, found)
        return False


async def settle_logs(ctx: Context, plan: Plan, undo: AsyncExitStack) -> None:
    """See that the entities for bad records are there: one that is missing is made, with its source's counts."""
    logs = {(s.bad_record_store or s.store, s.bad_record_topic): s for s in sources(plan.root)}
    for (name, topic), source in logs.items():
        if topic is None:
            continue
        store = ctx.snapshot.store_behind(name)
        async with places.open_store(ctx, store) as admin:
            try:
                await admin.describe(topic)
            except UndefinedEntity:
                read = ctx.snapshot.store_behind(source.store)
                if read.type != store.type:
                    raise
                await admin.create(topic, await _counts(ctx, read, source.entity))
                undo.push_async_callback(_drop_log, ctx, store, topic)
                ctx.notice(f'entity "{topic}" was made in store "{name}", for bad records of {source.relation}')


async def _drop_log(ctx: Context, store: StoreRecord, topic: str) -> None:
    async with places.open_store(ctx, store) as admin:
        await admin.drop(topic)


async def drop(ctx: Context, d: Declared) -> None:
    """Undo ``settle`` when it made the entity."""
    async with places.open_store(ctx, d.store) as admin:
        await admin.drop(d.entity)


@asynccontextmanager
async def recording(ctx: Context, relations: Collection[RelationRecord], undo: AsyncExitStack) -> AsyncIterator[None]:
    """Around the recording of relations, all or none. What ``undo`` would undo stays when the catalogue has them, also
    when an error, or who cancels it, comes then; and where nobody can tell.
    """
    try:
        yield
    except BaseException:
        await whole(_keep_recorded(ctx, relations, undo))
        raise
    undo.pop_all()


async def _keep_recorded(ctx: Context, relations: Collection[RelationRecord], undo: AsyncExitStack) -> None:
    names = [str(r.full) for r in relations]
    try:
        if not await ctx.catalog.has_recorded(relations):
            return
        log.warning("relations were recorded, though not said so", relations=names)
    except PgStreamError as e:
        log.warning("relations may have been recorded", relations=names, error=e.text)
    undo.pop_all()


async def warn_of_retention(ctx: Context, d: Declared) -> None:
    """A NOTICE when old events written into the entity would be deleted by the store."""
    async with places.open_store(ctx, d.store) as admin:
        kept = (await admin.describe(d.entity)).kept_ms
    if kept is not None:
        ctx.notice(
            f'entity "{d.entity}" keeps records for {kept} ms by their event time, so older results are deleted',
            hint=d.kind.keep_hint,
        )


def _parameter(d: Declared, count: str) -> str:
    """A count as relation DDL calls it: ``topic.partitions``."""
    option = d.kind.relation_options.find(count)
    return option.name if option is not None else count


async def _like(ctx: Context, d: Declared, source: RelationRecord | None) -> dict[str, str]:
    if source is None or source.store is None or source.entity is None:
        return {}
    store = ctx.snapshot.store_of(source)
    return await _counts(ctx, store, source.entity) if store.type == d.store.type else {}


async def _counts(ctx: Context, store: StoreRecord, entity: str) -> dict[str, str]:
    """The counts of an entity that is there, as options for another."""
    async with places.open_store(ctx, store) as admin:
        found = await admin.describe(entity)
    values = {count: getattr(found, of) for count, of in places.store_type(store).counts.items()}
    return {count: str(v) for count, v in values.items() if v is not None}


def _check_counts_given(d: Declared, options: Mapping[str, str]) -> None:
    for count in d.kind.counts:
        if count not in options:
            names = " and ".join(f"'{_parameter(d, c)}'" for c in d.kind.counts)
            raise MissingOption(
                name=_parameter(d, count),
                detail=f'Entity "{d.entity}" does not exist in store "{d.store.name}", so it would be made.',
                hint=f"Give {names}, or name an existing topic in 'topic'.",
            )


def _check_equal(d: Declared, found: EntityInfo) -> None:
    for count, of in d.kind.counts.items():
        wanted, has = d.entity_options.get(count), getattr(found, of)
        if wanted is not None and has is not None and int(wanted) != has:
            name = _parameter(d, count)
            raise InvalidOption(
                what=f'entity "{d.entity}" has {has} {name.rpartition(".")[2]}, not {wanted}',
                at=d.at(name),
                hint="For an existing topic the count must equal its own, or be left out.",
            )


def _plain(type_: types.Type) -> str:
    """What a type is in PostgreSQL, whatever its length: TINYINT is a SMALLINT there."""
    return types.Type(type_.name).pg if type_.is_scalar else type_.name


def _check_columns(relation: RelationRecord, found: EntityInfo) -> None:
    """A table has every column that the relation says, of a type that takes its values."""
    if found.columns is None:
        return
    has = {c.name: c for c in found.columns}
    for column in relation.columns:
        if column.name not in has:
            hint = f'Entity "{found.name}" has {", ".join(has)}.'
            raise UndefinedColumn(name=column.name, hint=hint)
        theirs = types.parse(has[column.name].type)
        if relation.kind == "changelog" and not has[column.name].told:
            raise NotSupported(
                what=f'generated column "{column.name}" of entity "{found.name}" in a changelog',
                detail="Changes do not say its value.", hint="Compute it in the query.",
            )  # fmt: skip
        if relation.kind == "changelog" and column.type.name == "VARCHAR":
            continue  # Every value can be read as its text: a numeric that is NaN, a timestamp that is infinity.
        if theirs.name != "VARCHAR" and _plain(theirs) != _plain(column.type):
            raise TypeMismatch(
                what=f'column "{column.name}" is of type {column.type} but entity "{found.name}" has it as '
                f"{has[column.name].type}"
            )
    keys = [found.primary_key, *(found.unique if relation.kind == "table" else ())]
    if relation.primary_key and set(relation.primary_key) not in map(set, keys):
        key = f"({', '.join(found.primary_key)})" if found.primary_key else "none"
        raise InvalidOption(what=f'the primary key of entity "{found.name}" is {key}')
