"""Results of outer joins that wait, so that those without a match are not late for the queries that read them.

Owns: which joins hold rows back, and how far event time is out of order in what they, and matches of MATCH_RECOGNIZE,
write (semantics §28.2). Must not know: sinks, relations. Start reading at ``held``.
"""

from __future__ import annotations

import msgspec

from pgstream.planner import plan


def held(node: plan.Node) -> plan.Node:
    """The same plan, where an outer interval join whose rows come out as they are holds those that are ahead of time.

    Below a step that keeps state nothing is held: Spark tells that step how far behind the join is.
    """
    match node:
        case plan.IntervalJoin():
            return node if node.how == "inner" else msgspec.structs.replace(node, ahead_ms=_ahead(node))
        case plan.Union():
            return msgspec.structs.replace(node, inputs=[held(i) for i in node.inputs])
        case plan.Filter() | plan.Project() | plan.Windows() | plan.Expand() | plan.Unnest() | plan.Lookup():
            return msgspec.structs.replace(node, input=held(node.input))
        case _:
            return node


def lateness(node: plan.Node) -> int | None:
    """How far event time may be out of order in what a plan writes, milliseconds; None where it is in order."""
    joins = [n for n in plan.walk(held(node)) if isinstance(n, plan.IntervalJoin)]
    return max([n.ahead_ms for n in joins if n.ahead_ms is not None] + _matches(node), default=None)


def _matches(node: plan.Node) -> list[int]:
    """The same of matches of MATCH_RECOGNIZE, which come when the watermark has passed them by so much at most."""
    match node:
        case plan.Recognize():
            return [plan.behind_ms(node)] if node.behind_ms else []
        case plan.Union():
            return [n for i in node.inputs for n in _matches(i)]
        case plan.IntervalJoin() | plan.StreamJoin():  # a pair comes with the later of the two
            return [plan.behind_ms(node)] if _matches(node.left) or _matches(node.right) else []
        case plan.Filter() | plan.Project() | plan.Windows() | plan.Expand() | plan.Unnest() | plan.Lookup():
            return _matches(node.input)
        case _:
            return []


def _ahead(node: plan.IntervalJoin) -> int:
    """Milliseconds before the watermark of the join's results, which is behind that of its sources by the intervals.

    Once the watermark has followed the last records no pair is further ahead: none waits for ever.
    """
    return max(s.lateness_ms for s in plan.readings(node)) + 2 * plan.behind_ms(node)
