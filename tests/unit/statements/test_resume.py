"""Which queries can be resumed, and where the new one begins."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from pgstream.catalog.records import QueryRecord, StoreRecord
from pgstream.errors import PgStreamError
from pgstream.planner import plan as p
from pgstream.statements import access, resume

ID = "24f5a97b-97e9-40eb-8dbf-431b96474972"
SOURCE = p.Source("s", "main.public.s", "stream", "k", "topic", [p.Column("a", "BIGINT")], "json")
EARLIEST = replaced(SOURCE, starting_position="earliest")
PLAN = p.Plan(p.Project(SOURCE, [p.Expr("a", "`a`")]), p.ResultSink())
COUNT = p.ChangeAggregate(SOURCE, [], [p.Call("n", "count", ["1"])])
NOW = dt.datetime.now(dt.UTC)
OLD = QueryRecord(
    ID, "q", 1, "insert_into", "", PLAN.json(), "sysadmin", "main", ("main.public.s",), ("main.public.t",), ("k",),
    intended="terminated", actual="terminated", updated_at=NOW,
    progress={"whole": True, "sources": {"main.public.s": {"offset": {"10": 7, "2": 5}}}},
)  # fmt: skip


def resumed(
    monkeypatch: pytest.MonkeyPatch, old: QueryRecord, new: list[p.Plan], said: list[Any], store: str
) -> list[p.Plan]:
    async def found(ctx: Any, privilege: str, ref: str, at: int) -> QueryRecord:
        assert (privilege, ref) == (access.SEES, ID)
        return old

    monkeypatch.setattr(access, "query", found)
    stores = {n: StoreRecord(n, n, store, {}, "sysadmin") for n in ("k", "other")}
    ctx: Any = SimpleNamespace(
        catalog=SimpleNamespace(snapshot=SimpleNamespace(stores=stores)),
        notice=lambda text, severity="NOTICE": said.append(severity),
    )
    return asyncio.run(resume.resumed(ctx, resume.Resume(ID, 9), new))


@pytest.mark.parametrize(("whole", "notices"), [(True, []), (False, ["WARNING"])])
def test_begins_where_the_other_stopped(monkeypatch: pytest.MonkeyPatch, whole: bool, notices: list[str]) -> None:
    said: list[Any] = []
    old = replace(OLD, progress={**OLD.progress, "whole": whole})
    (made,) = resumed(monkeypatch, old, [PLAN], said, "kafka")
    assert [s.starting_position for s in p.sources(made.root)] == ["offset:2:5,10:7"]
    assert said == notices


def test_an_application_begins_in_each_topic_where_the_other_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    more = replaced(SOURCE, relation="main.public.m", entity="more")
    progress = {"sources": {"main.public.s": {"offset": {"0": 3}}, "main.public.m": {"offset": {"0": 9}}}}
    old = replace(
        OLD, kind="application", plan=p.Plan(p.Outputs([SOURCE, more]), p.Sinks([])).json(), progress=progress
    )
    said: list[Any] = []
    parts = [p.Plan(part, p.ResultSink()) for part in (p.Filter(more, p.Expr("", "true")), SOURCE, more)]
    made = resumed(monkeypatch, old, parts, said, "kafka")
    assert [s.starting_position for m in made for s in p.sources(m.root)] == ["offset:0:9", "offset:0:3", "offset:0:9"]
    assert said == ["WARNING"]


@pytest.mark.parametrize(
    ("old", "new", "store", "said"),
    [
        ({}, p.Plan(COUNT, p.ResultSink()), "kafka", ("0A000", "this query has an aggregation")),
        ({"plan": p.Plan(COUNT, p.ResultSink()).json()}, PLAN, "kafka", ("0A000", f'query "{ID}" has an aggregation')),
        ({}, p.Plan(p.Union([SOURCE, SOURCE]), p.ResultSink()), "kafka", ("0A000", "a set operation")),
        ({"plan": p.Plan(p.Outputs([SOURCE, COUNT]), p.ResultSink()).json()}, PLAN, "kafka", ("0A000", "aggregation")),
        (
            {"plan": p.Plan(p.Outputs([SOURCE, EARLIEST]), p.ResultSink()).json()},
            PLAN,
            "kafka",
            ("0A000", "several ways"),
        ),
        ({}, PLAN, "kinesis", ("0A000", "Kinesis")),
        ({"actual": "running"}, PLAN, "kafka", ("55000", "has not ended")),
        ({"progress": {}}, PLAN, "kafka", ("55000", "before it had read anything")),
        ({"updated_at": NOW - dt.timedelta(days=31)}, PLAN, "kafka", ("55000", "more than 30 days ago")),
        ({"plan": PLAN.json().replace(b'"entity":"topic"', b'"entity":"else"')}, PLAN, "kafka", ("22023", '"else"')),
        ({"plan": PLAN.json().replace(b'"store":"k"', b'"store":"other"')}, PLAN, "kafka", ("22023", '"other"')),
    ],
)
def test_refusals(
    monkeypatch: pytest.MonkeyPatch, old: dict[str, Any], new: p.Plan, store: str, said: tuple[str, str]
) -> None:
    code, words = said
    with pytest.raises(PgStreamError) as e:
        resumed(monkeypatch, replace(OLD, **old), [new], [], store)
    assert (e.value.sqlstate, e.value.at) == (code, 9)
    assert words in e.value.text and (e.value.hint or code == "22023")
