"""Bound parameters: ``$1`` in a select means the value that the client bound, as a literal of its type.

Owns: the substitution before planning, and the type of a parameter that the client declares none for: that of the
column it is compared with, of its cast, of a LIMIT. Elsewhere it is text, as a literal in quotes is: the engine's
analyzer converts it to what it stands beside.
Must not know: the wire, where values come from. Start reading at ``bind``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlglot import exp

from pgstream import types
from pgstream.errors import InvalidText, TooComplex, UndefinedParameter
from pgstream.planner.comparisons import quantifier
from pgstream.sql.select import fold
from pgstream.wire.arrays import ELEMENTS, items

MOST_ELEMENTS = 1 << 14
"""Of an array: each is an expression of its own, which every session waits for."""
_TABLES = "Join a table, or a materialized view, instead of a long array."
_NAME = re.compile(r"\$([0-9]+)")
_COUNT = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_TYPES = {16: "BOOLEAN", 20: "BIGINT", 21: "SMALLINT", 23: "INTEGER", 700: "FLOAT", 701: "DOUBLE", 1082: "DATE",
          1083: "TIME", 1114: "TIMESTAMP", 1184: "TIMESTAMP_LTZ", 1700: "DECIMAL(38, 18)", 17: "BYTES"}  # fmt: skip
_CASTS = {name: oid for oid, name in _TYPES.items()} | {"INT": 23}
_BIGINT = 20
_BYTEA = 17
_TEXT_ARRAY = 1009
_ARRAY_OF = {row.oid: row.array_oid for row in (*types.TABLE.values(), types.JSONB)}
_ESCAPED = re.compile(rb"\\(\\|[0-3][0-7]{2})|\\")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A bound value in text form (None is NULL) and the PostgreSQL oid of its type."""

    value: str | None
    oid: int = 0


def bind(tree: exp.Expr, parameters: Sequence[Parameter]) -> exp.Expr:
    """The tree with its parameters replaced; the one given stays as it is. Errors: UndefinedParameter."""
    found = [(c, m) for c in tree.find_all(exp.Column) if (m := _is_parameter(c))]
    if not found:
        return tree
    tree = tree.copy()
    for column in list(tree.find_all(exp.Column)):
        match = _is_parameter(column)
        if match is None:
            continue
        number, at = int(match[1]), column.this.meta.get("start")
        if not 1 <= number <= len(parameters):
            raise UndefinedParameter(number=match[1], at=at)
        parameter = parameters[number - 1]
        if isinstance(column.parent, exp.Limit) and parameter.value is None:
            column.parent.pop()  # PostgreSQL: LIMIT NULL is no limit
            continue
        literal = _literal(parameter, isinstance(column.parent, exp.Limit), at)
        literal.meta["start"] = at
        column.replace(literal)
    return tree


def infer(tree: exp.Expr, columns: Mapping[str, int]) -> dict[int, int]:
    """PostgreSQL oids of parameters by number, as far as they can be told; ``columns``: the oids of columns by name.

    With a query inside the query a name may mean another column: then only casts and LIMIT tell.
    """
    if tree.find(exp.With, exp.Subquery) is not None:
        columns = {}
    found: dict[int, int] = {}
    for column in tree.find_all(exp.Column):
        match = _is_parameter(column)
        oid = _beside(column, columns) if match is not None else 0
        if match is not None and (oid in _TYPES or oid in ELEMENTS):
            found.setdefault(int(match[1]), oid)
    return found


def _beside(parameter: exp.Column, columns: Mapping[str, int]) -> int:
    """The oid that a parameter's place asks for; 0 where none is told."""
    parent = parameter.parent
    if isinstance(parent, exp.Limit):
        return _BIGINT
    if parent is not None and quantifier(parent) and isinstance(parent.parent, exp.Predicate):
        return _ARRAY_OF.get(_other_side(parent.parent, columns), _TEXT_ARRAY)
    if isinstance(parent, exp.Cast):
        return _CASTS.get(parent.to.sql().upper(), 0)
    if isinstance(parent, (exp.Predicate, exp.Between, exp.In)):
        return _other_side(parent, columns)
    return 0


def _other_side(comparison: exp.Expr, columns: Mapping[str, int]) -> int:
    """The oid of the one column that is compared, or of the elements of the one that is an array."""
    sides = list(comparison.iter_expressions())
    within = [one.expressions[0] for one in sides if quantifier(one) and len(one.expressions) == 1]
    arrays = [one for one in within if isinstance(one, exp.Column) and _is_parameter(one) is None]
    found = [one for one in sides if isinstance(one, exp.Column) and _is_parameter(one) is None]
    if len(arrays) == 1 and not found:
        return ELEMENTS.get(columns.get(fold(arrays[0].this), 0), 0)
    return columns.get(fold(found[0].this), 0) if len(found) == 1 else 0


def _is_parameter(column: exp.Column) -> re.Match[str] | None:
    name = column.this
    if not isinstance(name, exp.Identifier) or name.args.get("quoted") or column.args.get("table") is not None:
        return None
    return _NAME.fullmatch(str(name.this))


def _literal(parameter: Parameter, count: bool, at: int | None) -> exp.Expr:
    value, type_ = parameter.value, _TYPES.get(parameter.oid, "VARCHAR")
    if parameter.oid in ELEMENTS:
        return _array(parameter, at)
    if value is not None and parameter.oid == _BYTEA:
        return exp.HexString(this=_bytes(value).hex())
    if count and value is not None and _COUNT.fullmatch(value):
        return exp.Literal.number(value)
    if value is not None and type_.startswith("DECIMAL") and _NUMBER.fullmatch(value):
        number = exp.Literal.number(value.lstrip("-"))  # its own precision: no cast could keep every one
        return exp.Neg(this=number) if value.startswith("-") else number
    inner = exp.Null() if value is None else exp.Literal.string(value)
    if type_ == "VARCHAR" and value is not None:
        return inner
    return exp.Cast(this=inner, to=exp.Var(this=type_))


def _array(parameter: Parameter, at: int | None) -> exp.Expr:
    of = ELEMENTS[parameter.oid]
    type_ = exp.Var(this=f"ARRAY<{_TYPES.get(of, 'VARCHAR')}>")
    if parameter.value is None:
        return exp.Cast(this=exp.Null(), to=type_)
    try:
        found = [
            _literal(Parameter(value, of), False, at) for value in islice(items(parameter.value), MOST_ELEMENTS + 1)
        ]
    except ValueError:
        raise InvalidText(type="array", at=at) from None
    if len(found) > MOST_ELEMENTS:
        detail = f"An array has more than {MOST_ELEMENTS} elements."
        raise TooComplex(what="the query", detail=detail, hint=_TABLES, at=at)
    array = exp.Array(expressions=found)
    # The elements say their type themselves, and a number its own precision.
    return array if found else exp.Cast(this=array, to=type_)


def _bytes(text: str) -> bytes:
    """A bytea in text form: hex, or PostgreSQL's older escapes. Errors: InvalidText."""
    try:
        if text.startswith("\\x"):
            return bytes.fromhex(text[2:])
        return _ESCAPED.sub(_unescape, text.encode())
    except ValueError:
        raise InvalidText(type="bytea") from None


def _unescape(m: re.Match[bytes]) -> bytes:
    if m[1] is None:
        raise ValueError
    return b"\\" if m[1] == b"\\" else bytes([int(m[1], 8)])
