"""Comparisons with more than one value: ``= ANY (array)``, ``<> ALL (array)``, and of rows, ``(a, b) = ROW(c, d)``.

Owns: their Spark SQL, with PostgreSQL's meaning of NULL. Must not know: where the operands come from (a bound array is
one like any other). Start reading at ``compare``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from pgstream import types
from pgstream.errors import InvalidStatement, NotYet, TypeMismatch, UndefinedOperator
from pgstream.planner import checked, infer
from pgstream.planner.bind import at

if TYPE_CHECKING:
    from pgstream.planner.expressions import Compiler, Typed

QUANTIFIERS = {"ANY": "exists", "SOME": "exists", "ALL": "forall"}
_ELEMENT = "pgstream_element"


def quantifier(node: exp.Expr | None) -> str:
    """Spark's function for ``ANY (…)``, ``SOME (…)`` and ``ALL (…)``; empty for anything else."""
    return QUANTIFIERS.get(str(node.this).upper(), "") if isinstance(node, exp.Anonymous) else ""


def row_of(node: exp.Expr) -> list[exp.Expr] | None:
    """The values of a row that is written out, ``(a, b)`` or ``ROW(a, b)``; None for anything else."""
    node = node.unnest()
    is_row = isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and node.name.upper() == "ROW")
    return node.expressions if is_row else None


def apart(node: exp.Expr) -> list[exp.Expr]:
    """An equality of two rows as one of each pair of values; any other condition as it is."""
    pairs = _pairs(node.this, node.expression) if isinstance(node, exp.EQ) else None
    return [e for a, b in pairs for e in apart(exp.EQ(this=a.copy(), expression=b.copy()))] if pairs else [node]


def _pairs(left: exp.Expr, right: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]] | None:
    """What stands side by side in two rows; None where either is none. Error: InvalidStatement."""
    one, two = row_of(left), row_of(right)
    if one is None or two is None:
        return None
    if len(one) != len(two):
        raise InvalidStatement(what="unequal number of entries in row expressions", at=at(right) or at(left))
    return list(zip(one, two, strict=True))


def _quantified(node: exp.Expr) -> tuple[str, exp.Expr] | None:
    """The word and the query of ``ANY (SELECT …)``, ``SOME (…)`` and ``ALL (…)``."""
    if isinstance(node, exp.All) and isinstance(node.this, exp.Query):
        return "ALL", node.this
    if quantifier(node) and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
        return str(node.this).upper(), node.expressions[0]
    return None


def compare(compiler: Compiler, node: exp.Expr, operator: str) -> Typed | None:
    """The comparison of one value with an array's, or of two rows; None when it is of two values."""
    left, right = node.this, node.expression
    if (query := _quantified(right)) is not None:
        return compiler.asked(query[1], f"{{}} {operator} {query[0]} ", [left])
    if quantifier(right):
        return _with_array(compiler, left, operator, right)
    return of_rows(compiler, left, operator, right)


def check(operator: str, left: tuple[exp.Expr, Typed], right: tuple[exp.Expr, Typed]) -> None:
    """Whether two values can be compared. Errors: UndefinedOperator, InvalidText for a literal that is no value of the
    type it is compared with.
    """
    for (node, _), (_, other) in ((left, right), (right, left)):
        literal = node.unnest()
        if isinstance(literal, exp.Literal) and literal.is_string and other.type is not None and other.type.is_scalar:
            checked.check_literal(literal, other.type)
    if operator not in ("=", "<>") and any(row_of(n) or infer.is_a(v.type, "STRUCT") for n, v in (left, right)):
        raise NotYet(what=f"{operator} of rows", at=at(left[0]) or at(right[0]))
    if not infer.can_compare(left[1].type, right[1].type):
        what = f"{str(left[1].type).lower()} {operator} {str(right[1].type).lower()}"
        raise UndefinedOperator(what=what, at=at(left[0]) or at(right[0]))
    check_fields(operator, left, right)


def check_fields(operator: str, left: tuple[exp.Expr, Typed], right: tuple[exp.Expr, Typed]) -> None:
    """Whether two values of type STRUCT can be compared. Errors: InvalidStatement, UndefinedOperator, TypeMismatch."""
    one, two = left[1].type, right[1].type
    if one is None or two is None or one.name != "STRUCT" or two.name != "STRUCT":
        return
    place = at(left[0]) or at(right[0])
    if len(one.fields) != len(two.fields):
        raise InvalidStatement(what="unequal number of entries in row expressions", at=place)
    for (_, a), (_, b) in zip(one.fields, two.fields, strict=True):
        if not infer.can_compare(a, b):
            raise UndefinedOperator(what=f"{str(a).lower()} {operator} {str(b).lower()}", at=place)
    if [n for n, _ in one.fields] != [n for n, _ in two.fields]:
        what = f"a value of type {one} cannot be compared with one of type {two}"
        raise TypeMismatch(what=what, at=place, hint="CAST one side to the type of the other.")


def within(compiler: Compiler, node: exp.In) -> Typed | None:
    """``(a, b) IN ((1, 2), …)``; None when the left side is no row."""
    from pgstream.planner.expressions import Typed

    if row_of(node.this) is None:
        return None
    equal = [compiler.sql(exp.EQ(this=node.this.copy(), expression=row.copy())) for row in node.expressions]
    return Typed(f"({' OR '.join(equal)})", types.BOOLEAN)


def _with_array(compiler: Compiler, left: exp.Expr, operator: str, right: exp.Anonymous) -> Typed:
    from pgstream.planner.expressions import Typed

    word = str(right.this).upper()
    if len(right.expressions) != 1:
        raise InvalidStatement(what=f"{word} takes one array", at=at(right))
    array = compiler.compile(right.expressions[0])
    if array.type is not None and array.type.name != "ARRAY":
        raise TypeMismatch(what=f"{word} takes an array, not a value of type {array.type}", at=at(right))
    # Of three values, as in PostgreSQL: an unknown comparison leaves the answer unknown where it decides.
    body = f"({compiler.sql(left)} {operator} {_ELEMENT})"
    return Typed(f"{quantifier(right)}({array.sql}, {_ELEMENT} -> {body})", types.BOOLEAN)


def of_rows(compiler: Compiler, left: exp.Expr, operator: str, right: exp.Expr) -> Typed | None:
    """The comparison of two rows, pair by pair; None where either is none. Errors: InvalidStatement, NotYet."""
    from pgstream.planner.expressions import Typed

    if (pairs := _pairs(left, right)) is None:
        return None
    if operator not in ("=", "<>", "<=>"):
        raise NotYet(what=f"{operator} of rows", at=at(left) or at(right))
    sign = operator.replace("<>", "=")
    equal = f"({' AND '.join(_equal(compiler, a, sign, b, operator) for a, b in pairs)})"
    return Typed(f"(NOT {equal})" if operator == "<>" else equal, types.BOOLEAN)


def _equal(compiler: Compiler, left: exp.Expr, sign: str, right: exp.Expr, operator: str) -> str:
    """That two values of rows are equal. ``operator``: what stands between the rows."""
    rows = of_rows(compiler, left, sign, right)
    if rows is not None:
        return rows.sql
    one, two = compiler.compare(left, operator.replace("<=>", "="), right)
    return f"({one.sql} {sign} {two.sql})"
