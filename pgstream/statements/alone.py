"""What one query at a time reads by: a registered consumer of Kinesis, a replication slot.

Owns: who reads by it. Must not know: what such a thing is; ``StoreType.alone`` names the parameters.
Start reading at ``check`` and ``shared``.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from pgstream import stores
from pgstream.errors import BeingRead
from pgstream.planner.plan import Plan, Source, ViewSource, load, sources
from pgstream.planner.steps import with_sources
from pgstream.statements.base import Context

Reader = tuple[str, str, str, str]
"""Store, entity (empty where the name is the store's), parameter, value."""


async def check(ctx: Context, plan: Plan, at: int | None, query: str = "") -> None:
    """What a plan reads by is no other query's than ``query``. Errors: BeingRead."""
    for (store, entity, option, value), other in (await _taken(ctx, plan)).items():
        if other != query:
            noun = stores.find(ctx.snapshot.store_behind(store).type).alone[option].noun
            name = f'"{value}"' + (f' of entity "{entity}"' if entity else "")
            raise BeingRead(kind=noun, name=name, id=other, option=option, at=at)


async def shared(ctx: Context, plan: Plan) -> Plan:
    """The plan without what another query reads by, with a NOTICE of it: not every store needs it to be read."""
    taken = await _taken(ctx, plan)
    for (*_, option, value), query in taken.items():
        ctx.notice(f"parameter '{option}' = '{value}' is left out: query {query} reads by it")

    def told(s: Source | ViewSource) -> Source | ViewSource:
        if not isinstance(s, Source) or not (gone := {r[2] for r in _readers(ctx, s) if r in taken}):
            return s
        return msgspec.structs.replace(s, options={k: v for k, v in s.options.items() if k not in gone})

    return msgspec.structs.replace(plan, root=with_sources(plan.root, told)) if taken else plan


async def _taken(ctx: Context, plan: Plan) -> dict[Reader, str]:
    """What of it a query reads by already, and which."""
    wanted = {r for s in sources(plan.root) for r in _readers(ctx, s)}
    found: dict[Reader, str] = {}
    for query in await ctx.catalog.queries() if wanted else ():
        if query.intended != "terminated" and query.actual != "errored":
            with suppress(ValueError):  # a plan of another version
                read = {r for s in sources(load(query.plan).root) for r in _readers(ctx, s)}
                found |= dict.fromkeys(wanted & read, query.id)
    return found


def _readers(ctx: Context, source: Source) -> list[Reader]:
    store = ctx.snapshot.store_behind(source.store)
    alone = stores.find(store.type).alone
    given = ((o, source.options.get(o)) for o in alone)
    return [(source.store, source.entity if alone[o].of_entity else "", o, value) for o, value in given if value]
