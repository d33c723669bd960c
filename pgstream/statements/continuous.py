"""Starting a continuous query: plan, types from the engine, record, launch; and undoing it all when that fails.

Owns: the order of effects (checks, entity, catalogue, engine) that every statement which starts a query follows, and
``QUERY WITH``. Must not know: grammar, how a query runs. Start reading at ``begin``.
"""

from __future__ import annotations

import time
import uuid
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace

import msgspec

from pgstream import stores
from pgstream.catalog.records import ColumnRecord, QueryRecord, RelationRecord
from pgstream.errors import UndefinedQuery
from pgstream.names import FullName
from pgstream.planner.plan import Column, Node, Plan, ResultSink, Sink, Source, ViewSource, sources, view_sources
from pgstream.planner.select import Planned
from pgstream.planner.steps import with_sources
from pgstream.properties import Given, Options
from pgstream.statements import registered, topics
from pgstream.statements.base import Context
from pgstream.statements.declared import Declared
from pgstream.stores.spec import Kind, Option, OptionTable

_RESUME = "Resuming from a terminated query's positions is planned."
_NAME = Option("query.name", Kind.TEXT, "Name of the query; queries of one name count versions.")

QUERY = OptionTable(
    "a query",
    (
        _NAME,
        Option("state.ttl.millis", Kind.INTEGER, "Forget state that was not touched for this long.", minimum=1),
        Option("resume.from.query.id", Kind.TEXT, "Query to go on from.", later=_RESUME),
        Option("resume.from.query.name", Kind.TEXT, "Query to go on from.", later=_RESUME),
        Option("resume.from.query.version", Kind.INTEGER, "Query to go on from.", later=_RESUME),
    ),
)
VIEW = OptionTable(
    "a materialized view",
    (
        _NAME,
        Option("retention.millis", Kind.INTEGER, "Rows are taken away for good after this long.", minimum=1),
        Option("timestamp", Kind.TEXT, "Column that tells a row's age; without it, since it was last written."),
        Option("notify", Kind.TEXT, "Channel that PostgreSQL's NOTIFY is sent to with each batch that changes rows."),
    ),
)


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """``QUERY WITH``, checked."""

    name: str | None = None
    state_ttl_ms: int | None = None

    @property
    def expires(self) -> bool:
        """Whether state has a time to live."""
        return self.state_ttl_ms is not None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query that could be started: nothing has been changed yet.

    ``relation`` is the one it makes, None for INSERT INTO; ``into`` its full name or that of the existing sink.
    ``sink`` is the place that it writes to, None for a materialized view.
    """

    kind: str
    plan: Plan
    planned: Planned
    options: QueryOptions
    into: RelationRecord
    relation: RelationRecord | None
    sink: Declared | None


def query_options(given: Options, name: Given | None = None) -> QueryOptions:
    """``name``: a 'query.name' that stood elsewhere in the statement."""
    checked = QUERY.check({**given, "query.name": name} if name is not None else given)
    ttl = checked.get("state.ttl.millis")
    return QueryOptions(checked.get("query.name"), int(ttl) if ttl is not None else None)


async def analyze(ctx: Context, root: Node) -> tuple[ColumnRecord, ...]:
    """The output columns as the engine's analyzer sees them; it refuses what cannot run."""
    if not ctx.engine.is_ready(ctx.session.pool):
        ctx.notice("waiting for the query engine to start")
    found = await ctx.engine.analyze(Plan(root, ResultSink()), ctx.session.pool)
    return tuple(ColumnRecord(n, t, nullable) for n, t, nullable in found)


def plan(root: Node, sink: Sink, columns: tuple[ColumnRecord, ...], options: QueryOptions) -> Plan:
    """The whole plan, with its typed columns."""
    typed = [Column(c.name, str(c.type), c.nullable) for c in columns]
    return Plan(root, sink, typed, state_ttl_ms=options.state_ttl_ms)


async def begin(ctx: Context, sql: str, p: Prepared, at: int | None) -> QueryRecord:
    """Make what the query needs, record it, start it. What was made is undone when a later step fails."""
    p = replace(p, plan=_dated(ctx, p.plan))
    async with AsyncExitStack() as undo:
        if p.sink is not None:
            like = p.planned.sources[0] if p.planned.sources else None
            if await topics.settle(ctx, p.sink, p.into, like, p.sink.kind.sink_entity):
                undo.push_async_callback(topics.drop, ctx, p.sink)
            if any(s.starting_position == "earliest" for s in sources(p.plan.root)):
                await topics.warn_of_retention(ctx, p.sink)
            p = replace(p, plan=await registered.settle(ctx, p.sink, p.plan))
        reads = {FullName.read(s.relation) for s in view_sources(p.plan.root)}
        query = await ctx.catalog.create_query(recorded(ctx, sql, p), p.relation, at=at, reads=reads)
        undo.push_async_callback(_discard, ctx, query.id)
        await ctx.engine.launch(query.id)
        undo.pop_all()
    return query


async def replace_view(
    ctx: Context, record: QueryRecord, view: RelationRecord, plan: Plan, at: int | None
) -> QueryRecord:
    """Record and start a query that is to keep a view in another's stead; undone when that fails."""
    async with AsyncExitStack() as undo:
        await ctx.catalog.check_replacement(view, record, at)
        reads = {FullName.read(s.relation) for s in view_sources(plan.root)}
        query = await ctx.catalog.create_replacement(record, view, at, reads=reads)
        undo.push_async_callback(_discard, ctx, query.id)
        await ctx.engine.launch(query.id)
        undo.pop_all()
    return query


def _dated(ctx: Context, whole: Plan) -> Plan:
    """The plan, its sources that begin at a moment told which: not the one when a worker comes to start it."""

    def told(s: Source | ViewSource) -> Source | ViewSource:
        if not isinstance(s, Source) or s.starting_position != "latest":
            return s
        if not stores.find(ctx.snapshot.stores[s.store].type).dated:
            return s
        return msgspec.structs.replace(s, starting_position=f"timestamp:{int(time.time() * 1000)}")

    return msgspec.structs.replace(whole, root=with_sources(whole.root, told))


async def _discard(ctx: Context, query: str) -> None:
    # The engine discards a query whose launch failed by itself; here the statement was interrupted, or more went wrong.
    with suppress(UndefinedQuery):
        await ctx.engine.terminate(query)
        await ctx.catalog.discard_query(query)


def recorded(ctx: Context, sql: str, p: Prepared) -> QueryRecord:
    """A query as it is when it is made."""
    stores = {*p.planned.stores, *((p.sink.store.name,) if p.sink is not None else ())}
    return QueryRecord(
        id=str(uuid.uuid4()),
        name=p.options.name,
        version=1,
        kind=p.kind,
        sql=sql.strip(),
        plan=p.plan.json(),
        owner=ctx.session.role,
        database=p.into.full.database,
        sources=tuple(str(r.full) for r in p.planned.sources),
        sink=str(p.into.full),
        stores=tuple(sorted(stores)),
        pool=ctx.session.pool,
    )
