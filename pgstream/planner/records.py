"""Row metadata of the relations of a join: what ROWTIME(alias) and its like read of one of them.

Owns: which calls ask for it, and the columns that carry it through the join, of which ``*`` and plain names know
nothing (``Item.records``). Must not know: joins, what the functions give. Start reading at ``asked`` and ``kept``.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from pgstream.errors import NotYet
from pgstream.planner import plan
from pgstream.planner.bind import Column, Item, Scope, at, unique
from pgstream.planner.expressions import Compiler
from pgstream.planner.functions import FUNCTIONS, RECORDS
from pgstream.planner.steps import ROWTIME, Step, wanting


def asked(select: exp.Select) -> list[exp.Anonymous]:
    """The calls with the name of a relation in one select, without the selects in it."""
    found = select.walk(prune=lambda n: isinstance(n, exp.Query) and n is not select)
    return [n for n in found if isinstance(n, exp.Anonymous) and _what(n) and len(n.expressions) == 1]


def kept(step: Step, scope: Scope, calls: list[exp.Anonymous]) -> tuple[Step, Scope]:
    """The rows of one relation with what the calls ask of its records. Errors: NotYet, those of the functions."""
    [item] = scope.items
    mine = {_what(c): c for c in calls if names(c.expressions[0], item)}
    if not mine:
        return step, scope
    compiler, columns, exprs = Compiler(scope, "a join"), [], [plan.Expr(c.field, c.sql) for c in step.columns]
    for what, call in mine.items():
        typed = compiler.compile(call)
        if step.mode == "retract" and typed.sql == ROWTIME:
            raise NotYet(what="rowtime() of a changelog's rows here", at=at(call))
        column = Column(what, unique(f"{what}()", (e.name for e in exprs)), typed.type)
        columns.append(column)
        exprs.append(plan.Expr(column.field, typed.sql, at(call)))
    times = step.times | {c.field for c, e in zip(columns, exprs[-len(columns) :], strict=True) if e.sql == ROWTIME}
    node = plan.Project(wanting(step.node, compiler.wants), exprs)
    made = replace(step, node=node, columns=(*step.columns, *columns), times=times)
    return made, replace(scope, items=(replace(item, records=tuple(columns)),))


def names(node: exp.Expr, item: Item) -> bool:
    """Whether an argument is the name of this relation."""
    return isinstance(node, exp.Column) and item.answers(Scope.path(node))


def _what(node: exp.Anonymous) -> str:
    function = FUNCTIONS.get(str(node.this).upper())
    return function.call if function is not None and function.call in RECORDS else ""
