"""Replacements of views: a query that fills a table beside a view takes over when it is as far as the one before it.

Owns: when that is. A new query is near when it has passed the place that the old one had at the last look, and what
each topic that only the new one reads had then; the exchange itself waits for the rest, longer each time it was too
short. Must not know: what is exchanged (``catalog.replacing``). Start reading at ``Replacements.look``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import structlog

from pgstream.catalog.records import QueryRecord, RelationRecord
from pgstream.catalog.replacing import Consumed
from pgstream.catalog.store import Catalog
from pgstream.errors import PgStreamError

FIRST_WAIT_S, LONGEST_WAIT_S = 3.0, 60.0
Place = tuple[str, str, str]
"""Store, topic, partition."""


class InTable(NamedTuple):
    """How far the changes of a PostgreSQL table were read: the end of the last whole transaction, as its server counts,
    records read of the next one, and rows still to be read of those that the table had. Queries count records from
    where each began, so only the server's count is the same for two of them.
    """

    lsn: int
    part: int
    left: int


class InShard(int):
    """A sequence number of Kinesis, whose sources do not tell how far they could be read."""


At = int | str | InTable
log = structlog.get_logger(__name__)


def places(consumed: Consumed) -> dict[Place, At]:
    """How far each partition was read: a number that grows, or text that only its system understands."""
    return {
        (source["store"], topic, partition): _in_table(source["at"]) if "lsn" in source["at"] else _number(at)
        for source in consumed
        if source["store"]
        for topic, parts in source["at"].items()
        if isinstance(parts, dict)
        for partition, at in parts.items()
    }


def _in_table(at: Mapping[str, Any]) -> InTable:
    high, _, low = str(at["lsn"]).partition("/")
    return InTable(int(high, 16) << 32 | int(low, 16), int(at.get("part", 0)), int(at.get("left", 0)))


def _number(at: Any) -> int | str:
    if isinstance(at, dict):  # a shard of Kinesis
        return InShard(1 << 200 if at.get("done") else int(at.get("last") or -1))
    return at if isinstance(at, int) else str(at)


def _has_begun(query: QueryRecord, read: object) -> bool:
    """The first batch of a topic comes even if the topic is empty; that of a view's changes does not."""
    return bool(read) or not query.stores


def _passed(wanted: Mapping[Place, At], has: Mapping[Place, At]) -> bool:
    """Whether nothing that one query has read is still to be read by another, of the topics that both read."""
    topics = {place[:2] for place in has}
    whole = not any(isinstance(at, InTable) and at.left for at in has.values())
    return whole and all(_reached(has.get(p), at) for p, at in wanted.items() if p[:2] in topics)


def _reached(here: At | None, there: At) -> bool:
    if isinstance(here, InTable) and isinstance(there, InTable):
        # In the middle of a transaction there is no telling which of two queries has more of it.
        return bool(there.left) or (not there.part and here.lsn >= there.lsn)
    if isinstance(here, int) and isinstance(there, int):
        return here >= there
    return here is not None and isinstance(there, str)  # not comparable: the lag says the rest


