"""Joins of a stream with bounded relations: PostgreSQL answers for each row of the stream when it comes by.

Owns: which such joins there are, ON and USING in PostgreSQL's words, a FROM that begins with the bounded relation.
Must not know: how a question is put together (``lookups``). Start reading at ``join`` and ``turned``.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from pgstream import types
from pgstream.errors import NotSupported, NotYet
from pgstream.planner import using
from pgstream.planner.bind import Column, Item, Scope, at
from pgstream.planner.bounded import Bounded, Env
from pgstream.planner.expressions import Compiler
from pgstream.planner.lookups import Lookup
from pgstream.planner.outputs import only
from pgstream.planner.slices import Range
from pgstream.planner.steps import Step
from pgstream.planner.store_lookups import StoreLookup
from pgstream.sql.select import fold

_LOOK_UP = "Write stream [LEFT] JOIN relation ON condition, or CROSS JOIN relation."
_HOW = {"": "inner", "LEFT": "left"}
_TURNED = {"": "", "RIGHT": "LEFT"}


def join(bounded: Bounded, left: Step, left_scope: Scope, node: exp.Join, env: Env) -> tuple[Step, Scope] | None:
    """The join of a stream with what is bounded, as it is when a row comes by; None for any other join."""
    item: exp.Expr = node.this
    inside = item.this if isinstance(item, exp.Lateral) else item
    if not isinstance(inside, (exp.Table, exp.Subquery, exp.Values)) or not _is_bounded(bounded, item, env):
        return None
    if left.mode != "append" and bounded.is_view(item, env):
        return None  # its changes are read
    where = bounded.slices.relation(node.meta["start"])[0]
    return _joined(bounded, (left, left_scope), node, env, item=item, where=where)


def turns(bounded: Bounded, first: exp.Expr, node: exp.Join, env: Env) -> bool:
    """Whether a FROM begins with a bounded relation that a join puts beside something else."""
    if not isinstance(first, (exp.Table, exp.Subquery)) or not _is_bounded(bounded, first, env):
        return False
    apart = "within" in node.this.meta
    return isinstance(node.this, (exp.Table, exp.Subquery)) and not apart and not _is_bounded(bounded, node.this, env)


def _is_bounded(bounded: Bounded, item: exp.Expr, env: Env) -> bool:
    return bounded.table(item, env) is not None or bounded.holds(item, env)


def turned(
    bounded: Bounded, first: exp.Expr, right: tuple[Step, Scope], node: exp.Join, env: Env
) -> tuple[Step, Scope]:
    """The same join with the stream before the bounded relation; its columns stay in the order of the text."""
    start = first.parts[0].meta["start"] if isinstance(first, exp.Table) else bounded.slices.inside(first.this)[0] - 1
    where = bounded.slices.first(start)
    side = _TURNED.get(str(node.args.get("side") or ""))
    if side is None:
        raise _never(node)
    # The words stay the client's: only what the join does is turned.
    again = exp.Join(**{**node.args, "side": side})
    again.meta.update(node.meta)
    step, scope = _joined(bounded, right, again, env, item=first, where=where)
    return step, replace(scope, items=scope.items[::-1])


def _joined(
    bounded: Bounded, rows: tuple[Step, Scope], node: exp.Join, env: Env, *, item: exp.Expr, where: Range
) -> tuple[Step, Scope]:
    """``item``: the bounded relation, which stands at ``where``."""
    left, left_scope = rows
    how = _how(node, item, left)
    name = _alias(item)
    found = _everything(bounded, left_scope, env, item, where)
    on = bounded.slices.relation(node.meta["start"])[1]
    if on is not None:
        found.on(on, node.args["on"], item)
    shared = _shared(node, left_scope, found, name)
    columns = found.columns()
    left_alias = using.prefix(left_scope)
    if not columns:
        raise NotSupported(what="a join with a relation without columns", at=at(node))
    mine = tuple(Column(c.name, c.name, types.parse(c.type)) for c in columns)
    scope = left_scope.join(Scope((Item(name, mine, at=at(item)),)), left_alias, name)
    made = found.step(left.node, columns, how, left_alias, name)
    times = frozenset(f"{left_alias}.{t}" if left_alias else t for t in left.times)
    out = scope.every
    bounds = left.bounds.renamed(lambda f: f"{left_alias}.{f}" if left_alias else f)
    step = Step(made, out, joined=True, stateful=left.stateful, placed=False, times=times, bounds=bounds)
    theirs = Scope((Item(name, mine),))
    return using.merged((step, scope), shared, (left_scope, theirs), how, False) if shared else (step, scope)


def _everything(bounded: Bounded, rows: Scope, env: Env, item: exp.Expr, where: Range) -> Lookup:
    """All that a bounded relation has, for rows of a stream."""
    if (table := bounded.table(item, env)) is not None:
        return StoreLookup(bounded, rows, table, item, _alias(item))
    found = Lookup(bounded, Compiler(rows, "ON"), env)
    found.words.say("SELECT * FROM ")
    found.cut(where, item if isinstance(item, exp.Lateral) else None, [item])
    return found


def _shared(node: exp.Join, rows: Scope, found: Lookup, name: str) -> list[exp.Column]:
    """The columns of USING or NATURAL, and their condition said in the words."""
    if not node.args.get("using") and not node.args.get("method"):
        return []
    theirs = [Column(c.name, c.name, types.parse(c.type)) for c in found.columns()]
    shared = using.names(node, rows.columns, theirs)
    using.pairs(shared, rows, Scope((Item(name, tuple(theirs)),)))
    found.require([found.equal(name, c) for c in shared])
    return shared


def _alias(item: exp.Expr) -> str:
    alias = item.args.get("alias")
    if isinstance(alias, exp.TableAlias) and alias.this is not None:
        return fold(alias.this)
    if isinstance(item, exp.Table):
        return fold(item.this)
    raise NotYet(what="a query in FROM without a name", at=at(item), hint="Give it one: (SELECT …) AS name.")


def _how(node: exp.Join, item: exp.Expr, left: Step) -> str:
    """inner or left. Errors: NotYet, NotSupported."""
    side, kind = str(node.args.get("side") or ""), str(node.args.get("kind") or "")
    if isinstance(item, exp.Table):
        only(item, "this", "db", "catalog", "alias")
    if left.mode != "append":
        raise NotYet(
            what="a join of a changelog with a bounded relation", at=at(node),
            detail="When a row is taken back later, it would meet other rows.",
        )  # fmt: skip
    if side in ("RIGHT", "FULL"):
        raise _never(node)
    if "within" in item.meta or kind not in ("", "INNER", "OUTER", "CROSS"):
        raise NotSupported(what="this join with a bounded relation", at=at(node), hint=_LOOK_UP)
    if (kind == "CROSS" or _is_comma(node)) == bool(_condition(node)):
        raise NotSupported(what="this join with a bounded relation", at=at(node), hint=_LOOK_UP)
    return _HOW[side]


def _never(node: exp.Join) -> NotSupported:
    return NotSupported(
        what="an outer join that keeps the rows of a bounded relation", at=at(node),
        detail="One without a match could come out at the end of the stream only, which has none.", hint=_LOOK_UP,
    )  # fmt: skip


def _condition(node: exp.Join) -> object:
    return node.args.get("on") or node.args.get("using") or node.args.get("method")


def _is_comma(node: exp.Join) -> bool:
    return not _condition(node) and not node.args.get("side") and not node.args.get("kind")
