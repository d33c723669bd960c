"""Backlogs: what waits for queries that read views and that only RESTART helps, which may be never.

Owns: when it is looked at, and giving it up past the bound of the settings: what writes the view must not fill the disk
for a query that nobody looks after. Must not know: how changes are kept (``catalog.view_logs``).
Start reading at ``Backlogs.look``.
"""

from __future__ import annotations

import asyncio

import structlog

from pgstream.catalog.records import QueryRecord
from pgstream.catalog.store import Catalog
from pgstream.errors import PgStreamError

PAUSE_S = 30.0
log = structlog.get_logger(__name__)


class Backlogs:
    """Of the queries of this server's catalogue. ``most_mb``: 0 is no bound."""

    def __init__(self, catalog: Catalog, most_mb: int) -> None:
        self._catalog = catalog
        self._most_mb = most_mb
        self._next = 0.0

    async def look(self) -> None:
        """Give up what is too much, and what was left of queries that are gone, when it is time to look again."""
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return
        self._next = now + PAUSE_S
        try:
            await self._catalog.drop_left_logs()
            for query in await self._catalog.queries() if self._most_mb else ():
                if query.actual == "errored":
                    await self._bound(query)
        except PgStreamError as e:
            log.warning("what waits for queries could not be looked at, trying again", error=e.text)

    async def _bound(self, query: QueryRecord) -> None:
        size = sum((await self._catalog.view_logs(query)).values())
        if size <= self._most_mb << 20:
            return
        log.warning("what waited for an errored query given up", query_id=query.id, bytes=size)
        await self._catalog.drop_view_logs(query.id)
        gone = f"What waited for it grew past {self._most_mb} MB and was given up: it cannot be restarted."
        await self._catalog.set_query(query.id, message=f"{query.message} {gone}".strip())
