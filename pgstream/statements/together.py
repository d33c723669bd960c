"""An application's statements run as one query: everything that they make, or nothing.

Owns: the order of effects (entities in the order of the statements, one change of the catalogue, the engine) and the
plan of the whole. Must not know: grammar, how its statements are checked (``trial``).
Manual: "APPLICATION". Start reading at ``begin``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from pgstream.catalog.records import QueryRecord
from pgstream.errors import NotSupported, PgStreamError
from pgstream.planner import real_time
from pgstream.planner.plan import Outputs, Plan, ResultSink, Sinks, keeps_state
from pgstream.statements import continuous, topics
from pgstream.statements.base import Context
from pgstream.statements.continuous import Prepared
from pgstream.statements.trial import Declaring, Starting

_ONE_BY_ONE = "Send its statements one by one: each CREATE … AS and INSERT INTO runs as a query of its own."


async def begin(ctx: Context, sql: str, steps: Sequence[Declaring | Starting], at: int) -> QueryRecord | None:
    """Make what the statements make and start their query; None: no statement needs one. What was made is undone when
    a later step fails.
    """
    begun = await continuous.resumed(ctx, [s.prepared for s in steps if isinstance(s, Starting)])
    await check(ctx, begun, at)
    in_order = iter(begun)
    steps = [s._replace(prepared=next(in_order)) if isinstance(s, Starting) else s for s in steps]
    async with AsyncExitStack() as undo:
        parts: list[Prepared] = []
        for step in steps:
            if isinstance(step, Starting):
                parts.append(await continuous.placed(ctx, step.prepared, undo, at))
            elif await topics.settle(ctx, step.sink, step.relation):
                undo.push_async_callback(topics.drop, ctx, step.sink)
        declared = [s for s in steps if isinstance(s, Declaring)]
        if not parts:
            async with topics.recording(ctx, [s.relation for s in declared], undo):
                await ctx.catalog.create_relations([(s.relation, s.at) for s in declared])
            return None
        whole = plan(parts)
        made = continuous.record(ctx, sql, continuous.APPLICATION, whole, parts)
        also = [s.relation.full for s in declared]
        async with continuous.recording(ctx, made.id, undo, also):
            query = await ctx.catalog.create_query(
                made,
                reads=continuous.views_read(whole),
                sources=[r for p in parts for r in continuous.relied_on(p)],
                application=[_made(s) for s in steps if isinstance(s, Declaring) or s.prepared.relation is not None],
            )
        await continuous.launch(ctx, query.id, undo, also)
    return query


def _made(step: Declaring | Starting) -> continuous.Made:
    if isinstance(step, Declaring):
        return step.relation, False, step.at
    assert step.prepared.relation is not None
    return step.prepared.relation, True, step.at


def plan(parts: Sequence[Prepared]) -> Plan:
    """The whole. What keeps state stands first (``Outputs``)."""
    if len(parts) == 1:
        return parts[0].plan
    order = sorted(parts, key=lambda p: not keeps_state(p.plan.root))
    sinks = [p.plan.sink for p in order if not isinstance(p.plan.sink, (ResultSink, Sinks))]
    ttls = [p.plan.state_ttl_ms for p in parts]
    longest = None if None in ttls else max(t for t in ttls if t is not None)
    return Plan(Outputs([p.plan.root for p in order]), Sinks(sinks), state_ttl_ms=longest)


async def check(ctx: Context, parts: Sequence[Prepared], at: int) -> None:
    """Whether Spark runs them as one. Error: NotSupported."""
    if len(parts) < 2:
        return
    if (asked := parts[0].options.real_time) is not None:
        real_time.refuse_several(asked.at)
    try:
        await ctx.engine.analyze(plan(parts), ctx.session.pool)
    except PgStreamError as e:
        if e.sqlstate != "0A000":
            raise
        names = ", ".join(dict.fromkeys(str(p.into.full) for p in parts))
        raise NotSupported(
            what=f"one query that writes {names}", at=at, detail=e.detail or e.text, hint=_ONE_BY_ONE
        ) from None
