"""Which columns of a plan's output can hold no NULL, as far as that is plain.

Owns: what follows from the declarations of the sources. A NULL in what was declared NOT NULL, or a primary key, breaks
that declaration. Must not know: sinks, Spark. Start reading at ``filled``.
"""

from __future__ import annotations

import re

from pgstream.planner import plan

_PLAIN = re.compile(r"`((?:[^`]++|``)++)`")


def filled(node: plan.Node, name: str) -> bool:
    """Whether output column ``name`` of a step is a source's that is declared so, or the bound of a window."""
    match node:
        case plan.Source() | plan.ViewSource():
            return any(c.name == name and not c.nullable for c in node.columns)
        case plan.Project():
            return _of(node.input, node.columns, name)
        case plan.Aggregate() | plan.ChangeAggregate():
            if node.window is not None and name in plan.WINDOW_BOUNDS:
                return True
            return _of(node.input, node.group, name)
        case plan.Windows():
            return name in plan.WINDOW_BOUNDS or filled(node.input, name)
        case plan.Filter() | plan.Normalize():
            return filled(node.input, name)
        case plan.ChangelogJoin():
            sides = {"inner": [(node.left, node.left_alias), (node.right, node.right_alias)],
                     "left": [(node.left, node.left_alias)], "full": []}[node.how]  # fmt: skip
            return any(_at_side(side, alias, name) for side, alias in sides)
        case _:
            return False


def _at_side(node: plan.Node, alias: str, name: str) -> bool:
    """Whether the column of a join is that side's, and filled there."""
    prefix = f"{alias}." if alias else ""
    return name.startswith(prefix) and filled(node, name.removeprefix(prefix))


def _of(node: plan.Node, columns: list[plan.Expr], name: str) -> bool:
    """Whether the column is one of the input's, and filled there."""
    return given(node, next((c.sql for c in columns if c.name == name), ""))


def given(node: plan.Node, sql: str) -> bool:
    """Whether an expression over a step is one of its columns, and filled there."""
    found = _PLAIN.fullmatch(sql)
    return found is not None and filled(node, found[1].replace("``", "`"))
