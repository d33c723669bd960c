"""CHECK MATERIALIZED VIEW: of which views it says something, and how far their queries have to be computed again."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from pgstream.errors import PgStreamError
from pgstream.names import FullName, QName
from pgstream.planner import plan as p
from pgstream.sql.cursor import Cursor
from pgstream.statements import checks
from pgstream.statements.checks import CheckMaterializedView
from pgstream.statements.repairs import RepairMaterializedView

STATEMENT = CheckMaterializedView(QName(("v",), 24), 100)
SOURCE = p.Source("s", "main.public.s", "stream", "k", "t", [p.Column("a", "BIGINT")], "json",
                  starting_position="earliest")  # fmt: skip
TIMED = structs.replace(SOURCE, watermark=True)
GROUPED = p.Aggregate(SOURCE, [p.Expr("a", "`a`")], [p.Expr("n", "count(1)")])
CHANGES = p.ViewSource("w", "main.public.w", "main", "id", [p.Column("a", "BIGINT")], "upsert", ["a"])
KEY = p.Expr("a", "`a`")
SINK = p.ViewSink("main.public.v", "main", "v_1", "upsert", ["a"], {"notify": "x"})


def project(sql: str, source: p.Source | p.ViewSource = SOURCE) -> p.Node:
    return p.Project(source, [p.Expr("a", sql)])


def check(root: p.Node, *, actual: str = "running", properties: Any = (), **more: Any) -> str:
    plan = p.Plan(root, SINK, **more)
    view = SimpleNamespace(properties=dict(properties), full="main.public.v")
    try:
        STATEMENT._check(cast(Any, view), cast(Any, SimpleNamespace(plan=plan.json(), actual=actual)), plan)
    except PgStreamError as e:
        assert e.at == 24 and e.hint
        begin = 'materialized view "v" cannot be computed anew: '
        return f"{e.sqlstate}: {e.text.removeprefix(begin)}"
    return ""


WAIT = [
    structs.replace(GROUPED, input=TIMED, final=True),
    p.IntervalJoin(TIMED, TIMED, "left", 1000, KEY, KEY),
    p.Over(TIMED, [], []),
]


@pytest.mark.parametrize(
    "root",
    [
        GROUPED,
        project("upper(`my uuid`)"),
        structs.replace(GROUPED, input=TIMED),
        p.Aggregate(TIMED, [], [p.Expr("n", "count(1)")], p.Window("tumble", 1000, 1000)),
        p.IntervalJoin(TIMED, TIMED, "inner", 1000, KEY, KEY),
        *WAIT,
        p.Rank(SOURCE, "rn", "row_number", [], [p.Order("`a`")], 3),
    ],
    ids=str,
)
def test_what_can_be_checked(root: p.Node) -> None:
    assert check(root) == ""


LOOKUP = p.Lookup(SOURCE, "main.public.prices", "main", [], "inner")


def test_a_view_over_a_view_can_be_checked() -> None:
    assert check(CHANGES) == ""
    assert check(project("unix_millis(`__time`)", structs.replace(CHANGES, timestamp="a"))) == ""


@pytest.mark.parametrize(
    ("root", "more", "said"),
    [
        (GROUPED, {"state_ttl_ms": 5}, "55000: its query forgets state by the clock ('state.ttl.millis')"),
        (GROUPED, {"properties": {"retention.millis": "5"}},
         "55000: rows are taken away from it by the clock ('retention.millis')"),
        (project("current_timestamp()"), {}, "55000: CURRENT_TIMESTAMP gives its query something else each time"),
        (project("cast(floor(rand(3) * 7) as int)"), {}, "55000: RAND gives its query something else each time"),
        (project("uuid()"), {}, "55000: UUID gives its query something else each time"),
        (LOOKUP, {}, "55000: its query looks up rows of main.public.prices, which may have changed"),
        (structs.replace(CHANGES, watermark=True), {}, "55000: its query depends on when main.public.w got its rows"),
        (project("unix_millis(`__time`)", CHANGES), {},
         "55000: its query depends on when main.public.w got its rows"),
        (GROUPED, {"actual": "errored"},
         '55000: the query of materialized view "main.public.v" does not run: it is errored'),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot(root: p.Node, more: dict[str, Any], said: str) -> None:
    assert check(root, **more) == said


def test_views_of_another_database_have_no_moment_in_common() -> None:
    other = SimpleNamespace(full=FullName("main", "public", "w"))
    ctx = SimpleNamespace(catalog=SimpleNamespace(snapshot=SimpleNamespace(relations={other.full.key: other})))
    plan = p.Plan(CHANGES, SINK)
    here, there = (SimpleNamespace(full=FullName(d, "public", "v")) for d in ("main", "sales"))
    assert STATEMENT._reads(cast(Any, ctx), cast(Any, here), plan) == [other]
    with pytest.raises(PgStreamError, match=r"over main\.public\.w, which is in another database") as e:
        STATEMENT._reads(cast(Any, ctx), cast(Any, there), plan)
    assert e.value.sqlstate == "0A000"


def test_topics_of_one_name_in_two_stores() -> None:
    """Each begins elsewhere: a repair would begin to read one where the other did."""
    other = structs.replace(SOURCE, alias="o", relation="main.public.o", store="l")
    plan, query = p.Plan(p.Union([SOURCE, other]), SINK), cast(Any, SimpleNamespace(id="q"))
    for statement in (STATEMENT, RepairMaterializedView(STATEMENT.name)):
        with pytest.raises(PgStreamError, match=rf'{statement.words[0]} of a view that reads topics "t" of two') as e:
            asyncio.run(statement.check_sources(cast(Any, None), query, plan))
        assert (e.value.sqlstate, e.value.at) == ("0A000", 24)


@pytest.mark.parametrize(("actual", "hint"), [("starting", "DESCRIBE QUERY"), ("errored", "RESTART QUERY")])
def test_what_to_do_for_a_query_that_does_not_run(actual: str, hint: str) -> None:
    plan, view = p.Plan(GROUPED, SINK), SimpleNamespace(properties={}, full="main.public.v")
    with pytest.raises(PgStreamError) as e:
        STATEMENT._check(cast(Any, view), cast(Any, SimpleNamespace(plan=plan.json(), actual=actual)), plan)
    assert hint in str(e.value.hint)


def test_a_query_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the one that a view has been replaced by just now."""
    states = iter(["terminate_requested", "starting", "running", "errored"])

    async def found(self: Any, ctx: Any) -> Any:
        return None, SimpleNamespace(actual=next(states), name="totals"), None

    monkeypatch.setattr(CheckMaterializedView, "found", found)
    monkeypatch.setattr(checks, "LOOK_S", 0)
    told: list[str] = []
    ctx = cast(Any, SimpleNamespace(notice=told.append))
    assert asyncio.run(STATEMENT._settled(ctx))[1].actual == "running"
    assert told == ['waiting until query "totals" runs']
    monkeypatch.setattr(checks, "START_S", -1)
    states = iter(["starting", "running"])
    assert asyncio.run(STATEMENT._settled(ctx))[1].actual == "starting"


