"""Joins: two streams by key and time apart (WITHIN), a stream with the version of a changelog, two changelogs.

Owns: which joins there are, the ON clause (equalities, their sides in either order), aliases and prefixes.
Must not know: how sources are made, GROUP BY. Start reading at ``join``.
"""

from __future__ import annotations

from sqlglot import exp

from pgstream.catalog.records import RelationRecord
from pgstream.errors import InvalidStatement, NotSupported, NotYet, PgStreamError
from pgstream.planner import plan
from pgstream.planner.bind import Column, Scope, at
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.steps import Step, retracting, watermarked

Pair = tuple[plan.Expr, plan.Expr]
_ONE = "Join on left.column = right.column; put the rest into WHERE."
_HOW = {"": "inner", "LEFT": "left", "FULL": "full"}


def join(left: Step, left_scope: Scope, node: exp.Join, right: Step, right_scope: Scope) -> tuple[Step, Scope]:
    """The join of what is built so far with one more relation. Errors: NotYet, NotSupported, InvalidStatement."""
    how = _how(node)
    _check(node, left, left_scope, right, right_scope)
    # A chain is joined from the left: what is joined already keeps its prefixes, and gets none more.
    left_alias = "" if left_scope.joined else left_scope.items[0].alias
    right_alias = right_scope.items[0].alias
    scope = left_scope.join(right_scope, left_alias, right_alias)
    keys = _keys(node, left_scope, right_scope)
    columns = tuple(c for i in scope.items for c in i.columns)
    if left.mode != "append":
        return _changelogs(left, right, plan.ChangelogJoin(
            retracting(left).node, retracting(right).node, how, keys, left_alias, right_alias
        ), columns), scope  # fmt: skip
    inputs = watermarked(left.node), watermarked(right.node)
    made: plan.Node
    if right.kind == "changelog":
        _check_versions(node, how, keys, right)
        made = plan.TemporalJoin(*inputs, how, keys, left_alias, right_alias)
    else:
        if len(keys) > 1:
            raise NotYet(what="a join on several conditions", at=at(node.args["on"]), hint=_ONE)
        within = int(node.this.meta["within"][0])
        made = plan.IntervalJoin(*inputs, how, within, *keys[0], left_alias, right_alias)
    return Step(made, columns, joined=True, stateful=True, placed=False), scope


def lookup(
    left: Step, left_scope: Scope, node: exp.Join, view: RelationRecord, right_scope: Scope
) -> tuple[Step, Scope]:
    """The join of a stream with a materialized view, as the view is when a row comes by."""
    how = _how(node)
    if left_scope.window is not None:
        raise NotYet(what="a join with a window", at=left_scope.window.at)
    if left.mode != "append":
        raise NotYet(what="a join of a changelog with a materialized view", at=at(node))
    if how == "full" or "within" in node.this.meta or not node.args.get("on"):
        raise NotSupported(
            what="this join with a materialized view", at=at(node),
            hint="Write stream [LEFT] JOIN view ON stream.column = view.column.",
        )  # fmt: skip
    left_alias, right_alias = "" if left_scope.joined else left_scope.items[0].alias, right_scope.items[0].alias
    names = {Column(c.name, c.name).sql: c.name for c in view.columns}
    keys = _keys(node, left_scope, right_scope)
    if any(b.sql not in names for _, b in keys):
        raise NotYet(what="a join with an expression of a materialized view", at=at(node.args["on"]))
    scope = left_scope.join(right_scope, left_alias, right_alias)
    columns = tuple(c for i in scope.items for c in i.columns)
    declared = [plan.Column(c.name, str(c.type)) for c in view.columns]
    pairs = [(a, names[b.sql]) for a, b in keys]
    made = plan.Lookup(left.node, str(view.full), view.full.database, declared, how, pairs, left_alias, right_alias)
    times = frozenset(_prefix(left_alias, t) for t in left.times)
    return Step(made, columns, joined=True, stateful=left.stateful, placed=False, times=times), scope


def _changelogs(left: Step, right: Step, made: plan.ChangelogJoin, columns: tuple[Column, ...]) -> Step:
    """Its key is that of both sides; that of the left one alone where each of its rows meets at most one."""
    on_right = {b.sql for _, b in made.keys}
    single = made.how != "full" and {Column(k, k).sql for k in right.key} <= on_right
    key = [_prefix(made.left_alias, k) for k in left.key]
    key += [] if single else [_prefix(made.right_alias, k) for k in right.key]
    return Step(made, columns, "retract", "changelog", tuple(key), joined=True, stateful=True, placed=False)


def _prefix(alias: str, field: str) -> str:
    return f"{alias}.{field}" if alias else field


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


def _check(node: exp.Join, left: Step, left_scope: Scope, right: Step, right_scope: Scope) -> None:
    for scope in (left_scope, right_scope):
        if scope.window is not None:
            raise NotYet(what="a join with a window", at=scope.window.at)
    if left.mode != "append" and right.kind != "changelog":
        raise NotSupported(
            what="a join of a changelog with a stream", at=at(node), hint="Exchange the two: stream JOIN changelog."
        )
    if left.mode != "append" and (left.keyless or right.keyless or not left.key or not right.key):
        raise NotYet(what="a join of changelogs without their keys", at=at(node))
    versions = right.kind == "changelog"
    if not versions and "within" not in node.this.meta:
        raise InvalidStatement(
            what="a join of two streams needs WITHIN", at=at(node),
            hint="Add WITHIN n SECONDS after the right stream, or declare it as a changelog.",
        )  # fmt: skip
    if versions and "within" in node.this.meta:
        raise InvalidStatement(
            what="WITHIN is for a join of two streams", at=node.this.meta["within"][1],
            hint="A changelog is joined as it was at the left row's event time.",
        )  # fmt: skip
    if not node.args.get("on"):
        raise InvalidStatement(what="a join needs ON", at=at(node), hint="Write ON left.column = right.column.")


def _check_versions(node: exp.Join, how: str, keys: list[Pair], right: Step) -> None:
    """The right side of a temporal join is looked up by its whole key, which names one row at a time."""
    if how == "full":
        raise NotSupported(what="FULL JOIN of a stream with a changelog", at=at(node))
    wanted, given = {Column(k, k).sql for k in right.key}, {b.sql for _, b in keys}
    if not right.key or wanted != given:
        listed = ", ".join(right.key) or "none"
        raise NotSupported(
            what="a join with a changelog on other than its primary key", at=at(node.args["on"]),
            detail=f"Its key: {listed}.", hint="Declare its topic as a changelog with the key that is joined on.",
        )  # fmt: skip


def _keys(node: exp.Join, left: Scope, right: Scope) -> list[Pair]:
    condition = node.args["on"].unnest()
    parts = condition.flatten() if isinstance(condition, exp.And) else [condition]
    return [_pair(p, left, right) for p in parts]


def _pair(condition: exp.Expr, left: Scope, right: Scope) -> Pair:
    condition = condition.unnest()
    if not isinstance(condition, exp.EQ):
        raise NotYet(what="a join on other than an equality", at=at(condition), hint=_ONE)
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
