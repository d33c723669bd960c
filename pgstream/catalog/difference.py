"""What makes one table of a view's shape like another: the rows that are too many, those that are missing.

Both are compared where they stand, in one statement each way, so that a view is brought to what it should be without a
moment in which it is neither; its triggers see no row that stays as it is.
Owns: that SQL. Must not know: why they differ. Start reading at ``bring``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgstream.catalog.postgres import Connection, run
from pgstream.catalog.records import RelationRecord
from pgstream.names import quote_always as q


def _row(of: str, columns: Sequence[str]) -> str:
    return f"ROW({', '.join(f'{of}.{q(c)}' for c in columns)})"


def _same(a: str, b: str, columns: Sequence[str]) -> str:
    """NULLs are equal here; the hash lets PostgreSQL join by it."""
    one, other = _row(a, columns), _row(b, columns)
    return f"hash_record({one}) = hash_record({other}) AND {one} IS NOT DISTINCT FROM {other}"


def too_many(view: RelationRecord, table: str, wanted: str, take: str) -> str:
    """A query for the rows of one table that another lacks. ``take``: its select list, of alias ``t``.

    Of a view with a key those whose key is not there; of others each row as often as it is there too often.
    """
    if view.mode == "upsert":
        keys = view.primary_key
        there = _same("t", "w", keys) if keys else "true"
        return f"SELECT {take} FROM {table} t WHERE NOT EXISTS (SELECT FROM {wanted} w WHERE {there})"
    names = [c.name for c in view.columns]
    listed = ", ".join(map(q, names))
    number = f"SELECT *, row_number() OVER (PARTITION BY {listed}) AS __i, ctid AS __at FROM {table}"
    counts = f"SELECT {listed}, count(*) AS __n FROM {wanted} GROUP BY {listed}"
    return (
        f"SELECT {take} FROM ({number}) t LEFT JOIN ({counts}) w ON {_same('t', 'w', names)}"
        " WHERE t.__i > coalesce(w.__n, 0)"
    )


async def bring(conn: Connection, view: RelationRecord, table: str, wanted: str) -> None:
    """Make the rows of ``table`` those of ``wanted``, both of the view's columns; inside the caller's transaction."""
    names = [c.name for c in view.columns]
    listed = ", ".join(map(q, names))
    place = "ctid" if view.mode == "upsert" else "__at"
    gone = too_many(view, table, wanted, f"t.{place}")
    await run(conn, f"DELETE FROM {table} WHERE ctid = ANY (ARRAY({gone}))")
    if view.mode != "upsert":
        # What is there now is part of what is wanted: only the rest is missing.
        missing = too_many(view, wanted, table, ", ".join(f"t.{q(n)}" for n in names))
        await run(conn, f"INSERT INTO {table} ({listed}) {missing}")
        return
    rest = [n for n in names if n not in view.primary_key]
    sets = ", ".join(f"{q(n)} = EXCLUDED.{q(n)}" for n in rest)
    key = ", ".join(map(q, view.primary_key)) or "(true)"
    change = f"UPDATE SET {sets} WHERE {_row('t', rest)} IS DISTINCT FROM {_row('EXCLUDED', rest)}"
    await run(
        conn,
        f"INSERT INTO {table} AS t ({listed}) SELECT {listed} FROM {wanted}"
        f" ON CONFLICT ({key}) DO {change if rest else 'NOTHING'}",
    )
