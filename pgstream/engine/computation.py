"""A query that runs for one statement, which looks at what it writes, not at rows that it sends.

Owns: its begin and end, as the statement sees them. What it is given up for, a worker's death included, is the
statement's error: nothing starts it again. Must not know: what it computes. Start reading at ``Computation.begin``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from pgstream.engine import faults
from pgstream.engine.channel import Ended, Request, Rows, Stop
from pgstream.errors import EngineUnavailable, PgStreamError

END_S = 20.0
"""A batch is given ten of them to end by itself, then it is broken off."""
log = structlog.get_logger(__name__)


class Computation:
    """Entered it runs; left it has ended, at the worker too. ``start`` sends it there."""

    def __init__(
        self,
        query: str,
        start: Callable[[Computation], Awaitable[None]],
        send: Callable[[Request], None],
        forget: Callable[[str], object],
    ) -> None:
        self.query = query
        self._start, self._send, self._forget = start, send, forget
        self._gone = asyncio.Event()
        self._error: PgStreamError | None = None

    async def __aenter__(self) -> Computation:
        """Errors: EngineUnavailable, TooManyStreams, and those of the catalogue."""
        try:
            await self._start(self)
        except BaseException:
            self._forget(self.query)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        # On its own: the statement may be canceled once more, in the middle of it.
        await asyncio.shield(asyncio.create_task(self._end()))

    async def _end(self) -> None:
        try:
            if not self._gone.is_set():
                self._send(Stop(self.query, forget=True))
                async with asyncio.timeout(END_S):
                    await self._gone.wait()
        except TimeoutError:
            log.warning("query did not end in time", query_id=self.query)
        finally:
            self._forget(self.query)

    def check(self) -> None:
        """Raise why it ended, if it has."""
        if self._gone.is_set():
            raise self._error or EngineUnavailable(why="the query ended by itself")

    # What the engine tells

    def arrived(self, event: Rows) -> None:
        """It sends none."""

    def ended(self, event: Ended) -> None:
        self._finish(None if event.fault is None else faults.error(event.fault))

    def lost(self, why: str) -> None:
        """The worker died."""
        self._finish(EngineUnavailable(why=why))

    def _finish(self, error: PgStreamError | None) -> None:
        self._error = error
        self._gone.set()
