"""Statements of a listener process, run by the server process: both ends of a link in one test."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from pgstream import errors, types
from pgstream.catalog.privileges import Access, Membership
from pgstream.catalog.records import Snapshot
from pgstream.config import Config
from pgstream.engine.channel import Rows as Arrived
from pgstream.engine.results import ResultStream
from pgstream.server import hosted
from pgstream.server.hosted import Host
from pgstream.server.language import Language
from pgstream.server.remote import Elsewhere
from pgstream.statements.access import Need
from pgstream.statements.base import Column, Context, Result, Session, Statement, Undecided
from tests.links import Ends

OPEN: set[str] = set()
STARTED, TIDYING = asyncio.Event(), asyncio.Event()  # one for each test: each has a loop of its own
MADE = Undecided("main", "made")
ALICE = Snapshot(access=Access((Membership("sysadmin", "alice", is_user=True),)))
CATALOG: Any = SimpleNamespace(snapshot=ALICE, said="the catalogue")


class Free(Statement):
    free = "the link asks for no privileges of its own"


@dataclass(frozen=True)
class Add(Free):
    """Answers its parameters and what the session says when asked to move."""

    async def describe(self, ctx: Context) -> tuple[Column, ...]:
        return (Column("n", types.BIGINT), Column("of", types.parse("ARRAY<VARCHAR>")))

    async def execute(self, ctx: Context) -> Result:
        ctx.notice("adding", severity="WARNING", hint="why")
        await ctx.use_schema("there")
        ctx.session.store = ctx.catalog.said
        return Result("ADD {rows}", await self.describe(ctx), [[ctx.session.schema, *ctx.parameters]])


@dataclass(frozen=True)
class Guarded(Statement):
    """Never reached."""

    def needs(self, ctx: Context) -> tuple[Need, ...]:
        return (Need("manage_members"),)

    async def describe(self, ctx: Context) -> tuple[Column, ...]:
        raise AssertionError


@dataclass(frozen=True)
class Fail(Free):
    async def execute(self, ctx: Context) -> Result:
        raise errors.UndefinedStore(name="k", at=5, detail="It is gone.")


@dataclass(frozen=True)
class Bug(Free):
    async def execute(self, ctx: Context) -> Result:
        raise RuntimeError("a secret detail")


@dataclass(frozen=True)
class Move(Free):
    async def execute(self, ctx: Context) -> Result:
        await ctx.use_database("nowhere")
        raise AssertionError


@dataclass(frozen=True)
class Count(Free):
    columns = (Column("n"),)

    async def execute(self, ctx: Context) -> Result:
        return Result("COUNT {rows}", self.columns, self.numbers(int(ctx.parameters[0] or 0), ctx.session.user))

    async def numbers(self, most: int, name: str) -> AsyncIterator[list[str | None]]:
        OPEN.add(name)
        try:
            for n in range(most):
                yield [str(n)]
            if most == 13:
                raise errors.EngineUnavailable(why="of a test")
        finally:
            OPEN.discard(name)


@dataclass(frozen=True)
class Wait(Free):
    async def execute(self, ctx: Context) -> Result:
        STARTED.set()
        await asyncio.Event().wait()
        raise AssertionError


@dataclass(frozen=True)
class Tidy(Free):
    """Is ended, and does something about it."""

    async def execute(self, ctx: Context) -> Result:
        TIDYING.set()
        try:
            await asyncio.Event().wait()
        finally:
            await ctx.use_schema("there")
            ctx.session.undecided.append(MADE)
        raise AssertionError


READS: dict[str, ResultStream] = {}


@dataclass(frozen=True)
class Read(Free):
    """Rows that come from a worker."""

    columns = (Column("n"),)

    async def execute(self, ctx: Context) -> Result:
        async def begin(rows: ResultStream) -> None:
            READS[ctx.session.user] = rows

        rows = ResultStream("q", begin, lambda message: None, lambda query: None)
        return Result("SELECT {rows}", self.columns, rows)


class Both(Ends):
    """The ends, and contexts for statements."""

    def __init__(self) -> None:
        super().__init__(Host(Config(), CATALOG, None, Language(None, None, lambda text, kind: kind(), None, None)))  # type: ignore[arg-type]
        self.heard: list[object] = []

    async def __aenter__(self) -> Both:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.far.close()
        await until(lambda: self.remote._gone)
        for _, task in self.statements.values():
            task.cancel()
            await asyncio.wait({task})

    def context(self, *parameters: str | None) -> Context:
        session = Session("alice", "main")

        async def use_schema(name: str) -> None:
            session.schema = name

        async def use_database(name: str) -> None:
            raise errors.UndefinedDatabase(name=name)

        async def use_role(name: str) -> None:
            session.role = name

        notice: Callable[..., None] = lambda *args, **more: self.heard.append((args, more))  # noqa: E731
        elsewhere: Any = Elsewhere("catalogue")
        return Context(
            config=Config(), session=session, catalog=elsewhere, engine=elsewhere, notice=notice,
            use_database=use_database, use_schema=use_schema, use_role=use_role, postgres=elsewhere, run=elsewhere,
            transaction=elsewhere, cancel_own=elsewhere, organizations=elsewhere, create_organization=elsewhere,
            use_organization=elsewhere, parameters=parameters, parameter_oids=(25,),
        )  # fmt: skip


async def until(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not probe():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_every_function_of_a_context_is_known_to_the_link() -> None:
    functions = {f.name for f in dataclasses.fields(Context)} - hosted.HERE
    known = {"cancel_own", "notice", "postgres", "run", "transaction", "use_database", "use_role", "use_schema",
             "organizations", "create_organization", "use_organization"}  # fmt: skip
    assert functions == known, "is it called at once, or waited for? see hosted"
    assert functions >= hosted.AT_ONCE


@pytest.mark.parametrize(
    "error",
    [
        errors.UndefinedStore(name="k", at=5, detail="d"),
        errors.RelayedError(code="42P01", text="t", hint="h", severity="FATAL"),
        errors.Canceled(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_cross_as_they_are(error: errors.PgStreamError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert (str(copy), copy.sqlstate, copy.severity) == (str(error), error.sqlstate, error.severity)


async def test_a_statement_has_its_session_there() -> None:
    async with Both() as ends:
        context = ends.context("1", None)
        assert await ends.remote.describe("ADD", Add(), context) == await Add().describe(context)
        result = await ends.remote.execute("ADD", Add(), context)
        assert (result.tag, result.rows) == ("ADD {rows}", [["there", "1", None]])
        assert (context.session.schema, context.session.store) == ("there", "the catalogue")
        assert ends.heard == [(("adding",), {"severity": "WARNING", "hint": "why"})]


async def test_privileges_are_asked_for_there() -> None:
    async with Both() as ends:
        for does in (ends.remote.execute, ends.remote.describe):
            with pytest.raises(errors.InsufficientPrivilege):
                await does("DROP", Guarded(), ends.context())
        context = ends.context()
        context.session.role = "orgadmin"
        with pytest.raises(errors.InsufficientPrivilege, match="role orgadmin"):
            await ends.remote.execute("ADD", Add(), context)


def test_a_snapshot_crosses_after_it_was_used() -> None:
    ALICE.seen_by("sysadmin")
    copy = pickle.loads(pickle.dumps(ALICE))
    assert copy == ALICE and copy.seen_by("sysadmin").access == ALICE.access


async def test_columns_that_are_known_are_not_asked_for() -> None:
    async with Both() as ends:
        assert await ends.remote.describe("COUNT", Count(), ends.context()) == Count.columns
        assert not ends.statements


async def test_errors_come_back() -> None:
    async with Both() as ends:
        with pytest.raises(errors.UndefinedStore) as caught:
            await ends.remote.execute("FAIL", Fail(), ends.context())
        assert (caught.value.at, caught.value.detail) == (5, "It is gone.")
        with pytest.raises(errors.InternalError) as unknown:
            await ends.remote.execute("BUG", Bug(), ends.context())
        assert "secret" not in str(unknown.value)
        with pytest.raises(errors.UndefinedDatabase):
            await ends.remote.execute("MOVE", Move(), ends.context())


@pytest.mark.parametrize("most", [0, 1, 499, 10_000])
async def test_rows_come_as_they_are_taken(most: int) -> None:
    async with Both() as ends:
        result = await ends.remote.execute("COUNT", Count(), ends.context(str(most)))
        assert isinstance(result.rows, AsyncIterator)
        assert [row async for row in result.rows] == [[str(n)] for n in range(most)]
        await until(lambda: not OPEN)


async def test_rows_wait_for_a_slow_reader_and_end_with_it() -> None:
    async with Both() as ends:
        result = await ends.remote.execute("COUNT", Count(), ends.context("1000000"))
        rows: Any = result.rows
        assert await anext(rows) == ["0"]
        hosted_rows = ends.statements[1][0]
        await until(lambda: hosted_rows._wanted == 0)
        assert "alice" in OPEN
        await rows.aclose()
        await until(lambda: not OPEN)


async def test_who_may_not_read_on_is_not_given_what_has_crossed() -> None:
    async with Both() as ends:
        rows: Any = (await ends.remote.execute("READ", Read(), ends.context())).rows
        first = asyncio.ensure_future(anext(rows))
        await until(lambda: "alice" in READS)
        READS["alice"].arrived(Arrived("q", [[str(n)] for n in range(10)], 10))
        assert await first == ["0"]
        await until(lambda: len(rows._rows) == 9)
        READS["alice"].deny(errors.UndefinedStore(name="r"))
        await until(lambda: not rows.ready)
        with pytest.raises(errors.UndefinedStore):
            await anext(rows)
        await until(lambda: ends.statements[1][1].done())


async def test_an_error_comes_after_the_rows() -> None:
    async with Both() as ends:
        rows: Any = (await ends.remote.execute("COUNT", Count(), ends.context("13"))).rows
        got = []
        with pytest.raises(errors.EngineUnavailable):
            async for row in rows:
                got.append(row)
        assert len(got) == 13


async def test_rows_that_nobody_begins_to_read_are_ended() -> None:
    async with Both() as ends:
        rows: Any = (await ends.remote.execute("COUNT", Count(), ends.context("5"))).rows
        await rows.aclose()
        await until(lambda: ends.statements[1][1].done())


async def test_a_statement_that_is_cancelled_is_cancelled_there() -> None:
    async with Both() as ends:
        task = asyncio.ensure_future(ends.remote.execute("WAIT", Wait(), ends.context()))
        await STARTED.wait()
        task.cancel()
        await asyncio.wait({task})
        await until(lambda: ends.statements[1][1].cancelled())


async def test_what_a_cancelled_statement_has_done_is_its_sessions() -> None:
    """It is over there before the session goes on, and may ask for something until then."""
    async with Both() as ends:
        context = ends.context()
        task = asyncio.ensure_future(ends.remote.execute("TIDY", Tidy(), context))
        await TIDYING.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled() and ends.statements[1][1].done()
        assert (context.session.undecided, context.session.schema) == ([MADE], "there")


async def test_a_statement_is_cancelled_before_it_begins() -> None:
    async with Both() as ends:
        task = asyncio.ensure_future(ends.remote.execute("WAIT", Wait(), ends.context()))
        await asyncio.sleep(0)
        task.cancel()
        assert await asyncio.wait({task}, timeout=10) == ({task}, set())
        assert ends.statements[1][1].cancelled()


async def test_a_lost_server_ends_what_runs() -> None:
    async with Both() as ends:
        rows: Any = (await ends.remote.execute("COUNT", Count(), ends.context("1000000"))).rows
        await anext(rows)
        unread: Any = (await ends.remote.execute("COUNT", Count(), ends.context("5"))).rows
        ends.far.close()
        with pytest.raises(errors.ShuttingDown):
            async for _ in rows:
                pass
        with pytest.raises(errors.ShuttingDown):
            await anext(unread)
        with pytest.raises(errors.ShuttingDown):
            await ends.remote.execute("COUNT", Count(), ends.context("5"))
