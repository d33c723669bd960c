"""Queries in real time: which plans Spark's real-time mode runs, and the refusal of all others.

Owns: that choice, and the words of it. Must not know: how such a query is run (``spark``), where the option stood in
the text but for its place. Start reading at ``check``.
"""

from __future__ import annotations

import re

from pgstream.errors import NotSupported, NotYet
from pgstream.planner.plan import (
    Expr,
    Filter,
    Node,
    Plan,
    Project,
    RecordSink,
    Sinks,
    Source,
    TableSink,
    Unnest,
    ViewSink,
    ViewSource,
    inputs,
    sources,
    walk,
)

MODE = "execution.mode"
DELIVERY = "in real time, at least once"
"""What a plan in real time says of its sink."""
NOTICE = (
    "the query runs in real time and delivers at least once: after a failure it writes again what it wrote in its last "
    "30 s"
)
LIMITS = "In real time runs a filter or projection of one stream in a Kafka store, into a stream in a Kafka store."
_CLOCK = re.compile(r"'(?:[^'\\]++|\\.)*+'|\b(current_timestamp|current_date|current_time|localtimestamp)\(\)")
_SINKS = {ViewSink: "keeping a materialized view", TableSink: "filling a table"}
_NODES = {"Aggregate": "a GROUP BY", "ChangeAggregate": "a GROUP BY", "Union": "a set operation",
          "Lookup": "a join or subquery that looks rows up", "Windows": "a window function",
          "Recognize": "MATCH_RECOGNIZE", "Expand": "GROUPING SETS", "Rank": "a window function of ranks",
          "Over": "an OVER window", "Outputs": "several results"}  # fmt: skip


def check(plan: Plan, at: int | None) -> None:
    """Whether a plan can be run in real time; ``at``: the place of what asks for it. The stores are the caller's to
    check. Errors: NotYet, NotSupported, each with the hint what can.
    """
    _check_sink(plan, at)
    for node in walk(plan.root):
        if isinstance(node, (Source, Filter, Project, Unnest)):
            continue
        name = type(node).__name__
        what = "reading a materialized view" if isinstance(node, ViewSource) else _NODES.get(name, _other(name))
        raise _not_yet(what, at)
    [source] = sources(plan.root)
    if source.kind != "stream":
        raise _not_yet("reading a changelog", at, "A key's older value could be written again after its newer one.")
    if "source.max.records.per.trigger" in source.options:
        raise NotSupported(
            what="source.max.records.per.trigger in real time",
            at=at,
            detail="Records go on as they come, not in batches.",
        )
    for node in walk(plan.root):
        for expression in _expressions(node):
            if any(found[1] for found in _CLOCK.finditer(expression.sql)):
                raise NotYet(
                    what="the current time in a query in real time", at=at if expression.at is None else expression.at,
                    hint="It would stand still for 30 s; ROWTIME() is the time of the record.",
                )  # fmt: skip


def refuse_several(at: int | None) -> None:
    """An application that is one query with several sinks. Error: NotYet."""
    raise _not_yet("writing several results", at)


def _check_sink(plan: Plan, at: int | None) -> None:
    if isinstance(plan.sink, Sinks):
        refuse_several(at)
    if not isinstance(plan.sink, RecordSink):
        raise _not_yet(_SINKS.get(type(plan.sink), "an interactive SELECT"), at)
    if plan.sink.mode != "append":
        raise _not_yet("writing a changelog", at, "A key's older value could be written again after its newer one.")


def _not_yet(what: str, at: int | None, detail: str | None = None) -> NotYet:
    return NotYet(what=f"{what} in real time", at=at, detail=detail, hint=LIMITS)


def _other(name: str) -> str:
    return "a join" if "Join" in name else "an operator that keeps state"


def _expressions(node: Node) -> list[Expr]:
    match node:
        case Filter():
            return [node.condition]
        case Project():
            return node.columns
        case Unnest():
            return [node.item, *node.columns]
        case _:
            assert not inputs(node)
            return []
