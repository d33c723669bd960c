"""What makes one table of a view's shape like another: the rows that are too many, those that are missing.

Both are compared where they stand, in one statement each way, so that a view is brought to what it should be without a
moment in which it is neither; its triggers see no row that stays as it is.
Owns: that SQL. Must not know: why they differ. Start reading at ``bring``, and ``shown`` for who only looks.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgstream.catalog.postgres import Connection, run
from pgstream.catalog.records import RelationRecord
from pgstream.names import quote_always as q

_FRACTIONS = ("double precision", "real")


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


def shown(view: RelationRecord, table: str, wanted: str) -> str:
    """A query for how ``table`` differs from ``wanted``: columns ``kind`` (missing, unexpected or, of a view with a
    key, different), ``key``, and what either has, as JSON objects.
    """
    names = [c.name for c in view.columns]
    keyed = view.mode == "upsert"
    key = [k for k in view.primary_key if keyed]

    def json(of: str, columns: Sequence[str]) -> str:
        listed = ", ".join(f"{of}.{q(c)}" for c in columns)
        # Not (r): a column of that name would be meant.
        return f"(SELECT row_to_json(r.*) FROM (SELECT {listed}) r)::text" if columns else "NULL"

    parts = [
        too_many(view, table, wanted, f"'unexpected' AS kind, {json('t', key)} AS key, {json('t', names)}, NULL"),
        too_many(view, wanted, table, f"'missing', {json('t', key)}, NULL, {json('t', names)}"),
    ]
    if keyed:
        there = _same("t", "w", key) if key else "true"
        parts.append(
            f"SELECT 'different', {json('t', key)}, {json('t', names)}, {json('w', names)}"
            f" FROM {table} t JOIN {wanted} w ON {there} WHERE {_differ(view)}"
        )
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) d (kind, key, has, computed)"


def _differ(view: RelationRecord) -> str:
    """Whether rows ``t`` and ``w`` of one key do. Fractions come out a little different when they are added up in
    another order: nine digits count.
    """
    rest = [c for c in view.columns if c.name not in view.primary_key]
    fractions = [c.name for c in rest if c.type.pg in _FRACTIONS]
    exact = [c.name for c in rest if c.name not in fractions]
    tests = [f"{_row('t', exact)} IS DISTINCT FROM {_row('w', exact)}"] if exact else []
    return " OR ".join((*tests, *(f"NOT ({_close(c)})" for c in fractions))) or "false"


def _close(column: str) -> str:
    t, w = f"t.{q(column)}", f"w.{q(column)}"
    size = f"greatest(abs({t}), abs({w}))"
    near = f"abs({t}::numeric - {w}::numeric) <= 1e-9 * {size}::numeric"
    return f"{t} IS NOT DISTINCT FROM {w} OR coalesce({size} < 'Infinity' AND {near}, false)"
