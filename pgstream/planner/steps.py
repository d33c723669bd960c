"""Steps: what the planner knows of each step it has built, beside the plan node itself.

Owns: ``Step`` (mode, kind and key of an output; the changelog algebra's bookkeeping) and small rewrites of plan nodes.
Must not know: sqlglot, expressions. Start reading at ``Step``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pgstream.planner import plan
from pgstream.planner.bind import Column


@dataclass(frozen=True, slots=True)
class Step:
    """A built step. ``mode``: append, upsert or retract. ``kind``: stream or changelog; final windows are an append
    changelog. What each mode's rows mean is in ``plan.py``.

    ``key``: fields of a changelog's key; ``keyless``: it was not selected further in. ``joined``: whether a join is
    below; ``stateful``: whether any operator that keeps state is. ``placed``: rows still have the position
    of their one source record.
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

    @property
    def is_plain(self) -> bool:
        """Whether every row stands for itself: an append stream."""
        return self.mode == "append" and self.kind == "stream"


def with_sources(node: plan.Node, change: Callable[[plan.Source], plan.Source]) -> plan.Node:
    """The same plan with every source changed."""
    if isinstance(node, plan.Source):
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
    """The same plan, its sources asked for more hidden columns."""
    if not wants:
        return node
    return with_sources(node, lambda s: msgspec.structs.replace(s, wants=sorted({*s.wants, *wants})))


def retracting(step: Step) -> Step:
    """The same rows with the old one taken back at each change of a key; rows that only come stay as they are."""
    if step.mode != "upsert":
        return step
    return replace(step, node=plan.Normalize(step.node, list(step.key)), mode="retract", stateful=True)
