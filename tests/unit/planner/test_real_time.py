"""Which plans run in real time; all others are refused at the place of the option, with the hint what can."""

from __future__ import annotations

import pytest
from msgspec import structs

from pgstream.errors import PgStreamError
from pgstream.planner import plan as p
from pgstream.planner.real_time import LIMITS, check
from pgstream.statements.explained import plan_text

SOURCE = p.Source("s", "main.public.s", "stream", "k", "topic", [p.Column("a", "BIGINT")], "json")
SINK = p.RecordSink("main.public.t", "k", "t", "append", "json", ["a"])
A = p.Expr("a", "`a`", at=7)
NOW = p.Expr("n", "date_format(current_timestamp(), 'HH')", at=12)


def plan(root: p.Node, sink: p.Sink = SINK) -> p.Plan:
    return p.Plan(root, sink, real_time=True)


@pytest.mark.parametrize(
    "root",
    [
        SOURCE,
        p.Project(p.Filter(SOURCE, p.Expr("", "`a` > 1")), [A]),
        p.Unnest(p.Project(SOURCE, [A]), p.Expr("", "array(1, 2)"), [A]),
        # What looks like the clock is text.
        p.Project(SOURCE, [p.Expr("a", "concat('current_date()', `a`, 'it\\'s current_date()')")]),
    ],
)
def test_what_runs(root: p.Node) -> None:
    check(plan(root), 3)


REFUSED: list[tuple[str, p.Node, p.Sink]] = [
    ("a GROUP BY", p.Project(p.ChangeAggregate(SOURCE, [], [p.Call("n", "count", ["1"])]), [A]), SINK),
    ("a GROUP BY", p.Aggregate(SOURCE, [A], []), SINK),
    ("a set operation", p.Union([SOURCE, SOURCE]), SINK),
    ("a join", p.IntervalJoin(SOURCE, SOURCE, "inner", "a", "b", A, A, 1000), SINK),
    ("a join", p.ChangelogJoin(SOURCE, SOURCE, "inner", "a", "b", []), SINK),
    ("a window function", p.Windows(SOURCE, p.Window("tumble", 1000, 1000)), SINK),
    ("reading a materialized view", p.Project(p.ViewSource("v", "r", "main", "id", [], "append"), [A]), SINK),
    ("reading a changelog", structs.replace(SOURCE, kind="changelog"), SINK),
    ("keeping a materialized view", SOURCE, p.ViewSink("v", "main", "t", "append")),
    ("filling a table", SOURCE, p.TableSink("t", "k", "t", "append")),
    ("writing a changelog", SOURCE, structs.replace(SINK, mode="upsert")),
    ("an interactive SELECT", SOURCE, p.ResultSink()),
    ("writing several results", p.Outputs([SOURCE, SOURCE]), p.Sinks([SINK, SINK])),
]


@pytest.mark.parametrize(("what", "root", "sink"), REFUSED)
def test_what_does_not(what: str, root: p.Node, sink: p.Sink) -> None:
    with pytest.raises(PgStreamError) as e:
        check(plan(root, sink), 3)
    assert (e.value.sqlstate, e.value.at, e.value.hint) == ("0A000", 3, LIMITS)
    assert e.value.text == f"{what} in real time is not supported yet"


def test_the_clock_stands_still_in_a_batch() -> None:
    with pytest.raises(PgStreamError, match="the current time in a query in real time") as e:
        check(plan(p.Project(SOURCE, [A, NOW])), 3)
    assert (e.value.sqlstate, e.value.at) == ("0A000", 12)


def test_records_are_not_counted_by_batch() -> None:
    with pytest.raises(PgStreamError, match="trigger in real time") as e:
        check(plan(structs.replace(SOURCE, options={"source.max.records.per.trigger": "5"})), 3)
    assert (e.value.sqlstate, e.value.at) == ("0A000", 3)


def test_a_plan_says_how_it_delivers() -> None:
    assert plan_text(plan(SOURCE)).startswith(
        "Sink main.public.t, store k, entity t, append, value json, in real time, at least once\n"
    )
