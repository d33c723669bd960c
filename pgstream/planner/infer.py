"""Light type inference: just enough for what depends on it (whole-number division and averages, casts to text).

Owns: the result types of operators over declared columns. What is not known here is None and left to Spark: results of
functions whose row in the table says so, and columns of subqueries made of them. Over an unknown type ``/`` and AVG
keep Spark's meaning (a fraction).
Must not know: scopes, Spark SQL.
"""

from __future__ import annotations

from sqlglot import exp

from pgstream.types import CLOCKS, Type

INTEGRAL = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_NUMERIC = (*INTEGRAL, "DECIMAL", "FLOAT", "DOUBLE")


def is_integral(*types: Type | None) -> bool:
    """Whether all are known whole-number types."""
    return all(t is not None and t.name in INTEGRAL for t in types)


def wide_mean(argument: Type | None) -> Type | None:
    """The type of AVG over a DECIMAL whose four more digits after the point would be taken from those before it.

    As Flink has it; None where Spark's own type of AVG has room for every mean.
    """
    if argument is None or argument.name != "DECIMAL" or not argument.params:
        return None
    precision, scale = argument.params[0], argument.params[1] if len(argument.params) > 1 else 0
    return Type("DECIMAL", (38, max(scale, 6))) if precision > 34 and scale > 2 else None


def is_a(type_: Type | None, *names: str) -> bool:
    """Whether the type is known and one of these."""
    return type_ is not None and type_.name in names


def is_number(type_: Type | None) -> bool:
    """Whether the type may be a number: it is one, or unknown."""
    return type_ is None or type_.name in _NUMERIC


def can_calculate(type_: Type | None) -> bool:
    """Whether ``+ - * / %`` may take the type: a number, a time, or unknown."""
    return is_number(type_) or is_a(type_, "DATE", *CLOCKS)


def widest(*types: Type | None) -> Type | None:
    """The wider of numeric types; the common type of others; None when unknown or mixed."""
    known = [t for t in types if t is not None]
    if len(known) != len(types) or not known:
        return None
    if all(t.name in _NUMERIC for t in known):
        return max(known, key=lambda t: _NUMERIC.index(t.name))
    return known[0] if all(t == known[0] for t in known) else None


def is_interval(node: exp.Expr) -> bool:
    """Whether an expression is made of intervals: one, or a multiple or the sum of such."""
    match node.unnest():
        case exp.Interval():
            return True
        case exp.Neg(this=inner):
            return is_interval(inner)
        case exp.Mul(this=one, expression=two) | exp.Div(this=one, expression=two):
            return is_interval(one) or is_interval(two)
        case exp.Add(this=one, expression=two) | exp.Sub(this=one, expression=two):
            return is_interval(one) and is_interval(two)
        case _:
            return False


def moved(left: tuple[exp.Expr, Type | None], right: tuple[exp.Expr, Type | None]) -> Type | None:
    """The type of a time that an interval is added to or taken from; None for anything else, and of a date, which an
    interval of hours makes a time.
    """
    for (_, time), (other, _) in ((left, right), (right, left)):
        if time is not None and is_a(time, *CLOCKS) and time.name != "TIME" and is_interval(other):
            return Type(time.name)
    return None


def arithmetic(left: Type | None, right: Type | None) -> Type | None:
    """The type of ``+ - *``: the wider number; a time plus an interval stays that time."""
    for type_ in (left, right):
        if is_a(type_, "DATE", *CLOCKS):
            return None
    wide = widest(left, right)
    # Precision and scale of a decimal result are Spark's to say.
    return Type("DECIMAL") if is_a(wide, "DECIMAL") else wide


_FAMILIES = {**dict.fromkeys(_NUMERIC, "number"), **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_LTZ"), "time")}


_KINDS = {**dict.fromkeys(_NUMERIC, "number"), **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_LTZ"), "time"),
          "VARBINARY": "BYTES"}  # fmt: skip
# What a kind of values can be cast to beside itself and VARCHAR; arrays, maps and structs to those of their like only.
_CASTS = {
    "VARCHAR": ("number", "BOOLEAN", "time", "TIME", "BYTES"), "number": ("BOOLEAN", "number"), "BOOLEAN": ("number",),
    "TIME": ("number", "time"),
}  # fmt: skip
_MORE_CASTS = {
    **{(t, "TIMESTAMP_LTZ"): True for t in _NUMERIC}, **{("TIMESTAMP_LTZ", t): True for t in _NUMERIC},
    **{(t, b): True for t in INTEGRAL for b in ("BYTES", "VARBINARY")},
    **{(t, "TIME"): True for t in ("TIMESTAMP", "TIMESTAMP_LTZ", *_NUMERIC)},
}  # fmt: skip


def _kind(type_: Type) -> str:
    return _KINDS.get(type_.name, type_.name)


def can_cast(source: Type | None, to: Type) -> bool:
    """Whether values of a type, if it is known, can be those of another, and so what nested values hold."""
    if source is None or source.name == "NULL":
        return True
    if source.name == to.name == "STRUCT":
        fields = zip(source.fields, to.fields, strict=False)
        return len(source.fields) == len(to.fields) and all(can_cast(a, b) for (_, a), (_, b) in fields)
    if source.name == to.name in ("ARRAY", "MAP"):
        return all(can_cast(a, b) for a, b in zip(source.args, to.args, strict=True))
    if _kind(source) == _kind(to) or to.name == "VARCHAR":
        return True
    return _kind(to) in _CASTS.get(_kind(source), ()) or (source.name, to.name) in _MORE_CASTS


def can_compare(left: Type | None, right: Type | None) -> bool:
    """Whether two types, if they are known, can stand beside ``=`` or ``<``: text with whatever text can be cast to."""
    if left is None or right is None or "NULL" in (left.name, right.name):
        return True
    kinds = {_kind(left), _kind(right)}
    other = kinds - {"VARCHAR"}
    return len(kinds) == 1 or kinds == {"number", "BOOLEAN"} or (len(other) == 1 and other <= {*_CASTS["VARCHAR"]})


def common(left: Type | None, right: Type | None) -> Type | None:
    """The type of one column of a UNION, as Spark widens it; None when only Spark knows."""
    if left == right:
        return left
    wide = widest(left, right)
    if is_a(wide, "DECIMAL"):
        return Type("DECIMAL")  # of what precision, is Spark's to say
    return Type("DOUBLE") if is_a(wide, "FLOAT") and (is_a(left, "DECIMAL") or is_a(right, "DECIMAL")) else wide


def can_match(left: Type | None, right: Type | None) -> bool:
    """Whether two types may be one column of a UNION: they are of one family, or not known."""
    if left is None or right is None:
        return True
    return _FAMILIES.get(left.name, left.name) == _FAMILIES.get(right.name, right.name)
