"""JOIN … USING and NATURAL JOIN: columns that both sides have are joined on, and are one column above the join.

Owns: which columns those are, the merged column and what it hides. Must not know: which joins there are.
Start reading at ``names``, ``pairs`` and ``merged``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from pgstream.errors import NotSupported, NotYet
from pgstream.planner import infer, plan
from pgstream.planner.bind import Column, Scope, at, unique
from pgstream.planner.steps import Step
from pgstream.sql.select import fold

Pair = tuple[plan.Expr, plan.Expr]


def names(node: exp.Join, left: Sequence[Column], right: Sequence[Column]) -> list[exp.Column]:
    """The columns that a join has in common by its own words; none where it has ON."""
    if written := node.args.get("using"):
        return [exp.Column(this=i) for i in {fold(i): i for i in reversed(written)}.values()][::-1]
    method = str(node.args.get("method") or "")
    if method not in ("", "NATURAL"):
        raise NotYet(what=f"{method} JOIN", at=at(node))
    theirs = {c.name for c in right}
    shared = [c.name for c in left if c.name in theirs] if method else []
    if method and not shared:
        raise NotSupported(what="a NATURAL JOIN of relations without a column in common", at=at(node))
    found = [exp.Column(this=exp.Identifier(this=n, quoted=True)) for n in dict.fromkeys(shared)]
    for column in found:
        column.meta["start"] = at(node)
    return found


def prefix(scope: Scope) -> str:
    """The alias that a join puts before a side's fields: a chain is joined from the left, and what is joined already
    keeps its prefixes.
    """
    return "" if scope.joined else scope.items[0].alias


def pairs(shared: Sequence[exp.Column], left: Scope, right: Scope) -> list[Pair]:
    """The equalities of the columns in common. Errors: UndefinedColumn, AmbiguousColumn."""
    return [
        (plan.Expr("key", left.column(c).sql, at(c)), plan.Expr("key", right.column(c).sql, at(c))) for c in shared
    ]  # fmt: skip


def merged(
    joined: tuple[Step, Scope], shared: Sequence[exp.Column], sides: tuple[Scope, Scope], how: str, declared: bool
) -> tuple[Step, Scope]:
    """The joined rows with one column for each of those in common: that of the side which is always there.

    ``declared``: the keys of both sides are changelogs' own, which hold no NULL. Those of a GROUP BY may be NULL, and
    two rows with a NULL in the merged key are not one.
    """
    step, scope = joined
    made: list[Column] = []
    of_sides = [[_above(side, c) for c in shared] for side in sides]
    hidden = {c.field for side in of_sides for c in side}
    for one, two in zip(*of_sides, strict=True):
        if how == "full":
            name = unique(one.name, (c.field for c in (*step.columns, *made)))
            made.append(Column(one.name, name, infer.common(one.type, two.type)))
        else:
            made.append(two if how == "right" else one)
    if how == "full":
        either = [f"coalesce({a.sql}, {b.sql})" for a, b in zip(*of_sides, strict=True)]
        exprs = [plan.Expr(c.field, c.sql) for c in step.columns]
        exprs += [plan.Expr(c.field, sql, at(s)) for c, sql, s in zip(made, either, shared, strict=True)]
        step = replace(step, node=plan.Project(step.node, exprs), columns=(*step.columns, *made))
    if declared and hidden.issuperset(step.key):
        step = replace(step, other_key=tuple(c.field for c in made))
    kept = tuple(c for c in scope.merged if c.field not in hidden)
    return step, replace(scope, merged=(*made, *kept), hidden=scope.hidden | hidden)


def _above(side: Scope, column: exp.Column) -> Column:
    """A side's column as it is called above the join."""
    found, alias = side.column(column), prefix(side)
    return replace(found, field=f"{alias}.{found.field}") if alias else found
