"""Casts and divisions as Flink has them: what cannot be done ends the query, unless the statement says TRY_CAST.

Owns: the Spark SQL of casts, also of what nested values hold, of ``/`` and ``%``; the marks by which the worker knows
such an error again (``spark/faults.py``: SQLSTATE, then the message). Spark alone would give NULL.
Must not know: scopes, other operators. Start reading at ``cast`` and ``divided``.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable

from sqlglot import exp

from pgstream.errors import DivisionByZero, InvalidText
from pgstream.names import quote_spark, quote_text
from pgstream.planner import infer, texts
from pgstream.planner.bind import at
from pgstream.types import CLOCKS, Type

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):[0-5]?\d(:[0-5]?\d(\.\d{0,6})?)?")
_DAY = re.compile(r"[+-]?(?P<year>\d{4,6})-(?P<month>\d{1,2})(-(?P<day>\d{1,2}))?([ T].*)?")
_BOOLEANS = ("t", "true", "y", "yes", "1", "f", "false", "n", "no", "0")
_COSTLY = re.compile(r"\b(if|rand|uuid)\(")  # what is not to be computed, or drawn, more than once
_SUFFIX = {"TINYINT": "Y", "SMALLINT": "S", "INTEGER": "", "BIGINT": "L"}  # of Spark's literals of a type
_ZERO = f"raise_error({quote_text('22012 division by zero')})"


def cast(sql: str, source: Type | None, to: Type, node: exp.Expr | None, tries: bool) -> str:
    """A cast. ``node``: the value as written. Errors: InvalidText for a literal that is no value of the type."""
    if to.name == "VARCHAR":
        text = texts.as_text(sql, source)
        return f"left({text}, {to.params[0]})" if to.params else text
    if source is not None and not to.is_scalar and is_ours(source, to):
        return _nested(sql, source, to, tries)
    # Spark has no cast from a point in time to a time of day.
    clock = to.name == "TIME" and infer.is_a(source, "TIMESTAMP", "TIMESTAMP_LTZ")
    text = f"to_time(date_format({sql}, 'HH:mm:ss.SSSSSS'))" if clock else f"cast({sql} as {to.spark})"
    if tries or not infer.is_a(source, "VARCHAR"):
        return text
    if isinstance(node, exp.Literal):
        check_literal(node, to)
        return text
    start = quote_text(f'22P02 invalid input syntax for type {to.pg}: "')

    def checked(value: str) -> str:
        error = f"raise_error(concat({start}, left({value}, 100), '\"'))"
        return f"coalesce(cast({value} as {to.spark}), if({value} is null, null, {error}))"

    return _once(checked, sql) if raises(sql) else checked(sql)


def is_ours(source: Type, to: Type) -> bool:
    """Whether Spark's own cast would give another value, or NULL where an error is due."""
    if not to.is_scalar and source.name == to.name:
        return any(is_ours(a, b) for a, b in zip(_parts(source), _parts(to), strict=True))
    if to.name == "VARCHAR":
        return bool(to.params) or texts.as_text("x", source) not in ("x", "cast(x as string)")
    return source.name == "VARCHAR" or (to.name == "TIME" and infer.is_a(source, "TIMESTAMP", "TIMESTAMP_LTZ"))


def _parts(type_: Type) -> list[Type]:
    """The types of what a nested value holds."""
    return [*type_.args, *(t for _, t in type_.fields)]


def _nested(sql: str, source: Type, to: Type, tries: bool) -> str:
    """The cast of a nested value to one of its kind, each value that it holds by itself."""
    pairs = list(zip(_parts(source), _parts(to), strict=True))
    if to.name == "ARRAY":
        return f"transform({sql}, e -> {cast('e', *pairs[0], None, tries)})"
    if to.name == "MAP":
        key, value = (cast(f"e.{w}", *p, None, tries) for w, p in zip(("key", "value"), pairs, strict=True))
        return f"map_from_entries(transform(map_entries({sql}), e -> struct({key}, {value})))"

    def struct(value: str) -> str:
        fields = (
            f"{quote_text(name)}, {cast(f'{value}.{quote_spark(field)}', *pair, None, tries)}"
            for (field, _), (name, _), pair in zip(source.fields, to.fields, pairs, strict=True)
        )
        return f"if({value} is null, null, named_struct({', '.join(fields)}))"

    return _once(struct, sql) if "(" in sql else struct(sql)


def _once(whole: Callable[..., str], *values: str) -> str:
    """``whole`` of values that are computed before it, each once."""
    if len(values) == 1:
        return f"get(transform(array({values[0]}), e -> {whole('e')}), 0)"
    given = ", ".join(f"{v} as v{i}" for i, v in enumerate(values))
    return f"get(transform(array(struct({given})), e -> {whole(*(f'e.v{i}' for i in range(len(values))))}), 0)"


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
        return _is_day(text.strip())
    return True


def _is_day(text: str) -> bool:
    """Whether a text begins with a day that Python's parser may not know: of five digits, or with a month of one."""
    found = _DAY.fullmatch(text)
    if found is None:
        return False
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"] or 1)
    return 1 <= month <= 12 and 1 <= day <= calendar.monthrange(2000 + year % 400, month)[1]


def divided(left: str, right: str, types: tuple[Type | None, Type | None], node: exp.Expr, whole: str) -> str:
    """``left`` and ``right`` put together by ``whole`` (with ``{0}`` and ``{1}``). By zero: an error, of fractions
    infinity or NaN, and over types that only Spark knows NULL; of NULL it is NULL. ``node`` is the divisor as written.
    """
    divisor = node.unnest()
    literal = isinstance(divisor, exp.Literal) and not divisor.is_string
    if None in types or (literal and float(str(divisor.this)) != 0):
        return whole.format(left, right)
    fractions = any(infer.is_a(t, "FLOAT", "DOUBLE") for t in types)
    if literal and not fractions:
        raise DivisionByZero(at=at(divisor))

    def checked(one: str, two: str) -> str:
        text = whole.format(one, two)
        if fractions:
            beyond = "cast('NaN' as double)" if "%" in whole else f"{one} * cast('Infinity' as double)"
            return f"if({two} = 0, {beyond}, {text})"
        known = "" if _NUMBER.fullmatch(one) else f" and {one} is not null"
        return f"if({two} = 0{known}, {_ZERO}, {text})"

    whole_numbers = infer.is_integral(*types)
    costly = _COSTLY.search(left) is not None and not (fractions and "%" in whole)
    if _COSTLY.search(right) or (costly and not (fractions or whole_numbers)):
        return _once(checked, left, right)
    if not costly:
        return checked(left, right)
    # What is divided stands in it once. Where it is NULL, Spark computes no further and does not come to the error.
    if fractions:
        beside, one = f"* if({right} = 0, cast('Infinity' as double), 1D)", "1"
    else:
        zero, one = (f"{n}{_SUFFIX[t.name]}" for n, t in zip("01", types, strict=True) if t is not None)
        beside = f"+ if({right} = 0, {_ZERO}, {zero})"
    return whole.format(f"({left} {beside})", f"if({right} = 0, {one}, {right})")
