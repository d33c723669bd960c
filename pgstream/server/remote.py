"""Statements of ours in a listener process: run by the server process, which has the catalogue and the engine.

Owns: the questions under way, what a running statement calls back for, the rows on their way here.
Must not know: how a statement is run there (``hosted``), any statement. Start reading at ``Remote.execute``.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from pgstream import traces
from pgstream.catalog.records import Snapshot
from pgstream.engine.channel import Request, Stop
from pgstream.engine.channel import Rows as Arrived
from pgstream.engine.results import ResultStream
from pgstream.errors import PgStreamError, ShuttingDown
from pgstream.server.link import Answer, Ask, Call, Denied, Link, Over, Returned, Rows, ToServer, adopt, carried
from pgstream.server.run import as_error
from pgstream.statements.base import Column, Context, Result, Statement
from pgstream.tasks import whole


class Elsewhere:
    """What only the server process has. ``Remote`` never lets a statement run where it would use this."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a listener process has no {self._what}, so no {name} of it")


class Mirror(Elsewhere):
    """The catalogue as far as sessions need it."""

    def __init__(self, snapshot: Snapshot, mock_secret: bytes) -> None:
        super().__init__("catalogue")
        self.snapshot, self.mock_secret = snapshot, mock_secret


@dataclass(slots=True)
class _Asked:
    """A statement that runs there. ``over``: it does no more. ``rows`` is set while its rows come."""

    context: Context
    answer: asyncio.Future[Answer]
    over: asyncio.Future[None]
    rows: ResultStream | None = None
    calls: set[asyncio.Task[None]] = field(default_factory=set)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Remote:
    """The ``Executor`` of a listener process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._ids = itertools.count(1)
        self._asked: dict[int, _Asked] = {}
        self._gone = False

    async def execute(self, text: str, statement: Statement, context: Context) -> Result:
        id = next(self._ids)
        answer = await self._ask(id, text, statement, context, describe=False)
        assert answer.result is not None
        if not answer.streams:
            return answer.result
        rows = self._asked[id].rows
        assert rows is not None
        return replace(answer.result, rows=rows)

    async def describe(self, text: str, statement: Statement, context: Context) -> tuple[Column, ...]:
        if type(statement).describe is Statement.describe:
            return statement.columns
        return (await self._ask(next(self._ids), text, statement, context, describe=True)).columns

    async def _ask(self, id: int, text: str, statement: Statement, context: Context, *, describe: bool) -> Answer:
        if self._gone:
            raise ShuttingDown()
        loop = asyncio.get_running_loop()
        asked = self._asked[id] = _Asked(context, loop.create_future(), loop.create_future())
        session = carried(context.session)
        given = context.parameters, context.parameter_oids
        self._link.send(Ask(id, describe, text, type(statement), session, *given, trace=traces.carried()))
        try:
            return await asked.answer
        except BaseException:
            await whole(self._ended(id, asked))
            asked.rows = None
            raise
        finally:
            if asked.rows is None:
                self._asked.pop(id, None)

    async def _ended(self, id: int, asked: _Asked) -> None:
        """Nobody waits for its answer any more. What it does, and asks of the client's connection, until it has ended
        there is its session's still.
        """
        if not asked.over.done():
            self._link.send(Stop(str(id)))
            await asked.over
        if asked.calls:
            await asyncio.wait(asked.calls)

    def _forget(self, id: int) -> None:
        """Nobody waits for it any more: it need not go on."""
        if self._asked.pop(id, None) is not None:
            self._link.send(Stop(str(id)))

    # What the server process says

    def said(self, message: Answer | Denied | Over | Rows | Call) -> None:
        asked = self._asked.get(message.id)
        if asked is None:
            return
        match message:
            case Answer():
                self._answered(message, asked)
            case Rows():
                if asked.rows is not None:
                    asked.rows.arrived(Arrived(str(message.id), [list(row) for row in message.rows], message.cost))
            case Denied():
                if asked.rows is not None:
                    asked.rows.deny(message.error)
            case Over():
                self._over(message, asked)
            case Call():
                self._called(message, asked)

    def _answered(self, message: Answer, asked: _Asked) -> None:
        adopt(asked.context.session, message.session)
        if message.streams:
            asked.rows = ResultStream(str(message.id), self._begun, self._send, lambda query: self._forget(int(query)))
        if not asked.answer.done():
            asked.answer.set_result(message)

    def _over(self, message: Over, asked: _Asked) -> None:
        _settle(asked.over)
        if asked.rows is not None:
            asked.rows.finish(message.error)
        elif asked.answer.cancelled():
            adopt(asked.context.session, message.session)
        elif not asked.answer.done():
            adopt(asked.context.session, message.session)
            asked.answer.set_exception(message.error or ShuttingDown())

    def _called(self, message: Call, asked: _Asked) -> None:
        if message.number is None:
            getattr(asked.context, message.name)(*message.args, **message.more)
            return
        task = asyncio.ensure_future(self._call(message, message.number, asked.context))
        asked.calls.add(task)
        task.add_done_callback(asked.calls.discard)

    async def _call(self, message: Call, number: int, context: Context) -> None:
        value: Any = None
        error: PgStreamError | None = None
        try:
            value = getattr(context, message.name)(*message.args, **message.more)
            if inspect.isawaitable(value):
                value = await value
        except Exception as e:  # goes on in the other process
            value, error = None, as_error(e)
        self._link.send(Returned(message.id, number, carried(context.session), value, error))

    def _send(self, message: Request) -> None:
        sent: ToServer = message  # type: ignore[assignment]  # a ResultStream sends More and Stop only
        self._link.send(sent)

    async def _begun(self, _: ResultStream) -> None:
        """The statement runs already; its rows wait to be asked for."""
        if self._gone:
            raise ShuttingDown()

    def lost(self) -> None:
        """The server process is gone."""
        self._gone = True
        for asked in self._asked.values():
            _settle(asked.over)
            if asked.rows is not None:
                asked.rows.finish(ShuttingDown())
            elif not asked.answer.done():
                asked.answer.set_exception(ShuttingDown())
