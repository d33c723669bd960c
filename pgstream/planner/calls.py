"""Function calls that need more than a template: units of time, row metadata, results cut to whole numbers.

Owns: turning a row of the function table and its arguments into Spark SQL. ``_SPECIAL`` maps the ``call`` of a row.
Must not know: grouping. Start reading at ``build``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from pgstream import types
from pgstream.catalog.records import RelationRecord
from pgstream.errors import InvalidStatement, NotSupported, NotYet, UndefinedFunction
from pgstream.names import quote_text
from pgstream.planner import checked, comparisons, infer, json_calls, patterns
from pgstream.planner.bind import at
from pgstream.planner.expressions import Compiler, Typed, row
from pgstream.planner.functions import ARRIVAL, FILTERED_ARRAY, HAS_NULL, ORDERED, WITHOUT_NULLS, Function
from pgstream.planner.steps import ROWTIME
from pgstream.stores.spec import Can
from pgstream.types import CLOCKS, Type

CASTS = "No function matches the given argument types. You might need to add explicit type casts."
_UNITS = ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_YEARS = {"DECADE": "floor({0} / 10)", "CENTURY": "ceil({0} / 100)", "MILLENNIUM": "ceil({0} / 1000)"}
_PARTS = (*_UNITS, "DOY", "DOW", "ISODOW", "ISOYEAR", *_YEARS, "EPOCH")


@dataclass(frozen=True, slots=True)
class Call:
    """One call on its way: compiled arguments (time units stay as written) and what a special builder may ask."""

    compiler: Compiler
    function: Function
    node: exp.Anonymous
    args: list[Typed]

    def text(self, template: str = "", **named: str) -> str:
        """The row's template, or this one, filled in."""
        template = template or self.function.template(len(self.args)) or ""
        sqls = [a.sql for a in self.args]
        every = ", ".join(sqls)
        any_null = " or ".join(f"{s} is null" for s in sqls) if "{any_null}" in template else ""
        text = template.replace("{*}", "{every}")
        return text.format(*sqls, every=every, any_null=any_null, name=self.function.name.lower(), **named)

    def unit(self, index: int, allowed: tuple[str, ...] = _UNITS) -> str:
        """The argument as a unit of time."""
        node = self.node.expressions[index]
        word = str(node.name if isinstance(node, (exp.Column, exp.Var)) else node.this).upper()
        if word.removesuffix("S") in allowed:
            return word.removesuffix("S")
        raise InvalidStatement(what=f'"{word.lower()}" is not a unit of time', at=at(node),
                               hint=f"Use one of {', '.join(allowed)}.")  # fmt: skip


def build(compiler: Compiler, function: Function, node: exp.Anonymous, inner: Compiler, where: str) -> Typed:
    """A call's Spark SQL and type."""
    given = values(function, node) if function.name in ORDERED else node.expressions
    args = [Typed("") if i in function.units else _argument(function, inner, a) for i, a in enumerate(given)]
    patterns.check(function.name, node)
    call = Call(inner, function, node, args)
    check(function, node, args)
    if function.aggregate:
        return _aggregate(call, where)
    if function.call is not None and function.call in _SPECIAL:
        return _SPECIAL[function.call](call)
    return Typed(call.text(), _type(call))


def check(function: Function, node: exp.Anonymous, args: Sequence[Typed]) -> None:
    """That the arguments are what the function takes. Error: UndefinedFunction."""
    numbers = not function.numbers or all(infer.is_number(a.type) for a in args)
    booleans = not function.booleans or all(a.type is None or infer.is_a(a.type, "BOOLEAN") for a in args)
    if not numbers or not booleans:
        types_ = ", ".join(str(a.type).lower() if a.type is not None else "unknown" for a in args)
        hint = CASTS if function.numbers else "Write a condition, such as x > 0."
        raise UndefinedFunction(name=f"{str(node.this).lower()}({types_})", at=at(node), hint=hint)


def values(function: Function, node: exp.Anonymous) -> list[exp.Expr]:
    """The arguments of an aggregate call, also where DISTINCT stands before them; only COUNT takes any number then."""
    given = [v for e in node.expressions for v in (e.expressions if isinstance(e, exp.Distinct) else [e])]
    if len(given) > len(node.expressions) and function.name != "COUNT" and function.template(len(given)) is None:
        raise UndefinedFunction(name=f"{function.name.lower()}() with {len(given)} arguments", at=at(node))
    return given


