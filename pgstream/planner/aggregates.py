"""Aggregate calls of the kernel: from a call in the text to ``plan.Call``.

Owns: which functions the kernel's aggregate has, DISTINCT and FILTER, the types of results. Spark's own aggregates are
``calls``'s. Must not know: GROUP BY. Start reading at ``kernel_call``.
"""

from __future__ import annotations

from sqlglot import exp

from pgstream import types
from pgstream.errors import NotSupported
from pgstream.planner import infer, plan
from pgstream.planner.bind import at
from pgstream.planner.calls import check, values
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.functions import Function
from pgstream.types import Type

_NAMES = {"STDDEV": "stddev_samp", "VARIANCE": "var_samp"}


def is_distinct(node: exp.Expr) -> bool:
    """Whether the node is an aggregate of distinct values."""
    return isinstance(node, exp.Anonymous) and any(isinstance(e, exp.Distinct) for e in node.expressions)


def kernel_call(function: Function, node: exp.Anonymous, inner: Compiler, where: str) -> tuple[plan.Call, Type | None]:
    """The call, its name still empty, and the type of its result. ``inner`` compiles its arguments."""
    given, distinct = values(function, node), is_distinct(node)
    rows = function.name == "COUNT" and not distinct
    arguments = [Typed("1", types.INTEGER) if rows and isinstance(a, exp.Star) else inner.compile(a) for a in given]
    separator = ","
    if function.name == "LISTAGG" and len(arguments) == 2:
        if not given[1].is_string:
            raise NotSupported(what="a separator of LISTAGG that is not a literal", at=at(given[1]))
        separator = str(given[1].this)
        del arguments[1]
    check(function, node, arguments[:1])
    texts = [a.sql for a in arguments]
    if where and function.name == "ARRAY_AGG":
        # A NULL is a value of the array, so the kernel is told which rows count.
        texts, where = [*texts, where], ""
    if function.name == "LISTAGG":
        texts = [f"cast({texts[0]} as string)"]
    type_ = _result(function, arguments[0].type)
    cast = type_.spark if function.integral and type_ is not None and infer.is_integral(type_) else None
    name = _NAMES.get(function.name, function.name.lower())
    if function.name == "AVG" and infer.is_integral(arguments[0].type):
        name = "avg_whole"
    if function.name == "AVG" and (wide := infer.wide_mean(arguments[0].type)) is not None:
        name, type_ = "avg_wide", wide
    return plan.Call("", name, texts, distinct, where or None, separator, cast, at(node)), type_


def _result(function: Function, argument: Type | None) -> Type | None:
    if function.integral:
        # Over whole numbers the result is cut to the argument's type.
        known = argument is not None and argument.name != "DECIMAL"
        return (argument if infer.is_integral(argument) else Type("DOUBLE")) if known else None
    if function.name == "SUM":
        return types.BIGINT if infer.is_integral(argument) else None if infer.is_a(argument, "DECIMAL") else argument
    if function.name == "ARRAY_AGG":
        return Type("ARRAY", args=(argument,)) if argument is not None else None
    if function.name in ("MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"):
        return argument
    return types.parse(function.type or "VARCHAR")
