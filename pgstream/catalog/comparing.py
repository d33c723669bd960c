"""A view compared with what its query makes of the same records, computed anew beside it.

The view's rows and the ledger's row of its query are read in one REPEATABLE READ transaction: the sink writes both in
one transaction, too, so that the rows are those of the batch that the ledger names, and were made of what it says was
consumed. They are kept as a temporary table, which ends with the connection; readers and the query go on meanwhile.
Owns: that copy, the table of the query that computes anew (``beside``), the comparison of the two.
Must not know: what runs that query. Start reading at ``Comparison.begin``.
"""

from __future__ import annotations

from pgstream.catalog import difference, ledger, objects, replacing
from pgstream.catalog.databases import STATE
from pgstream.catalog.postgres import Connection, run
from pgstream.catalog.records import RelationRecord
from pgstream.catalog.replacing import Consumed
from pgstream.names import beside, quote_literal
from pgstream.names import quote_always as q

_COPY, _FOUND = 'pg_temp."__was"', 'pg_temp."__found"'
Difference = tuple[str, str | None, str | None, str | None]
"""Its kind, and as JSON objects the key, the view's row, the row computed anew."""


class Comparison:
    """Of one view, on a connection of its own. ``query``: the id by which the query that computes it anew goes."""

    def __init__(self, conn: Connection, view: RelationRecord, query: str) -> None:
        self._conn, self._view, self.query = conn, view, query
        self.table = beside(query)

    async def begin(self) -> tuple[int, Consumed | None, int]:
        """Take the view's rows of one moment. Gives that moment, as the last batch and what was consumed by its end,
        and how many rows there are. Batch -1: there was none yet, or another query writes the view by now.
        """
        listed = ", ".join(q(c.name) for c in self._view.columns)
        table, batch, consumed = ledger.table(self._view), -1, None
        async with self._conn.transaction():
            await run(self._conn, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            found = await self._conn.execute(
                f"SELECT batch, consumed FROM {STATE}.ledger WHERE query = %s::uuid AND sink = %s".encode(),
                [self._view.query, table],
            )
            if (row := await found.fetchone()) is not None:
                batch, consumed = row
            copy = f"CREATE TEMPORARY TABLE {_COPY} AS SELECT {listed} FROM {table}"
            copied = await self._conn.execute(copy.encode())
        async with self._conn.transaction():
            await replacing.begin(self._conn, self.query, self._view)
        return batch, consumed, copied.rowcount

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
        await run(
            conn,
            f"DELETE FROM {STATE}.ledger WHERE query = {quote_literal(query)}::uuid",
            f"DROP TABLE IF EXISTS {beside(query)}",
        )
        await objects.drop_staging(conn, query)
