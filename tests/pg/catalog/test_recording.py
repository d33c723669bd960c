"""What a statement makes beside the catalogue, and undoes, when it is stopped as the catalogue commits.

The entity is a word in a set here, the engine whatever a case says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from pgstream.catalog.records import RelationRecord
from pgstream.catalog.store import Catalog
from pgstream.errors import PgStreamError, RelayedError, UndefinedRelation
from pgstream.names import FullName
from pgstream.planner.plan import Plan, RecordSink
from pgstream.statements import continuous, parse, places, together, topics
from pgstream.statements.base import Session, Undecided
from pgstream.statements.schemas import CreateSchema
from pgstream.statements.streams import CreateStream
from pgstream.statements.trial import Declaring, Starting
from tests.pg.catalog.test_catalog import query, stream, view
from tests.pg.catalog.test_replacing import COUNTS
from tests.pg.catalog.test_several_servers import Held
from tests.unit.engine.conftest import source

pytestmark = pytest.mark.pg
FAULT = RelayedError(code="22000", text="the record cannot be read")


class Topics:
    """The store's entities."""

    def __init__(self) -> None:
        self.there: set[str] = set()

    async def settle(self, ctx: Any, d: Any, *_: Any) -> bool:
        self.there.add(d.entity)
        return True

    async def drop(self, ctx: Any, d: Any) -> None:
        self.there.discard(d.entity)


@pytest.fixture
def entities(monkeypatch: pytest.MonkeyPatch) -> Topics:
    made = Topics()
    monkeypatch.setattr(topics, "settle", made.settle)
    monkeypatch.setattr(topics, "drop", made.drop)
    return made


@pytest.fixture
def ctx(catalog: Catalog) -> Any:
    return SimpleNamespace(catalog=catalog, snapshot=catalog.snapshot, notice=print, session=Session("admin", "main"))


