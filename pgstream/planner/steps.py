"""Steps: what the planner knows of each step it has built, beside the plan node itself.

Owns: ``Step`` (mode, kind and key of an output; the changelog algebra's bookkeeping) and small rewrites of plan nodes.
Must not know: sqlglot, expressions. Start reading at ``Step``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from pgstream.planner import plan
from pgstream.planner.bind import Column


@dataclass(frozen=True, slots=True)
class Step:
    """A built step. ``mode``: append or upsert. ``kind``: stream or changelog; final windows are an append changelog.

    ``key``: fields of a changelog's key. ``aggregated`` / ``joined``: whether a GROUP BY or a join is below.
    ``placed``: rows still have the position of their one source record.
    """

    node: plan.Node
    columns: tuple[Column, ...]
    mode: str = "append"
    kind: str = "stream"
    key: tuple[str, ...] = ()
    aggregated: bool = False
    joined: bool = False
    placed: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether every row stands for itself: an append stream."""
        return self.mode == "append" and self.kind == "stream"


def with_sources(node: plan.Node, change: Callable[[plan.Source], plan.Source]) -> plan.Node:
    """The same plan with every source changed."""
    match node:
        case plan.Source():
            return change(node)
        case plan.IntervalJoin():
            return msgspec.structs.replace(
                node, left=with_sources(node.left, change), right=with_sources(node.right, change)
            )
        case plan.Union():
            return msgspec.structs.replace(node, inputs=[with_sources(i, change) for i in node.inputs])
        case _:
            return msgspec.structs.replace(node, input=with_sources(node.input, change))


def watermarked(node: plan.Node) -> plan.Node:
    """The same plan, its sources asked for a watermark: a step above works by event time."""
    return with_sources(node, lambda s: msgspec.structs.replace(s, watermark=True))


def wanting(node: plan.Node, wants: set[str]) -> plan.Node:
    """The same plan, its sources asked for more hidden columns."""
    if not wants:
        return node
    return with_sources(node, lambda s: msgspec.structs.replace(s, wants=sorted({*s.wants, *wants})))
