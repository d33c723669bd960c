"""Joins of two streams that have no time apart: rows of both are kept as long as the query's state is.

Owns: which sides such a join takes, what tells equal rows apart, what it gives. Must not know: ON. Start reading at
``join``.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pgstream.planner import plan
from pgstream.planner.bind import Column, unique
from pgstream.planner.steps import Step

_PLACE = ("partition", "offset")


def holds(left: Step, right: Step) -> bool:
    """Whether both sides are streams whose rows have the place of their records, and no window that ends."""
    return all(s.is_plain and s.placed and not s.bounds.known for s in (left, right))


def join(left: Step, right: Step, made: plan.ChangelogJoin, columns: tuple[Column, ...]) -> Step:
    """The join with each row told apart by its place: equal rows are two. The pairs of an inner join only come; in an
    outer one a row without a pair is taken back when it meets one.
    """
    inner = made.how == "inner"
    node = msgspec.structs.replace(made, left=_placed(left), right=_placed(right), append=inner)
    step = Step(node, columns, joined=True, stateful=True, placed=False)
    return step if inner else replace(step, mode="retract", kind="changelog", keyless=True)


def _placed(step: Step) -> plan.Node:
    fields = [c.field for c in step.columns]
    names = [unique(f"of_{p}", fields) for p in _PLACE]
    exprs = [plan.Expr(c.field, c.sql) for c in step.columns]
    return plan.Project(step.node, [*exprs, *(plan.Expr(n, f"`__{p}`") for n, p in zip(names, _PLACE, strict=True))])
