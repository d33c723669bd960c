"""One compute pool as the server sees it: a worker that is awake or asleep, the queries in it, questions to it.

Owns: the pool's lock, waking it when it is needed, the dispatch of what its worker says, and having the steps of a
query done by another server when that one has the pool (``forward``). Continuous queries are ``life``'s, interactive
ones ``results``'.
Must not know: other pools (``engine``), statements, clients, Spark. Start reading at ``ComputePool.wake``.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec
import structlog

from pgstream import traces, types
from pgstream.catalog.records import QueryRecord
from pgstream.catalog.rights import Reading
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.engine import faults, readers, requests
from pgstream.engine.channel import (
    Alive,
    Analyze,
    Analyzed,
    Compile,
    Compiled,
    Ended,
    Event,
    Executors,
    Failed,
    Idle,
    Progress,
    Ready,
    Rows,
    Running,
    Start,
)
from pgstream.engine.computation import Computation
from pgstream.engine.leave import leave_own
from pgstream.engine.life import Queries
from pgstream.engine.lock import Holder, PoolLock
from pgstream.engine.pool import Pool, Prepare
from pgstream.engine.readers import Place
from pgstream.engine.results import ResultStream
from pgstream.errors import EngineUnavailable, PgStreamError
from pgstream.names import FullName
from pgstream.planner.plan import Plan

READY_S = 60.0
ANALYZE_S = 30.0
END_S = 20.0
"""How long the end of a query that another server runs is waited for; it ends all the same."""
Columns = list[tuple[str, types.Type, bool]]
log = structlog.get_logger(__name__)


class Forwarded(Protocol):
    """Have a step of a query done by the server that has the pool. False: that is this one now."""

    async def __call__(self, pool: str, step: str, query: str, to: str, within_s: float | None) -> bool: ...


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A pool as seen from outside: ``holder`` of its lock; of its worker the process id and how many were started;
    ``streams``: interactive queries; by query id the newest ``progress`` and until when everything was read (``fresh``,
    seconds since 1970), where this server runs it.
    """

    name: str
    state: str
    why: str
    holder: Holder
    pid: int | None
    starts: int
    streams: int
    progress: Mapping[str, Mapping[str, Any]]
    fresh: Mapping[str, float]


