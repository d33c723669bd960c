"""Subqueries over streams and changelogs in the WHERE of a changelog: joins that add no columns.

``x IN (SELECT …)`` meets the distinct rows of its query, and EXISTS that equalities link to the rows is such a
condition; NOT EXISTS keeps the rows that meet none; a scalar subquery is the single row of an aggregate without
GROUP BY. Owns: which conditions are such, and what is left of WHERE above the join. Must not know: FROM, how a query is
planned (it is told). Start reading at ``apart`` and ``joined``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

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
_NOT_IN = "Write NOT EXISTS (SELECT 1 FROM t WHERE t.x = a.y), which a NULL among the values does not make empty."


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition that asks what has no end. ``by``: what of the rows that ask is among the columns of its ``query``,
    or None where a comparison asks for the query's value; ``whether`` it is to be among them, or is not to be (NOT
    EXISTS; of NOT IN a single NULL would make an end, and ``joined`` refuses it). ``listed``: the SELECT list of an
    EXISTS, which nobody reads, but which must be right.
    """

    part: exp.Expr
    query: exp.Expr
    by: list[exp.Expr] | None = None
    whether: bool = True
    listed: list[exp.Expr] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Where:
    """The conditions of a WHERE: those that ask what has no end, and the others."""

    asking: list[Asked]
    others: list[exp.Expr]


def apart(where: exp.Expr | None, bounded: Bounded, env: Env) -> Where:
    """The conditions that a join answers, and the others. Errors: NotSupported."""
    if where is None:
        return Where([], [])
    condition = where.unnest()
    parts = [p.unnest() for p in (condition.flatten() if isinstance(condition, exp.And) else [condition])]
    asking: list[Asked] = []
    others = []
    for part in parts:
        query = _query(part)
        if query is None or not _is_endless(query, bounded, env):
            others.append(part)
        else:
            asking.append(_asked(part, query))
    return Where(asking, others)


def _asked(part: exp.Expr, query: exp.Expr) -> Asked:
    inside = part.this.unnest() if isinstance(part, exp.Not) else part
    if isinstance(inside, exp.Exists):
        if (among := _among(query)) is None:
            raise _refused(query)
        return Asked(part, *among, inside is part, query.expressions)
    if not isinstance(inside, exp.In):
        return Asked(part, query)
    value = inside.this.unnest()
    return Asked(part, query, value.expressions if isinstance(value, exp.Tuple) else [value], inside is part)


def _refused(query: exp.Expr, hint: str = _HINT) -> NotSupported:
    return NotSupported(what="a subquery that reads a stream or changelog", at=at(query), hint=hint)


def _query(part: exp.Expr) -> exp.Expr | None:
    """The only subquery of a condition: ``x IN (query)``, EXISTS, NOT of these, or one that compares with its value."""
    inside = part.this.unnest() if isinstance(part, exp.Not) else part
    if isinstance(inside, exp.Exists):
        asked: exp.Expr = inside.this
        return asked.unnest()
    if isinstance(inside, exp.In):
        query = inside.args.get("query")
        return query.unnest() if isinstance(query, exp.Subquery) and not inside.this.find(exp.Subquery) else None
    if not isinstance(part, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between):
        return None
    outer = part.find_ancestor(exp.Select)
    found = [s for s in part.find_all(exp.Subquery) if s.find_ancestor(exp.Select) is outer]
    return found[0].unnest() if len(found) == 1 and not part.find(exp.Any, exp.All, exp.Exists) else None