def _argument(function: Function, inner: Compiler, node: exp.Expr) -> Typed:
    if isinstance(node, exp.Star) and function.name == "COUNT":
        return Typed("1")
    if isinstance(node, exp.Distinct):
        if function.name != "COUNT":
            raise NotYet(what=f"{function.name}(DISTINCT …) of a session", at=at(node))
        values = [inner.sql(e) for e in node.expressions]
        missing = " or ".join(f"{v} is null" for v in values)
        return Typed(f"if({missing}, null, struct({', '.join(values)}))")
    return inner.compile(node)


def _type(call: Call) -> Type | None:
    declared = call.function.type
    if declared is None:
        return None
    if declared.endswith("*"):
        return _common([a.type for a in call.args[int(declared[:-1]) :] if a.sql != "null"])
    if declared.isdigit():
        return call.args[int(declared)].type if int(declared) < len(call.args) else None
    return types.parse(declared)


def _common(found: Sequence[Type | None]) -> Type | None:
    """The wider of numbers, or else the first."""
    numbers = all(t is None or infer.is_number(t) for t in found)
    return reduce(infer.common, found) if found and numbers else next(iter(found), None)


def _aggregate(call: Call, where: str) -> Typed:
    if call.function.name in ORDERED:
        return _ordered(call, where)
    text = call.text()
    if any(isinstance(a, exp.Distinct) for a in call.node.expressions):
        text = f"collect_set({call.args[0].sql})"
    if where:
        text = f"{text} FILTER (WHERE {where})"
    if text.startswith("collect_set"):
        return Typed(f"cast(size({text}) as bigint)", types.BIGINT)
    argument = call.args[0].type if call.args else None
    if call.function.name == "AVG" and argument is not None and infer.is_integral(argument):
        return Typed(_whole_mean(call.args[0].sql, argument, f" FILTER (WHERE {where})" if where else ""), argument)
    if call.function.name == "AVG" and (wide := infer.wide_mean(argument)) is not None:
        only = f" FILTER (WHERE {where})" if where else ""
        total, rows = (f"{name}({call.args[0].sql}){only}" for name in ("sum", "count"))
        return Typed(f"cast({total} / {rows} as {wide.spark})", wide)
    if call.function.integral and argument is not None and infer.is_integral(argument):
        return Typed(f"cast({text} as {argument.spark})", argument)
    if call.function.name == "SUM":
        return Typed(text, types.BIGINT if infer.is_integral(argument) else infer.widest(argument, argument))
    if call.function.integral and (argument is None or argument.name == "DECIMAL"):
        return Typed(text)
    return Typed(text, _type(call))


def _whole_mean(value: str, type_: Type, where: str) -> str:
    """The mean of whole numbers, cut toward zero. The sum of BIGINTs may be none, that of others is."""
    wide = f"cast({value} as decimal(28,0))" if type_.name == "BIGINT" else value
    return f"cast(sum({wide}){where} div count({value}){where} as {type_.spark})"


def _ordered(call: Call, where: str) -> Typed:
    """A function of values in the order of arrival; rows that have none are taken in that of their event times, and
    those of one time by their values.
    """
    value = call.args[0]
    template = ""
    if where and call.function.name == "ARRAY_AGG":
        template = FILTERED_ARRAY
        call.args.append(Typed(where))
    elif where:
        call.args[0] = Typed(f"if({where}, {value.sql}, null)", value.type)
    # What is changed is the template: the words of the filled-in text may be a client's, in a string.
    template = template or call.function.template(len(call.args)) or ""
    if any(isinstance(e, exp.Distinct) for e in call.node.expressions):
        template = template.replace("transform(", "array_distinct(transform(").replace("e -> e.v)", "e -> e.v))")
    if not call.compiler.scope.placed:
        template = template.replace(f"struct({ARRIVAL})", "struct(`__time`, {0})").replace(ARRIVAL, "`__time`")
    text = call.text(template)
    if call.function.name == "ARRAY_AGG" and value.type is not None:
        return Typed(text, Type("ARRAY", args=(value.type,)))
    return Typed(text, _type(call))


