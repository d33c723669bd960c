"""Casts and divisions as Flink has them: what cannot be done ends the query, unless the statement says TRY_CAST.

Owns: the Spark SQL of casts from text, of ``/`` and ``%``; the marks by which the worker knows such an error again
(``spark/faults.py``: SQLSTATE, then the message). Spark alone would give NULL.
Must not know: scopes, other operators. Start reading at ``cast`` and ``divided``.
"""

from __future__ import annotations

import datetime as dt
import re

from sqlglot import exp

from pgstream.errors import DivisionByZero, InvalidText
from pgstream.names import quote_text
from pgstream.planner import infer
from pgstream.planner.bind import at
from pgstream.types import CLOCKS, Type

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):[0-5]?\d(:[0-5]?\d(\.\d{0,6})?)?")
_BOOLEANS = ("t", "true", "y", "yes", "1", "f", "false", "n", "no", "0")
_ZERO = f"raise_error({quote_text('22012 division by zero')})"


def cast(sql: str, source: Type | None, to: Type, node: exp.Expr, tries: bool) -> str:
    """A cast to other than VARCHAR. Errors: InvalidText for a literal that is no value of the type."""
    # Spark has no cast from a point in time to a time of day.
    clock = to.name == "TIME" and infer.is_a(source, "TIMESTAMP", "TIMESTAMP_LTZ")
    text = f"to_time(date_format({sql}, 'HH:mm:ss.SSSSSS'))" if clock else f"cast({sql} as {to.spark})"
    if tries or not infer.is_a(source, "VARCHAR"):
        return text
    if isinstance(node, exp.Literal):
        check_literal(node, to)
        return text
    start = quote_text(f'22P02 invalid input syntax for type {to.pg}: "')
    return f"coalesce({text}, if({sql} is null, null, raise_error(concat({start}, left({sql}, 100), '\"'))))"


def raises(sql: str) -> bool:
    """Whether an expression may end the query."""
    return "raise_error(" in sql


def check_literal(node: exp.Literal, to: Type) -> None:
    """A text in quotes that stands for a value of a type. Errors: InvalidText."""
    if not _reads(str(node.this), to):
        raise InvalidText(type=to.pg, at=at(node))


def _reads(text: str, to: Type) -> bool:
    """Whether a literal is a value of a type, as far as it can be told without Spark."""
    if infer.is_number(to):
        return _NUMBER.fullmatch(text) is not None or to.name in ("FLOAT", "DOUBLE")
    if to.name == "BOOLEAN":
        return text.strip().lower() in _BOOLEANS
    if to.name not in ("DATE", *CLOCKS):
        return True
    short = re.sub(r"(\.\d{6})\d+", r"\1", text.strip())
    if to.name == "TIME":
        return _CLOCK.fullmatch(short) is not None
    try:
        dt.datetime.fromisoformat(short)
    except ValueError:
        return re.fullmatch(r"[+-]?\d{4,6}-\d{1,2}(-\d{1,2})?([ T].*)?", text.strip()) is not None
    return True


def divided(left: str, right: str, types: tuple[Type | None, Type | None], node: exp.Expr, whole: str) -> str:
    """``left`` and ``right`` put together by ``whole`` (with ``{0}`` and ``{1}``). By zero: an error, of fractions
    infinity or NaN, and over types that only Spark knows NULL; of NULL it is NULL. ``node`` is the divisor as written.
    """
    text = whole.format(left, right)
    divisor = node.unnest()
    if isinstance(divisor, exp.Literal) and not divisor.is_string and float(str(divisor.this)) != 0:
        return text
    if None in types:
        return text
    if any(infer.is_a(t, "FLOAT", "DOUBLE") for t in types):
        beyond = "cast('NaN' as double)" if "%" in whole else f"{left} * cast('Infinity' as double)"
        return f"if({right} = 0, {beyond}, {text})"
    if isinstance(divisor, exp.Literal):
        raise DivisionByZero(at=at(divisor))
    known = "" if _NUMBER.fullmatch(left) else f" and {left} is not null"
    return f"if({right} = 0{known}, {_ZERO}, {text})"
