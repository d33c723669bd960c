"""Retention: rows of materialized views leave when their time is over.

Owns: when each view is looked at. Must not know: what makes a row over (``catalog.expiry``). Start reading at
``Retention.look``.
"""

from __future__ import annotations

import asyncio

import structlog

from pgstream.catalog.expiry import RETENTION
from pgstream.catalog.records import RelationRecord
from pgstream.catalog.store import Catalog
from pgstream.errors import PgStreamError

log = structlog.get_logger(__name__)


def pause_s(record: RelationRecord) -> float:
    """A tenth of what rows are kept for, at least a second and at most a minute."""
    return min(60.0, max(1.0, int(record.properties[RETENTION]) / 10_000))


class Retention:
    """The views of this server's catalogue that give rows an end."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._next: dict[str, float] = {}

    async def look(self) -> None:
        """Take away what is over in each view that is due."""
        now = asyncio.get_running_loop().time()
        kept = {r.id: r for r in self._catalog.snapshot.relations.values() if RETENTION in r.properties}
        self._next = {id: self._next.get(id, now) for id in kept}
        for record in kept.values():
            if self._next[record.id] > now:
                continue
            self._next[record.id] = now + pause_s(record)
            try:
                gone = await self._catalog.expire_rows(record)
            except PgStreamError as e:
                log.warning(
                    "rows that are over could not be removed, trying again", view=str(record.full), error=e.text
                )
            else:
                if gone:
                    log.debug("rows were over", view=str(record.full), rows=gone)
