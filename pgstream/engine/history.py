"""History: queries that were terminated long ago leave the catalogue.

Owns: when it is looked at. Must not know: which of them stay (``catalog.queries``). Start reading at ``History.look``.
"""

from __future__ import annotations

import asyncio

import structlog

from pgstream.catalog.store import Catalog
from pgstream.errors import PgStreamError

PAUSE_S = 3600.0
log = structlog.get_logger(__name__)


class History:
    """Of this server's catalogue. ``days``: how long a terminated query is known; 0: for ever."""

    def __init__(self, catalog: Catalog, days: int) -> None:
        self._catalog = catalog
        self._days = days
        self._next = 0.0

    async def look(self) -> None:
        """Forget what is old enough, when it is time to look again."""
        now = asyncio.get_running_loop().time()
        if not self._days or now < self._next:
            return
        self._next = now + PAUSE_S
        try:
            gone = await self._catalog.forget_ended(self._days)
        except PgStreamError as e:
            log.warning("old queries could not be forgotten, trying again", error=e.text)
        else:
            if gone:
                log.info("old queries forgotten", queries=gone)
