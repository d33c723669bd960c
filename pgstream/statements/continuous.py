"""Starting a continuous query: plan, types from the engine, record, launch; and undoing it all when that fails.

Owns: the order of effects (checks, entity, catalogue, engine) that every statement which starts a query follows, and
``QUERY WITH``. Must not know: grammar, how a query runs. Start reading at ``begin``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import cast

import msgspec
import structlog

from pgstream import stores, traces
from pgstream.catalog.records import ColumnRecord, QueryRecord, RelationRecord
from pgstream.errors import DependentsExist, NotSupported, NotYet, PgStreamError, UndefinedQuery
from pgstream.names import FullName
from pgstream.planner import real_time
from pgstream.planner.held import held
from pgstream.planner.plan import (
    Column,
    Node,
    Plan,
    RecordSink,
    ResultSink,
    Sink,
    Source,
    TableSink,
    ViewSource,
    sources,
    view_sources,
)
from pgstream.planner.select import Planned
from pgstream.planner.steps import with_sources
from pgstream.properties import Given, Options
from pgstream.statements import alone, registered, resume, topics
from pgstream.statements.base import Context
from pgstream.statements.declared import Declared
from pgstream.statements.places import open_store
from pgstream.statements.resume import Resume
from pgstream.stores.spec import Can, Ending, Kind, Option, OptionTable
from pgstream.tasks import whole

log = structlog.get_logger(__name__)
APPLICATION = "application"
"""The kind of a query that runs several statements."""
_NAME = Option("query.name", Kind.TEXT, "Name of the query; queries of one name count versions.")

QUERY = OptionTable(
    "a query",
    (
        _NAME,
        Option(
            real_time.MODE,
            Kind.WORD,
            "REALTIME writes each record as it comes, at least once.",
            choices=("MICROBATCH", "REALTIME"),
        ),
        Option("state.ttl.millis", Kind.INTEGER, "Forget state that was not touched for this long.", minimum=1),
        Option(resume.ID, Kind.TEXT, "Begin where this terminated query stopped; it read the same topic."),
        Option(resume.NAME, Kind.TEXT, "The same by name; without a version the latest of that name."),
        Option(resume.VERSION, Kind.INTEGER, "Version of the query to go on from.", minimum=1),
    ),
)
VIEW = OptionTable(
    "a materialized view",
    (
        _NAME,
        Option("retention.millis", Kind.INTEGER, "Rows are taken away for good after this long.", minimum=1),
        Option("timestamp", Kind.TEXT, "Column that tells a row's age; without it, since it was last written."),
        Option("notify", Kind.TEXT, "Channel that PostgreSQL's NOTIFY is sent to with each batch that changes rows."),
        Option("kafka.producer.", Kind.TEXT, "Accepted for older scripts; a view has no producer.", prefix=True),
        Option("kafka.properties.", Kind.TEXT, "As kafka.producer.", prefix=True),
    ),
)


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """``QUERY WITH``, checked."""

    name: str | None = None
    state_ttl_ms: int | None = None
    resume: Resume | None = None
    real_time: Given | None = None

    @property
    def expires(self) -> bool:
        """Whether state has a time to live."""
        return self.state_ttl_ms is not None


Made = tuple[RelationRecord, bool, int | None]
"""A relation that a query makes, whether it writes it, and the place of its name."""


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
    return QueryOptions(
        checked.get("query.name"), int(ttl) if ttl is not None else None, resume.told(given, checked),
        given[real_time.MODE] if checked.get(real_time.MODE) == "REALTIME" else None,
    )  # fmt: skip


def refuse_resume(options: QueryOptions, what: str) -> None:
    """Of what cannot begin where another query stopped."""
    if options.resume is not None:
        raise NotSupported(
            what=f"{resume.ID} of {what}",
            at=options.resume.at,
            hint="CREATE … AS, INSERT INTO and applications can be resumed.",
        )


async def analyze(ctx: Context, root: Node) -> tuple[ColumnRecord, ...]:
    """The output columns as the engine's analyzer sees them; it refuses what cannot run."""
    if not ctx.engine.is_ready(ctx.session.pool):
        ctx.notice("waiting for the query engine to start")
    found = await ctx.engine.analyze(Plan(root, ResultSink()), ctx.session.pool)
    return tuple(ColumnRecord(n, t, nullable) for n, t, nullable in found)