class ComputePool:
    """A pool and its queries. It is asleep until ``wake``: no process, no lock."""

    def __init__(self, name: str, config: Config, catalog: Catalog, prepare: Prepare, ask: Forwarded) -> None:
        self.name = name
        self._ask_holder = ask
        self._catalog = catalog
        self._pool = Pool(name, config.data_dir, prepare, self, config.shutdown_grace_s)
        self._lock = PoolLock(catalog.control_url, name)
        self._has = False  # its lock, and what the last holder left is settled
        self._queries = Queries(
            name, catalog, config.checkpoints, self._pool.send, lambda: self._has and self._is_ready
        )
        self._wanted = asyncio.Event()  # a worker
        self._results: dict[str, ResultStream | Computation] = {}
        self._plans: dict[str, Plan] = {}  # of what is among the results and has begun
        self._places: dict[str, Place] = {}  # of the same
        self._reads: dict[str, Reading] = {}  # of those of them that are a client's SELECT
        self._leaving: set[asyncio.Task[None]] = set()
        self._asked: dict[int, asyncio.Future[Analyzed | Compiled]] = {}
        self._ids = itertools.count(1)
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    def wake(self, *, warm: bool = False) -> None:
        """Begin to run the pool, unless it runs; returns at once. Queries follow when its worker is ready.

        While another server has the pool, there is a worker here only if a client has asked for one, for its analyses
        and interactive queries, or to be ``warm``.
        """
        if warm:
            self._wanted.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(self._ending))

    async def _awake(self) -> None:
        """Wait for the worker on behalf of a client. Error: EngineUnavailable, saying what keeps it."""
        self._waiting += 1
        try:
            self.wake(warm=True)
            if self._ending is not None:
                await asyncio.wait({self._ending})
            with traces.NOTHING if self._pool.is_ready else traces.span("wait for the worker"):
                await self._pool.wait_ready(READY_S)
        finally:
            self._waiting -= 1

    async def sleep(self, why: str) -> None:
        """End the worker, after its running batches. Queries stay intended as they are, and wait.

        Whoever wakes the pool meanwhile is served by its next worker.
        """
        self._disappoint(why)
        self._wanted.clear()
        if self._task is None:
            self._queries.died(why)
            return
        self._ending, self._task = asyncio.create_task(self._end(self._task, why)), None
        await asyncio.wait({self._ending})

    async def _end(self, task: asyncio.Task[None], why: str) -> None:
        task.cancel()
        await asyncio.wait({task})
        self._queries.died(why)

    async def close(self) -> None:
        """The server stops."""
        if self._task is not None:
            self._task.cancel()
        ending = {task for task in (self._task, self._ending) if task is not None}
        if ending:
            await asyncio.wait(ending)
        self._task = None
        self._disappoint("the server is stopping")
        if self._leaving:
            await asyncio.wait(self._leaving)
        await self._queries.close()
        await self._queries.progress.flush()

    @property
    def state(self) -> str:
        """``running``, ``starting`` or ``stopped``: what this server knows of it."""
        if self._task is None:
            return "stopped"
        elsewhere = self._lock.holder is Holder.ELSEWHERE and not self._wanted.is_set()
        return "running" if self._is_ready or elsewhere else "starting"

    @property
    def _is_ready(self) -> bool:
        """The worker is, and is not the one that is being ended."""
        return self._pool.is_ready and (self._ending is None or self._ending.done())

    def facts(self) -> PoolFacts:
        """What there is to see of it now."""
        progress = self._queries.progress
        here = self._lock.holder is Holder.HERE
        return PoolFacts(
            self.name,
            self.state,
            self.why,
            self._lock.holder,
            self._pool.pid,
            self._pool.starts,
            len(self._results),
            dict(progress.latest) if here else {},
            dict(progress.fresh) if here else {},
        )

    @property
    def why(self) -> str:
        """What keeps the worker from being ready, while it is starting, or from working."""
        return self._pool.why if self.state == "starting" else self._queries.waits

    @property
    def is_asked(self) -> bool:
        """Whether a client waits for it or reads from it."""
        return bool(self._waiting or self._results or self._asked)

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        while True:
            work, held = asyncio.create_task(self._work()), asyncio.create_task(self._hold())
            try:
                await asyncio.wait({work, held}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (work, held):  # the worker ends before the lock is given back
                    task.cancel()
                    await asyncio.wait({task})
            for task in (work, held):
                if not task.cancelled() and (e := task.exception()) is not None:
                    log.error("pool stopped, trying again", pool=self.name, exc_info=e)
            # Queries' states are the next holder's to tell, which may have them running by now.
            self._disappoint(why := "another server may run the pool")
            self._queries.died(why, told=False)
            await asyncio.sleep(1)

    async def _work(self) -> None:
        """Keep a worker running once there is something for it to do."""
        await self._wanted.wait()
        await self._pool.run()

    async def _hold(self) -> None:
        """Have the queries run here from when the pool's lock is to be had until it is lost, or until cancelled."""
        async with self._lock.hold() as lost:
            try:
                await self._queries.adopt()
            except PgStreamError as e:
                log.warning("pool could not be taken, trying again", pool=self.name, error=e.text)
                return
            self._has = True
            self._wanted.set()
            if self._is_ready:  # it was warm
                self._queries.reconcile()
            progress = asyncio.create_task(self._queries.progress.run())
            try:
                await asyncio.wait([lost, progress], return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._has = False
                progress.cancel()
                await asyncio.wait([progress])
                if lost.done():
                    self._queries.progress.clear()

    # Continuous queries

    @property
    def has(self) -> bool:
        """Whether this server runs the pool's queries."""
        return self._has

    async def launch(self, query_id: str, also: Collection[FullName] = ()) -> None:
        """Start a recorded query; returns when it runs, or while it waits (its message says for what).

        Raises the fault, with the query and its relations gone again, if it cannot run at all. ``also``: relations
        that an application has declared.
        """
        self.wake()
        if not await self._elsewhere("launch", query_id):
            await self._queries.launch(query_id, also)

    async def terminate(self, query_id: str) -> None:
        """End a query for good; ``terminate_requested`` while a long batch still runs, or until the server that has
        the pool hears of it.
        """
        if self._has or not await self._lock.is_elsewhere():
            await self._queries.terminate(query_id)
            return
        await self._catalog.set_query(query_id, intended="terminated", actual="terminate_requested", message="")
        try:
            if not await self._ask_holder(self.name, "terminate", query_id, "", END_S):
                await self._queries.terminate(query_id)
        except EngineUnavailable as e:
            log.warning("query not ended yet", query_id=query_id, error=e.text)

    async def restart(self, query_id: str) -> None:
        """Run a query again from its last state. Error: NotReady for a terminated one."""
        self.wake()
        if not await self._elsewhere("restart", query_id):
            await self._queries.restart(query_id)

    async def move(self, query_id: str, to: ComputePool) -> None:
        """Run a query from its last state in another pool; done in the end even when it takes long."""
        if not await self._elsewhere("move", query_id, to.name):
            await self._queries.move(query_id, to.name, to.take)

    async def take(self, query_id: str) -> None:
        """Run a query that comes from another pool."""
        self.wake()
        if not await self._elsewhere("begin", query_id):
            await self._queries.begin(query_id)

    async def _elsewhere(self, step: str, query_id: str, to: str = "") -> bool:
        """Have another server do a step, if one has the pool. Errors: those of the step, EngineUnavailable."""
        if self._has or not await self._lock.is_elsewhere():
            return False
        return await self._ask_holder(self.name, step, query_id, to, None)

    def progress(self, query_id: str) -> Mapping[str, object]:
        """The newest progress, which the catalogue has a little later; empty when the query does not run here."""
        return self._queries.progress.latest.get(query_id, {}) if self._lock.holder is not Holder.ELSEWHERE else {}

    def read_until(self, query_id: str) -> float:
        """The last moment of which a query has had all that its sources had, as far as this server runs it; or 0."""
        return self._queries.progress.fresh.get(query_id, 0.0) if self._has else 0.0

    def mend(self, strays: Iterable[QueryRecord]) -> None:
        """Begin and end what of these queries is this pool's, if this server runs it."""
        if self._has and self._is_ready:
            self._queries.mend(q for q in strays if q.pool == self.name)

    # Questions to Spark

    async def analyze(self, plan: Plan) -> Columns:
        """Output columns: name, type, nullable. Errors: the analyzer's, with position; EngineUnavailable."""
        with traces.span("analyze"):
            found = await self._ask(lambda id: Analyze(id, plan.json(), traces.carried()))
        assert isinstance(found, Analyzed)
        return [(name, types.from_spark(text), nullable) for name, text, nullable in found.columns]

    async def compile(self, text: str, refers: dict[str, str]) -> bytes:
        """The descriptor set of a .proto text. Errors: UnusableSchema, EngineUnavailable."""
        with traces.span("compile"):
            found = await self._ask(lambda id: Compile(id, text, refers, traces.carried()))
        assert isinstance(found, Compiled)
        return base64.b64decode(found.files)

    async def _ask(self, request: Callable[[int], Analyze | Compile]) -> Analyzed | Compiled:
        await self._awake()
        id = next(self._ids)
        answer: asyncio.Future[Analyzed | Compiled] = asyncio.get_running_loop().create_future()
        self._asked[id] = answer
        try:
            self._pool.send(request(id))
            async with asyncio.timeout(ANALYZE_S):
                return await answer
        except TimeoutError:
            raise EngineUnavailable(why="the analyzer did not answer in time") from None
        finally:
            del self._asked[id]

    def open_result(self, plan: Plan, reading: Reading, place: Place) -> ResultStream:
        """Rows of an interactive SELECT. ``aclose`` ends its Spark query."""
        query = str(uuid.uuid4())

        async def made() -> Start:
            self._reads[query] = reading
            return await requests.start_result(self._catalog, query, plan, reading.role)

        starts = self._of_statement(query, place, plan, made)
        return ResultStream(query, starts, self._pool.send, partial(self._forget, place))

    def computation(self, query: str, plan: Plan, table: str, limits: requests.Limits, place: Place) -> Computation:
        """A view's query once more, beside the view, for as long as the context that this is lasts."""
        made = partial(requests.start_beside, self._catalog, query, plan, table, limits)
        starts = self._of_statement(query, place, plan, made)
        return Computation(query, starts, self._pool.send, partial(self._forget, place))

    def _of_statement(
        self, query: str, place: Place, plan: Plan, made: Callable[[], Awaitable[Start]]
    ) -> Callable[[ResultStream | Computation], Awaitable[None]]:
        """What sends a query to the worker that lasts as long as its statement, and takes one of its user's places."""

        async def begin(told: ResultStream | Computation) -> None:
            place.take()
            with traces.span("start query", {traces.QUERY_ID: query}):
                await self._awake()
                start, trace = await made(), traces.carried()
                self._results[query], self._plans[query], self._places[query] = told, plan, place
                self._pool.send(msgspec.structs.replace(start, trace=trace, origin=trace))

        return begin

    def _forget(self, place: Place, query: str) -> None:
        self._results.pop(query, None)
        self._plans.pop(query, None)
        self._places.pop(query, None)
        self._reads.pop(query, None)
        place.leave()

    def end_unentitled(self) -> None:
        """End the SELECTs whose client may not read any more what they read."""
        for query, reading in list(self._reads.items()):
            stream = self._results.get(query)
            if isinstance(stream, ResultStream) and (lost := reading.lost(self._catalog.snapshot)) is not None:
                stream.deny(lost)

    # What the worker says

    def worker_said(self, event: Event) -> None:
        match event:
            case Rows():
                if stream := self._results.get(event.query):
                    stream.arrived(event)
            case Progress():
                if self._has and self._queries.owns(event.query):
                    self._queries.progress.add(event)
            case Idle():
                if self._has and self._queries.owns(event.query):
                    self._queries.progress.idle(event)
            case Running():
                self._queries.running(event)
            case Alive():
                self._pool.well()
                self._queries.alive(event)
            case Ended():
                if stream := self._results.get(event.query):
                    stream.ended(event)
                else:
                    self._queries.ended(event)
            case Analyzed() | Compiled() | Failed():
                self._answer(event)
            case Executors():
                self._queries.executors(event)
            case Ready():
                if self._has:
                    self._queries.reconcile()

    def _answer(self, event: Analyzed | Compiled | Failed) -> None:
        answer = self._asked.get(event.id)
        if answer is None or answer.done():
            return
        if isinstance(event, Failed):
            answer.set_exception(faults.error(event.fault))
        else:
            answer.set_result(event)

    def worker_died(self, why: str, crashed: bool = False) -> None:
        for query, plan in self._plans.items():  # nobody else knows what its sources left
            task = asyncio.create_task(leave_own(self._catalog, query, plan))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        # Then no query is to blame that happens to be on trial, as all are after a crash.
        crashed = crashed and not readers.crashed(self._places.values())
        self._disappoint(why)
        self._queries.died(why, crashed)

    def _disappoint(self, why: str) -> None:
        """Nobody will answer those who wait."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(EngineUnavailable(why=why))
        for stream in list(self._results.values()):
            stream.lost(why)
