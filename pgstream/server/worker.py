"""A listener process: ``python -m pgstream.server.worker``, started by the server process and ending with it.

Owns: its listener, its end of the link, the order of its start and stop.
Must not know: the catalogue, the engine; statements of ours are run by the server process (``remote``).
Start reading at ``Worker.run``.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
from typing import Any, cast

import structlog

from pgstream import logs, traces
from pgstream.catalog.delta import applied
from pgstream.errors import ConfigurationError
from pgstream.server.access import Access
from pgstream.server.admission import Admissions
from pgstream.server.counts import Figures
from pgstream.server.language import Language
from pgstream.server.link import Begin, Cancel, Canceled, Changed, Count, Counted, End, Link, Listening, Reload, Seen
from pgstream.server.listener import Listener
from pgstream.server.memory import settle
from pgstream.server.remote import Elsewhere, Mirror, Remote
from pgstream.server.seats import Seats
from pgstream.server.tls import open_tls

LAST_WORDS_S = 5
"""For sessions of a process whose server is gone."""
log = structlog.get_logger(__name__)


class Worker:
    """The process. ``index`` is its place among the listener processes."""

    def __init__(self, index: int, seats: int) -> None:
        self._index, self._seats = index, seats
        self._link = Link(self._said, self._lost)
        self._remote = Remote(self._link)
        self._listener: Listener | None = None
        self._mirror: Mirror | None = None
        self._access: Access | None = None
        self._stop = asyncio.Event()
        self._orphaned = False
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[bool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, channel: socket.socket) -> None:
        """Until told to end, or until the server process is gone."""
        loop = asyncio.get_running_loop()
        # Both reach the whole group: the server process says when to end or to reload, after its own order.
        for number in (signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: None)
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        await loop.create_unix_connection(lambda: self._link, sock=channel)
        await self._stop.wait()
        if self._listener is None:
            return
        if not self._orphaned:
            await self._listener.close()
            self._link.close()
            return
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self._listener.close()
        except TimeoutError:
            pass

    def _said(self, message: Any) -> None:
        match message:
            case Begin():
                self._mirror = Mirror(message.snapshot, message.mock_secret)
                self._access = message.access
                self._spawn(self._begin(message))
            case Changed():
                if self._mirror is not None:
                    self._mirror.snapshot = applied(self._mirror.snapshot, message.delta)
                self._link.send(Seen(message.number))
            case Cancel():
                self._spawn(self._cancel_here(message))
            case Canceled():
                if (asked := self._asked.pop(message.number, None)) is not None and not asked.done():
                    asked.set_result(message.found)
            case Reload():
                self._reload(message)
            case Count():
                figures = self._listener.figures() if self._listener is not None else Figures()
                self._link.send(Counted(message.number, figures))
            case End():
                self._stop.set()
            case _:
                self._remote.said(message)

    async def _begin(self, begin: Begin) -> None:
        config = begin.config
        logs.configure(config.log_level, config.log_format)
        traces.configure("listener")
        listener = Listener(config, open_tls(config, config.data_dir, make=False), self._access)
        self._listener = listener
        listener.executor = self._remote
        listener.seats = Seats(self._index, config.workers, self._seats)
        listener.cancel_elsewhere = self._cancel_elsewhere
        listener.begin(
            catalog=cast(Any, self._mirror),
            engine=cast(Any, Elsewhere("engine")),
            address=begin.address,
            admissions=Admissions(begin.admissions),
            language=Language.ours(),
        )
        settle()
        await listener.open(joining=True)
        self._link.send(Listening())
        log.info("listener process ready", index=self._index, pid=os.getpid())

    def _reload(self, message: Reload) -> None:
        """A process that is not listening yet reads certificates when it begins."""
        self._access = message.access
        if self._listener is None:
            return
        try:
            self._listener.reload(message.access)
        except ConfigurationError as e:  # changed again since the server process read them
            log.error("not reloaded", index=self._index, why=e.text, hint=e.hint)

    async def _cancel_here(self, message: Cancel) -> None:
        listener, found = self._listener, False
        if listener is not None and message.user:
            found = listener.cancel_own_here(message.pid, message.user)
        elif listener is not None:
            found = await listener.cancel_here(message.pid, message.key)
        self._link.send(Canceled(message.number, found))

    async def _cancel_elsewhere(self, pid: int, key: bytes, user: str) -> bool:
        number = next(self._numbers)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._link.send(Cancel(number, pid, key, user))
        return await answer

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (e := task.exception()) is not None:
            log.error("listener process failed", exc_info=e)
            self._stop.set()

    def _lost(self) -> None:
        self._orphaned = True
        self._remote.lost()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(False)
        self._stop.set()


def main() -> None:
    import uvloop

    channel = socket.socket(fileno=int(os.environ.pop("PGSTREAM_LISTENER_LINK")))
    index, seats = int(os.environ.pop("PGSTREAM_LISTENER_INDEX")), int(os.environ.pop("PGSTREAM_LISTENER_SEATS"))

    async def run() -> None:
        await Worker(index, seats).run(channel)
        traces.close()

    uvloop.run(run())


if __name__ == "__main__":
    main()