def ends(*consumed: Any, root: p.Node = GROUPED) -> Any:
    return STATEMENT._ends([{"store": "k", "at": at} for at in consumed], p.Plan(root, SINK))


def test_how_far() -> None:
    read = ends({"t": {"0": 7, "1": 0}}, {"t": {"0": 7, "1": 0}})
    assert read == {"t": {0: 7, 1: 0}}
    assert ends() == {"t": {}}  # a topic that was not read yet: nothing of it counts
    with pytest.raises(PgStreamError, match="in two ways"):
        ends({"t": {"0": 7}}, {"t": {"0": 6}})
    both = [{"store": "k", "at": {"t": {"0": 9, "1": 0, "2": 4}}}, {"store": "k", "at": {"t": {"0": 5}}}]
    here = checks._reached(both, read)
    assert here == {"t": {0: 5, 1: 0, 2: 0}}
    assert checks._between({"t": {"0": 2}}, here) == 3
    assert not checks._is_there(here, read) and checks._is_there(checks._reached(both[:1], read), read)
    assert not checks._is_there(checks._reached([], read), read)


def test_the_query_once_more() -> None:
    catalog = SimpleNamespace(staging_stem=lambda id: "v_" + id)
    source = structs.replace(SOURCE, on_bad_record="log", bad_record_store="k")
    plan = p.Plan(structs.replace(GROUPED, input=source), SINK)
    begun = {"t": {"0": 3, "1": 0}, "other": {}}
    compared, ctx = cast(Any, SimpleNamespace(query="q")), cast(Any, SimpleNamespace(catalog=catalog))
    again = checks._again(plan, checks._known(begun), compared, ctx)
    (read,) = p.sources(again.root)
    assert (read.starting_position, read.on_bad_record, read.bad_record_store) == ("offset:0:3,1:0", "ignore", None)
    assert isinstance(again.sink, p.ViewSink) and (again.sink.table, again.sink.options) == ("v_q", {})
    (kept,) = p.sources(checks._again(plan, {}, compared, ctx).root)
    assert kept.starting_position == "earliest"


@pytest.mark.parametrize("root", [*WAIT, GROUPED, p.Over(SOURCE, [], [])], ids=str)
def test_which_rows_wait(root: p.Node) -> None:
    assert checks._waits_for_time(p.Plan(root, SINK)) is (root in WAIT)


def test_the_watermark() -> None:
    assert checks._watermark([{"store": "k", "at": {}}]) is None
    assert checks._watermark([{"store": "k", "at": {}, "watermark": 5}, {"store": "k", "at": {}, "watermark": 5}]) == 5


def test_the_first_words_name_it_in_errors() -> None:
    parsed = CheckMaterializedView.parse(Cursor("CHECK MATERIALIZED VIEW v"))
    assert (parsed.limit, json.dumps(parsed.words)) == (100, '["CHECK", "MATERIALIZED", "VIEW"]')
