"""Subqueries over streams and changelogs in the WHERE of a changelog: joins that add no columns.

``x IN (SELECT …)`` meets the distinct rows of its query; a scalar subquery is the single row of an aggregate without
GROUP BY. Owns: which conditions are such, and what is left of WHERE above the join.
Must not know: FROM, how a query is planned (it is told). Start reading at ``apart`` and ``joined``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from pgstream.errors import InvalidStatement, NotSupported
from pgstream.planner import joins
from pgstream.planner.bind import Item, Scope, at
from pgstream.planner.bounded import Bounded, Env
from pgstream.planner.grouping import distinct_rows
from pgstream.planner.steps import Step
from pgstream.sql.select import fold

Filter = Callable[[Step, Scope, exp.Expr], Step]
Plan = Callable[[exp.Expr], Step]
_HINT = "Keep it as a materialized view and ask that, or write a join."


@dataclass(frozen=True, slots=True)
class Where:
    """The conditions of a WHERE: those that ask what has no end, each with its query, and the others."""

    asking: list[tuple[exp.Expr, exp.Expr]]
    others: list[exp.Expr]


def apart(where: exp.Expr | None, bounded: Bounded, env: Env) -> Where:
    """The conditions that a join answers, and the others."""
    if where is None:
        return Where([], [])
    condition = where.unnest()
    parts = [p.unnest() for p in (condition.flatten() if isinstance(condition, exp.And) else [condition])]
    found = [(p, _query(p)) for p in parts]
    asking = [(p, q) for p, q in found if q is not None and _is_endless(q, bounded, env)]
    return Where(asking, [p for p in parts if all(p is not a for a, _ in asking)])


def _query(part: exp.Expr) -> exp.Expr | None:
    """The only subquery of a condition ``x IN (query)``, or of one that compares with its value."""
    if isinstance(part, exp.In):
        query = part.args.get("query")
        return query.unnest() if isinstance(query, exp.Subquery) and not part.this.find(exp.Subquery) else None
    if not isinstance(part, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between):
        return None
    outer = part.find_ancestor(exp.Select)
    found = [s for s in part.find_all(exp.Subquery) if s.find_ancestor(exp.Select) is outer]
    return found[0].unnest() if len(found) == 1 and not part.find(exp.Any, exp.All, exp.Exists) else None


def _is_endless(query: exp.Expr, bounded: Bounded, env: Env) -> bool:
    return not bounded.holds(query, env) and bounded.table_in(query, env) is None


def joined(rows: tuple[Step, Scope], where: Where, plan: Plan, keep: Filter, expires: bool) -> tuple[Step, Scope]:
    """The rows of a changelog that meet the conditions which ask. Errors: NotSupported, InvalidStatement."""
    step, scope = rows
    for i, (part, query) in enumerate(where.asking):
        if step.mode == "append" or step.keyless or _is_correlated(query, scope):
            raise NotSupported(what="a subquery that reads a stream or changelog", at=at(query), hint=_HINT)
        asked = plan(query)
        if len(asked.columns) != 1:
            raise InvalidStatement(what="subquery must return only one column", at=at(query))
        among = isinstance(part, exp.In)
        asked = distinct_rows(asked, False, "view") if among else asked
        if not among and (asked.key or asked.keyless or asked.mode == "append"):
            raise NotSupported(
                what="a subquery that may give several rows",
                at=at(query),
                hint="Ask for an aggregate without GROUP BY.",
            )
        name, width = f"subquery {i + 1}", len(scope.items)
        column = exp.column(asked.columns[0].name, table=name, quoted=True)
        column.meta["start"] = at(query) or 0
        join = exp.Join(this=exp.to_identifier(name), kind="" if among else "CROSS")
        join.meta["start"] = at(query) or 0
        if among:
            join.set("on", exp.EQ(this=part.this.copy(), expression=column))
        other = (asked, Scope((Item(name, asked.columns, at=at(query)),), placed=False))
        step, wide = joins.join(join, (step, scope), other, expires=expires)
        if not among:
            step = keep(step, wide, _with(part, query, column))
        scope = replace(wide, items=wide.items[:width])
    return step, scope


def _is_correlated(query: exp.Expr, scope: Scope) -> bool:
    """Whether a query names a relation of the rows that ask, and has none of that name itself."""
    own = {fold(t.args["alias"].this) if t.args.get("alias") else fold(t.this) for t in query.find_all(exp.Table)
           if isinstance(t.this, exp.Identifier)}  # fmt: skip
    outer = {item.alias for item in scope.items} - own
    return any(c.table and fold(c.args["table"]) in outer for c in query.find_all(exp.Column))


def _with(part: exp.Expr, query: exp.Expr, column: exp.Column) -> exp.Expr:
    """The condition with the column in the place of the query."""
    return part.copy().transform(lambda n: column if isinstance(n, exp.Subquery) and n.unnest() == query else n)
