"""Which queries may replace the one that keeps a view, and when the same one can once more."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.names import FullName
from pgstream.planner.plan import Column, ViewSource
from pgstream.statements.anew import _is_as_read
from pgstream.statements.create_as import ReplaceMaterializedViewAs


def name(relation: str) -> str:
    return f"main.public.{relation}"


def query(sink: str, *sources: str, intended: str = "running", id: str = "") -> Any:
    return SimpleNamespace(id=id, sinks=(name(sink),), sources=tuple(map(name, sources)), intended=intended)


@pytest.mark.parametrize(
    ("queries", "reads", "comes"),
    [
        ([query("a", "s"), query("v", "s")], ["a"], False),
        ([query("a", "s"), query("v", "s")], ["v"], True),
        ([query("b", "a"), query("a", "v"), query("v", "s")], ["b"], True),
        # One that is to take over a view: each would read the other in the end.
        ([query("a", "s"), query("a", "v"), query("v", "s")], ["a"], True),
        ([query("a", "s"), query("a", "v", intended="terminated"), query("v", "s")], ["a"], False),
        # REPAIR would run it again.
        ([query("a", "v", intended="terminated", id="keeper"), query("v", "s")], ["a"], True),
        ([query("copy", "v", intended="terminated", id="copier"), query("v", "s")], ["copy"], False),
        # What INSERT INTO writes comes of what it reads.
        ([query("s", "v"), query("v", "s")], ["s"], True),
        ([query("a", "b"), query("b", "a"), query("v", "s")], ["a"], False),
    ],
)
async def test_none_that_reads_what_comes_of_the_view(queries: list[Any], reads: list[str], comes: bool) -> None:
    async def listed(*, include_ended: bool) -> list[Any]:
        assert include_ended
        return queries

    made = {r: SimpleNamespace(kind=kind, query=q) for r, kind, q in
            (("a", "materialized_view", "keeper"), ("s", "stream", None), ("copy", "stream", "copier"))}  # fmt: skip
    snapshot = SimpleNamespace(relations=made)
    ctx: Any = SimpleNamespace(catalog=SimpleNamespace(queries=listed, snapshot=snapshot))
    planned = SimpleNamespace(sources=[SimpleNamespace(full=name(r)) for r in reads])
    view: Any = SimpleNamespace(full=FullName("main", "public", "v"))
    prepared: Any = SimpleNamespace(planned=planned)
    asked = ReplaceMaterializedViewAs._comes_from(ReplaceMaterializedViewAs, ctx, view, prepared)  # type: ignore[arg-type]
    assert await asked is comes


READ = ViewSource("b", "main.public.b", "main", "id", [Column("n", "BIGINT")], "upsert", ["k"])
BASE = RelationRecord(
    "id", FullName("main", "public", "b"), "materialized_view",
    (ColumnRecord("k", types.parse("VARCHAR")), ColumnRecord("n", types.parse("BIGINT"))), "sysadmin", ("k",),
    mode="upsert",
)  # fmt: skip


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (BASE, True),
        (replace(BASE, columns=(*BASE.columns, ColumnRecord("more", types.parse("BIGINT")))), True),
        (replace(BASE, columns=BASE.columns[:1]), False),
        (replace(BASE, columns=(BASE.columns[0], ColumnRecord("n", types.parse("VARCHAR")))), False),
        (replace(BASE, id="other"), False),
        (replace(BASE, mode="retract", primary_key=()), False),
        (replace(BASE, primary_key=("n",)), False),
        (None, False),
    ],
)
def test_a_view_that_was_read_is_the_same_still(now: RelationRecord | None, same: bool) -> None:
    there = {} if now is None else {now.full.key: now}
    ctx: Any = SimpleNamespace(catalog=SimpleNamespace(snapshot=SimpleNamespace(relations=there)))
    assert _is_as_read(ctx, READ) is same
