"""A compute pool: one worker process kept running.

Owns: starting the worker, starting it again after its death with growing pauses, telling a listener what it says.
Must not know: queries. Start reading at ``Pool.run``.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import structlog

from pgstream.engine import leftover
from pgstream.engine.channel import Event, Preparing, Ready, Request
from pgstream.engine.launch import Launch
from pgstream.engine.process import WorkerProcess
from pgstream.errors import EngineUnavailable, PgStreamError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
# Exit codes that say: killed from outside, the worker or its JVM. Not what a query did to it.
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
log = structlog.get_logger(__name__)


Prepare = Callable[[], Awaitable[Launch]]
"""What a worker is started with, asked before each start."""


class Listener(Protocol):
    """Who hears of the worker. Neither may block or raise."""

    def worker_said(self, event: Event) -> None: ...

    def worker_died(self, why: str, crashed: bool = False) -> None: ...


def pause(failures: int) -> float:
    """Seconds before the next try after so many failures in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10)) if failures else 0.0


class Pool:
    """The pool ``name``. ``why`` says what keeps the worker from being ready."""

    def __init__(self, name: str, data_dir: Path, prepare: Prepare, listener: Listener, grace_s: float = 5) -> None:
        self.name = name
        self.why = "the worker is starting"
        self._pid_file = data_dir / f"worker-{name}.pid"
        self._prepare = prepare
        self._listener = listener
        self._grace_s = grace_s
        self._process: WorkerProcess | None = None
        self._ready = asyncio.Event()
        self._well = self._preparing = False
        self.starts = 0
        """Of workers."""

    @property
    def pid(self) -> int | None:
        """The worker's, which leads a process group."""
        return self._process.pid if self._process is not None else None

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until the worker is ready. Error: EngineUnavailable, saying what keeps it, after the timeout, in which
        what is prepared once is not counted.
        """
        while not self._ready.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._ready.wait()
            except TimeoutError:
                if not self._preparing and not self._ready.is_set():
                    raise EngineUnavailable(why=self.why) from None

    def well(self) -> None:
        """The worker does what it is there for: its death would be no sign that the next one dies, too."""
        self._well = True

    def send(self, message: Request) -> None:
        """Send to the worker if it is there; its absence is told by ``worker_died``."""
        if self._process is not None:
            self._process.send(message)

    async def run(self) -> None:
        """Keep a worker running until cancelled; then it is ended before this returns."""
        await leftover.end_leftover(self._pid_file)
        failures = 0
        while True:
            self._well = crashed = False
            try:
                crashed = await self._one_worker() not in KILLED
                why = "the worker ended unexpectedly and is being restarted"
            except PgStreamError as e:
                why = e.text
            except OSError as e:
                why = f"the worker could not be started: {e}"
            failures = int(crashed) if self._well else failures + 1
            self.why = why
            delay = pause(failures)
            log.error("worker down", pool=self.name, why=why, retry_in_s=delay)
            self._listener.worker_died(why, crashed)
            await asyncio.sleep(delay)

    async def _one_worker(self) -> int:
        """Run a worker to its end; its exit code."""
        launch = await self._prepare()
        process = await WorkerProcess.spawn(launch)
        self._process = process
        self.starts += 1
        # Not ended by itself: killed, crashed, or we are stopping. Either way its whole group goes.
        grace_s, code = self._grace_s, 0
        try:
            leftover.write(self._pid_file, process.pid)
            log.info("worker started", pool=self.name, pid=process.pid)
            async for event in process.events():
                if isinstance(event, Preparing):
                    log.info("worker prepares", pool=self.name, what=event.what)
                    self.why, self._preparing = f"the worker is starting: {event.what}", True
                if isinstance(event, Ready):
                    log.info("worker ready", pool=self.name, pid=event.pid, spark=event.spark, java=event.java)
                    self._preparing = False
                    self._ready.set()
                self._listener.worker_said(event)
            grace_s = 1.0
        finally:
            self._ready.clear()
            self._process, self._preparing = None, False
            code = await process.end(grace_s)
            leftover.remove(self._pid_file)
            log.info("worker ended", pool=self.name, pid=process.pid, code=code)
        return code
