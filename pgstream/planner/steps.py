"""Steps: what the planner knows of each step it has built, beside the plan node itself.

Owns: ``Step`` (mode, kind and key of an output; the changelog algebra's bookkeeping) and small rewrites of plan nodes.
Must not know: sqlglot, expressions. Start reading at ``Step``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pgstream.errors import NotYet
from pgstream.names import quote_spark
from pgstream.planner import plan
from pgstream.planner.bind import Column
from pgstream.planner.plan import WINDOW_BOUNDS
from pgstream.sql.dialect import WindowCall

ROWTIME = "unix_millis(`__time`)"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fields that hold the bounds of the window that each row is of, empty where not selected.

    ``size_ms``: of windows of one size. ``span_ms``: of the longest. ``start_tells``: no two windows of a group begin
    together. ``every_ms``: how far apart they begin, 0 for sessions.
    """

    start: str = ""
    end: str = ""
    size_ms: int = 0
    start_tells: bool = True
    span_ms: int = 0
    every_ms: int = 0

    @classmethod
    def of(cls, window: WindowCall) -> Bounds:
        """Those of a window function's output."""
        size = window.size_ms if window.kind in ("tumble", "hop") else 0
        session = window.kind == "session"
        return cls(*WINDOW_BOUNDS, size, window.kind != "cumulate", 0 if session else window.size_ms,
                   0 if session else window.advance_ms)  # fmt: skip

    def renamed(self, name: Callable[[str], str]) -> Bounds:
        """The same under other names; ``name`` gives none for a bound that is not there any more."""
        return replace(self, start=self.start and name(self.start), end=self.end and name(self.end))

    @property
    def known(self) -> bool:
        return bool(self.start or self.end)

    def until(self, partition: Collection[str]) -> str | None:
        """The window's end where rows of different windows are told apart by these expressions; else None."""
        start, end = (quote_spark(f) if f else "" for f in (self.start, self.end))
        if end and (end in partition or (self.size_ms and start in partition)):
            return end
        return f"({start} + INTERVAL {self.size_ms} MILLISECONDS)" if self.size_ms and start in partition else None


@dataclass(frozen=True, slots=True)
class Step:
    """A built step. ``mode``: append, upsert or retract. ``kind``: stream or changelog; final windows are an append
    changelog. What each mode's rows mean is in ``plan.py``.

    ``key``: fields of a changelog's key; ``keyless``: it was not selected further in. ``joined``: whether a join is
    below; ``stateful``: whether any operator that keeps state is. ``placed``: rows still have the position
    of their one source record. ``other_key``: fields that name a row as well as the key does. ``ambiguous``: the key
    may name two rows, one of each side of a FULL join, where it is NULL. ``ranked``: ranks that no query above has
    bounded yet, each its field here and its name in the plan. ``times``: fields that hold the event time. ``bounds``:
    its window's.
    """

    node: plan.Node
    columns: tuple[Column, ...]
    mode: str = "append"
    kind: str = "stream"
    key: tuple[str, ...] = ()
    keyless: bool = False
    joined: bool = False
    stateful: bool = False
    placed: bool = True
    other_key: tuple[str, ...] = ()
    ambiguous: bool = False
    ranked: tuple[tuple[str, str], ...] = ()
    times: frozenset[str] = frozenset()
    bounds: Bounds = Bounds()

    @property
    def is_plain(self) -> bool:
        """Whether every row stands for itself: an append stream."""
        return self.mode == "append" and self.kind == "stream"


def with_sources(
    node: plan.Node, change: Callable[[plan.Source | plan.ViewSource], plan.Source | plan.ViewSource]
) -> plan.Node:
    """The same plan with every source changed."""
    if isinstance(node, (plan.Source, plan.ViewSource)):
        return change(node)
    changed: dict[str, Any] = {}
    for name in ("input", "left", "right"):
        if hasattr(node, name):
            changed[name] = with_sources(getattr(node, name), change)
    if isinstance(node, plan.Union):
        changed["inputs"] = [with_sources(i, change) for i in node.inputs]
    return msgspec.structs.replace(node, **changed)


def watermarked(node: plan.Node) -> plan.Node:
    """The same plan, its sources asked for a watermark: a step above works by event time."""
    return with_sources(node, lambda s: msgspec.structs.replace(s, watermark=True))


def wanting(node: plan.Node, wants: set[str]) -> plan.Node:
    """The same plan, its sources asked for more hidden columns, or for what event time has passed."""
    if "watermark" in wants:
        node, wants = watermarked(node), wants - {"watermark"}
    if not wants:
        return node
    return with_sources(
        node,
        lambda s: msgspec.structs.replace(s, wants=sorted({*s.wants, *wants})) if isinstance(s, plan.Source) else s,
    )


def retracting(step: Step) -> Step:
    """The same rows with the old one taken back at each change of a key; rows that only come stay as they are."""
    if step.mode != "upsert":
        return step
    return replace(step, node=plan.Normalize(step.node, list(step.key)), mode="retract", stateful=True)


def check_rowtime(step: Step, parts: Iterable[plan.Expr | plan.Order]) -> None:
    """Refuse the event time of rows that may be taken back: what takes a row back has a later one."""
    for part in parts:
        if step.mode != "append" and "`__time`" in part.sql:
            raise NotYet(what="rowtime() of a changelog's rows here", at=part.at)
