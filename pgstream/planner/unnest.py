"""UNNEST: each element of an array or a map beside the row that it is of.

Owns: the forms in a FROM (``CROSS JOIN UNNEST(…) AS alias(column, …)``, with a comma, ``LEFT JOIN … ON TRUE``;
``WITH ORDINALITY``), the columns that they give. Must not know: other joins. Start reading at ``unnest``.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from pgstream.errors import DuplicateAlias, InvalidStatement, NotSupported, NotYet, TypeMismatch
from pgstream.names import quote_spark
from pgstream.planner import infer, plan
from pgstream.planner.bind import Column, Item, Scope, at
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.outputs import only
from pgstream.planner.steps import Step, retracting, wanting
from pgstream.sql.select import fold
from pgstream.types import BIGINT, Type

_ITEM, PLACE = "`__item`", "`__place`"


def is_unnest(join: exp.Join) -> bool:
    return isinstance(_call(join), exp.Unnest)


def _call(join: exp.Join) -> exp.Expr:
    node: exp.Expr = join.this
    return node.this if isinstance(node, exp.Lateral) else node


def unnest(step: Step, scope: Scope, join: exp.Join) -> tuple[Step, Scope]:
    """The rows with their elements. Errors: NotYet, NotSupported, TypeMismatch, InvalidStatement."""
    call = _call(join)
    if len(call.expressions) != 1:
        raise NotYet(what="UNNEST of several arrays", at=at(call))
    only(call, "expressions", "alias", "offset")
    alias = join.this.args.get("alias")
    outer = _is_outer(join)
    compiler = Compiler(scope, "UNNEST")
    value = compiler.compile(call.expressions[0])
    name = fold(alias.this) if alias is not None and alias.this is not None else "unnest"
    if any(i.alias == name for i in scope.items):
        raise DuplicateAlias(name=name, at=at(alias))
    elements = _elements(value, call.expressions[0])
    if call.args.get("offset"):
        elements.append(("ordinality", f"{PLACE} + 1L", BIGINT))
    given = [fold(c) for c in alias.args.get("columns") or []] if alias is not None else []
    if given and len(given) != len(elements):
        what = f'table "{name}" has {len(elements)} columns available but {len(given)} columns specified'
        raise InvalidStatement(what=what, at=at(alias))
    names = given or [n or name for n, _, _ in elements]
    columns = tuple(Column(n, f"{name}.{n}", t) for n, (_, _, t) in zip(names, elements, strict=True))
    exprs = [plan.Expr(c.field, sql) for c, (_, sql, _) in zip(columns, elements, strict=True)]
    # Of one row several may come now: a changelog's key no longer names one.
    changes = step.kind == "changelog"
    step = retracting(replace(step, node=wanting(step.node, compiler.wants)))
    array = f"map_entries({value.sql})" if infer.is_a(value.type, "MAP") else value.sql
    placed = bool(call.args.get("offset"))
    node = plan.Unnest(step.node, plan.Expr("item", array, at(call)), exprs, outer, placed)
    made = replace(
        step, node=node, columns=(*step.columns, *columns), placed=False, keyless=step.keyless or changes,
        key=() if changes else step.key, other_key=(), ranked=(),
    )  # fmt: skip
    return made, replace(scope, items=(*scope.items, Item(name, columns, at=at(alias))), placed=False)


def _is_outer(join: exp.Join) -> bool:
    side, kind, on = str(join.args.get("side") or ""), str(join.args.get("kind") or ""), join.args.get("on")
    if join.args.get("using") or (on is not None and not (isinstance(on, exp.Boolean) and on.this)):
        raise NotSupported(what="a condition of UNNEST other than TRUE", at=at(on) or at(join))
    if side not in ("", "LEFT") or kind not in ("", "CROSS", "INNER", "OUTER"):
        raise NotSupported(what=f"{side or kind} JOIN UNNEST", at=at(join))
    return side == "LEFT"


def _elements(value: Typed, node: exp.Expr) -> list[tuple[str, str, Type | None]]:
    """The columns of an element: name (empty: the alias's), Spark SQL, type."""
    type_ = value.type
    if infer.is_a(type_, "MAP") and type_ is not None:
        return [("key", f"{_ITEM}.key", type_.args[0]), ("value", f"{_ITEM}.value", type_.args[1])]
    if type_ is not None and type_.name != "ARRAY":
        raise TypeMismatch(what=f"UNNEST takes an ARRAY or a MAP, not {type_}", at=at(node))
    element = type_.args[0] if type_ is not None else None
    if element is not None and element.name == "STRUCT":
        return [(n, f"{_ITEM}.{quote_spark(n)}", t) for n, t in element.fields]
    return [("", _ITEM, element)]
