"""Rows of an interactive SELECT, from the worker to one client.

Owns: the buffer between the two and the credit that bounds it: the worker may send as many rows as it was asked for,
and is asked for more only as the client takes them. Must not know: the wire; how a query is planned.
Start reading at ``ResultStream``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from pgstream.engine import faults
from pgstream.engine.channel import Ended, More, Request, Rows, Stop
from pgstream.errors import EngineUnavailable, PgStreamError

Row = list[str | None]
# The credit for what is under way to a client, and how much of it is taken before the worker is told. A row costs one,
# a long one more (``channel.Rows``); what comes together costs no more than their difference.
WINDOW = 2000
STEP = 500
COSTS_ONE = 4096
"""Characters of a row for which it costs one more."""
QUIET_S = 10.0
"""Without a row after which who waits is told what for."""


class ResultStream(AsyncIterator[Row]):
    """Iterate to take rows; ``aclose`` ends the Spark query. Nothing starts before the first row is asked for."""

    def __init__(
        self,
        query: str,
        begin: Callable[[ResultStream], Awaitable[None]],
        send: Callable[[Request], None],
        forget: Callable[[str], object],
    ) -> None:
        self.query = query
        self._begin = begin
        self._send = send
        self._forget = forget
        self._rows: deque[Row] = deque()
        self._chunks: deque[list[int]] = deque()  # how many of them came together, and what they cost
        self._news = asyncio.Event()
        self._state = "new"
        self._error: PgStreamError | None = None
        self._taken = 0
        self._quiet: Callable[[], None] | None = None
        self._denied: Callable[[PgStreamError], None] | None = None
        self._hint: asyncio.TimerHandle | None = None

    def tell_when_quiet(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once if the first row is long in coming. Before the first row is asked for."""
        self._quiet = tell

    def tell_when_denied(self, tell: Callable[[PgStreamError], None]) -> None:
        """Call ``tell`` at once if the client may not read on: what has been taken for it is not to be given either."""
        self._denied = tell

    @property
    def ready(self) -> bool:
        """Whether the next row is here."""
        return bool(self._rows)

    def __aiter__(self) -> ResultStream:
        return self

    async def __anext__(self) -> Row:
        if self._state == "new":
            self._state = "open"
            try:
                await self._begin(self)
            except BaseException:
                self._close()
                raise
            if self._state == "closed":
                # Closed while it waited for the worker: the Stop came before the Start.
                self._send(Stop(self.query, forget=True))
                raise StopAsyncIteration
            self._send(More(self.query, WINDOW))
            if self._quiet is not None:
                self._hint = asyncio.get_running_loop().call_later(QUIET_S, self._quiet)
        while not self._rows:
            if self._state == "closed":
                raise StopAsyncIteration
            if self._state == "ended":
                self._close()
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._take()

    def _take(self) -> Row:
        chunk = self._chunks[0]
        chunk[0] -= 1
        if not chunk[0]:
            self._taken += self._chunks.popleft()[1]
            if self._taken >= STEP and self._state == "open":
                self._send(More(self.query, self._taken))
                self._taken = 0
        return self._rows.popleft()

    async def aclose(self) -> None:
        """Stop the query. May be called twice, and by another task than the one that iterates: that one then ends."""
        if self._state == "open":
            self._send(Stop(self.query, forget=True))
        self._rows.clear()
        self._chunks.clear()
        self._close()

    def _close(self) -> None:
        self._state = "closed"
        self._stir()
        self._forget(self.query)
        self._news.set()

    def _stir(self) -> None:
        if self._hint is not None:
            self._hint.cancel()
            self._hint = None

    # What the engine tells

    def arrived(self, event: Rows) -> None:
        self._stir()
        if event.rows and self._state == "open":
            self._rows.extend(event.rows)
            self._chunks.append([len(event.rows), event.cost])
        self._news.set()

    def ended(self, event: Ended) -> None:
        self.finish(None if event.fault is None else faults.error(event.fault))

    def lost(self, why: str) -> None:
        """The worker died."""
        self.finish(EngineUnavailable(why=why))

    def deny(self, error: PgStreamError) -> None:
        """The client may not read this any more, nor what has come for it."""
        if self._state not in ("open", "ended"):
            return
        if self._state == "open":
            self._send(Stop(self.query, forget=True))
        self._rows.clear()
        self._chunks.clear()
        self._stir()
        self._state, self._error = "ended", error
        self._news.set()
        if self._denied is not None:
            self._denied(error)

    def finish(self, error: PgStreamError | None) -> None:
        """No more rows come: what was buffered is still given, then the error."""
        self._stir()
        if self._state == "open":
            self._state, self._error = "ended", error
        self._news.set()
