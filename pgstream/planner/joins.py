"""Interval joins: two streams, equal keys, event times at most WITHIN apart.

Owns: which joins there are, the ON clause (one equality, its sides in either order), aliases and prefixes.
Must not know: how sources are made, GROUP BY. Start reading at ``join``.
"""

from __future__ import annotations

from sqlglot import exp

from pgstream.errors import InvalidStatement, NotSupported, NotYet, PgStreamError
from pgstream.planner import plan
from pgstream.planner.bind import Scope, at
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.steps import Step, watermarked

_HOW = {"": "inner", "LEFT": "left", "FULL": "full"}


def join(left: Step, left_scope: Scope, node: exp.Join, right: Step, right_scope: Scope) -> tuple[Step, Scope]:
    """The join of what is built so far with one more relation. Errors: NotYet, NotSupported, InvalidStatement."""
    how = _how(node)
    within = _within(node, left, left_scope, right, right_scope)
    # A chain is joined from the left: what is joined already keeps its prefixes, and gets none more.
    left_alias = "" if left_scope.joined else left_scope.items[0].alias
    right_alias = right_scope.items[0].alias
    scope = left_scope.join(right_scope, left_alias, right_alias)
    left_key, right_key = _keys(node, left_scope, right_scope)
    made = plan.IntervalJoin(
        watermarked(left.node), watermarked(right.node), how, within, left_key, right_key, left_alias, right_alias
    )
    columns = tuple(c for i in scope.items for c in i.columns)
    return Step(made, columns, joined=True, stateful=True, placed=False), scope


def _how(node: exp.Join) -> str:
    side, kind = str(node.args.get("side") or ""), str(node.args.get("kind") or "")
    if node.args.get("method"):
        raise NotYet(what=f"{node.args['method']} JOIN", at=at(node))
    if side == "RIGHT":
        raise NotSupported(what="RIGHT JOIN", at=at(node), hint="Exchange the two relations and use LEFT JOIN.")
    if kind == "CROSS" or (not node.args.get("on") and not node.args.get("using") and "within" not in node.this.meta):
        raise NotSupported(what="a join without ON", at=at(node))
    if node.args.get("using"):
        raise NotYet(what="JOIN … USING", at=at(node), hint="Write ON left.column = right.column.")
    if kind not in ("", "INNER", "OUTER"):
        raise NotYet(what=f"{kind} JOIN", at=at(node))
    return _HOW[side]


def _within(node: exp.Join, left: Step, left_scope: Scope, right: Step, right_scope: Scope) -> int:
    for scope in (left_scope, right_scope):
        if scope.window is not None:
            raise NotYet(what="a join with a window", at=scope.window.at)
    if not right.is_plain:
        raise NotYet(what="a join with a changelog", at=at(node), detail="Temporal joins are planned.")
    if not left.is_plain:
        raise NotYet(what="a join whose left side is a changelog", at=at(node))
    if "within" not in node.this.meta:
        raise InvalidStatement(
            what="a join of two streams needs WITHIN", at=at(node),
            hint="Add WITHIN n SECONDS after the right stream, or declare it as a changelog.",
        )  # fmt: skip
    if not node.args.get("on"):
        raise InvalidStatement(what="a join needs ON", at=at(node), hint="Write ON left.column = right.column.")
    return int(node.this.meta["within"][0])


def _keys(node: exp.Join, left: Scope, right: Scope) -> tuple[plan.Expr, plan.Expr]:
    condition = node.args["on"].unnest()
    if not isinstance(condition, exp.EQ):
        what = "a join on several conditions" if isinstance(condition, exp.And) else "a join on other than an equality"
        raise NotYet(what=what, at=at(condition), hint="Join on left.column = right.column; put the rest into WHERE.")
    one, two = condition.this, condition.expression
    if (sides := _sides(one, two, left, right)) is None and (sides := _sides(two, one, left, right)) is None:
        _explain(condition, left, right)
        raise NotSupported(what="a join condition on one side only", at=at(condition),
                           hint="ON compares a column of each relation.")  # fmt: skip
    on_left, on_right = sides
    return plan.Expr("key", on_left[0].sql, on_left[1]), plan.Expr("key", on_right[0].sql, on_right[1])


def _sides(
    one: exp.Expr, two: exp.Expr, left: Scope, right: Scope
) -> tuple[tuple[Typed, int | None], tuple[Typed, int | None]] | None:
    if not one.find(exp.Column) or not two.find(exp.Column):
        return None
    try:
        return (Compiler(left, "ON").compile(one), at(one)), (Compiler(right, "ON").compile(two), at(two))
    except PgStreamError:
        return None


def _explain(condition: exp.Expr, left: Scope, right: Scope) -> None:
    """Raise what is wrong with a name of the condition, seen from both relations together."""
    both = Scope(left.items + right.items, joined=True)
    for column in condition.find_all(exp.Column):
        both.column(column)
