"""What one query at a time reads by: a registered consumer of Kinesis, a replication slot.

Owns: who reads by it. Must not know: what such a thing is; ``StoreType.alone`` names the parameters.
Start reading at ``check``, ``own`` and ``shared``.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from contextlib import suppress

import msgspec

from pgstream import stores
from pgstream.errors import BeingRead
from pgstream.planner.plan import Plan, Source, ViewSource, load, sources
from pgstream.planner.steps import with_sources
from pgstream.statements.base import Context
from pgstream.stores.spec import Alone

Reader = tuple[str, str, str, str]
"""Store, entity (empty where the name is the store's), parameter, value."""


async def check(ctx: Context, plan: Plan, at: int | None, query: str = "") -> None:
    """What a plan reads by is no other query's than ``query``. Errors: BeingRead."""
    for (store, entity, option, value), other in (await _taken(ctx, plan)).items():
        if other != query:
            noun = _alone(ctx, store)[option].noun
            name = f'"{value}"' + (f' of entity "{entity}"' if entity else "")
            raise BeingRead(kind=noun, name=name, id=other, option=option, at=at)


def own(ctx: Context, plan: Plan) -> Plan:
    """The plan without what a relation's owner has declared to read by, where the session has no right to the store:
    who may only SELECT would take it from the owner. Not every store needs it to be read.
    """
    foreign = {r for s in sources(plan.root) if s.store not in ctx.snapshot.stores for r in _readers(ctx, s)}
    for option in sorted({r[2] for r in foreign}):
        ctx.notice(f"parameter '{option}' is left out: reading by it needs USAGE on its store")
    return _without(ctx, plan, foreign)


async def shared(ctx: Context, plan: Plan) -> Plan:
    """The plan without what another query reads by, and what its reading would use up, with a NOTICE of it: for what
    leaves no trace, such as a SELECT.
    """
    plan = own(ctx, plan)
    taken = await _taken(ctx, plan)
    for (*_, option, value), query in taken.items():
        ctx.notice(f"parameter '{option}' = '{value}' is left out: query {query} reads by it")
    kept = {r for s in sources(plan.root) for r in _readers(ctx, s) if _alone(ctx, r[0])[r[2]].used_up} - taken.keys()
    for *_, option, value in sorted(kept):
        ctx.notice(f"parameter '{option}' = '{value}' is left out: what is read by it is not given again")
    return _without(ctx, plan, kept | taken.keys())


def _without(ctx: Context, plan: Plan, readers: Set[Reader]) -> Plan:
    def told(s: Source | ViewSource) -> Source | ViewSource:
        if not isinstance(s, Source) or not (gone := {r[2] for r in _readers(ctx, s) if r in readers}):
            return s
        return msgspec.structs.replace(s, options={k: v for k, v in s.options.items() if k not in gone})

    return msgspec.structs.replace(plan, root=with_sources(plan.root, told)) if readers else plan


async def _taken(ctx: Context, plan: Plan) -> dict[Reader, str]:
    """What of it a query reads by already, and which. One that is errored goes on where it was after RESTART QUERY."""
    wanted = {r for s in sources(plan.root) for r in _readers(ctx, s)}
    found: dict[Reader, str] = {}
    for query in await ctx.catalog.queries() if wanted else ():
        if query.intended != "terminated":
            with suppress(ValueError):  # a plan of another version
                read = {r for s in sources(load(query.plan).root) for r in _readers(ctx, s)}
                found |= dict.fromkeys(wanted & read, query.id)
    return found


def _alone(ctx: Context, store: str) -> Mapping[str, Alone]:
    return stores.find(ctx.snapshot.store_behind(store).type).alone


def _readers(ctx: Context, source: Source) -> list[Reader]:
    alone = _alone(ctx, source.store)
    given = ((o, source.options.get(o)) for o in alone)
    return [(source.store, source.entity if alone[o].of_entity else "", o, value) for o, value in given if value]
