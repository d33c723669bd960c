"""Joins keep of their rows what is read of them above.

Owns: which columns of a join's input nobody reads. Must not know: Spark, sinks. Start reading at ``narrowed``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from pgstream.names import quote_spark
from pgstream.planner import plan

_NAME = re.compile(r"'(?:[^'\\]++|\\.)*+'|`((?:[^`]++|``)++)`", re.DOTALL)  # texts are passed over
_INPUTS = ("input", "left", "right", "inputs")


def narrowed(node: plan.Node, read: frozenset[str] | None = None) -> plan.Node:
    """The same plan, where the inputs of joins of streams give only columns that are read.

    ``read``: the columns of the step that are, None where that is all.
    """
    match node:
        case plan.Project() | plan.Aggregate() | plan.ChangeAggregate():
            read = _names(node)
        case plan.Filter() | plan.Windows() | plan.IntervalJoin() | plan.TemporalJoin() | plan.StreamJoin():
            read = None if read is None else read | _names(node)
        case _:
            read = None
    if isinstance(node, (plan.IntervalJoin, plan.TemporalJoin, plan.StreamJoin)):
        left, right = _side(node.left, node.left_alias, read), _side(node.right, node.right_alias, read)
        return msgspec.structs.replace(node, left=left, right=right)
    if isinstance(node, (plan.Union, plan.Outputs)):
        return msgspec.structs.replace(node, inputs=[narrowed(i) for i in node.inputs])
    if isinstance(node, plan.ChangelogJoin):
        return msgspec.structs.replace(node, left=narrowed(node.left), right=narrowed(node.right))
    if isinstance(node, (plan.Source, plan.ViewSource)):
        return node
    return msgspec.structs.replace(node, input=narrowed(node.input, read))


def _side(node: plan.Node, alias: str, read: frozenset[str] | None) -> plan.Node:
    """An input of a join, of whose rows ``read`` is read above, or to find the other side's."""
    columns = _columns(node)
    if read is None or columns is None:
        return narrowed(node)
    # The names of a key's columns are without the prefix, and so may be those of others.
    kept = [c for c in columns if c in read or (f"{alias}.{c}" if alias else c) in read]
    if isinstance(node, plan.Project):
        return narrowed(msgspec.structs.replace(node, columns=[e for e in node.columns if e.name in kept]))
    below = narrowed(node, frozenset(kept))
    return below if kept == columns else plan.Project(below, [plan.Expr(c, quote_spark(c)) for c in kept])


def _columns(node: plan.Node) -> list[str] | None:
    """The columns that a step gives, None where it is none of those that joins mostly read."""
    match node:
        case plan.Source() | plan.ViewSource():
            return [c.name for c in node.columns]
        case plan.Project():
            return [e.name for e in node.columns]
        case plan.Filter():
            return _columns(node.input)
        case plan.Windows():
            below = _columns(node.input)
            bounds = plan.WINDOW_BOUNDS
            return None if below is None else [*(c for c in below if c not in bounds), *bounds]
        case plan.IntervalJoin() | plan.TemporalJoin() | plan.StreamJoin():
            sides = [(_columns(node.left), node.left_alias), (_columns(node.right), node.right_alias)]
            if any(columns is None for columns, _ in sides):
                return None
            return [f"{alias}.{c}" if alias else c for columns, alias in sides for c in columns or ()]
        case _:
            return None


def _names(node: plan.Node) -> frozenset[str]:
    """The names that a step itself says, of columns and of other things."""
    own = {f: getattr(node, f) for f in node.__struct_fields__ if f not in _INPUTS}
    return frozenset(n for text in _texts(msgspec.to_builtins(own)) for n in (text, *_quoted(text)))


def _quoted(text: str) -> Iterable[str]:
    return (n.replace("``", "`") for n in _NAME.findall(text) if n)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _texts(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _texts(v)