class Replacements:
    """Of the queries whose compute pool this server ``has``; the servers that have the others look after theirs.
    ``progress`` is what a query told last, ``read_until`` the last moment (seconds since 1970) of which it has had all
    that its sources had, 0 for none; ``taken`` is called with the new query and the old one when they have changed
    places.
    """

    def __init__(
        self,
        catalog: Catalog,
        has: Callable[[str], bool],
        progress: Callable[[str], Mapping[str, Any]],
        read_until: Callable[[str], float],
        taken: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._catalog, self._has, self._taken = catalog, has, taken
        self._progress, self._read_until = progress, read_until
        self._before: dict[str, tuple[float, dict[Place, At]]] = {}
        self._gone: dict[str, dict[Place, At]] = {}
        self._ends: dict[str, dict[tuple[str, str], int]] = {}
        self._waits: dict[str, float] = {}

    async def look(self) -> None:
        """Let those take over that are as far."""
        try:
            found = [(view, query) for view, query in await self._catalog.replacements() if self._has(query.pool)]
        except PgStreamError as e:
            log.warning("replacements could not be looked at, trying again", error=e.text)
            return
        ids = {q.id for _, q in found}
        for kept in (self._before, self._gone, self._ends, self._waits):
            for gone in kept.keys() - ids:
                del kept[gone]
        if found:
            found = await self._finish(found)
        for view, query in found:
            try:
                if query.actual == "running" and await self._is_near(view, query) and self._has(query.pool):
                    await self._exchange(view, query)
            except PgStreamError as e:
                await self._wait(view, query, e)

    async def _finish(
        self, found: list[tuple[RelationRecord, QueryRecord]]
    ) -> list[tuple[RelationRecord, QueryRecord]]:
        """Those that are still to take over, without those that a server has died over when they had."""
        try:
            await self._catalog.finish_replacements({view.full.database for view, _ in found})
            views = self._catalog.snapshot.relations
            done = [(v, q) for v, q in found if (now := views.get(v.full.key)) is not None and now.query == q.id]
            for view, query in done:
                await self._taken(query.id, view.query or "")
        except PgStreamError as e:
            log.warning("replacements could not be finished, trying again", error=e.text)
            return []
        return [pair for pair in found if pair not in done]

    async def _wait(self, view: RelationRecord, query: QueryRecord, e: PgStreamError) -> None:
        """Say what keeps a query from taking over; the next look tries again."""
        log.warning("view not replaced, trying again", view=str(view.full), query_id=query.id, error=e.text)
        said = " ".join(part for part in (f"waiting: {e.text}.", e.detail, e.hint) if part)
        if query.message != said:
            with contextlib.suppress(PgStreamError):
                await self._catalog.set_query(query.id, message=said)

    async def _is_near(self, view: RelationRecord, query: QueryRecord) -> bool:
        # Asked first: what the ledger says of the new query is not older.
        old, read_until = view.query or "", self._read_until(query.id)
        found = await self._catalog.consumed(view, (old, query.id))
        batch, at = found.get(old, (-1, []))
        new = places(found.get(query.id, (-1, []))[1])
        before, self._before[query.id] = self._before.get(query.id), (time.time(), places(at))
        # Of what the old query does not read, or if it has told nothing yet, the ends of the new one's sources count.
        told = {place[:2] for place in places(at)}
        more = any(place[:2] not in told for place in new)
        ends_passed = self._passed_ends(query.id) if more or (batch >= 0 and not at) else True
        if before is None:
            return False
        if read_until > before[0]:
            self._gone[query.id] = {
                p: at for p, at in before[1].items() if type(at) is int and not _reached(new.get(p), at)
            }
        return ends_passed and _has_begun(query, new) and _passed(self._there(query.id, before[1]), new)

    def _there(self, id: str, wanted: Mapping[Place, At]) -> dict[Place, At]:
        """Without the offsets that a query does not come to though it has read all there is since the old one was seen
        there: the topic was made anew, or has lost its end.
        """
        gone = self._gone.get(id, {})
        return {place: at for place, at in wanted.items() if gone.get(place) != at}

    def _passed_ends(self, id: str) -> bool:
        """Whether the query has read all that its sources had when it was first asked. One that began again and found
        nothing new tells no progress.
        """
        if self._read_until(id):
            return True
        sources = self._progress(id).get("sources", {})
        if not sources:
            return False
        ends = self._ends.setdefault(
            id, {(r, p): n for r, s in sources.items() for p, n in s["latest"].items() if isinstance(n, int)}
        )
        here = {(r, p): n for r, s in sources.items() for p, n in s["offset"].items() if isinstance(n, int)}
        return all(here.get(place, 0) >= end for place, end in ends.items())

    async def _exchange(self, view: RelationRecord, query: QueryRecord) -> None:
        wait_s = self._waits.get(query.id, FIRST_WAIT_S)

        def enough(old: Consumed, new: Consumed) -> bool:
            return _has_begun(query, new) and _passed(self._there(query.id, places(old)), places(new))

        if await self._catalog.replace_view(query.id, enough, wait_s):
            log.info("view replaced", view=str(view.full), query_id=query.id, before=view.query)
            await self._taken(query.id, view.query or "")
        else:
            self._waits[query.id] = min(LONGEST_WAIT_S, wait_s * 2)
