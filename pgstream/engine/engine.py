"""The engine: everything that statements may ask of Spark, without Spark in this process.

Owns: the compute pools of this server, and when each is awake: the one that is asked, those with queries, none that
somebody stopped, and none that has been idle for as long as its timeout says. Now and then, the retention of views,
and what waits for queries that do not run.
Must not know: statements, clients, Spark, what happens in a pool (``compute``). Start reading at ``Engine.start``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path

import structlog

from pgstream import traces
from pgstream.catalog import kinds
from pgstream.catalog.records import DEFAULT_ORGANIZATION, ObjectRecord
from pgstream.catalog.rights import Reading
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.engine import launch, requests
from pgstream.engine.backlogs import Backlogs
from pgstream.engine.computation import Computation
from pgstream.engine.compute import Columns, ComputePool, PoolFacts
from pgstream.engine.forward import Ask, Forward
from pgstream.engine.history import History
from pgstream.engine.launch import Launch
from pgstream.engine.leave import Leftovers
from pgstream.engine.readers import Place, Readers
from pgstream.engine.replacements import Replacements
from pgstream.engine.results import ResultStream
from pgstream.engine.retention import Retention
from pgstream.errors import NotReady, NotSupported, PgStreamError
from pgstream.names import FullName
from pgstream.planner.plan import Plan

DEFAULT = "default"
LOOK_S = 2.0
"""How often the pools are compared with what is intended."""
MINUTE_S = 60.0
Prepare = Callable[[Config, Mapping[str, str]], Awaitable[Launch]]
log = structlog.get_logger(__name__)


class Engine:
    """All compute pools. ``prepare`` is replaced by tests."""

    def __init__(self, config: Config, catalog: Catalog, prepare: Prepare = launch.prepare) -> None:
        self._config = config
        self._catalog = catalog
        self._prepare = prepare
        self._pools: dict[str, ComputePool] = {}
        self._used_at: dict[str, float] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._guarding: asyncio.Task[None] | None = None
        self._forward = Forward(catalog, self._has, self._do)
        self._hearing: asyncio.Task[None] | None = None
        self._readers = Readers(config.max_streams_per_user)
        self._retention = Retention(catalog)
        self._backlogs = Backlogs(catalog, config.view_log_mb)
        self._history = History(catalog, config.ended_queries_days)
        self._leftovers = Leftovers(catalog, requests.on_disk(config.checkpoints, ""))
        self._leaving: asyncio.Task[None] | None = None
        self._replacements = Replacements(catalog, self._has, self.progress, self._read_until, self._taken)
        self._replacing: asyncio.Task[None] | None = None

    async def start(self, eager: bool = True) -> None:
        """Wake the default pool if ``eager``, and soon those that have queries; returns at once."""
        if eager and self._wants(DEFAULT):
            self.pool(DEFAULT).wake(warm=True)
        self._hearing = asyncio.create_task(self._forward.run())
        self._keeping = asyncio.create_task(self._keep())
        self._guarding = asyncio.create_task(self._guard())

    async def stop(self) -> None:
        """End all workers, after their running batches. Queries stay intended as they are, for the next start."""
        for task in (self._keeping, self._guarding, self._hearing, self._replacing, self._leaving):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await asyncio.gather(*(p.close() for p in self._pools.values()))

    # Pools

    def pool(self, name: str) -> ComputePool:
        """The pool of that name, asleep when it is new here."""
        found = self._pools.get(name)
        if found is None:

            async def prepare() -> Launch:
                record = self._record(name)
                return await self._prepare(self._config, record.options if record is not None else {})

            found = self._pools[name] = ComputePool(name, self._config, self._catalog, prepare, self._forward.ask)
        return found

    def _has(self, name: str) -> bool:
        return name in self._pools and self._pools[name].has

    async def _do(self, ask: Ask) -> None:
        """A step that another server asks for, of a pool that this one has."""
        pool = self.pool(ask.pool)
        match ask.step:
            case "launch":
                await pool.launch(ask.query)
            case "terminate":
                await pool.terminate(ask.query)
            case "restart":
                await pool.restart(ask.query)
            case "move":
                await pool.move(ask.query, self.pool(ask.to))
            case "begin":
                await pool.take(ask.query)
            case _:
                raise NotSupported(what=f'step "{ask.step}", of a newer version, by this server')

    def _record(self, name: str) -> ObjectRecord | None:
        return self._catalog.snapshot.objects.get((DEFAULT_ORGANIZATION, "compute_pool", name))

    def _wants(self, name: str) -> bool:
        """Whether it may run: it is there, and nobody stopped it."""
        record = self._record(name)
        return name == DEFAULT if record is None else record.state != "stopped"

    def _usable(self, name: str) -> ComputePool:
        """A pool that is asked for something. Errors: NotReady when it was stopped, UndefinedObject when dropped."""
        if name != DEFAULT and self._record(name) is None:
            raise kinds.missing("compute_pool", name)
        if not self._wants(name):
            raise NotReady(
                what=f'compute pool "{name}" is stopped',
                hint=f"START COMPUTE_POOL {name} starts it; USE COMPUTE_POOL takes another.",
                ds_code="3E004",
            )
        self._used_at[name] = asyncio.get_running_loop().time()
        return self.pool(name)

    def pool_state(self, name: str) -> tuple[str, str]:
        """``running``, ``starting`` or ``stopped``, and what is wrong if it does not start."""
        found = self._pools.get(name)
        return ("stopped", "") if found is None else (found.state, found.why)

    def facts(self) -> list[PoolFacts]:
        """What there is to see of each pool that has been awake here."""
        return [self._pools[name].facts() for name in sorted(self._pools)]

    def wants(self, name: str = DEFAULT) -> bool:
        """Whether a pool is meant to run when it is needed: nobody stopped it."""
        return self._wants(name)

    async def start_pool(self, name: str) -> None:
        """Wake a pool now, instead of when it is first needed."""
        self._usable(name).wake()

    async def stop_pool(self, name: str) -> None:
        """End a pool's worker; its queries wait."""
        if name in self._pools:
            await self._pools[name].sleep("the compute pool is stopped")

    async def _guard(self) -> None:
        """End SELECTs whose right is taken; by itself, since what is kept in order otherwise may take its time."""
        while True:
            for pool in self._pools.values():
                pool.end_unentitled()
            await asyncio.sleep(LOOK_S)

    async def _keep(self) -> None:
        """Wake pools that have queries, also those that another server's clients started; put others to sleep."""
        while True:
            try:
                busy = await self._catalog.busy_pools()
            except PgStreamError as e:
                log.warning("pools could not be compared with the catalogue, trying again", error=e.text)
            else:
                for name in busy:
                    if self._wants(name):
                        self.pool(name).wake()
                for pool in list(self._pools.values()):
                    await self._settle(pool, pool.name in busy)
                await self._mend()
                await self._retention.look()
                await self._backlogs.look()
                await self._history.look()
                # Either may take its time.
                if self._replacing is None or self._replacing.done():
                    self._replacing = asyncio.create_task(self._replacements.look())
                if self._leaving is None or self._leaving.done():
                    self._leaving = asyncio.create_task(self._leftovers.look())
            await asyncio.sleep(LOOK_S)

    async def _mend(self) -> None:
        try:
            strays = await self._catalog.strays()
        except PgStreamError as e:
            log.warning("queries could not be compared with what is intended, trying again", error=e.text)
            return
        for pool in self._pools.values():
            pool.mend(strays)

    async def _settle(self, pool: ComputePool, busy: bool) -> None:
        now = asyncio.get_running_loop().time()
        if busy or pool.is_asked:
            self._used_at[pool.name] = now
        if pool.state == "stopped":
            return
        if not self._wants(pool.name):
            await pool.sleep("the compute pool is stopped")
            return
        record = self._record(pool.name)
        minutes = record.options.get("compute_pool.timeout_min") if record is not None else None
        idle_s = now - self._used_at.setdefault(pool.name, now)
        if minutes is not None and idle_s > int(minutes) * MINUTE_S:
            log.info("idle pool stopped", pool=pool.name, idle_s=round(idle_s))
            await pool.sleep("the compute pool was idle")

    def is_ready(self, pool: str = DEFAULT) -> bool:
        """Whether an analysis or a query would begin without waiting for Spark."""
        return self.pool_state(pool)[0] == "running"

    # Continuous queries

    async def _of(self, query_id: str) -> ComputePool:
        return self.pool((await self._catalog.query(query_id)).pool)

    async def _taken(self, query_id: str, before: str) -> None:
        """A query keeps a view now that another has kept: it goes on there, and the other ends."""
        try:
            await self.restart(query_id)
        finally:  # it is fenced: what it does until then changes nothing
            if (await self._catalog.query(before)).actual != "terminated":
                await self.terminate(before)
            else:  # perhaps it had looked for what it leaves before the view was another's
                await self._catalog.end_beside(before)

    async def launch(self, query_id: str, also: Collection[FullName] = ()) -> None:
        """Start a recorded query; returns when it runs, or while it waits (its message says for what).

        Raises the fault, with the query and its relations gone again, if it cannot run at all. ``also``: relations
        that an application has declared.
        """
        with traces.span("start query", {traces.QUERY_ID: query_id}):
            await (await self._of(query_id)).launch(query_id, also)

    async def terminate(self, query_id: str) -> None:
        """End a query for good; ``terminate_requested`` while a long batch still runs."""
        await (await self._of(query_id)).terminate(query_id)

    async def restart(self, query_id: str, pool: str | None = None) -> None:
        """Run a query again from its last state, in another pool if one is given. Error: NotReady if terminated."""
        record = await self._catalog.query(query_id)
        target = self._usable(pool or record.pool)
        with traces.span("start query", {traces.QUERY_ID: record.id}):
            if target.name == record.pool:
                await target.restart(record.id)
            else:
                await self.pool(record.pool).move(record.id, target)

    def progress(self, query_id: str) -> Mapping[str, object]:
        """The newest progress, which the catalogue has a little later; empty when the query has not run here."""
        return next((found for p in self._pools.values() if (found := p.progress(query_id))), {})

    def _read_until(self, query_id: str) -> float:
        return max((p.read_until(query_id) for p in self._pools.values()), default=0.0)

    def beginnings(self, query_id: str) -> dict[str, dict[str, int]]:
        """Where a query began to read: topic, partition, offset; of those that its checkpoint here knows."""
        found: dict[str, dict[str, int]] = {}
        for file in (requests.on_disk(self._config.checkpoints, query_id) or Path()).glob("sources/*/0"):
            text = file.read_text(errors="replace")
            with contextlib.suppress(ValueError, AttributeError):
                for topic, at in json.loads(text[text.index("{") :]).items():
                    found.setdefault(topic, {}).update({p: n for p, n in at.items() if isinstance(n, int)})
        return found

    # Questions to Spark

    async def analyze(self, plan: Plan, pool: str = DEFAULT) -> Columns:
        """Output columns: name, type, nullable. Errors: the analyzer's, with position; EngineUnavailable, NotReady."""
        return await self._usable(pool).analyze(plan)

    async def compile(self, text: str, refers: dict[str, str], pool: str = DEFAULT) -> bytes:
        """The descriptor set of a .proto text. Errors: UnusableSchema, EngineUnavailable, NotReady."""
        return await self._usable(pool).compile(text, refers)

    def open_result(
        self, plan: Plan, role: str, pool: str = DEFAULT, *, user: str = "", login: str = "", reads: Sequence[str] = ()
    ) -> ResultStream:
        """Rows of a role's interactive SELECT from relations, by their full names. ``aclose`` ends its Spark query;
        TooManyStreams may come for the first row; InsufficientPrivilege for any, when a right to it has been taken, and
        UndefinedRelation when it is dropped.
        """
        reading = Reading.of(self._catalog.snapshot, login, role, reads)
        return self._usable(pool).open_result(plan, reading, self._readers.place(user))

    def place(self, user: str) -> Place:
        """That of a user's result which the server itself reads, from a store."""
        return self._readers.place(user)

    def computation(
        self, query: str, plan: Plan, table: str, limits: requests.Limits, pool: str = DEFAULT, *, user: str = ""
    ) -> Computation:
        """A view's query once more under the id ``query``, into a table beside it, while the context that this is
        lasts; one of the user's results. ``limits``: the moment up to which it goes.
        """
        return self._usable(pool).computation(query, plan, table, limits, self._readers.place(user))
