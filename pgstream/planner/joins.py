"""Joins: two streams by key and time apart (WITHIN) or by window, a stream with a changelog's version, two changelogs.

Owns: which joins there are, the ON clause (equalities, their sides in either order, and what else it says), aliases and
prefixes. Must not know: how sources are made, GROUP BY. Start reading at ``join``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import not_
from typing import NamedTuple

from sqlglot import exp

from pgstream.errors import InvalidStatement, NotSupported, NotYet, PgStreamError
from pgstream.planner import comparisons, infer, nulls, plan, using
from pgstream.planner.bind import Column, Scope, at
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.steps import Bounds, Step, retracting, watermarked
from pgstream.planner.using import Pair
from pgstream.sql.select import fold

_ONE = "Join on left.column = right.column; put the rest into WHERE."
_FORM = "Write FROM a JOIN b WITHIN n SECONDS ON a.column = b.column; without WITHIN where b is a changelog."
_HOW = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


class Link(NamedTuple):
    """An equality of WHERE, and the first names of its columns: of relations, or else of the columns themselves."""

    part: exp.Expr
    names: Collection[str]


@dataclass(frozen=True, slots=True)
class On:
    """An ON clause: equalities of an expression of each side, as they are written, and its other conditions."""

    keys: list[Pair]
    rest: list[exp.Expr]
    written: list[exp.Expr] = field(default_factory=list)


def join(
    node: exp.Join,
    one: tuple[Step, Scope],
    two: tuple[Step, Scope],
    *,
    expires: bool = False,
    links: Sequence[Link] = (),
) -> tuple[Step, Scope]:
    """The join of what is built so far with one more relation. ``expires``: its state has a time to live. ``links``:
    the equalities of WHERE, which say what relations with a comma between them are joined on.

    Errors: NotYet, NotSupported, InvalidStatement.
    """
    (left, left_scope), (right, right_scope) = one, two
    alone = _of_one_row(left, right)
    if links and not alone:
        node = _with_where(node, links, one, two)
    how = _how(node, alone)
    names = using.names(node, left_scope.columns, right_scope.columns)
    shared = using.pairs(names, left_scope, right_scope)
    if how == "right":
        # The same with the sides exchanged; columns stay in the order of the text.
        turned = [(two, one) for one, two in shared]
        step, scope = _joined(node, two, one, ("left", expires), turned)
        scope = replace(scope, items=(*scope.items[1:], scope.items[0]))
    else:
        step, scope = _joined(node, one, two, (how, expires), shared)
    if not names:
        return step, scope
    declared = bool(left.key and right.key) and not (left.stateful or right.stateful)
    if how == "full":
        declared = declared and all(nulls.given(left.node, a.sql) or nulls.given(right.node, b.sql) for a, b in shared)
    return using.merged((step, scope), names, (left_scope, right_scope), how, declared)


def links(where: exp.Expr | None) -> list[Link]:
    """The equalities of WHERE that may link relations. Told apart once for all joins of a select: there may be many."""
    found = []
    for part in [] if where is None else _parts(where):
        if isinstance(part, exp.EQ) and not part.find(exp.Query):
            found.append(Link(part, {fold(c.args.get("table") or c.this) for c in part.find_all(exp.Column)}))
    return found


def _with_where(node: exp.Join, links: Sequence[Link], one: tuple[Step, Scope], two: tuple[Step, Scope]) -> exp.Join:
    """An inner join with equalities of WHERE in its ON: all of them where it says nothing of its rows, as a comma does
    not, and where it names a part of a version's key those of the other part. WHERE stays what it was above it.
    """
    on, kind = node.args.get("on"), str(node.args.get("kind") or "")
    common = node.args.get("using") or node.args.get("method") or node.args.get("side")
    if common or kind not in ("", "INNER", "CROSS"):
        return node
    (left, left_scope), (right, right_scope) = one, two
    key = _version_key(node, left, right)
    if on is not None:
        given = [_pair(p, left_scope, right_scope) for p in _parts(on)]
        key -= {pair[1].sql for pair in given if pair is not None}
    # What both sides have names neither without a qualifier.
    own = {c.name for c in right_scope.columns} - {c.name for c in left_scope.columns}
    own |= {i.alias for i in right_scope.items}
    met = []
    for part, names in links:
        if own.isdisjoint(names):
            continue
        pair = _pair(part, left_scope, right_scope)
        if _constant(part, right_scope, key) or (pair is not None and (on is None or pair[1].sql in key)):
            met.append(part)
    if not met:
        return node
    met = met if on is None else [on.unnest(), *met]
    made = exp.Join(**{**node.args, "kind": None, "on": exp.and_(*met, wrap=False)})
    made.meta.update(node.meta)
    return made


def _joined(
    node: exp.Join, one: tuple[Step, Scope], two: tuple[Step, Scope], kind: tuple[str, bool], shared: list[Pair]
) -> tuple[Step, Scope]:
    """The inner, left or full join of two sides. ``kind``: which, and whether its state has a time to live.
    ``shared``: the equalities of USING.
    """
    how, expires = kind
    (left, left_scope), (right, right_scope) = one, two
    made: plan.Node
    alone = _of_one_row(left, right)
    key = _version_key(node, left, right)
    on = On(shared or _meets(node, alone), [])
    if node.args.get("on"):
        on = _on(node, left_scope, right_scope, alone, key)
    apart = _apart(node, left, right, on)
    if left.mode == "append" and right.kind == "changelog" and apart is None:
        on = _by_key(on, right)
    unbounded = expires and apart is None and all(_kept(s) for s in (left, right))
    if not unbounded:
        _check(node, left, right, apart, on)
    left_alias, right_alias = using.prefix(left_scope), using.prefix(right_scope)
    scope = left_scope.join(right_scope, left_alias, right_alias)
    columns, theirs = scope.every, {c.field for i in scope.items[len(left_scope.items) :] for c in i.columns}
    others = _others(on, scope) if on.rest else None
    if unbounded:
        made = plan.StreamJoin(left.node, right.node, how, on.keys, left_alias, right_alias,
                               None if how == "inner" else others)  # fmt: skip
        step = Step(made, columns, joined=True, stateful=True, placed=False)
        if plan.mode(made) == "retract":
            step = replace(step, mode="retract", kind="changelog", keyless=True)
        return (_met(step, how, others, ()) if how == "inner" else step), scope
    if left.mode != "append":
        if others is not None and how == "left" and (own := _own(on, right_scope)) is not None:
            # What does not meet a condition on the right side alone is, for the join, not there.
            right, others = replace(right, node=plan.Filter(right.node, own)), None
        changes = _changelogs(left, right, plan.ChangelogJoin(
            retracting(left).node, retracting(right).node, how, on.keys, left_alias, right_alias
        ), columns)  # fmt: skip
        single = how == "left" and _names_one(right, on.keys)
        return _met(changes, how, others, theirs if single else set()), scope
    inputs = watermarked(left.node), watermarked(right.node)
    bounds = _bounds(how, left.bounds.renamed(lambda f: _prefix(left_alias, f)),
                     right.bounds.renamed(lambda f: _prefix(right_alias, f)))  # fmt: skip
    if apart is None:
        _check_versions(node, how, on.keys, right)
        made = plan.TemporalJoin(*inputs, how, on.keys, left_alias, right_alias)
    else:
        behind = apart + 1 if how != "inner" or left.bounds.known or right.bounds.known else 0
        made = plan.IntervalJoin(*inputs, how, apart, *on.keys[0], left_alias, right_alias, on.keys[1:],
                                 None if how == "inner" else others, by_key=True, behind_ms=behind)  # fmt: skip
    # The event time of a temporal join is the left row's.
    times = frozenset(_prefix(left_alias, t) for t in left.times) if apart is None else frozenset()
    step = Step(made, columns, joined=True, stateful=True, placed=False, times=times, bounds=bounds)
    return (step if how != "inner" and apart is not None else _met(step, how, others, theirs)), scope


def _kept(side: Step) -> bool:
    """Whether a side's rows may be joined for their time to live, however far apart: a stream's, or such a join's that
    may be taken back; but not those of a window, which ends.
    """
    return not side.bounds.known and (side.is_plain or (side.mode == "retract" and side.keyless))


def _met(step: Step, how: str, condition: plan.Expr | None, theirs: Collection[str]) -> Step:
    """The joined rows that meet a further condition of ON. ``theirs``: the right side's fields, where a left row meets
    one right row at most; in an outer join these are NULL where the condition is not met.
    """
    if condition is None:
        return step
    if how == "inner":
        return replace(step, node=plan.Filter(step.node, condition))
    if not theirs:
        raise NotYet(what="an outer join on other than equalities", at=condition.at, hint=_ONE)
    columns = [
        plan.Expr(c.field, f"if({condition.sql}, {c.sql}, null)" if c.field in theirs else c.sql, condition.at)
        for c in step.columns
    ]
    return replace(step, node=plan.Project(step.node, columns))


def _own(on: On, right: Scope) -> plan.Expr | None:
    """The further conditions of ON over the right side's rows; None where they read the left one's too."""
    try:
        compiler = Compiler(right, "ON")
        return plan.Expr("on", " AND ".join(compiler.condition(c, "JOIN/ON") for c in on.rest), at(on.rest[0]))
    except PgStreamError:
        return None


def _others(on: On, scope: Scope) -> plan.Expr:
    """What ON says beside its equalities."""
    compiler = Compiler(scope, "ON")
    return plan.Expr("on", " AND ".join(compiler.condition(c, "JOIN/ON") for c in on.rest), at(on.rest[0]))


def _bounds(how: str, left: Bounds, right: Bounds) -> Bounds:
    """The window that the joined rows are of. On a side that may be missing its bounds may be NULL."""
    if how != "full" and left.known:
        return left
    return right if how == "inner" else Bounds()


def _apart(node: exp.Join, left: Step, right: Step, on: On) -> int | None:
    """How far apart in event time matching rows may be; None for a join with versions.

    Rows of one window are no further apart than the window is long: such a join needs no WITHIN.
    """
    if "within" in node.this.meta:
        return int(node.this.meta["within"][0])
    if left.mode != "append" or right.mode != "append" or not left.bounds.span_ms or not right.bounds.span_ms:
        return None
    pairs = {(a.sql, b.sql) for a, b in on.keys}
    names = [(left.bounds.start, right.bounds.start), (left.bounds.end, right.bounds.end)]
    same = [bool(a and b) and (Column(a, a).sql, Column(b, b).sql) in pairs for a, b in names]
    alike = bool(left.bounds.size_ms) and left.bounds.size_ms == right.bounds.size_ms
    return max(left.bounds.span_ms, right.bounds.span_ms) if all(same) or (alike and any(same)) else None


def _changelogs(left: Step, right: Step, made: plan.ChangelogJoin, columns: tuple[Column, ...]) -> Step:
    """Its key is that of both sides; that of the left one alone where each of its rows meets at most one."""
    single = made.how != "full" and _names_one(right, made.keys)
    key = [_prefix(made.left_alias, k) for k in left.key]
    key += [] if single else [_prefix(made.right_alias, k) for k in right.key]
    ambiguous = left.ambiguous or right.ambiguous or (made.how == "full" and not _told_apart(left, right))
    return Step(made, columns, "retract", "changelog", tuple(key), joined=True, stateful=True, placed=False,
                ambiguous=ambiguous)  # fmt: skip


def _told_apart(left: Step, right: Step) -> bool:
    """Whether the keys of a FULL join tell a row of the left side alone from one of the right side alone, which they do
    not where both are NULL.
    """
    return any(nulls.filled(side.node, k) for side in (left, right) for k in side.key)


def _of_one_row(left: Step, right: Step) -> bool:
    """Whether they are changelogs, one of which has a single row: it may meet every row of the other."""
    if left.mode == "append" or right.mode == "append":
        return False
    return any(not s.key and not s.keyless and not s.ambiguous for s in (left, right))


def _meets(node: exp.Join, alone: bool) -> list[Pair]:
    """The equality of a join that asks for none: it holds for all rows."""
    return [(plan.Expr("key", "1", at(node)), plan.Expr("key", "1", at(node)))] if alone else []


def _names_one(right: Step, keys: list[Pair]) -> bool:
    """Whether a join names the whole key of its right side, so that each left row meets one row at most."""
    return {Column(k, k).sql for k in right.key} <= {b.sql for _, b in keys}


def _prefix(alias: str, field: str) -> str:
    return f"{alias}.{field}" if alias else field


def _how(node: exp.Join, alone: bool) -> str:
    """Which join it is. ``alone``: one side has a single row, so that it needs no ON."""
    side, kind = str(node.args.get("side") or ""), str(node.args.get("kind") or "")
    common = node.args.get("on") or node.args.get("using") or node.args.get("method")
    if not alone and (kind == "CROSS" or (not common and "within" not in node.this.meta)):
        raise NotSupported(what="a join without ON", at=at(node), hint=_FORM)
    if kind not in ("", "INNER", "OUTER", "CROSS"):
        raise NotYet(what=f"{kind} JOIN", at=at(node))
    return _HOW[side]


def _check(node: exp.Join, left: Step, right: Step, apart: int | None, on: On) -> None:
    if left.mode != "append" and right.kind != "changelog":
        outer = "A row of the changelog without a match would have to wait for the end of the stream."
        raise NotSupported(
            what="a join of a changelog with a stream", at=at(node), detail=outer if node.args.get("side") else None,
            hint="Exchange the two: stream [LEFT] JOIN changelog.",
        )  # fmt: skip
    if left.mode != "append" and (left.keyless or right.keyless):
        raise NotYet(what="a join of changelogs without their keys", at=at(node))
    versions = right.kind == "changelog" and right.mode != "append"
    if right.kind != "changelog" and apart is None:
        raise InvalidStatement(
            what="a join of two streams needs WITHIN", at=at(node),
            hint="Add WITHIN n SECONDS after the right stream, declare it as a changelog, or end with"
            " QUERY WITH ('state.ttl.millis' = n): rows of both are kept for that long.",
        )  # fmt: skip
    if versions and "within" in node.this.meta:
        raise InvalidStatement(
            what="WITHIN is for a join of two streams", at=node.this.meta["within"][1],
            hint="A changelog is joined as it was at the left row's event time.",
        )  # fmt: skip
    if not on.keys:
        raise InvalidStatement(what="a join needs ON", at=at(node), hint="Write ON left.column = right.column.")


def _check_versions(node: exp.Join, how: str, keys: list[Pair], right: Step) -> None:
    """The right side of a temporal join is looked up by its whole key, which names one row at a time."""
    if how == "full":
        raise NotSupported(what="FULL JOIN of a stream with a changelog", at=at(node))
    wanted, given = {Column(k, k).sql for k in right.key}, {b.sql for _, b in keys}
    if not right.key or wanted != given:
        listed = ", ".join(right.key) or "none"
        hint = "Declare its topic as a changelog with the key that is joined on."
        if right.mode == "append":
            hint = "Write WITHIN n SECONDS before ON: a window's row has the window's end as its time."
        elif right.stateful:
            hint = "Join on its whole key, or group it by the columns that are joined on."
        raise NotSupported(
            what="a join with a changelog on other than its primary key", at=at(node.args.get("on")) or at(node),
            detail=f"Its key: {listed}.", hint=hint,
        )  # fmt: skip


def _on(node: exp.Join, left: Scope, right: Scope, alone: bool, key: Collection[str]) -> On:
    """``key``: the columns that name a version of the right side, where constants may stand for some of them."""
    parts = _parts(node.args["on"])
    pairs = [_pair(p, left, right) for p in parts]
    missing = set(key) - {pair[1].sql for pair in pairs if pair is not None}
    fixed = [_constant(p, right, missing) if pair is None else pair for p, pair in zip(parts, pairs, strict=True)]
    if missing <= {pair[1].sql for pair in fixed if pair is not None}:
        pairs = fixed
    keys = [p for p in pairs if p is not None]
    if not keys and alone:
        return On(_meets(node, alone), [p for p in parts if not _is_true(p)])
    if not keys:
        if not isinstance(parts[0], exp.EQ):
            raise NotYet(what="a join on other than an equality", at=at(parts[0]) or at(node), hint=_ONE)
        _explain(parts[0], left, right)
        raise NotSupported(what="a join condition on one side only", at=at(parts[0]),
                           hint="ON compares a column of each relation.")  # fmt: skip
    given = [pair is not None for pair in pairs]
    return On(keys, [*compress(parts, map(not_, given))], [*compress(parts, given)])


def _parts(condition: exp.Expr) -> list[exp.Expr]:
    """The conditions that must all be met."""
    condition = condition.unnest()
    conditions = condition.flatten() if isinstance(condition, exp.And) else [condition]
    return [part for c in conditions for part in comparisons.apart(c.unnest())]


def _version_key(node: exp.Join, left: Step, right: Step) -> set[str]:
    """The columns that name a version of a changelog which a stream is joined with; none in any other join."""
    versions = left.mode == "append" and right.mode != "append" and "within" not in node.this.meta
    return {Column(k, k).sql for k in right.key} if versions else set()


def _constant(condition: exp.Expr, right: Scope, wanted: Collection[str]) -> Pair | None:
    """The equality of one of the wanted columns with a constant; None for any other condition."""
    if not isinstance(condition, exp.EQ):
        return None
    for one, two in ((condition.this, condition.expression), (condition.expression, condition.this)):
        if not _is_constant(one) or not isinstance(two.unnest(), exp.Column) or not _is_of(two, right, wanted):
            continue
        value, column = Compiler(right, "ON").compare(one, "=", two)
        if column.type is None:
            continue
        sql, literal = value.sql, one.unnest()
        if not infer.can_match(value.type, column.type):
            if not isinstance(literal, exp.Literal) or not literal.is_string:
                continue
            sql = f"cast({sql} as {column.type.spark})"
        return plan.Expr("key", sql, at(one)), plan.Expr("key", column.sql, at(two))
    return None


def _is_of(value: exp.Expr, scope: Scope, wanted: Collection[str]) -> bool:
    """Whether a column is one of the wanted ones of a relation."""
    try:
        return Compiler(scope, "ON").compile(value).sql in wanted
    except PgStreamError:
        return False


def _is_constant(value: exp.Expr) -> bool:
    value = value.unnest()
    inner = value.this if isinstance(value, exp.Neg | exp.Cast) else value
    return isinstance(inner, exp.Literal | exp.Boolean)


def _by_key(on: On, right: Step) -> On:
    """Of a temporal join's equalities those that name the version; of other columns they are conditions as others."""
    wanted = {Column(k, k).sql for k in right.key}
    if not on.written or not wanted < {b.sql for _, b in on.keys}:
        return on
    names = [b.sql in wanted for _, b in on.keys]
    return On([*compress(on.keys, names)], [*on.rest, *compress(on.written, map(not_, names))])


def _is_true(condition: exp.Expr) -> bool:
    return isinstance(condition, exp.Boolean) and bool(condition.this)


def _pair(condition: exp.Expr, left: Scope, right: Scope) -> Pair | None:
    """The two sides of an equality of both relations; None for any other condition."""
    if not isinstance(condition, exp.EQ):
        return None
    one, two = condition.this, condition.expression
    if (sides := _sides(one, two, left, right)) is None and (sides := _sides(two, one, left, right)) is None:
        return None
    on_left, on_right = sides
    comparisons.check_fields("=", (one, on_left[0]), (two, on_right[0]))
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
