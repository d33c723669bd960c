"""Comparing a view with what its query makes anew, without Spark: what the sinks would write is written here."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pgstream import types
from pgstream.catalog.comparing import Moment
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.catalog.store import Catalog
from pgstream.names import FullName
from tests.pg.catalog.test_catalog import query, view
from tests.server import within

COUNTS = FullName("main", "public", "counts")
READ = [{"store": "k", "at": {"t": {"0": 7}}}]
TABLES = "SELECT count(*) FROM pg_class WHERE relname ~ '^(r_|s_|__)' AND relkind = 'r'"

# By mode: the key, what the view has, what is right, and how they differ.
MODES: dict[str, tuple[tuple[str, ...], str, str, list[Any]]] = {
    "upsert": (
        ("userid",), "('a', 1), (NULL, 2), ('c', 3), ('e', 4)", "('a', 1), (NULL, 5), ('d', NULL), ('e', 4)",
        [
            ("different", {"userid": None}, {"userid": None, "n": 2}, {"userid": None, "n": 5}),
            ("missing", {"userid": "d"}, None, {"userid": "d", "n": None}),
            ("unexpected", {"userid": "c"}, {"userid": "c", "n": 3}, None),
        ],
    ),
    "upsert of one row": (
        (), "('a', 1)", "('b', NULL::bigint)",
        [("different", None, {"userid": "a", "n": 1}, {"userid": "b", "n": None})],
    ),
    "retract": (
        (), "('a', 1), ('a', 1), (NULL, 2)", "('a', 1), (NULL, 2), (NULL, 2)",
        [
            ("missing", None, None, {"userid": None, "n": 2}),
            ("unexpected", None, {"userid": "a", "n": 1}, None),
        ],
    ),
    "append": ((), "('a', 1), ('a', 1), (NULL, 2)", "(NULL, 2), ('a', 1), ('a', 1)", []),
}  # fmt: skip


async def made(catalog: Catalog, mode: str, key: tuple[str, ...], of: RelationRecord) -> RelationRecord:
    await catalog.create_query(query("counts", mode, key), of)
    return catalog.snapshot.relations[COUNTS.key]


def batch(of: RelationRecord, number: int) -> str:
    return f"UPDATE pg_pgstream.ledger SET batch = {number}, consumed = '{json.dumps(READ)}' WHERE query = '{of.query}'"


@pytest.mark.parametrize("case", MODES)
async def test_rows_that_differ(catalog: Catalog, ask, write, case: str) -> None:
    (key, has, right, expected), mode = MODES[case], case.split(maxsplit=1)[0]
    of = await made(catalog, mode, key, view())
    write(f"INSERT INTO public.counts VALUES {has}", batch(of, 3))
    async with catalog.comparison(of) as compared:
        assert await compared.begin() == Moment(READ, has.count("("), {})
        # What comes into the view now is of another moment; so is what goes.
        write("DELETE FROM public.counts", "INSERT INTO public.counts VALUES ('later', 1)")
        assert await compared.consumed() == []
        write(f"INSERT INTO {compared.table} VALUES {right}")
        counts, rows = await compared.differences(100)
        assert [(kind, *(json.loads(t) if t else None for t in rest)) for kind, *rest in rows] == expected
        assert counts == {kind: 1 for kind, *_ in expected}
    within(20, lambda: ask(TABLES, None) == [[0]])  # the temporary ones end with the connection's process
    assert ask("SELECT query::text FROM pg_pgstream.ledger", None) == [[of.query]]


async def test_how_many_are_shown(catalog: Catalog, ask, write) -> None:
    of = await made(catalog, "upsert", ("userid",), view())
    write("INSERT INTO public.counts SELECT i, i FROM generate_series(1, 50) i", batch(of, 0))
    async with catalog.comparison(of) as compared:
        await compared.begin()
        write(f"INSERT INTO {compared.table} SELECT i, i % 48 FROM generate_series(3, 52) i")
        counts, rows = await compared.differences(2)
    assert counts == {"missing": 2, "unexpected": 2, "different": 3} and len(rows) == 2


async def test_columns_may_be_called_as_anything(catalog: Catalog, ask, write) -> None:
    """As the aliases of our own SQL, too."""
    names = ("r", "t", "w", "d", "kind")
    columns = tuple(ColumnRecord(n, types.parse("BIGINT")) for n in names)
    of = await made(catalog, "upsert", ("r",), replace(view(), columns=columns))
    write("INSERT INTO public.counts SELECT i, i, i, i, i FROM generate_series(1, 3) i", batch(of, 0))
    async with catalog.comparison(of) as compared:
        await compared.begin()
        write(f"INSERT INTO {compared.table} VALUES (1, 1, 1, 1, 1), (2, 2, 9, 2, 2), (4, 4, 4, 4, 4)")
        _, rows = await compared.differences(9)
    found = [
        (kind, json.loads(key or "")["r"], json.loads(has or computed or "")["w"]) for kind, key, has, computed in rows
    ]
    assert found == [("different", 2, 2), ("missing", 4, 4), ("unexpected", 3, 3)]


async def test_fractions(catalog: Catalog, ask, write) -> None:
    """Sums of fractions differ in the last digits, as their parts came in another order; what differs more is told."""
    types_ = {"userid": "VARCHAR", "x": "DOUBLE", "y": "FLOAT"}
    columns = tuple(ColumnRecord(name, types.parse(text)) for name, text in types_.items())
    of = await made(catalog, "upsert", ("userid",), replace(view(), columns=columns))
    same = [
        ("a", "0.1::float8 + 0.2", "0.3"), ("b", "'NaN'", "'NaN'"), ("c", "'-Infinity'", "'-Infinity'"),
        ("d", "NULL", "NULL"), ("e", "0", "0"), ("f", "1e308", "1e308::float8 * (1 + 1e-12)"),
    ]  # fmt: skip
    other = [
        ("o", "0.3", "0.3000001"), ("p", "'NaN'", "1"), ("q", "'Infinity'", "1e308"), ("r", "NULL", "0"),
        ("s", "'-Infinity'", "'Infinity'"), ("t", "1e308", "-1e308"), ("u", "1e-30", "0"),
    ]  # fmt: skip
    rows = [*same, *other]
    has, right = (", ".join(f"('{row[0]}', {row[side]}, 1)" for row in rows) for side in (1, 2))
    write(f"INSERT INTO public.counts VALUES {has}", batch(of, 0))
    async with catalog.comparison(of) as compared:
        await compared.begin()
        write(f"INSERT INTO {compared.table} VALUES {right}")
        counts, found = await compared.differences(100)
    assert counts == {"different": len(other)}
    assert [json.loads(key or "")["userid"] for _, key, _, _ in found] == [k for k, *_ in other]


async def test_a_view_that_another_query_keeps_by_now(catalog: Catalog, ask, write) -> None:
    of = await made(catalog, "upsert", ("userid",), view())
    async with catalog.comparison(of) as compared:
        assert await compared.begin() is None
    write(f"UPDATE pg_pgstream.ledger SET sink = '', batch = 4 WHERE query = '{of.query}'")
    async with catalog.comparison(of) as compared:
        assert await compared.begin() is None
        await catalog.set_query(of.query or "", intended="terminated", actual="terminated")
        await catalog.drop_relation(of.full)  # nothing keeps it from going


async def test_what_a_crash_leaves(catalog: Catalog, ask, write, reopen) -> None:
    """The start after it drops the table, and the row of the ledger; whoever still compares is told."""
    of = await made(catalog, "upsert", ("userid",), view())
    write(batch(of, 0))
    async with catalog.comparison(of) as compared:
        await compared.begin()
        write(f"CREATE TABLE pg_pgstream.s_{compared.query.replace('-', '')}_r_1 (i int)")
        again = await reopen()
        assert sorted(words.split()[1] for words in again.repaired) == ["staging", "table"]
        assert ask(TABLES.replace("|__", ""), None) == [[0]]
        assert ask("SELECT query::text FROM pg_pgstream.ledger", None) == [[of.query]]
        assert await compared.consumed() is None
        await again.close()
