"""Comparisons with more than one value: ``= ANY (array)``, ``<> ALL (array)``, and of rows, ``(a, b) = (c, d)``.

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
    if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
        return _of_rows(compiler, node, operator, left, right)
    return None


def check(operator: str, left: tuple[exp.Expr, Typed], right: tuple[exp.Expr, Typed]) -> None:
    """Whether two values can be compared. Errors: UndefinedOperator, InvalidText for a literal that is no value of the
    type it is compared with.
    """
    for (node, _), (_, other) in ((left, right), (right, left)):
        literal = node.unnest()
        if isinstance(literal, exp.Literal) and literal.is_string and other.type is not None and other.type.is_scalar:
            checked.check_literal(literal, other.type)
    if not infer.can_compare(left[1].type, right[1].type):
        what = f"{str(left[1].type).lower()} {operator} {str(right[1].type).lower()}"
        raise UndefinedOperator(what=what, at=at(left[0]) or at(right[0]))


def within(compiler: Compiler, node: exp.In) -> Typed | None:
    """``(a, b) IN ((1, 2), …)``; None when the left side is one value."""
    from pgstream.planner.expressions import Typed

    if not isinstance(node.this, exp.Tuple):
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


def _of_rows(compiler: Compiler, node: exp.Expr, operator: str, left: exp.Tuple, right: exp.Tuple) -> Typed:
    from pgstream.planner.expressions import Typed

    if len(left.expressions) != len(right.expressions):
        raise InvalidStatement(what="unequal number of entries in row expressions", at=at(right) or at(node))
    if operator not in ("=", "<>"):
        raise NotYet(what=f"{operator} of rows", at=at(left) or at(node))
    pairs = zip(left.expressions, right.expressions, strict=True)
    sides = [compiler.compare(a, operator, b) for a, b in pairs]
    equal = " AND ".join(f"({a.sql} = {b.sql})" for a, b in sides)
    return Typed(f"({equal})" if operator == "=" else f"(NOT ({equal}))", types.BOOLEAN)
