"""Subqueries over streams and changelogs in the WHERE of a changelog: joins that add no columns.

``x IN (SELECT …)`` meets the distinct rows of its query, and EXISTS that one equality links to the rows is such a
condition; a scalar subquery is the single row of an aggregate without GROUP BY. Owns: which conditions are such, and
what is left of WHERE above the join. Must not know: FROM, how a query is planned (it is told).
Start reading at ``apart`` and ``joined``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from pgstream.errors import InvalidStatement, NotSupported
from pgstream.planner import joins
from pgstream.planner.bind import Item, Scope, at
from pgstream.planner.bounded import Bounded, Env
from pgstream.planner.expressions import has_aggregate
from pgstream.planner.grouping import distinct_rows
from pgstream.planner.steps import Step
from pgstream.sql.select import fold

Filter = Callable[[Step, Scope, exp.Expr], Step]
Plan = Callable[[exp.Expr], Step]
_PLAIN = {"expressions", "from_", "joins", "where", "operation_modifiers"}
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
    asking: list[tuple[exp.Expr, exp.Expr]] = []
    others = []
    for part in parts:
        query = _query(part)
        if query is None or not _is_endless(query, bounded, env):
            others.append(part)
            continue
        among = _among(query) if isinstance(part, exp.Exists) else None
        asking.append((part, query) if among is None else among)
    return Where(asking, others)


def _query(part: exp.Expr) -> exp.Expr | None:
    """The only subquery of a condition ``x IN (query)``, or of one that compares with its value."""
    if isinstance(part, exp.Exists):
        asked: exp.Expr = part.this
        return asked.unnest()
    if isinstance(part, exp.In):
        query = part.args.get("query")
        return query.unnest() if isinstance(query, exp.Subquery) and not part.this.find(exp.Subquery) else None
    if not isinstance(part, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between):
        return None
    outer = part.find_ancestor(exp.Select)
    found = [s for s in part.find_all(exp.Subquery) if s.find_ancestor(exp.Select) is outer]
    return found[0].unnest() if len(found) == 1 and not part.find(exp.Any, exp.All, exp.Exists) else None


def _among(query: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """The query of ``EXISTS (SELECT … FROM t WHERE t.x = a.y AND …)`` as ``a.y IN (SELECT t.x FROM t WHERE …)``, and
    that one's query; None where it is linked to the rows that ask by other than one equality.
    """
    if not isinstance(query, exp.Select) or {k for k, v in query.args.items() if v} - _PLAIN:
        return None
    own, where = _names(query), query.args.get("where")
    if where is None or any(has_aggregate(e) for e in query.expressions):
        return None
    condition = where.this.unnest()
    parts = [p.unnest() for p in (condition.flatten() if isinstance(condition, exp.And) else [condition])]
    linking = [p for p in parts if _foreign(p, own)]
    if len(linking) != 1 or not isinstance(linking[0], exp.EQ):
        return None
    sides = (linking[0].this, linking[0].expression)
    outer = [s for s in sides if len(_foreign(s, own)) == len([*s.find_all(exp.Column)]) and not s.find(exp.Query)]
    inner = [s for s in sides if s.find(exp.Column) and not _foreign(s, own) and not s.find(exp.Query)]
    if len(outer) != 1 or len(inner) != 1:
        return None
    rest = [p for p in parts if p is not linking[0]]
    asked = query.copy()
    value = exp.Alias(this=inner[0].copy(), alias=exp.to_identifier("value"))
    value.meta["start"] = at(inner[0]) or 0
    asked.set("expressions", [value])
    asked.set("where", exp.Where(this=exp.and_(*rest, wrap=False)) if rest else None)
    return exp.In(this=outer[0].copy(), query=exp.Subquery(this=asked)), asked


def _names(query: exp.Expr) -> set[str]:
    """What relations are called in a query."""
    named = {fold(s.args["alias"].this) for s in query.find_all(exp.Subquery, exp.Unnest) if s.args.get("alias")}
    return named | {fold(t.args["alias"].this) if t.args.get("alias") else fold(t.this)
                    for t in query.find_all(exp.Table) if isinstance(t.this, exp.Identifier)}  # fmt: skip


def _foreign(part: exp.Expr, own: set[str]) -> list[exp.Column]:
    """The columns that name no relation of the query they are in."""
    return [c for c in part.find_all(exp.Column) if c.table and fold(c.args["table"]) not in own]


def _is_endless(query: exp.Expr, bounded: Bounded, env: Env) -> bool:
    return not bounded.holds(query, env) and bounded.table_in(query, env) is None


def joined(rows: tuple[Step, Scope], where: Where, plan: Plan, keep: Filter, expires: bool) -> tuple[Step, Scope]:
    """The rows of a changelog that meet the conditions which ask. Errors: NotSupported, InvalidStatement."""
    step, scope = rows
    for i, (part, query) in enumerate(where.asking):
        linked = isinstance(part, exp.Exists) or _is_correlated(query, scope)
        if step.mode == "append" or step.keyless or linked:
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
    outer = {item.alias for item in scope.items} - _names(query)
    return any(c.table and fold(c.args["table"]) in outer for c in query.find_all(exp.Column))


def _with(part: exp.Expr, query: exp.Expr, column: exp.Column) -> exp.Expr:
    """The condition with the column in the place of the query."""
    return part.copy().transform(lambda n: column if isinstance(n, exp.Subquery) and n.unnest() == query else n)
