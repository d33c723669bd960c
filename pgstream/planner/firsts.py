"""ORDER BY … LIMIT n of a query, and DISTINCT ON: its first rows, kept current, as the Top-N that says the same.

Owns: what ORDER BY may name, LIMIT and OFFSET, the two queries that are put around the first.
Must not know: plans, steps: the planner plans what this writes. Start reading at ``first_rows``.
"""

from __future__ import annotations

from sqlglot import exp

from pgstream.errors import InvalidStatement, NotSupported
from pgstream.planner.bind import at
from pgstream.planner.outputs import HIDDEN, RANK
from pgstream.sql.select import fold

_CLAUSES = ("order", "limit", "offset")
_LATER = "Order the rows where they are read: SELECT … FROM view ORDER BY …; or say how many are wanted: LIMIT n."
_WHICH = "It has no end to count from. Say which rows come first: ORDER BY column LIMIT n."


def of_whole(tree: exp.Expr) -> exp.Select:
    """A set operation, or a query in parentheses, as a select from it, whose ORDER BY, LIMIT and OFFSET they are."""
    inner = tree.copy()
    for key in ("with_", *_CLAUSES):
        inner.set(key, None)
    star = exp.Star()
    star.meta["start"] = at(tree) or 0
    outer = _around(inner, [star])
    for key in _CLAUSES:
        outer.set(key, tree.args[key].copy() if tree.args.get(key) else None)
    first = inner
    while not isinstance(first, exp.Select) and isinstance(first.this, exp.Query):
        first = first.this
    for ordered in outer.args["order"].expressions if outer.args.get("order") else []:
        found = _numbered(ordered.this, list(first.expressions))
        name = None if found is None else _name(found, list(first.expressions))
        if name is not None:
            column = exp.Column(this=name.copy())
            column.meta["start"] = at(ordered) or 0
            ordered.set("this", column)
    return outer


def wants_first(tree: exp.Expr) -> bool:
    """Whether a query says which rows come first, or how many there are."""
    distinct = tree.args.get("distinct")
    each = isinstance(tree, exp.Select) and distinct is not None and bool(distinct.args.get("on"))
    return each or any(tree.args.get(k) for k in _CLAUSES)


def first_rows(tree: exp.Select) -> exp.Select:
    """A query without its ORDER BY, LIMIT, OFFSET or DISTINCT ON: SELECT … FROM (SELECT …, ROW_NUMBER() OVER
    (PARTITION BY … ORDER BY …)) WHERE the number is among those wanted. Error: NotSupported.
    """
    order, distinct = tree.args.get("order"), tree.args.get("distinct")
    on = distinct.args.get("on") if distinct is not None else None
    skipped, last = (0, 1) if on is not None else (0, 0)
    if on is None or tree.args.get("limit") or tree.args.get("offset"):
        skipped, last = _slice(tree, order, on)
    inner = tree.copy()
    for key in ("with_", *_CLAUSES, *(["distinct"] if on is not None else [])):
        inner.set(key, None)
    by, terms = _parts(on, order)
    columns = _columns(inner, [*by, *(t.this for t in terms)])
    terms = [exp.Ordered(**{**t.args, "this": c}) for t, c in zip(terms, columns[len(by) :], strict=True)]
    rank = exp.Window(this=exp.Anonymous(this="ROW_NUMBER"), partition_by=columns[: len(by)],
                      order=exp.Order(expressions=terms))  # fmt: skip
    hidden = [RANK, *(e.alias for e in inner.expressions[len(tree.expressions) :])]
    numbered = _around(inner, [exp.Star(), exp.alias_(rank, RANK, quoted=True)])
    number = exp.column(RANK, quoted=True)
    wanted: exp.Expr = exp.LTE(this=number, expression=exp.Literal.number(last))
    if skipped:
        wanted = exp.And(this=wanted, expression=exp.GT(this=number.copy(), expression=exp.Literal.number(skipped)))
    star = exp.Star()
    star.meta.update({"start": at(tree.expressions[0]) or 0, HIDDEN: frozenset(hidden)})
    outer = _around(numbered, [star])
    outer.set("where", exp.Where(this=wanted))
    return outer


def _slice(tree: exp.Select, order: exp.Order | None, on: exp.Expr | None) -> tuple[int, int]:
    """How many rows LIMIT and OFFSET leave out, and which is the last. Error: NotSupported."""
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    if on is not None:
        raise NotSupported(what="LIMIT of DISTINCT ON", at=at(limit or offset),
                           hint="Write it into a query around that: SELECT … FROM (…) ORDER BY … LIMIT n.")  # fmt: skip
    if limit is None:
        what = "ORDER BY without LIMIT in a continuous query" if order is not None else "OFFSET without LIMIT"
        raise NotSupported(what=what, at=at(order or offset) or at(tree), hint=_LATER)
    if order is None:
        raise NotSupported(what="LIMIT in a continuous query", at=at(limit), hint=_WHICH)
    skipped = 0 if offset is None else _count(offset, "OFFSET")
    return skipped, skipped + _count(limit, "LIMIT")