def _rounding(call: Call) -> Typed:
    """CEIL and FLOOR of a number keep its kind; with a unit they cut a time."""
    word = call.function.name.lower().replace("ceiling", "ceil")
    value = call.args[0]
    if len(call.args) == 1:
        if infer.is_a(value.type, "FLOAT", "DOUBLE"):
            return Typed(f"cast({word}({value.sql}) as double)", Type("DOUBLE"))
        return Typed(f"{word}({value.sql})", value.type if infer.is_integral(value.type) else None)
    return _cut(value, call.unit(1), word)


def _cut(value: Typed, unit: str, word: str = "floor") -> Typed:
    """The beginning of the unit that a time is in, or with "ceil" of the next one."""
    to = value.type if infer.is_a(value.type, "TIMESTAMP", "TIMESTAMP_LTZ", "DATE") else None
    cut = f"date_trunc('{unit}', {value.sql})"
    text = cut if word == "floor" else f"if({value.sql} = {cut}, {cut}, timestampadd({unit}, 1, {cut}))"
    return Typed(f"cast({text} as {to.spark})" if to is not None else text, to)


def _mod(call: Call) -> Typed:
    left, right = call.args
    text = checked.divided(left.sql, right.sql, (left.type, right.type), call.node.expressions[1], "({0} % {1})")
    whole = infer.is_integral(left.type, right.type)
    return Typed(text, right.type if whole else infer.arithmetic(left.type, right.type))


def _nullif(call: Call) -> Typed:
    left, right = call.node.expressions
    if comparisons.row_of(left) is None or comparisons.row_of(right) is None:
        return Typed(call.text(), _type(call))
    equal = call.compiler.sql(exp.EQ(this=left.copy(), expression=right.copy()))
    return Typed(f"if({equal}, null, {call.args[0].sql})", _type(call))


def _map_entries(call: Call) -> Typed:
    type_ = call.args[0].type
    if type_ is None or type_.name != "MAP":
        return Typed(call.text())
    entry = Type("STRUCT", fields=tuple(zip(("key", "value"), type_.args, strict=True)))
    return Typed(call.text(), Type("ARRAY", args=(entry,)))


def _part(call: Call) -> Typed:
    """What an array or a map is made of, or a map of two arrays."""
    given = [a.type.args if a.type is not None else () for a in call.args]
    parts = tuple(t for args in given for t in args)
    name = call.function.name
    if name == "MAP_FROM_ARRAYS" and len(parts) == 2:
        return Typed(call.text(), Type("MAP", args=parts))
    if name in ("MAP_KEYS", "MAP_VALUES") and len(parts) == 2:
        return Typed(call.text(), Type("ARRAY", args=(parts[name == "MAP_VALUES"],)))
    return Typed(call.text(), parts[0] if len(parts) == 1 and not name.startswith("MAP") else None)


def _element(call: Call) -> Typed:
    """Of a NULL as it is written Spark knows no type."""
    if call.args[1].sql != "null":
        return Typed(call.text(), _type(call))
    return Typed(call.text(WITHOUT_NULLS if call.function.name == "ARRAY_REMOVE" else HAS_NULL), _type(call))


def _multiset(call: Call) -> Typed:
    """A multiset is a MAP of how often each value is there, as Flink's formats write it."""
    type_ = call.args[0].type
    if type_ is None or type_.name != "ARRAY":
        return Typed(call.text())
    if type_.args[0].name == "MAP":
        raise UndefinedFunction(name=f"collect({str(type_.args[0]).lower()})", at=at(call.node), hint=CASTS)
    return Typed(call.text(), Type("MAP", args=(type_.args[0], types.INTEGER)))


def _watermark(call: Call) -> Typed:
    """What event time has passed, as of when the row's batch began; in the type of the event time's column."""
    type_ = call.args[0].type
    if type_ is None or type_.name not in ("BIGINT", *CLOCKS):
        raise InvalidStatement(
            what="CURRENT_WATERMARK takes the event time of a row", at=at(call.node.expressions[0]),
            hint="Name the 'timestamp' column of the source, or write rowtime().",
        )  # fmt: skip
    if call.compiler.place == "ON":
        raise NotSupported(what="CURRENT_WATERMARK in ON", at=at(call.node), hint="Put it into WHERE.")
    call.compiler.wants.add("watermark")
    text = "unix_millis({0})" if type_.name == "BIGINT" else f"cast({{0}} as {type_.spark})"
    return Typed(text.format(call.text()), type_)


