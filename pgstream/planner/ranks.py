"""Ranks: ROW_NUMBER, RANK and DENSE_RANK that the query above bounds (Top-N, deduplication).

Owns: the step of a bounded rank and its key, finding the bound in a WHERE, and which ranks nothing bounds: those by
event time are told with each row as it comes (``over.py``), others are refused.
Must not know: FROM, how a call is read. Start reading at ``bounded`` and ``Numbering``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec
from sqlglot import exp

from pgstream.errors import NotSupported
from pgstream.planner import plan
from pgstream.planner.bind import Column, Scope
from pgstream.planner.steps import Step, check_rowtime, retracting, watermarked

_MOST_ROWS = 1 << 30
"""More than the kernel can hold of a partition, and few enough for its numbers."""


@dataclass(slots=True)
class Numbering:
    """Ranks by event time, by where they stand in the text. ``open``: met, and bounded by no condition yet; ``found``:
    known from planning before to be bounded by none.
    """

    found: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)


def ranked_rows(step: Step, made: plan.Rank) -> Step:
    """Its key: the partition and the rank; or that of its input. Ranks of a window are final when it closes."""
    check_rowtime(step, [*made.partition, *made.order])
    texts = [e.sql for e in made.partition]
    until = step.bounds.until(texts) if step.mode == "append" else None
    every = step.bounds.every_ms if until is not None else 0
    inner = watermarked(step.node) if until is not None else retracting(step).node
    fields = {Column(f, f).sql: f for f in (*(c.field for c in step.columns), *step.key, *_bounds(step))}
    ranks = {made.name: made.function, **made.also}
    number = next((n for n, f in ranks.items() if f == "row_number"), None)
    own = (*(fields[t] for t in texts), number) if number is not None and all(t in fields for t in texts) else ()
    return replace(
        step, node=msgspec.structs.replace(made, input=inner, until=until, every_ms=every), kind="changelog",
        mode="retract" if until is None else "append", key=own or step.key,
        other_key=step.key if own and not step.ambiguous else (), ambiguous=step.ambiguous and not own,
        keyless=not own and (step.keyless or not step.key), stateful=True, placed=False,
        ranked=tuple((n, n) for n in ranks),
    )  # fmt: skip


def _bounds(step: Step) -> list[str]:
    return [b for b in (step.bounds.start, step.bounds.end) if b]


# The bound of a rank


def bounded(step: Step, scope: Scope, where: exp.Expr, numbering: Numbering) -> Step:
    """The step with its rank bounded by what the condition says of it, if it says so."""
    if not step.ranked:
        return step
    parts = where.unnest().flatten() if isinstance(where.unnest(), exp.And) else [where.unnest()]
    limits = [(n, f, r) for f, r in step.ranked for p in parts if (n := _limit(p.unnest(), f, scope)) is not None]
    if not limits:
        return step
    limit, by, rank = min(limits)
    # Of a single row a partition the rank says nothing: the partition is the key.
    key = tuple(k for k in step.key if k != by or limit > 1)
    limit = min(max(1, limit), _MOST_ROWS)
    return replace(step, node=_with_limit(step.node, rank, limit, numbering), ranked=(), key=key)


def _with_limit(node: plan.Node, name: str, limit: int, numbering: Numbering) -> plan.Node:
    if isinstance(node, plan.Rank):
        numbering.open.discard(-1 if node.at is None else node.at)
        ranks = {node.name: node.function, **node.also}
        function = ranks.pop(name)
        return msgspec.structs.replace(node, limit=limit, name=name, function=function, also=ranks)
    assert isinstance(node, plan.Project | plan.Filter)
    return msgspec.structs.replace(node, input=_with_limit(node.input, name, limit, numbering))


def _limit(node: exp.Expr, ranked: str, scope: Scope) -> int | None:
    """The greatest rank that a condition lets through."""
    if isinstance(node, exp.Between):
        high = _number(node.args["high"])
        return high if _is_rank(node.this, ranked, scope) else None
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return None
    one, two = node.this, node.expression
    if isinstance(node, exp.GT | exp.GTE) or (isinstance(node, exp.EQ) and _number(one) is not None):
        one, two = two, one
    number = _number(two)
    if number is None or not _is_rank(one, ranked, scope):
        return None
    return number - 1 if isinstance(node, exp.LT | exp.GT) else number


def _is_rank(node: exp.Expr, ranked: str, scope: Scope) -> bool:
    node = node.unnest()
    return isinstance(node, exp.Column) and not isinstance(node.this, exp.Star) and scope.column(node).field == ranked


def _number(node: exp.Expr) -> int | None:
    node = node.unnest()
    if isinstance(node, exp.Cast):
        node = node.this
    return int(str(node.this)) if isinstance(node, exp.Literal) and str(node.this).isdigit() else None


def check_bounded(nodes: Iterable[plan.Node]) -> None:
    """Refuse a rank that no query above has bounded: it would keep and renumber every row for ever."""
    for node in nodes:
        if isinstance(node, plan.Rank) and not node.limit:
            raise NotSupported(
                what=f"{node.function.upper()} without a bound", at=node.at,
                hint="Bound it in the query around it: SELECT … FROM (SELECT …, ROW_NUMBER() OVER (…) AS rn …) "
                "WHERE rn <= 10; or order it by event time.",
            )  # fmt: skip
