"""A view compared with what its query makes of the same records, computed anew beside it.

The view's rows and the ledger's row of its query are read in one REPEATABLE READ transaction: the sink writes both in
one transaction, too, so that the rows are those of the batch that the ledger names, and were made of what it says was
consumed. They are kept as a temporary table, which ends with the connection; readers and the query go on meanwhile.
Views that the query reads have moved on since, and their old rows are gone: the moment is one at which it has read all
their changes, and the query that computes anew gets logs of their rows of then.
Owns: that copy, the table of the query that computes anew (``beside``), the comparison of the two.
Must not know: what runs that query. Start reading at ``Comparison.begin``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pgstream.catalog import difference, ledger, objects, own_tables, replacing, view_logs
from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import Connection, run
from pgstream.catalog.records import RelationRecord
from pgstream.catalog.replacing import Consumed
from pgstream.names import beside, quote_literal
from pgstream.names import quote_always as q

_COPY, _FOUND = 'pg_temp."__was"', 'pg_temp."__found"'
Difference = tuple[str, str | None, str | None, str | None]
"""Its kind, and as JSON objects the key, the view's row, the row computed anew."""

_MEET_S, _MEET_EVERY_S = 30.0, 0.05


@dataclass(frozen=True, slots=True)
class Moment:
    """What was consumed by then, how many rows the view had, and how many each view that its query reads."""

    consumed: Consumed
    rows: int
    read: Mapping[str, int]


class Comparison:
    """Of one view, on a connection of its own. ``query``: the id by which the query that computes it anew goes."""

    def __init__(self, conn: Connection, view: RelationRecord, query: str) -> None:
        self._conn, self._view, self.query = conn, view, query
        self.table = beside(query)

    async def begin(self, reads: Iterable[RelationRecord] = ()) -> Moment | None:
        """Take the rows of one moment, of the view and of those that its query ``reads``, all of one database. None:
        the view has had no batch yet, or another query writes it by now. Errors: TimeoutError, where the query has not
        read all changes of the others at any moment that was looked at.
        """
        reads, until = list(reads), time.monotonic() + _MEET_S
        while True:
            async with self._conn.transaction():
                await run(self._conn, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                consumed = await self._ledger()
                if consumed is None:
                    return None
                if await self._has_read(consumed, reads):
                    moment = await self._take(consumed, reads)
                    break
            if time.monotonic() > until:
                raise TimeoutError
            await asyncio.sleep(_MEET_EVERY_S)
        async with self._conn.transaction():
            await replacing.begin(self._conn, self.query, self._view)
        return moment

    async def _ledger(self) -> Consumed | None:
        """What the view's query had consumed by the end of its last batch."""
        found = await self._conn.execute(
            f"SELECT consumed FROM {STATE}.ledger WHERE query = %s::uuid AND sink = %s AND batch >= 0".encode(),
            [self._view.query, ledger.table(self._view)],
        )
        row = await found.fetchone()
        return None if row is None else row[0]

    async def _has_read(self, consumed: Consumed, reads: Iterable[RelationRecord]) -> bool:
        """Whether no view among those that it reads has changes that it has not consumed."""
        places = {name: parts for source in consumed for name, parts in source["at"].items()}
        for view in reads:
            place = int(places.get(str(view.full), {}).get("0", 0))
            if not await view_logs.is_read(self._conn, self._view.query or "", view, place):
                return False
        return True

    async def _take(self, consumed: Consumed, reads: Iterable[RelationRecord]) -> Moment:
        listed = ", ".join(q(c.name) for c in self._view.columns)
        copy = f"CREATE TEMPORARY TABLE {_COPY} AS SELECT {listed} FROM {ledger.table(self._view)}"
        copied = await self._conn.execute(copy.encode())
        read = {str(view.full): await view_logs.copy(self._conn, self.query, view) for view in reads}
        return Moment(consumed, copied.rowcount, read)

    async def consumed(self) -> Consumed | None:
        """What the query that computes anew has read; None: it has lost its place, since another server started."""
        found = await replacing.consumed(self._conn, [self.query])
        return found[self.query][1] if self.query in found else None

    async def differences(self, most: int) -> tuple[dict[str, int], list[Difference]]:
        """How many there are of each kind, and ``most`` of them, by kind and key. The query has ended."""
        sql = difference.shown(self._view, _COPY, self.table)
        await run(
            self._conn,
            f"ANALYZE {_COPY}",
            f"ANALYZE {self.table}",
            f"CREATE TEMPORARY TABLE {_FOUND} AS {sql}",
        )
        counted = await self._conn.execute(f"SELECT kind, count(*) FROM {_FOUND} GROUP BY kind".encode())
        counts = dict(await counted.fetchall())
        first = f"SELECT * FROM {_FOUND} ORDER BY kind, key, has, computed LIMIT {most}"
        rows = await self._conn.execute(first.encode())
        return counts, await rows.fetchall()


async def end(conn: Connection, query: str) -> None:
    """Drop what was made for a comparison, whose query has ended."""
    async with conn.transaction():
        await run(conn, f"DELETE FROM {STATE}.ledger WHERE query = {quote_literal(query)}::uuid")
        await own_tables.drop(conn, beside(query))
        await objects.drop_staging(conn, query)
    await view_logs.drop(conn, query)
