"""GROUPING SETS, ROLLUP and CUBE: which expressions are grouped, and which of them each set groups by.

Owns: expanding the clause to plain sets, their marks (one bit an expression, set where it is not grouped by, the first
expression's the highest), GROUPING and GROUPING_ID. Must not know: scopes, aggregates. Start reading at ``expanded``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import prod

from sqlglot import exp

from pgstream.errors import GroupingError, NotSupported, NotYet
from pgstream.planner.bind import at

_MOST = 64
_Set = tuple[exp.Expr, ...]


def has_sets(clause: exp.Group | None) -> bool:
    return clause is not None and any(_is_sets(e) for e in clause.expressions)


def is_call(node: exp.Expr) -> bool:
    """Whether the node is GROUPING(…) or GROUPING_ID(…)."""
    return isinstance(node, exp.Anonymous) and str(node.this).upper() in ("GROUPING", "GROUPING_ID")


def _is_sets(node: exp.Expr) -> bool:
    return isinstance(node, exp.GroupingSets | exp.Rollup | exp.Cube)


def expanded(clause: exp.Group) -> tuple[list[exp.Expr], list[set[int]]]:
    """The items of GROUP BY in the order of the text, and the sets as their positions. Errors: NotSupported, NotYet."""
    if prod(map(_count, clause.expressions)) > _MOST:
        raise NotSupported(what=f"a GROUP BY of more than {_MOST} grouping sets", at=at(clause))
    parts = [_sets(e) if _is_sets(e) else [unit(e)] for e in clause.expressions]
    sets = [tuple(i for one in chosen for i in one) for chosen in product(*parts)]
    items: list[exp.Expr] = []
    for one in sets:
        items += [i for i in one if i not in items]
    items.sort(key=lambda i: at(i) or 0)
    places = [{items.index(i) for i in one} for one in sets]
    if any(places.count(p) > 1 for p in places):
        raise NotYet(what="the same grouping set twice", at=at(clause))
    return items, places


def _count(node: exp.Expr) -> int:
    """How many sets an element of GROUP BY stands for: of a CUBE there are more than can be made."""
    if isinstance(node, exp.Rollup):
        return len(node.expressions) + 1
    if isinstance(node, exp.Cube):
        return 1 << len(node.expressions)
    return sum(map(_count, node.expressions)) if isinstance(node, exp.GroupingSets) else 1


def _sets(node: exp.Expr) -> list[_Set]:
    units = [unit(e) for e in node.expressions]
    if isinstance(node, exp.Rollup):
        return [_joined(units[:n]) for n in range(len(units), -1, -1)]
    if isinstance(node, exp.Cube):
        return [_joined(c) for n in range(len(units), -1, -1) for c in combinations(units, n)]
    return [s for e in node.expressions for s in (_sets(e) if _is_sets(e) else [unit(e)])]


def unit(node: exp.Expr) -> _Set:
    """One element: an expression, or several in parentheses, or in parentheses of these."""
    node = node.unnest()
    return tuple(i for e in node.expressions for i in unit(e)) if isinstance(node, exp.Tuple) else (node,)


def _joined(units: Sequence[_Set]) -> _Set:
    return tuple(i for u in units for i in u)


def marks(places: Sequence[set[int]], count: int) -> list[int]:
    """The mark of each set of ``count`` expressions."""
    return [sum(1 << (count - 1 - i) for i in range(count) if i not in one) for one in places]


def grouping(name: str, places: Sequence[int | None], count: int, marker: str, node: exp.Expr) -> str:
    """GROUPING(a) or GROUPING_ID(a, …) in Spark SQL: the bits of the expressions at ``places``."""
    if not places or any(p is None for p in places) or (name == "GROUPING" and len(places) > 1):
        raise GroupingError(what=f"arguments to {name} must be grouping expressions", at=at(node))
    if list(places) == list(range(count)):
        return marker
    bits = [f"shiftleft(shiftright({marker}, {count - 1 - p}) & 1, {len(places) - 1 - i})"
            for i, p in enumerate(places) if p is not None]  # fmt: skip
    return "(" + " + ".join(bits) + ")"