def plan(ctx: Context, planned: Planned, sink: Sink, columns: tuple[ColumnRecord, ...], options: QueryOptions) -> Plan:
    """The whole plan, with its typed columns. What the query says of its state goes before what its sources say.

    Errors: NotYet, NotSupported where it cannot run in real time and is asked to.
    """
    typed = [Column(c.name, str(c.type), c.nullable) for c in columns]
    # A client's result and a store's table have no event time for others to follow.
    root = planned.root if isinstance(sink, ResultSink | TableSink) else held(planned.root)
    made = Plan(root, sink, typed, state_ttl_ms=options.state_ttl_ms or planned.state_ttl_ms,
                real_time=options.real_time is not None)  # fmt: skip
    if options.real_time is not None:
        real_time.check(made, options.real_time.at)
        for store in (*planned.stores, *([sink.store] if isinstance(sink, RecordSink) else ())):
            stores.find(ctx.snapshot.store_behind(store).type).require(Can.REAL_TIME, options.real_time.at)
    return made


async def resumed(ctx: Context, parts: Sequence[Prepared]) -> list[Prepared]:
    """They begin where another query stopped, if their parameters, which are the same for all, say so."""
    if not parts or (asked := parts[0].options.resume) is None:
        return list(parts)
    plans = await resume.resumed(ctx, asked, [p.plan for p in parts])
    return [replace(p, plan=plan) for p, plan in zip(parts, plans, strict=True)]


async def begin(ctx: Context, sql: str, p: Prepared, at: int | None) -> QueryRecord:
    """Make what the query needs, record it, start it. What was made is undone when a later step fails."""
    [p] = await resumed(ctx, [p])
    async with AsyncExitStack() as undo:
        p = await placed(ctx, p, undo, at)
        made = record(ctx, sql, p.kind, p.plan, [p])
        async with recording(ctx, made.id, undo):
            query = await ctx.catalog.create_query(
                made, p.relation, at=at, reads=views_read(p.plan), sources=relied_on(p)
            )
        await launch(ctx, query.id, undo)
    return query


async def placed(ctx: Context, p: Prepared, undo: AsyncExitStack, at: int | None) -> Prepared:
    """With the entity that it writes to and its schemas there; what was made for it is undone by ``undo``.

    Errors: BeingRead.
    """
    p = replace(p, plan=await begun(ctx, p.plan))
    await alone.check(ctx, p.plan, at)
    await topics.settle_logs(ctx, p.plan, undo)
    if p.plan.real_time:
        ctx.notice(real_time.NOTICE)
    if p.sink is None:
        return p
    if any((s.store, s.entity) == (p.sink.store.name, p.sink.entity) for s in sources(p.plan.root)):
        ctx.notice(
            f'the query reads entity "{p.sink.entity}", which it writes',
            hint="What it writes comes back to it, for ever.",
        )
    like = p.planned.sources[0] if p.planned.sources else None
    if await topics.settle(ctx, p.sink, p.into, like, p.sink.kind.sink_entity):
        undo.push_async_callback(topics.drop, ctx, p.sink)
    if any(s.starting_position == "earliest" for s in sources(p.plan.root)):
        await topics.warn_of_retention(ctx, p.sink)
    return replace(p, plan=await registered.settle(ctx, p.sink, p.plan))


async def check_replaceable(ctx: Context, view: RelationRecord, at: int | None, doing: str) -> QueryRecord:
    """The query that keeps a view, which another one may replace. Errors: NotYet, UndefinedQuery."""
    query = await ctx.catalog.query(view.query or "", at=at)
    if query.kind == APPLICATION:
        raise NotYet(
            what=f'{doing} materialized view "{view.full}", whose query is an application with other sinks,', at=at,
            hint="TERMINATE QUERY of the application, DROP the view, and make it anew.",
        )  # fmt: skip
    return query


async def replace_view(
    ctx: Context,
    made: QueryRecord,
    view: RelationRecord,
    plan: Plan,
    at: int | None,
    *,
    sources: Sequence[RelationRecord] = (),
) -> QueryRecord:
    """Record and start a query that is to keep a view in another's stead; undone when that fails."""
    async with AsyncExitStack() as undo:
        await alone.check(ctx, plan, at)
        await ctx.catalog.check_replacement(view, made, at)
        async with recording(ctx, made.id, undo):
            query = await ctx.catalog.create_replacement(made, view, at, reads=views_read(plan), sources=sources)
        await launch(ctx, query.id, undo)
    return query


async def begun(ctx: Context, whole: Plan) -> Plan:
    """The plan, its sources that begin with what comes from now on told where that is: not where they end when a
    worker comes to start it. What comes once the statement is answered is read. What only the sources' owners may read
    by is left out.
    """
    whole = alone.own(ctx, whole)
    latest = {(s.store, s.entity) for s in sources(whole.root) if s.starting_position == "latest"}
    places = {place: await _latest(ctx, *place) for place in sorted(latest)}

    def told(s: Source | ViewSource) -> Source | ViewSource:
        if not isinstance(s, Source) or s.starting_position != "latest":
            return s
        return msgspec.structs.replace(s, starting_position=places[s.store, s.entity])

    return msgspec.structs.replace(whole, root=with_sources(whole.root, told)) if places else whole


