"""The entity under a relation: there already with the counts that were said, or made now.

Owns: the rule of "CREATE STREAM" (a missing topic is made; counts of an existing one must be equal), the defaults of
a query's sink (the leftmost source's counts), and the warning about retention (``semantics.md`` §28.1).
Must not know: how a store makes one. Start reading at ``settle``.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgstream.catalog.records import RelationRecord
from pgstream.errors import InvalidOption, MissingOption, UndefinedEntity
from pgstream.statements import places
from pgstream.statements.base import Context
from pgstream.statements.declared import Declared
from pgstream.stores.spec import Can, EntityInfo

_COUNTS = ("partitions", "replicas")


async def settle(
    ctx: Context, d: Declared, like: RelationRecord | None = None, extra: Mapping[str, str] | None = None
) -> bool:
    """See that the entity is there; True when it was made now.

    ``like``: a source whose entity's counts are the defaults. ``extra``: options of a made entity, unless given.
    """
    async with places.open_store(ctx, d.store) as admin:
        try:
            found = await admin.describe(d.entity)
        except UndefinedEntity:
            options = {**(extra or {}), **d.entity_options}
            if not _counts(d).issubset(options):
                options = {**await _like(ctx, d, like), **options}
            _check_counts_given(d, options)
            d.kind.require(Can.CREATE_ENTITY)
            await admin.create(d.entity, options)
            return True
        _check_equal(d, found)
        return False


async def drop(ctx: Context, d: Declared) -> None:
    """Undo ``settle`` when it made the entity."""
    async with places.open_store(ctx, d.store) as admin:
        await admin.drop(d.entity)


async def warn_of_retention(ctx: Context, d: Declared) -> None:
    """A NOTICE when old events written into the entity would be deleted by the store."""
    async with places.open_store(ctx, d.store) as admin:
        configs = (await admin.describe(d.entity)).configs
    kept = configs.get("retention.ms", "-1")
    if kept != "-1" and "delete" in configs.get("cleanup.policy", "delete"):
        ctx.notice(
            f'entity "{d.entity}" keeps records for {kept} ms by their event time, so older results are deleted',
            hint="Give 'kafka.topic.retention.ms' = '-1' to a new topic, or change that of an existing one.",
        )


def _name(d: Declared, count: str) -> str:
    """The entity option that holds a count, under the store type's own name."""
    option = d.kind.entity_options.find(f"topic.{count}")
    return option.name if option is not None else f"topic.{count}"


def _counts(d: Declared) -> set[str]:
    return {_name(d, c) for c in _COUNTS}


async def _like(ctx: Context, d: Declared, source: RelationRecord | None) -> dict[str, str]:
    if source is None or source.store is None or source.entity is None:
        return {}
    store = ctx.snapshot.store_of(source)
    if store.type != d.store.type:
        return {}
    async with places.open_store(ctx, store) as admin:
        found = await admin.describe(source.entity)
    values = {c: getattr(found, c) for c in _COUNTS}
    return {_name(d, c): str(v) for c, v in values.items() if v is not None}


def _check_counts_given(d: Declared, options: Mapping[str, str]) -> None:
    for count in _COUNTS:
        if _name(d, count) not in options:
            raise MissingOption(
                name=f"topic.{count}",
                detail=f'Entity "{d.entity}" does not exist in store "{d.store.name}", so it would be made.',
                hint="Give 'topic.partitions' and 'topic.replicas', or name an existing topic in 'topic'.",
            )


def _check_equal(d: Declared, found: EntityInfo) -> None:
    for count in _COUNTS:
        wanted, has = d.entity_options.get(_name(d, count)), getattr(found, count)
        if wanted is not None and has is not None and int(wanted) != has:
            raise InvalidOption(
                what=f'entity "{d.entity}" has {has} {count}, not {wanted}',
                at=d.at(f"topic.{count}"),
                hint="For an existing topic the count must equal its own, or be left out.",
            )