def _among(query: exp.Expr) -> tuple[exp.Expr, list[exp.Expr]] | None:
    """The query of ``EXISTS (SELECT … FROM t WHERE t.x = a.y AND …)`` as ``SELECT t.x FROM t WHERE …``, and ``a.y``,
    which is to be among its rows; None where it is linked to the rows that ask by other than equalities.
    """
    if not isinstance(query, exp.Select) or {k for k, v in query.args.items() if v} - _PLAIN:
        return None
    own, where = _names(query), query.args.get("where")
    if where is None or any(has_aggregate(e) for e in query.expressions):
        return None
    condition = where.this.unnest()
    parts = [p.unnest() for p in (condition.flatten() if isinstance(condition, exp.And) else [condition])]
    rest: list[exp.Expr] = []
    values: list[exp.Expr] = []
    by: list[exp.Expr] = []
    for part in parts:
        if not _foreign(part, own):
            rest.append(part)
            continue
        if not isinstance(part, exp.EQ) or part.find(exp.Query):
            return None
        inner, outer = part.this, part.expression
        if _foreign(inner, own):
            inner, outer = outer, inner
        if (
            _foreign(inner, own)
            or not inner.find(exp.Column)
            or len(_foreign(outer, own)) != len([*outer.find_all(exp.Column)])
        ):
            return None
        value = exp.Alias(this=inner.copy(), alias=exp.to_identifier(f"value {len(by) + 1}", quoted=True))
        value.meta["start"] = at(inner) or 0
        values.append(value)
        by.append(outer.copy())
    if not by:
        return None
    asked = query.copy()
    asked.set("expressions", values)
    asked.set("where", exp.Where(this=exp.and_(*rest, wrap=False)) if rest else None)
    return asked, by


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
    for i, one in enumerate(where.asking):
        query = one.query
        if step.mode == "append" or step.keyless or _is_correlated(query, scope):
            raise _refused(query)
        if isinstance(one.part, exp.Not) and isinstance(one.part.this.unnest(), exp.In):
            raise _refused(query, _NOT_IN)
        asked = plan(query)
        _check_listed(one, plan)
        if len({c.name for c in asked.columns}) < len(asked.columns):
            asked = plan(_renamed(query, len(asked.columns)))
        count = 1 if one.by is None else len(one.by)
        if len(asked.columns) != count:
            raise InvalidStatement(what=_wrong_columns(len(asked.columns), count), at=at(query))
        if one.by is None and (asked.key or asked.keyless or asked.mode == "append"):
            raise NotSupported(
                what="a subquery that may give several rows",
                at=at(query),
                hint="Ask for an aggregate without GROUP BY.",
            )
        asked = asked if one.by is None else distinct_rows(asked, False, "view")
        name, width = f"subquery {i + 1}", len(scope.items)
        columns = [exp.column(c.name, table=name, quoted=True) for c in asked.columns[:count]]
        for column in columns:
            column.meta["start"] = at(query) or 0
        join = exp.Join(
            this=exp.to_identifier(name), kind="CROSS" if one.by is None else "", side="" if one.whether else "LEFT"
        )
        join.meta["start"] = at(query) or 0
        if one.by is not None:
            pairs = zip(one.by, columns, strict=True)
            join.set("on", exp.and_(*(exp.EQ(this=v.copy(), expression=c.copy()) for v, c in pairs), wrap=False))
        other = (asked, Scope((Item(name, asked.columns, at=at(query)),), placed=False))
        step, wide = joins.join(join, (step, scope), other, expires=expires)
        if one.by is None:
            step = keep(step, wide, _with(one.part, query, columns[0]))
        elif not one.whether:  # NULL equals nothing: where the column is NULL, the row has met none
            step = keep(step, wide, exp.Is(this=columns[0], expression=exp.Null()))
        scope = replace(wide, items=wide.items[:width])
    return step, scope


def _check_listed(one: Asked, plan: Plan) -> None:
    """Plans the SELECT list of an EXISTS, but for what names the rows that ask. Errors: as ``plan``."""
    own = _names(one.query)
    if listed := [e for e in one.listed if not isinstance(e, exp.Star) and not _foreign(e, own)]:
        query = one.query.copy()
        query.set("expressions", [e.copy() for e in listed])
        plan(query)


def _renamed(query: exp.Expr, count: int) -> exp.Expr:
    """A query, the names of whose columns are not one another's."""
    names = [exp.to_identifier(f"value {i + 1}", quoted=True) for i in range(count)]
    alias = exp.TableAlias(this=exp.to_identifier("asked", quoted=True), columns=names)
    inside = exp.Subquery(this=query.copy(), alias=alias)
    inside.meta["start"] = at(query) or 0
    star = exp.Star()
    star.meta["start"] = at(query) or 0
    return exp.Select(expressions=[star], from_=exp.From(this=inside))


def _wrong_columns(has: int, wanted: int) -> str:
    """PostgreSQL's words."""
    if wanted == 1:
        return "subquery must return only one column"
    return f"subquery has too {'few' if has < wanted else 'many'} columns"


def _is_correlated(query: exp.Expr, scope: Scope) -> bool:
    """Whether a query names a relation of the rows that ask, and has none of that name itself."""
    outer = {item.alias for item in scope.items} - _names(query)
    return any(c.table and fold(c.args["table"]) in outer for c in query.find_all(exp.Column))


def _with(part: exp.Expr, query: exp.Expr, column: exp.Column) -> exp.Expr:
    """The condition with the column in the place of the query."""
    return part.copy().transform(lambda n: column if isinstance(n, exp.Subquery) and n.unnest() == query else n)