def _parts(on: exp.Expr | None, order: exp.Order | None) -> tuple[list[exp.Expr], list[exp.Ordered]]:
    """What rows are told apart by, and ordered by within that. Error: InvalidStatement."""
    by = [] if on is None else [e.unnest() for e in on.expressions]
    terms = [] if order is None else list(order.expressions)
    first, rest = terms[: len(by)], terms[len(by) :]
    if any(t.this.unnest() not in by for t in first):
        wrong = next(t for t in first if t.this.unnest() not in by)
        raise InvalidStatement(what="ORDER BY begins with other than what DISTINCT ON names", at=at(wrong),
                               hint="Begin with the same expressions, in any order.")  # fmt: skip
    return by, rest or [exp.Ordered(this=e.copy()) for e in by[:1]]


def _around(inner: exp.Expr, expressions: list[exp.Expr]) -> exp.Select:
    source = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("unnamed_subquery")))
    return exp.Select(expressions=expressions, from_=exp.From(this=source))


def _columns(inner: exp.Select, terms: list[exp.Expr]) -> list[exp.Column]:
    """What the rows are ordered by, in the names of the query's own columns; it is given those that it has not."""
    outputs = list(inner.expressions)
    columns: list[exp.Column] = []
    for term in (t.unnest() for t in terms):
        found = _named(term, outputs) or _numbered(term, outputs)
        name = _of_star(term, inner) if found is None else _name(found, outputs)
        if name is None:
            if inner.args.get("distinct") is not None:
                raise NotSupported(
                    what="ORDER BY of DISTINCT rows by what they do not show", at=at(term),
                    hint="Give it a name in the select list: SELECT DISTINCT … AS name … ORDER BY name LIMIT n.",
                )  # fmt: skip
            name = exp.to_identifier(f"order by {len(columns) + 1}", quoted=True)
            inner.append("expressions", exp.alias_((found or term).copy(), name))
        column = exp.Column(this=name.copy())
        column.meta["start"] = at(term) or 0
        columns.append(column)
    return columns


def _named(term: exp.Expr, outputs: list[exp.Expr]) -> exp.Expr | None:
    """The column of the select list that has this name, or is the same expression."""
    own = fold(term.this) if isinstance(term, exp.Column) and len(term.parts) == 1 and not term.is_star else None
    aliases = (e for e in outputs if isinstance(e, exp.Alias) and own is not None and fold(e.args["alias"]) == own)
    same = (e for e in outputs if term in (e, e.this) and not e.is_star)
    return next(aliases, None) or next(same, None)


def _of_star(term: exp.Expr, inner: exp.Select) -> exp.Identifier | None:
    """The name of a column of the only relation, all of whose columns are selected."""
    alone = len(inner.expressions) == 1 and isinstance(inner.expressions[0], exp.Star) and not inner.args.get("joins")
    plain = isinstance(term, exp.Column) and len(term.parts) == 1 and isinstance(term.this, exp.Identifier)
    return term.this if alone and plain else None


def _name(output: exp.Expr, outputs: list[exp.Expr]) -> exp.Identifier | None:
    """The name of a column of the select list, if it is written there and no other's."""
    name = _written(output)
    if name is None or any(e.is_star for e in outputs):
        return name if isinstance(output, exp.Alias) else None
    names = [fold(n) for e in outputs if (n := _written(e)) is not None]
    return name if names.count(fold(name)) == 1 else None


def _written(output: exp.Expr) -> exp.Identifier | None:
    name = output.args["alias"] if isinstance(output, exp.Alias) else output.args.get("this")
    return name if isinstance(output, exp.Alias | exp.Column) and isinstance(name, exp.Identifier) else None


def _numbered(term: exp.Expr, outputs: list[exp.Expr]) -> exp.Expr | None:
    """The column of the select list that a number stands for. Error: NotSupported."""
    if not isinstance(term, exp.Literal) or term.is_string:
        return None
    number = int(str(term.this)) if str(term.this).isdigit() else 0
    if not 1 <= number <= len(outputs) or any(e.is_star for e in outputs[:number]):
        raise NotSupported(what=f"ORDER BY {term.this} of this select list", at=at(term), hint="Name the column.")
    return outputs[number - 1]


def _count(clause: exp.Expr, word: str) -> int:
    given = clause.args.get("expression")
    if not isinstance(given, exp.Literal) or not str(given.this).isdigit():
        raise NotSupported(what=f"{word} other than a whole number", at=at(clause))
    return int(str(given.this))
