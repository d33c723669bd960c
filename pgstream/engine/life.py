"""The life of the continuous queries: what is intended against what the worker says.

Owns: starting, stopping and restarting each query, its attempt numbers, its pauses after failures, and the state that
the catalogue shows. States: *starting* (with "waiting: …" while a retry is due), *running*, *errored* (only RESTART
helps), *terminate_requested*, *terminated*. An attempt is recorded before the worker hears of it, so no two runs of a
query ever carry the same one.
Must not know: processes, clients. Start reading at ``Queries.reconcile``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import structlog

from pgstream import traces
from pgstream.catalog import rights
from pgstream.catalog.records import QueryRecord
from pgstream.catalog.store import Catalog
from pgstream.engine import faults, requests
from pgstream.engine.channel import Alive, Ended, Executors, Fault, Request, Running, Stop
from pgstream.engine.leave import leave, unmark
from pgstream.engine.pool import pause
from pgstream.engine.progress import ProgressLog
from pgstream.engine.suspects import CRASHES, Suspects
from pgstream.errors import NotReady, PgStreamError, UndefinedQuery
from pgstream.names import FullName
from pgstream.tasks import whole

LAUNCH_S = 10.0
NO_EXECUTOR = "waiting: the cluster has given the pool no executor yet"
REGAIN = "Grant it again, then RESTART QUERY."
STOP_S = 15.0
MEND_S = 5.0
LATE_S = (70.0, 65.0)
"""After its end, and after that: Spark looks after the state of ended runs once a minute."""
OVER = "over"
"""The folder among the checkpoints that names those that were taken away and may come back."""
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Run:
    """One query as this server knows it. ``lock`` keeps its steps in order. ``failing``: it has ended, and its pause is
    about to begin. ``finishing``: what it leaves is being taken away. ``whole``: it ended between two batches.
    ``trace``: the span that asks for its next start; ``origin``: the one in which it was created.
    """

    id: str
    attempt: int = 0
    at_worker: bool = False
    stopping: bool = False
    failing: bool = False
    finishing: bool = False
    whole: bool = False
    failures: int = 0
    running_since: float | None = None
    retry: asyncio.TimerHandle | None = None
    launching: asyncio.Future[Fault | None] | None = None
    trace: str = ""
    origin: str = ""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def settle(self, fault: Fault | None) -> bool:
        """Tell who launches it; False when nobody waits."""
        if self.launching is None or self.launching.done():
            return False
        self.launching.set_result(fault)
        return True

    def calm(self) -> None:
        """Forget a retry that is due."""
        if self.retry is not None:
            self.retry.cancel()
            self.retry = None


class Queries:
    """All continuous queries of ``pool``. ``send`` reaches the worker; ``is_ready`` says whether there is one.
    ``waits``: what all that the worker does waits for.
    """

    def __init__(
        self,
        pool: str,
        catalog: Catalog,
        checkpoints: str,
        send: Callable[[Request], None],
        is_ready: Callable[[], bool],
    ) -> None:
        self._pool = pool
        self._catalog = catalog
        self._checkpoints = checkpoints
        self._send = send
        self._is_ready = is_ready
        self._runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._suspects = Suspects()
        self._unmarking = asyncio.Semaphore(4)  # each is a client of a store's with threads of its own
        self.progress = ProgressLog(catalog.record_progress)
        self.waits = ""

    def owns(self, query: str) -> bool:
        return query in self._runs

    def _run(self, id: str) -> Run:
        return self._runs.setdefault(id, Run(id))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (e := task.exception()) is not None:
            log.error("step of a query failed", exc_info=e)

    async def close(self) -> None:
        """No more steps; what runs at the worker is the pool's to end."""
        for run in self._runs.values():
            run.calm()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Desired state

    async def adopt(self) -> None:
        """This server has the pool now: what the last one left as running is not, and what it was in the midst of is
        ended.
        """
        try:
            await self._catalog.finish_replacements()
        except PgStreamError as e:  # ``Replacements`` asks again
            log.warning("replacements could not be finished, trying again", error=e.text)
        for record in await self._live():
            if record.actual == "running":
                await self._record(self._run(record.id), actual="starting", message="waiting: the worker is starting")
        self._spawn(self._sweep())

    async def _sweep(self) -> None:
        """Take away the checkpoints of queries that had ended when a server died, and what has come back of others."""
        root = requests.on_disk(self._checkpoints, "")
        there = await asyncio.to_thread(_names, root) if root is not None else set[str]()
        known = await self._catalog.queries(include_ended=True) if there else []
        for record in known:
            if record.pool == self._pool and record.actual == "terminated" and record.id in there:
                log.warning("checkpoint of an ended query taken away", query_id=record.id)
                await self._leave(record.id)
        if root is not None and OVER in there:
            living = {r.id for r in known if r.actual != "terminated"}
            for id in await asyncio.to_thread(_names, root / OVER) - living:
                await asyncio.to_thread(_remove, root / id)
                self._spawn(self._leave_again(root / id))

    async def _live(self) -> list[QueryRecord]:
        return [q for q in await self._catalog.queries() if q.pool == self._pool]

    def reconcile(self) -> None:
        """A worker is ready: start all that should run, finish all that should end."""
        self._spawn(self._reconcile())

    async def _reconcile(self) -> None:
        try:
            records = await self._live()
        except PgStreamError as e:
            log.warning("queries could not be read, trying again", error=e.text)
            asyncio.get_running_loop().call_later(1.0, self.reconcile)
            return
        for record in records:
            run = self._run(record.id)
            run.attempt = max(run.attempt, record.attempt)
            if run.at_worker or run.failing or run.finishing:
                continue
            if record.intended == "terminated":
                self._spawn(self._finish(run))
            elif record.actual != "errored" or run.launching is not None:
                run.calm()
                self._spawn(self._start_alone(run) if run.id in self._suspects else self._start(run))

    async def _start_alone(self, run: Run) -> None:
        async with self._suspects.alone():
            await self._start(run)

    def mend(self, strays: Iterable[QueryRecord]) -> None:
        """Do what nobody has asked for, or asked in vain: a server that recorded a wish may have died before."""
        now = asyncio.get_running_loop().time()
        for record in strays:
            run = self._run(record.id)
            run.attempt = max(run.attempt, record.attempt)
            if run.lock.locked() or run.stopping or run.failing or run.finishing or run.id in self._suspects:
                continue
            if record.intended == "terminated":
                log.warning("query ended that was left to end", query_id=run.id)
                self._spawn(self._stop(run, forget=True, then=self._finish))
            elif not run.at_worker and (run.retry is None or run.retry.when() < now - MEND_S):
                log.warning("query started that was left to start", query_id=run.id)
                self._spawn(self._start(run))

    async def launch(self, id: str, also: Collection[FullName] = ()) -> None:
        """Start a query that was recorded just now, and wait a while for it to run.

        A fault of the statement or its data takes the query, and the relation made for it, out of the catalogue again,
        and is raised: an error means that nothing was made. Other faults are retried; the query's message says so.
        ``also``: relations that an application has declared.
        """
        run = self._run(id)
        run.launching = asyncio.get_running_loop().create_future()
        run.trace = run.origin = traces.carried()
        try:
            await self._start(run)
            if run.at_worker and run.running_since is not None:
                return  # a worker that became ready since it was recorded has it, and has told so
            async with asyncio.timeout(LAUNCH_S):
                fault = await run.launching
        except TimeoutError:
            return
        finally:
            run.launching = None
        if fault is not None and fault.kind not in faults.RETRIED:
            if (forgetting := await whole(self._discard(run, also))) is not None:
                await asyncio.wait([forgetting])
            raise faults.error(fault)

    async def _discard(self, run: Run, also: Collection[FullName]) -> asyncio.Task[None] | None:
        """Take a query that cannot run out of the catalogue, unless somebody reads what it made. What takes away
        the rest of it, then.
        """
        record = None
        try:
            record = await self._catalog.query(run.id)
            await self._catalog.discard_query(run.id, also)
        except PgStreamError as e:
            if not await self._is_gone(run.id):
                log.warning("query kept that cannot run", query_id=run.id, error=e.text)
                return None
            log.warning("query discarded with an error", query_id=run.id, error=e.text)
        if record is not None:
            self._spawn(self._unmark(record))
        return self._spawn(self._forget(run))

    async def _is_gone(self, id: str) -> bool:
        try:
            await self._catalog.query(id)
        except UndefinedQuery:
            return True
        except PgStreamError:  # nobody can tell
            pass
        return False

    async def terminate(self, id: str) -> None:
        """End a query for good. Returns when it has ended, or after a while with the end under way."""
        run = self._run(id)
        run.calm()
        async with run.lock:
            await self._catalog.set_query(id, intended="terminated", actual="terminate_requested", message="")
        await self._stop(run, forget=True, then=self._finish)

    async def restart(self, id: str) -> None:
        """Run a query again from its last state, however often it failed before; at once, or after its batch."""
        record = await self._catalog.query(id)
        if record.intended == "terminated":
            raise NotReady(what=f'query "{id}" is terminated', hint="CREATE it again; a terminated query is gone.")
        run = self._run(record.id)
        run.calm()
        run.failures = 0
        run.trace = traces.carried()
        self._suspects.forget(run.id)
        async with run.lock:
            await self._catalog.set_query(record.id, actual="starting", message="")
        await self._stop(run, forget=False, then=self._start)

    async def move(self, id: str, pool: str, take: Callable[[str], Awaitable[None]]) -> None:
        """Let another pool run a query from its last state: it ends here first, so two never write its state."""
        record = await self._catalog.query(id)
        if record.intended == "terminated":
            raise NotReady(what=f'query "{id}" is terminated', hint="CREATE it again; a terminated query is gone.")
        run = self._run(record.id)
        run.calm()
        async with run.lock:
            moving = f"waiting: moving to compute pool {pool}"
            await self._catalog.set_query(record.id, actual="starting", message=moving)

        async def leave(run: Run) -> None:
            await self.progress.flush()
            async with run.lock:
                await self._catalog.set_query(run.id, pool=pool)
            self._runs.pop(run.id, None)
            self.progress.forget(run.id)
            await take(run.id)

        await self._stop(run, forget=False, then=leave)

    async def begin(self, id: str) -> None:
        """Start a query that is in the catalogue; at once, or when there is a worker."""
        await self._start(self._run(id))

    async def _stop(self, run: Run, forget: bool, then: Callable[[Run], Coroutine[Any, Any, None]]) -> None:
        """Stop a run and then do the next thing; not waited for beyond ``STOP_S``, but done all the same."""
        if there := run.at_worker:
            run.stopping = True
            self._send(Stop(run.id, forget=forget))

        async def after() -> None:
            if there:
                await run.gone.wait()
            await then(run)

        # In a task of the engine's: the client may go, or say that it does not want to wait.
        task = self._spawn(after())
        await asyncio.wait([task], timeout=STOP_S)
        if task.done() and not task.cancelled():
            task.result()

    async def _start(self, run: Run) -> None:
        async with run.lock:
            if run.at_worker or not self._is_ready():
                return
            try:
                record = await self._catalog.query(run.id)
                if record.intended != "running":
                    return
                if (missing := rights.lost(self._catalog.snapshot, record)) is not None:
                    await self._fail(run, Fault("user", "42501", f"permission denied: {missing}.", hint=REGAIN))
                    return
                attempt = max(run.attempt, record.attempt, await self._catalog.attempts_beside(record)) + 1
                start = await requests.start(self._catalog, record, attempt, self._checkpoints)
                said = {} if run.failures else {"message": self.waits}
                await self._catalog.set_query(run.id, attempt=attempt, actual="starting", **said)
            except UndefinedQuery:
                await self._forget(run)
                return
            except ValueError as e:
                await self._fail(run, Fault("user", "0A000", f"the query's plan cannot be read: {e}"))
                return
            except NotReady as e:
                await self._fail(run, Fault("user", e.sqlstate, e.text, hint=e.hint))
                return
            except PgStreamError as e:
                await self._wait(run, faults_of(e))
                return
            run.attempt = attempt
            if self._is_ready():
                run.at_worker, run.running_since, run.whole = True, None, False
                run.gone.clear()
                self._suspects.began(run.id)
                self._send(msgspec.structs.replace(start, trace=run.trace, origin=run.origin))
                run.trace = ""
                log.info("query started", query_id=run.id, attempt=attempt)

    # What the worker says

    def running(self, event: Running) -> None:
        run = self._runs.get(event.query)
        if run is not None and run.at_worker and run.attempt == event.attempt:
            run.settle(None)
            # After a failure it runs when its sources answer: until then it still waits for them.
            if run.failures == 0:
                self._spawn(self._ran(run))

    def executors(self, event: Executors) -> None:
        log.warning("pool has no executor" if event.wanted else "pool has executors", pool=self._pool)
        self.waits = NO_EXECUTOR if event.wanted else ""
        for run in self._runs.values():
            self._spawn(self._waiting(run))

    async def _waiting(self, run: Run) -> None:
        async with run.lock:
            if run.at_worker and not run.stopping and not run.failures:
                await self._record(run, message=self.waits)

    def alive(self, event: Alive) -> None:
        run = self._runs.get(event.query)
        if run is not None and run.at_worker and run.attempt == event.attempt:
            run.running_since = asyncio.get_running_loop().time()
            self._suspects.well(run.id)
            if run.failures:
                self._spawn(self._ran(run))

    async def _ran(self, run: Run) -> None:
        async with run.lock:
            if run.at_worker and not run.stopping:
                await self._record(run, actual="running", message=self.waits)

    def ended(self, event: Ended) -> None:
        run = self._runs.get(event.query)
        # Attempt 0: the worker knows nothing of a query that it was asked to stop.
        if run is None or not run.at_worker or event.attempt not in (0, run.attempt):
            return
        run.at_worker, run.whole = False, event.whole
        run.gone.set()
        self._suspects.over(run.id)
        log.info("query ended", query_id=run.id, fault=event.fault and event.fault.message)
        fault = event.fault or Fault("engine", "58000", "the query ended by itself")
        if not run.stopping:
            run.failing = True
            self._spawn(self._failed(run, fault))
        run.stopping = False

    def died(self, why: str, crashed: bool = False, *, told: bool = True) -> None:
        """The worker is gone, and every run with it. ``crashed``: it was not ended from outside. ``told``: the
        catalogue shows it.
        """
        self.waits = ""
        culprit = None
        if crashed:
            culprit = self._suspects.crashed()
        else:
            self._suspects.lost()
        for run in self._runs.values():
            if run.at_worker:
                run.at_worker = run.stopping = False
                run.running_since = None
                run.gone.set()
                if told:
                    self._spawn(self._keep_out(run) if run.id == culprit else self._lost(run, why))

    async def _keep_out(self, run: Run) -> None:
        text = f"the worker crashed {CRASHES} times in a row in this query's first batch"
        hint = "RESTART QUERY tries again; the server's log has what the worker said last."
        async with run.lock:
            await self._fail(run, Fault("engine", "58000", text, hint=hint))

    async def _lost(self, run: Run, why: str) -> None:
        async with run.lock:
            try:
                record = await self._catalog.query(run.id)
            except UndefinedQuery:
                return
            if not run.at_worker and record.intended == "running":
                await self._record(run, actual="starting", message=f"waiting: {why}")

    async def _failed(self, run: Run, fault: Fault) -> None:
        async with run.lock:
            run.failing = False
            again = fault.kind in faults.RETRIED or (fault.kind == "refused" and run.launching is None)
            if again or (fault.kind == "overtaken" and run.failures < faults.OVERTAKEN):
                await self._wait(run, fault)
            else:
                await self._fail(run, fault)

    async def _fail(self, run: Run, fault: Fault) -> None:
        """Errored until somebody says RESTART."""
        log.warning("query errored", query_id=run.id, kind=fault.kind, error=fault.message)
        await self._record(run, actual="errored", message=faults.sentence(fault))
        run.settle(fault)

    async def _wait(self, run: Run, fault: Fault) -> None:
        """Try again after a pause that grows with each failure in a row.

        A run whose first batch was over begins a new row: what failed before is behind it.
        """
        loop = asyncio.get_running_loop()
        run.failures = 1 if run.running_since is not None else run.failures + 1
        run.running_since = None
        delay = pause(run.failures)
        log.warning("query waits", query_id=run.id, kind=fault.kind, error=fault.message, retry_in_s=delay)
        run.calm()
        run.retry = loop.call_later(delay, lambda: self._spawn(self._start(run)))
        await self._record(run, actual="starting", message=f"waiting: {faults.sentence(fault)}")
        run.settle(fault)

    async def _record(self, run: Run, **changes: object) -> None:
        """Show a state. When the catalogue cannot be reached it shows an old one; the next change corrects it."""
        try:
            await self._catalog.set_query(run.id, **changes)
        except PgStreamError as e:
            log.warning("state of a query not recorded", query_id=run.id, error=e.text)

    async def _finish(self, run: Run) -> None:
        """Once at a time: a store may take its time to answer, and somebody looks again every few seconds."""
        if run.finishing:
            return
        run.finishing = True
        try:
            await self._take_away(run)
        finally:
            run.finishing = False

    async def _take_away(self, run: Run) -> None:
        await self.progress.flush()
        try:
            await self._catalog.drop_view_logs(run.id)
            await self._catalog.end_beside(run.id)
        except UndefinedQuery:
            pass
        except PgStreamError as e:
            log.warning("what waits for a query could not be dropped, trying again", query_id=run.id, error=e.text)
            run.calm()
            run.retry = asyncio.get_running_loop().call_later(1.0, lambda: self._spawn(self._finish(run)))
            return
        # First what it left, such as a replication slot: nobody looks for that of a terminated one.
        await self._leave(run.id)
        await self._record(run, actual="terminated", message="", **await self._end(run))
        run.settle(None)
        await self._forget(run)
        with contextlib.suppress(PgStreamError):
            self._spawn(self._unmark(await self._catalog.query(run.id)))

    async def _unmark(self, record: QueryRecord) -> None:
        async with self._unmarking:
            await unmark(self._catalog, record)

    async def _end(self, run: Run) -> dict[str, object]:
        """The last progress of a query that told all of it."""
        if not run.whole:
            return {}
        try:
            return {"progress": {**(await self._catalog.query(run.id)).progress, "whole": True}}
        except PgStreamError:
            return {}

    async def _forget(self, run: Run) -> None:
        run.calm()
        self._suspects.forget(run.id)
        self._runs.pop(run.id, None)
        self.progress.forget(run.id)
        await self._leave(run.id)

    async def _leave(self, id: str) -> None:
        """Take away a checkpoint, and first what it tells of that was left in the query's stores."""
        if (folder := requests.on_disk(self._checkpoints, id)) is not None and await asyncio.to_thread(folder.exists):
            await leave(self._catalog, folder)
            await asyncio.to_thread(_remove, folder)
            self._spawn(self._leave_again(folder))

    async def _leave_again(self, folder: Path) -> None:
        """Take away what comes back: a worker that lives lets the state of a run that has failed go later, and writes
        a snapshot of it then (``Remains.scala``). What comes after a server's end, the next one sweeps.
        """
        for pause_s in LATE_S:
            await asyncio.sleep(pause_s)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        _mark(folder).unlink(missing_ok=True)


def _names(folder: Path) -> set[str]:
    return set(os.listdir(folder)) if folder.exists() else set()


def _mark(checkpoint: Path) -> Path:
    return checkpoint.parent / OVER / checkpoint.name


def _remove(checkpoint: Path) -> None:
    """Its mark first: of a query that never ran the catalogue knows nothing, and a folder may be of another one."""
    with contextlib.suppress(OSError):
        _mark(checkpoint).parent.mkdir(exist_ok=True)
        _mark(checkpoint).touch()
    shutil.rmtree(checkpoint, ignore_errors=True)


def faults_of(e: PgStreamError) -> Fault:
    """An error on this side as a fault that is retried: the catalogue or a store's row could not be had."""
    return Fault("store", e.sqlstate, e.text, e.detail, e.hint)