async def _latest(ctx: Context, name: str, entity: str) -> str:
    """The starting position that ``latest`` is now. Where the store does not say, it says so to the worker as well."""
    store = ctx.snapshot.store_behind(name)
    kind = stores.find(store.type)
    if kind.dated:
        return f"timestamp:{int(time.time() * 1000)}"
    if not kind.ends:
        return "latest"
    try:
        async with open_store(ctx, store, None) as admin:
            ends = await cast(Ending, admin).ends(entity)
    except PgStreamError:
        return "latest"
    return "offset:" + ",".join(f"{p}:{offset}" for p, offset in sorted(ends.items()))


@asynccontextmanager
async def recording(
    ctx: Context, query: str, undo: AsyncExitStack, also: Collection[FullName] = ()
) -> AsyncIterator[None]:
    """Around the recording of a query. An error, or who cancels it, may come when the catalogue has it: then it is
    taken out again. Where nobody can tell, what was made for it stays: it may run soon.
    """
    try:
        yield
    except BaseException:
        await whole(_take_back(ctx, query, undo, also))
        raise


async def launch(ctx: Context, query: str, undo: AsyncExitStack, also: Collection[FullName] = ()) -> None:
    """Start a recorded query, and keep what ``undo`` would undo. ``also``: relations that go with it if it cannot."""
    traces.note({traces.QUERY_ID: query})
    undo.push_async_callback(lambda: whole(_give_up(ctx, query, undo, also)))
    try:
        await ctx.engine.launch(query, also)
    except PgStreamError:
        await whole(_keep_used(ctx, query, undo, also))
        raise
    undo.pop_all()


async def _keep_used(ctx: Context, query: str, undo: AsyncExitStack, also: Collection[FullName]) -> None:
    """A query that cannot run stays, errored, with what was made for it, when somebody reads that already."""
    try:
        if (await ctx.catalog.query(query)).actual == "errored":
            await ctx.catalog.discard_query(query, also)
    except DependentsExist:
        undo.pop_all()
    except PgStreamError:  # it is gone, or undoing it will say why not
        pass


async def _take_back(ctx: Context, query: str, undo: AsyncExitStack, also: Collection[FullName]) -> None:
    try:
        await ctx.catalog.query(query)
    except UndefinedQuery:  # nothing of it was recorded, so what is there of these names is somebody else's
        return
    except PgStreamError as e:
        undo.pop_all()
        log.warning("query may have been recorded", query_id=query, error=e.text)
        return
    await _give_up(ctx, query, undo, also)


async def _give_up(ctx: Context, query: str, undo: AsyncExitStack, also: Collection[FullName]) -> None:
    """Discard a query. Where that cannot be, what was made for it stays."""
    try:
        await _discard(ctx, query, also)
    except PgStreamError as e:
        undo.pop_all()
        log.warning("query kept that was given up", query_id=query, error=e.text)


async def _discard(ctx: Context, query: str, also: Collection[FullName]) -> None:
    # The engine discards a query whose launch failed by itself; here the statement was interrupted, or more went wrong.
    try:
        await ctx.engine.terminate(query)
    except UndefinedQuery:
        if not also:  # which another server's engine has not heard of
            return
    await ctx.catalog.discard_query(query, also)


def relied_on(p: Prepared) -> list[RelationRecord]:
    """The relations that are still to be there when the query is recorded: its sources, and a sink that it finds."""
    return [*p.planned.sources, *([p.into] if p.relation is None else [])]


def views_read(plan: Plan) -> set[FullName]:
    """The materialized views whose changes a plan reads."""
    return {FullName.read(s.relation) for s in view_sources(plan.root)}


def record(ctx: Context, sql: str, kind: str, plan: Plan, parts: Sequence[Prepared]) -> QueryRecord:
    """A query as the catalogue keeps it. ``parts``: what it is made of; only an application has more than one."""
    stores = {s for p in parts for s in (*p.planned.stores, *((p.sink.store.name,) if p.sink is not None else ()))}
    return QueryRecord(
        id=str(uuid.uuid4()),
        name=parts[0].options.name,
        version=1,
        kind=kind,
        sql=sql.strip(),
        plan=plan.json(),
        owner=ctx.session.role,
        database=parts[0].into.full.database,
        sources=tuple(dict.fromkeys(str(r.full) for p in parts for r in p.planned.sources)),
        sinks=tuple(dict.fromkeys(str(p.into.full) for p in parts)),
        stores=tuple(sorted(stores)),
        pool=ctx.session.pool,
    )
