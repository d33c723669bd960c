"""Aggregates that are made of another: JSON_OBJECTAGG, JSON_ARRAYAGG and COLLECT are ARRAY_AGG and a function over it,
APPROX_COUNT_DISTINCT is COUNT(DISTINCT …), which keeps what it counts and so need not guess.

Owns: putting ARRAY_AGG, with the call's FILTER and OVER, in the place of their arguments. What is made of the array,
``planner.json_calls`` and the function table know. Must not know: scopes, types. Start reading at ``settle``.
"""

from __future__ import annotations

from sqlglot import exp

_JSON = ("JSON_OBJECT", "JSON_ARRAY", "JSON_OBJECTAGG", "JSON_ARRAYAGG")  # what they make goes into JSON as it is


def settle(tree: exp.Expr) -> None:
    """Rewrite the calls of a tree, in place: the function is called with how NULL is taken and the gathered values."""
    for call in list(tree.find_all(exp.Anonymous)):
        match str(call.this), call.expressions:
            case "JSON_ARRAYAGG", [nulls, value]:
                _gather(call, [nulls], _json(value))
            case "JSON_OBJECTAGG", [nulls, key, value]:
                name = exp.Anonymous(this="JSON_STRING", expressions=[exp.Cast(this=key, to=exp.Var(this="VARCHAR"))])
                _gather(call, [nulls], exp.Anonymous(this="ROW", expressions=[name, _json(value)]))
            case name, [value] if name.upper() == "COLLECT":
                _gather(call, [], value)
            case name, [value] if name.upper() == "APPROX_COUNT_DISTINCT":
                call.set("this", "COUNT")
                call.set("expressions", [exp.Distinct(expressions=[value])])


def _json(value: exp.Expr) -> exp.Expr:
    inner = value.unnest()
    made = isinstance(inner, exp.Anonymous) and str(inner.this).upper() in _JSON
    return value if made else exp.Anonymous(this="JSON_STRING", expressions=[value])


def _gather(call: exp.Anonymous, first: list[exp.Expr], value: exp.Expr) -> None:
    """``F(value) FILTER (…) OVER (…)`` as ``F(ARRAY_AGG(value) FILTER (…) OVER (…))``."""
    gathered = exp.Anonymous(this="ARRAY_AGG", expressions=[value])
    gathered.meta.update(call.meta)
    outer: exp.Expr = call
    while isinstance(outer.parent, (exp.Filter, exp.Window)) and outer.arg_key == "this":
        outer = outer.parent
    if outer is call:
        call.set("expressions", [*first, gathered])
        return
    whole = exp.Anonymous(this=call.this)
    whole.meta.update(call.meta)
    outer.replace(whole)
    call.replace(gathered)
    whole.set("expressions", [*first, outer])