def _sign(call: Call) -> Typed:
    type_ = call.args[0].type
    text = f"sign({call.args[0].sql})"
    return Typed(f"cast({text} as {type_.spark})", type_) if infer.is_integral(type_) and type_ else Typed(text)


def _truncate(call: Call) -> Typed:
    value = call.args[0]
    whole = len(call.args) == 1 or call.args[1].sql.isdigit()
    return value if whole and infer.is_integral(value.type) else Typed(call.text(), value.type)


def _extract(call: Call) -> Typed:
    unit, value = call.unit(0, _PARTS), call.args[1].sql
    if unit == "EPOCH":
        return Typed(f"unix_timestamp(cast({value} as timestamp))", types.BIGINT)
    if unit == "MILLISECOND":
        return Typed(f"cast(extract(SECOND FROM {value}) * 1000 as bigint) % 1000", types.BIGINT)
    if unit in _YEARS:
        return Typed(f"cast({_YEARS[unit].format(f'extract(YEAR FROM {value})')} as bigint)", types.BIGINT)
    unit = {"DOW": "DAYOFWEEK", "ISODOW": "DAYOFWEEK_ISO", "ISOYEAR": "YEAROFWEEK"}.get(unit, unit)
    return Typed(f"cast(extract({unit} FROM {value}) as bigint)", types.BIGINT)


def _with_unit(call: Call) -> Typed:
    unit = call.unit(0)
    call.args[0] = Typed(unit)
    if call.function.name == "TIMESTAMPADD" and infer.is_a(call.args[2].type, "DATE"):
        # A day that is moved by days or more is a day, as in Flink; Spark makes a point in time of it.
        whole = unit not in ("MILLISECOND", "SECOND", "MINUTE", "HOUR")
        to = types.parse("DATE" if whole else "TIMESTAMP(3)")
        return Typed(f"cast({call.text()} as {to.spark})", to)
    return Typed(call.text(), _type(call))


def _to_timestamp_ltz(call: Call) -> Typed:
    type_ = types.parse(call.function.type or "")
    if len(call.args) == 1 and infer.is_a(call.args[0].type, "VARCHAR"):
        return Typed(f"cast({call.args[0].sql} as timestamp)", type_)
    if len(call.args) == 1:
        return Typed(call.text(), type_)
    value, second = call.args
    if second.sql in ("0", "3"):
        word = "timestamp_seconds" if second.sql == "0" else "timestamp_millis"
        return Typed(f"{word}(cast({value.sql} as bigint))", type_)
    if infer.is_integral(second.type):
        raise InvalidStatement(what="TO_TIMESTAMP_LTZ takes precision 0 or 3", at=at(call.node.expressions[1]))
    return Typed(f"to_timestamp({value.sql}, {second.sql})", type_)


def _overlaps(call: Call) -> Typed:
    """Periods, each of a time and another or an interval; those that only meet overlap, as in Flink."""
    nodes, args = call.node.expressions, list(call.args)
    spans = [infer.is_interval(n) for n in nodes]
    names = [
        "INTERVAL" if s else "UNKNOWN" if a.type is None else str(a.type) for s, a in zip(spans, args, strict=True)
    ]
    times = [a.type is None or infer.is_a(a.type, "DATE", *CLOCKS) for a in args]
    if spans[0] or spans[2] or not all(times):
        listed = ", ".join(names).lower()
        raise UndefinedFunction(name=f"overlaps({listed})", at=at(call.node), hint=CASTS)
    for i in (1, 3):
        if spans[i]:
            args[i] = Typed(f"({args[i - 1].sql} + {args[i].sql})", args[i - 1].type)
        comparisons.check("<=", (nodes[i - 1], args[i - 1]), (nodes[i], args[i]))
    comparisons.check("<=", (nodes[0], args[0]), (nodes[2], args[2]))
    a, b, c, d = (arg.sql for arg in args)
    missing = " or ".join(f"{sql} is null" for sql in (a, b, c, d))
    met = f"least({a}, {b}) <= greatest({c}, {d}) and least({c}, {d}) <= greatest({a}, {b})"
    return Typed(f"if({missing}, null, {met})", types.BOOLEAN)


