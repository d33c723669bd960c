"""The listener processes of ``workers`` > 1, seen from the server process, which accepts no clients itself then.

Owns: starting them, starting one again that ended, their statements (``hosted``), telling all of a changed catalogue
before a statement that changed it ends, passing on cancel requests, ending them. A process reads end of file on its
link when this one dies, and ends too. Must not know: clients. Start reading at ``Workers.open``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import sys
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import structlog

from pgstream.catalog.delta import Delta
from pgstream.config import program, public_environment
from pgstream.engine.channel import More, Stop
from pgstream.errors import ConfigurationError, PgStreamError
from pgstream.server import seats
from pgstream.server.access import Access
from pgstream.server.counts import Figures
from pgstream.server.hosted import Host, Hosted
from pgstream.server.link import (
    Ask,
    Begin,
    Cancel,
    Canceled,
    Changed,
    Count,
    Counted,
    End,
    Link,
    Listening,
    Reload,
    Returned,
    Seen,
    encode,
)
from pgstream.statements.base import Undecided

START_S = 60
ANSWER_S = 5
"""After which a process that does not answer is not waited for, until it says something."""
FIRST_PAUSE_S, LONGEST_PAUSE_S, WELL_AFTER_S = 0.1, 10.0, 60.0
log = structlog.get_logger(__name__)


class _Process:
    """One run of a listener process, from its start to its end."""

    def __init__(self, workers: Workers, index: int) -> None:
        loop = asyncio.get_running_loop()
        self.index, self.pid = index, 0
        self.listening: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.link = Link(self._said, self._lost)
        self._workers = workers
        self._statements: dict[int, tuple[Hosted, asyncio.Task[Any]]] = {}
        self._undecided: set[Undecided] = set()  # of its sessions
        self.seen: dict[int, asyncio.Future[None]] = {}
        self.canceled: dict[int, asyncio.Future[bool]] = {}
        self.counting: dict[int, asyncio.Future[None]] = {}
        self.figures = Figures()
        """As it last told."""
        self.late = False
        """It was waited for in vain, and has said nothing since."""

    async def spawn(self) -> asyncio.subprocess.Process:
        ours, theirs = socket.socketpair()
        shared = self._workers.seats_file
        given = {"LINK": theirs.fileno(), "SEATS": shared, "INDEX": self.index}
        try:
            process = await asyncio.create_subprocess_exec(
                *program("pgstream.server.worker"),
                pass_fds=[theirs.fileno(), shared],
                env=public_environment() | {f"PGSTREAM_LISTENER_{name}": str(value) for name, value in given.items()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sys.stderr,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pid = process.pid
        await asyncio.get_running_loop().create_unix_connection(lambda: self.link, sock=ours)
        return process

    def _said(self, message: Any) -> None:
        self.late = False
        match message:
            case Listening():
                if not self.listening.done():
                    self.listening.set_result(None)
            case Seen():
                _settle(self.seen.pop(message.number, None), None)
            case Counted():
                self.figures = message.figures
                _settle(self.counting.pop(message.number, None), None)
            case Canceled():
                _settle(self.canceled.pop(message.number, None), message.found)
            case Cancel():
                self._workers.spawn(self._workers.pass_on(message, self))
            case Ask():
                self._run(message)
            case Returned():
                if message.id in self._statements:
                    self._statements[message.id][0].returned(message)
            case More():
                if int(message.query) in self._statements:
                    self._statements[int(message.query)][0].more(message.credit)
            case Stop():
                if int(message.query) in self._statements:
                    self._statements[int(message.query)][1].cancel()

    def _run(self, ask: Ask) -> None:
        hosted = Hosted(self._workers.host, self.link, ask)
        task = hosted.begin()
        self._statements[ask.id] = hosted, task
        before = frozenset(ask.session.undecided)

        def ended(_: object) -> None:
            self._statements.pop(ask.id, None)
            self._undecided -= before
            self._undecided.update(ask.session.undecided)

        task.add_done_callback(ended)

    async def _settle(self, running: Collection[asyncio.Task[Any]]) -> None:
        """Its clients are gone: what their transactions have made or dropped is decided when those have ended."""
        await asyncio.gather(*running, return_exceptions=True)
        catalog = self._workers.host.catalog
        for one in () if self._workers.is_ending else tuple(self._undecided):
            try:
                if one.dropped is None:
                    await catalog.settle_schema(one.database, one.schema, wait=True)
                else:
                    await catalog.settle_dropped(one.database, one.schema, one.dropped, wait=True)
            except PgStreamError as e:  # the next start settles it
                log.warning("schema not settled", schema=one.schema, error=e.text)

    def _lost(self) -> None:
        running = [task for _, task in self._statements.values()]
        for task in running:
            task.cancel()
        self._workers.spawn(self._settle(running))
        for seen in self.seen.values():
            _settle(seen, None)
        for canceled in self.canceled.values():
            _settle(canceled, False)
        for counting in self.counting.values():
            _settle(counting, None)
        _settle(self.lost, None)


def _settle(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)


class Workers:
    """All listener processes. ``begin`` is what each is told first, with the snapshot of that moment."""

    def __init__(self, host: Host, begin: Begin) -> None:
        self.host, count = host, host.config.workers
        self.seats_file = seats.shared(count)
        self._seats = seats.Seats(0, count, self.seats_file)
        self._begin = begin
        self._running: dict[int, _Process] = {}
        self._numbers = itertools.count(1)
        self._kept: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending = asyncio.Event()
        self._ended = Figures()
        self.ends = 0
        """Of listener processes, and what those that ended had counted when they were last asked."""
        self._count = count

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    async def open(self) -> None:
        """Start all; they accept clients when this returns. Errors: ConfigurationError."""
        first = [asyncio.get_running_loop().create_future() for _ in range(self._count)]
        self._kept = [asyncio.create_task(self._keep(index, done)) for index, done in enumerate(first)]
        try:
            async with asyncio.timeout(START_S):
                await asyncio.gather(*first)
        except TimeoutError:
            raise ConfigurationError(what="the listener processes did not start", hint="Their log says why.") from None

    async def _keep(self, index: int, first: asyncio.Future[None]) -> None:
        """Have the process of this place running until all end."""
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._ending.is_set():
            began = loop.time()
            why = "its clients were lost"
            try:
                await self._one(index, first)
            except OSError as e:  # no process or descriptor to be had now
                why = str(e)
            if self._ending.is_set():
                return
            failures = 1 if loop.time() - began > WELL_AFTER_S else failures + 1
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (failures - 1))
            log.error("listener process ended", index=index, why=why, restart_in_s=pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()

    async def _one(self, index: int, first: asyncio.Future[None]) -> None:
        running = _Process(self, index)
        process = await running.spawn()
        try:
            self._running[index] = running
            # A copy has none of the values that a snapshot computes when asked.
            running.link.send(replace(self._begin, snapshot=replace(self.host.catalog.snapshot)))
            if self._ending.is_set():
                running.link.send(End())
            await asyncio.wait({running.listening, running.lost}, return_when=asyncio.FIRST_COMPLETED)
            if running.listening.done():
                _settle(first, None)
            await running.lost
        finally:
            del self._running[index]
            self._ended = self._ended + running.figures.left_behind()
            self.ends += 1
            running.link.close()
            await _ended(process, self.host.config.shutdown_grace_s + ANSWER_S if self._ending.is_set() else 1)
            self._seats.clear(index)

    async def changed(self, delta: Delta) -> None:
        """Tell all processes; returns when statements are recognized by the new catalogue everywhere."""
        number = next(self._numbers)
        frame = encode(Changed(number, delta))
        waiting: dict[asyncio.Future[Any], _Process] = {}
        for running in self._running.values():
            seen = running.seen[number] = asyncio.get_running_loop().create_future()
            waiting[seen] = running
            running.link.write(frame)
        await _answered(waiting)

    @property
    def is_listening(self) -> bool:
        """Whether clients are accepted: some process listens, and does not stand still."""
        return any(p.listening.done() and not p.lost.done() and not p.late for p in self._running.values())

    @property
    def pids(self) -> dict[int, int]:
        """Process ids by place."""
        return {index: running.pid for index, running in sorted(self._running.items())}

    async def figures(self) -> Figures:
        """What all processes have counted, those that have ended too: what these counted since they were last asked is
        lost.
        """
        waiting: dict[asyncio.Future[Any], _Process] = {}
        for running in self._running.values():
            number = next(self._numbers)
            counted = running.counting[number] = asyncio.get_running_loop().create_future()
            waiting[counted] = running
            running.link.send(Count(number))
        await _answered(waiting)
        return sum((running.figures for running in self._running.values()), self._ended)

    def reload(self, access: Access) -> None:
        """Have all read certificates anew and take the access table, which is that of those that start later, too."""
        self._begin = replace(self._begin, access=access)
        for running in self._running.values():
            running.link.send(Reload(access))

    async def pass_on(self, message: Cancel, asking: _Process) -> None:
        """A cancel request for a session of another process."""
        waiting: dict[asyncio.Future[Any], _Process] = {}
        for running in self._running.values():
            if running is not asking:
                number = next(self._numbers)
                canceled = running.canceled[number] = asyncio.get_running_loop().create_future()
                waiting[canceled] = running
                running.link.send(replace(message, number=number))
        done = await _answered(waiting)
        asking.link.send(Canceled(message.number, any(answer.result() for answer in done)))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all: idle sessions now, busy ones after the grace. May be called twice."""
        self._ending.set()
        for running in self._running.values():
            running.link.send(End())
        pending: set[asyncio.Task[None]] = set()
        if self._kept:
            grace_s = self.host.config.shutdown_grace_s + ANSWER_S
            pending = (await asyncio.wait(self._kept, timeout=grace_s))[1]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        self._kept = []


async def _answered(waiting: Mapping[asyncio.Future[Any], _Process]) -> set[asyncio.Future[Any]]:
    """Wait for the answers of processes; gives those that came. Who is late already keeps nobody waiting again."""
    asked = {future: running for future, running in waiting.items() if not running.late}
    if not asked:
        return set()
    done, pending = await asyncio.wait(asked, timeout=ANSWER_S)
    for future in pending:
        asked[future].late = True
        log.error("listener process does not answer", index=asked[future].index, pid=asked[future].pid)
    return done


async def _ended(process: asyncio.subprocess.Process, within_s: float) -> None:
    """Wait for its end, or make it."""
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        log.warning("listener process does not end", pid=process.pid)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
