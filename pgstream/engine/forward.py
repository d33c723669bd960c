"""Steps of a query's life, done by the server that has its compute pool.

Several servers may share one PostgreSQL. Each takes any statement; a query's pool runs on one of them, the one that
holds the pool's lock. A step is asked for by NOTIFY in the control database, which clients cannot reach, and answered
there with the fault it ended with. It is asked again until it is answered, so that a server that takes the pool over
does it; the one that does it knows a question by its id.

Owns: questions and answers. Must not know: what a step does (``compute``). Start reading at ``Forward.ask``.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec
import psycopg
import structlog

from pgstream import traces
from pgstream.catalog.postgres import ALIVE
from pgstream.engine import faults
from pgstream.engine.channel import Fault
from pgstream.errors import EngineUnavailable, InternalError, PgStreamError

CHANNEL = "pgstream_pool"
ANSWER_S, AGAIN_S = 40.0, 2.0
MOST_BYTES = 7999
"""Of a notification."""
KEPT = 1000
"""Answers: who has missed one asks again."""
log = structlog.get_logger(__name__)


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """``step``: launch, terminate, restart, move (to the pool ``to``) or begin, of a query of the pool. ``trace``: the
    span that asks for it.
    """

    id: str
    pool: str
    step: str
    query: str
    to: str = ""
    trace: str = ""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The step of this id is done, or ended with a fault."""

    id: str
    fault: Fault | None = None


_decoder: msgspec.json.Decoder[Ask | Answer] = msgspec.json.Decoder(Ask | Answer)
Do = Callable[[Ask], Awaitable[None]]


class Sender(Protocol):
    """The catalogue, as far as it is used here."""

    @property
    def control_url(self) -> str: ...

    async def notify(self, channel: str, text: str) -> None: ...

    async def refresh(self) -> None: ...


class Forward:
    """Of one server. ``has`` says whether it has a pool; ``do`` does a step of it."""

    def __init__(self, catalog: Sender, has: Callable[[str], bool], do: Do) -> None:
        self._catalog, self._has, self._do = catalog, has, do
        self._asked: dict[str, asyncio.Future[Fault | None]] = {}
        self._known: OrderedDict[str, Answer | None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Hear questions and answers, for ever."""
        try:
            while True:
                try:
                    conn = await psycopg.AsyncConnection.connect(self._catalog.control_url, autocommit=True, **ALIVE)
                    async with conn:
                        await conn.execute(f"LISTEN {CHANNEL}".encode())
                        async for notice in conn.notifies():
                            self._heard(notice.payload)
                except (psycopg.Error, OSError) as e:
                    log.warning("other servers cannot be heard, trying again", error=str(e).strip())
                await asyncio.sleep(1)
        finally:
            for task in self._tasks:
                task.cancel()

    def _heard(self, text: str) -> None:
        try:
            message = _decoder.decode(text)
        except msgspec.DecodeError:  # of another version
            log.warning("not understood", text=text[:100])
            return
        if isinstance(message, Answer):
            answer = self._asked.get(message.id)
            if answer is not None and not answer.done():
                answer.set_result(message.fault)
        elif message.id in self._asked:
            return  # our own
        elif (known := self._known.get(message.id)) is not None:
            self._spawn(self._tell(message, known))
        elif message.id not in self._known and self._has(message.pool):
            self._known[message.id] = None
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            self._spawn(self._answer(message))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, ask: Ask) -> None:
        fault = None
        try:
            await self._catalog.refresh()  # what the question is about was perhaps made just now
            with traces.joined(f"{ask.step} for another server", {traces.QUERY_ID: ask.query}, ask.trace):
                await self._do(ask)
        except PgStreamError as e:
            fault = Fault("user", e.sqlstate, e.text, e.detail, e.hint, e.at)
        except Exception:  # the edge of a session, which is at another server
            log.exception("step for another server failed", step=ask.step, query_id=ask.query, ask=ask.id)
            hint = "The log of the server that has the compute pool has the details under this id."
            fault = Fault("engine", InternalError.sqlstate, f"internal error {ask.id}", hint=hint)
        answer = Answer(ask.id, fault)
        self._known[ask.id] = answer
        await self._tell(ask, answer)

    async def _tell(self, ask: Ask, answer: Answer) -> None:
        try:
            await self._catalog.notify(CHANNEL, fitting(answer))
        except PgStreamError as e:  # it asks again
            log.warning("another server could not be answered", step=ask.step, query_id=ask.query, error=e.text)

    async def ask(self, pool: str, step: str, query: str, to: str = "", within_s: float | None = None) -> bool:
        """Have it done by the server that has the pool. False: that is this one now.

        Errors: what the step raised there; EngineUnavailable when nobody answers in time (``ANSWER_S``).
        """
        ask = Ask(uuid.uuid4().hex, pool, step, query, to, traces.carried())
        answer = self._asked[ask.id] = asyncio.get_running_loop().create_future()
        end = asyncio.get_running_loop().time() + (ANSWER_S if within_s is None else within_s)
        try:
            while not self._has(pool):
                if asyncio.get_running_loop().time() > end:
                    raise EngineUnavailable(why="the server that has the compute pool does not answer")
                try:
                    await self._catalog.notify(CHANNEL, msgspec.json.encode(ask).decode())
                except PgStreamError as e:
                    log.warning("another server could not be asked, trying again", step=step, error=e.text)
                if (await asyncio.wait({answer}, timeout=AGAIN_S))[0]:
                    await self._catalog.refresh()
                    if (fault := answer.result()) is not None:
                        raise faults.error(fault)
                    return True
        finally:
            del self._asked[ask.id]
        return False


def fitting(answer: Answer) -> str:
    """As a notification; the texts of a fault that are too long for one are cut."""
    most = MOST_BYTES
    while len(encoded := msgspec.json.encode(answer)) > MOST_BYTES and answer.fault is not None:
        most //= 2
        f = answer.fault
        message, detail, hint = (t and t[:most] for t in (f.message, f.detail, f.hint))
        answer = msgspec.structs.replace(
            answer, fault=msgspec.structs.replace(f, message=message or "", detail=detail, hint=hint)
        )
    return encoded.decode()