def _json(call: Call) -> Typed:
    path = call.node.expressions[1]
    if path.is_string:
        text = str(path.this).strip()
        steps_of = text.removeprefix("lax ").removeprefix("strict ").strip()
        steps = json_calls.wildcards(steps_of, at(path))
        # Spark's get_json_object knows names in single quotes only.
        call.args[1] = Typed(quote_text(re.sub(r"""\["([^"']*)"\]""", r"['\1']", steps_of)), types.TEXT)
        if steps is not None:
            strict = str(not text.startswith("lax ")).lower()
            found = f"pgstream_json_all({call.args[0].sql}, {quote_text(steps)}, {strict})"
            exists = call.function.name == "JSON_EXISTS"
            call.args[:2] = Typed(f"nullif({found}, '[]')" if exists else found, types.TEXT), Typed("'$'", types.TEXT)
    return Typed(call.text(), _type(call))


def _rowtime(call: Call) -> Typed:
    return _kept(call) or Typed(ROWTIME, types.BIGINT)


def _kept(call: Call) -> Typed | None:
    """What a join keeps of the record of the relation that the argument names; None where there is no other relation.
    Errors: MissingFrom, InvalidStatement, NotYet.
    """
    if not call.node.expressions:
        return None
    [name], word = call.node.expressions, call.function.name
    if not isinstance(name, exp.Column):
        raise InvalidStatement(what=f"{word} takes the name of a relation", at=at(name))
    item = call.compiler.scope.item(name)
    kept = next((c for c in item.records if c.name == call.function.call), None)
    if kept is None and len(call.compiler.scope.items) > 1:
        raise NotYet(
            what=f"{word}({item.alias}) here", at=at(call.node),
            hint=f"Join a query instead: (SELECT *, {word}() AS name FROM …) AS {item.alias}.",
        )  # fmt: skip
    return None if kept is None else Typed(kept.sql, kept.type)


def _rowkey(call: Call) -> Typed:
    if (kept := _kept(call)) is not None:
        return kept
    relation = _only_relation(call, "ROWKEY()")
    key_format = relation.properties.get("key.format", "").lower()
    if not key_format:
        return Typed("cast(null as string)", types.TEXT)
    call.compiler.wants.add("rowkey")
    return Typed("`__rowkey`", types.parse(relation.properties.get("key.type") or "VARCHAR"))


def _rowmetadata(call: Call) -> Typed:
    if (kept := _kept(call)) is not None:
        return kept
    relation = _only_relation(call, "ROWMETADATA()")
    if relation.kind == "materialized_view":
        raise NotSupported(what="ROWMETADATA() of a materialized view's rows", at=at(call.node))
    kind = call.compiler.scope.items[0].store
    assert kind is not None
    kind.require(Can.METADATA, at(call.node))
    call.compiler.wants.add("metadata")
    return Typed("`__metadata`", types.parse(kind.metadata or ""))


def _only_relation(call: Call, what: str) -> RelationRecord:
    items = call.compiler.scope.items
    relation = items[0].relation if len(items) == 1 else None
    if relation is None:
        hint = f"Name one of the relations: {what[:-1]}{items[0].alias})." if len(items) > 1 else None
        raise NotYet(what=f"{what} here", at=at(call.node), detail="It reads the record of a single source.", hint=hint)
    return relation


_SPECIAL: dict[str, Callable[[Call], Typed]] = {
    "ceil": _rounding,
    "floor": _rounding,
    "date_trunc": lambda call: _cut(call.args[1], call.unit(0)),
    "mod": _mod,
    "map_entries": _map_entries,
    "part": _part,
    "element": _element,
    "multiset": _multiset,
    "nullif": _nullif,
    "sign": _sign,
    "truncate": _truncate,
    "extract": _extract,
    "unit": _with_unit,
    "to_timestamp_ltz": _to_timestamp_ltz,
    "overlaps": _overlaps,
    "json": _json,
    "row": lambda call: row(call.args),
    "rowtime": _rowtime,
    "rowkey": _rowkey,
    "rowmetadata": _rowmetadata,
    "watermark": _watermark,
    **json_calls.BUILDERS,
}
