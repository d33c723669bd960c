"""The last progress of every running query: in memory at once, in the catalogue every two seconds.

Owns: which of them are not written yet. Must not know: what progress means. Start reading at ``ProgressLog.run``.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import structlog

from pgstream.engine.channel import Idle, Progress
from pgstream.errors import PgStreamError

WRITE_EVERY_S = 2.0
log = structlog.get_logger(__name__)

Write = Callable[[Mapping[str, Mapping[str, object]]], Awaitable[None]]


class ProgressLog:
    """``latest`` maps query id → the fields of ``Progress``, with ``at`` (when it came). ``fresh`` maps query id → the
    moment (seconds since 1970) up to which it has read everything: what came to its sources until then is in what it
    keeps.
    """

    def __init__(self, write: Write) -> None:
        self.latest: dict[str, dict[str, object]] = {}
        self.fresh: dict[str, float] = {}
        self._unwritten: set[str] = set()
        self._write = write

    def add(self, event: Progress) -> None:
        fields: dict[str, object] = msgspec.to_builtins(event)
        fields.pop("type", None)
        fields.pop("query", None)
        fields["at"] = dt.datetime.now(dt.UTC).isoformat()
        self.latest[event.query] = fields
        self._unwritten.add(event.query)
        if event.caught_up:
            self._read_until(event.query, event.began)

    def idle(self, event: Idle) -> None:
        self._read_until(event.query, event.began)

    def _read_until(self, query: str, began: str) -> None:
        at = dt.datetime.fromisoformat(began).timestamp()
        self.fresh[query] = max(at, self.fresh.get(query, 0.0))

    def forget(self, query: str) -> None:
        self.fresh.pop(query, None)
        self.latest.pop(query, None)
        self._unwritten.discard(query)

    def clear(self) -> None:
        """Forget all: another server knows more by now."""
        self.fresh.clear()
        self.latest.clear()
        self._unwritten.clear()

    async def run(self) -> None:
        """Write what is new, for ever."""
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        """Write what is new now. When the catalogue cannot be reached, the next time writes it."""
        if not self._unwritten:
            return
        news = {id: self.latest[id] for id in self._unwritten}
        self._unwritten = set()
        try:
            await self._write(news)
        except PgStreamError as e:
            self._unwritten |= news.keys() & self.latest.keys()
            log.warning("progress not recorded", error=e.text)
