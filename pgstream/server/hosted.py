"""A statement of ours that a listener process asks for, run in the server process.

Owns: its context, whose functions are called over the link; the rows on their way there, as many as were asked for.
Must not know: clients, sockets. Start reading at ``Hosted.begin``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from pgstream import traces
from pgstream.config import Config
from pgstream.engine.results import COSTS_ONE, ResultStream
from pgstream.errors import PgStreamError
from pgstream.server.executor import Here
from pgstream.server.language import Language
from pgstream.server.link import Answer, Ask, Call, Denied, Link, Over, Returned, Rows, adopt
from pgstream.server.run import as_error
from pgstream.statements.base import Context, Result, TextRow

HERE = frozenset(("config", "session", "catalog", "engine", "parameters", "parameter_oids", "virtuals"))
"""What a context has that is not a function of the client's session."""
AT_ONCE = frozenset(("notice",))
"""Functions that nobody waits for."""
BATCH = 500


@dataclass(frozen=True, slots=True)
class Host:
    """What statements run with."""

    config: Config
    catalog: Any
    engine: Any
    language: Language


class Hosted:
    """One statement. Made for an Ask, which ``begin`` answers, whatever happens."""

    def __init__(self, host: Host, link: Link, ask: Ask) -> None:
        self._host, self._link, self._ask = host, link, ask
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._here = Here()
        self._wanted = 0
        self._news = asyncio.Event()

    def begin(self) -> asyncio.Task[PgStreamError | None]:
        """Run it. However it ends, also stopped before its first step, the listener process is told."""
        task = asyncio.ensure_future(self._run())
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[PgStreamError | None]) -> None:
        error = None if task.cancelled() else task.result()
        self._link.send(Over(self._ask.id, self._ask.session, error))

    async def _run(self) -> PgStreamError | None:
        try:
            with traces.joined("in the server process", {}, self._ask.trace):
                await self._answer()
        except Exception as e:  # the statement's edge
            return as_error(e)
        return None

    async def _answer(self) -> None:
        ask = self._ask
        statement = self._host.language.parse(ask.text, ask.kind)
        if ask.describe:
            columns = await self._here.describe(ask.text, statement, self._context())
            self._link.send(Answer(ask.id, ask.session, columns=columns))
            return
        result = await self._here.execute(ask.text, statement, self._context())
        if not isinstance(result.rows, AsyncIterator):
            self._link.send(Answer(ask.id, ask.session, result=result))
            return
        async with contextlib.AsyncExitStack() as stack:
            if (aclose := getattr(result.rows, "aclose", None)) is not None:
                stack.push_async_callback(aclose)
            if isinstance(result.rows, ResultStream):
                result.rows.tell_when_denied(lambda error: self._link.send(Denied(ask.id, error)))
            self._link.send(Answer(ask.id, ask.session, result=replace(result, rows=()), streams=True))
            await self._stream(result, result.rows)

    async def _stream(self, result: Result, rows: AsyncIterator[TextRow]) -> None:
        """Send rows while they are wanted: those that are there in one message."""
        batch: list[TextRow] = []
        cost = 0

        def flush() -> None:
            nonlocal cost
            if batch:
                self._link.send(Rows(self._ask.id, batch.copy(), cost))
                batch.clear()
                cost = 0

        loop = asyncio.get_running_loop()
        try:
            while True:
                while self._wanted <= 0:
                    self._news.clear()
                    await self._news.wait()
                batch.append(row := await anext(rows))
                costs = 1 + sum(len(value) for value in row if value is not None) // COSTS_ONE
                cost += costs
                self._wanted -= costs
                if len(batch) == 1:
                    loop.call_soon(flush)
                elif cost >= BATCH:
                    flush()
                    await asyncio.sleep(0)  # rows that never wait would keep everything else waiting
        except StopAsyncIteration:
            pass
        finally:
            flush()

    def _context(self) -> Context:
        host, ask = self._host, self._ask
        calls: dict[str, Any] = {f.name: self._calling(f.name) for f in fields(Context) if f.name not in HERE}
        return Context(
            config=host.config,
            session=ask.session,
            catalog=host.catalog,
            engine=host.engine,
            parameters=ask.parameters,
            parameter_oids=ask.oids,
            **calls,
        )

    def _calling(self, name: str) -> Callable[..., Any]:
        def tell(*args: Any, **more: Any) -> None:
            self._link.send(Call(self._ask.id, None, name, args, more))

        async def call(*args: Any, **more: Any) -> Any:
            number = next(self._numbers)
            answer = self._calls[number] = asyncio.get_running_loop().create_future()
            self._link.send(Call(self._ask.id, number, name, args, more))
            try:
                return await answer
            finally:
                del self._calls[number]

        return tell if name in AT_ONCE else call

    # What the listener process says

    def returned(self, message: Returned) -> None:
        answer = self._calls.get(message.number)
        if answer is None or answer.done():
            return
        adopt(self._ask.session, message.session)
        if message.error is not None:
            answer.set_exception(message.error)
        else:
            answer.set_result(message.value)

    def more(self, credit: int) -> None:
        self._wanted += credit
        self._news.set()