async def create_stream(ctx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def relation(*_: Any) -> tuple[Any, RelationRecord]:
        return SimpleNamespace(entity="s", store=SimpleNamespace(name="k")), stream("s")

    monkeypatch.setattr(places, "new_relation", lambda ctx, name: FullName("main", "public", "s"))
    monkeypatch.setattr(CreateStream, "relation", relation)
    await parse("CREATE STREAM s WITH ('value.format' = 'json')", CreateStream).execute(ctx)


async def declare_together(ctx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [Declaring(SimpleNamespace(entity="s"), stream("s"), 0)]  # type: ignore[arg-type]
    await together.begin(ctx, "…", steps, 0)


Make = Callable[[Any, pytest.MonkeyPatch], Awaitable[None]]
MADE = pytest.mark.parametrize("make", [create_stream, declare_together])


@MADE
async def test_a_relation_that_is_recorded_keeps_its_topic(
    catalog: Catalog, ctx: Any, entities: Topics, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    """Who is canceled while it commits is so afterwards."""
    held = Held(catalog._tell)
    monkeypatch.setattr(catalog, "_tell", held)
    making = asyncio.create_task(make(ctx, monkeypatch))
    await held.come.wait()
    making.cancel()
    await asyncio.sleep(0.05)
    held.go.set()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert ("main", "public", "s") in catalog.snapshot.relations and entities.there == {"s"}


@MADE
async def test_an_error_after_the_commit_keeps_it_too(
    catalog: Catalog, ctx: Any, entities: Topics, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    async def fails() -> None:
        raise FAULT

    with monkeypatch.context() as m, pytest.raises(RelayedError):
        m.setattr(catalog, "refresh", fails)
        await make(ctx, monkeypatch)
    await catalog.refresh()
    assert ("main", "public", "s") in catalog.snapshot.relations and entities.there == {"s"}


@MADE
async def test_so_does_one_of_which_nobody_can_tell(
    catalog: Catalog, ctx: Any, entities: Topics, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    async def fails(*_: Any) -> None:
        raise FAULT

    with monkeypatch.context() as m, pytest.raises(RelayedError):
        m.setattr(catalog, "_tell", fails)
        m.setattr(catalog, "has_recorded", fails)
        await make(ctx, monkeypatch)
    assert entities.there == {"s"}


@MADE
async def test_one_that_was_not_recorded_leaves_nothing(
    catalog: Catalog, ctx: Any, entities: Topics, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    await catalog.create_relation(stream("s"))
    with pytest.raises(PgStreamError):
        await make(ctx, monkeypatch)
    assert entities.there == set()


async def test_a_schema_that_was_made_is_settled(
    catalog: Catalog, ctx: Any, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session knows of it before it can be canceled."""

    async def transaction(what: str) -> str:
        return "3"

    ctx.transaction = transaction
    held = Held(catalog._tell)
    monkeypatch.setattr(catalog, "_tell", held)
    making = asyncio.create_task(parse("CREATE SCHEMA s", CreateSchema).execute(ctx))
    await held.come.wait()
    making.cancel()
    held.go.set()
    await asyncio.wait({making})
    assert making.cancelled() and ("main", "s") in catalog.snapshot.schemas
    assert ctx.session.undecided == [Undecided("main", "s")]


class Engine:
    """One whose launch finds a fault; ``leaves`` is the query's state then."""

    def __init__(self, catalog: Catalog, leaves: str) -> None:
        self.catalog, self.leaves, self.ended = catalog, leaves, list[str]()

    async def launch(self, query: str, also: Any) -> None:
        await self.catalog.set_query(query, actual=self.leaves)
        raise FAULT

    async def terminate(self, query: str) -> None:
        await self.catalog.set_query(query, intended="terminated", actual="terminated")
        self.ended.append(query)


async def launched(ctx: Any, entities: Topics, query: str) -> None:
    entities.there.add("s")
    async with AsyncExitStack() as undo:
        undo.push_async_callback(entities.drop, ctx, SimpleNamespace(entity="s"))
        await continuous.launch(ctx, query, undo)


async def test_a_query_that_cannot_run_and_is_read_is_kept(catalog: Catalog, ctx: Any, entities: Topics) -> None:
    """With what was made for it; whoever made it is told why it cannot run."""
    made = await catalog.create_query(query("counts"), view())
    await catalog.create_query(query("more", sources=(str(COUNTS),)), view("more"))
    ctx.engine = Engine(catalog, "errored")
    with pytest.raises(RelayedError, match="the record cannot be read"):
        await launched(ctx, entities, made.id)
    assert (await catalog.query(made.id)).intended == "running" and ctx.engine.ended == []
    assert COUNTS.key in catalog.snapshot.relations and entities.there == {"s"}


async def test_one_that_cannot_be_discarded_keeps_what_was_made(catalog: Catalog, ctx: Any, entities: Topics) -> None:
    made = await catalog.create_query(query("counts"), view())
    await catalog.create_query(query("more", sources=(str(COUNTS),)), view("more"))
    ctx.engine = Engine(catalog, "starting")
    with pytest.raises(RelayedError, match="the record cannot be read"):
        await launched(ctx, entities, made.id)
    assert ctx.engine.ended == [made.id] and entities.there == {"s"}


async def test_one_that_nobody_reads_goes(catalog: Catalog, ctx: Any, entities: Topics) -> None:
    made = await catalog.create_query(query("counts"), view())
    ctx.engine = Engine(catalog, "starting")
    with pytest.raises(RelayedError):
        await launched(ctx, entities, made.id)
    assert await catalog.queries() == [] and entities.there == set()
    assert COUNTS.key not in catalog.snapshot.relations


async def test_who_is_canceled_as_a_change_fails_at_its_end_is_so(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL dies as it commits: a task that changes the catalogue for ever, and goes on after errors, ends."""
    held = Held(catalog._tell)

    async def tell(session: Any, *given: Any) -> None:
        await held(session, *given)
        if held.come.is_set() and not changing.done():
            await session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    async def change() -> None:
        while True:
            try:
                await catalog.forget_ended(1)
            except PgStreamError:
                await asyncio.sleep(0.05)

    monkeypatch.setattr(catalog, "_tell", tell)
    changing = asyncio.create_task(change())
    await held.come.wait()
    changing.cancel()
    await asyncio.sleep(0.05)
    held.go.set()
    done, _ = await asyncio.wait({changing}, timeout=10)
    changing.cancel()
    assert done


async def test_a_sink_that_is_gone_by_now(catalog: Catalog, ctx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody drops what INSERT INTO writes while its plan is made."""
    sink = await catalog.create_relation(stream("s"))
    plan = Plan(source(), RecordSink(str(sink.full), "k", "s", "append", "json", ["n"]))
    planned = SimpleNamespace(sources=[], stores=[])
    options = continuous.QueryOptions()
    p = continuous.Prepared("insert_into", plan, planned, options, sink, None, None)  # type: ignore[arg-type]
    await catalog.drop_relation(sink.full)

    async def placed(*_: Any) -> continuous.Prepared:
        return p

    monkeypatch.setattr(continuous, "placed", placed)
    with pytest.raises(UndefinedRelation):
        await continuous.begin(ctx, "…", p, 0)
    with pytest.raises(UndefinedRelation):
        await together.begin(ctx, "…", [Starting(p, 0)], 0)
    assert await catalog.queries() == []
