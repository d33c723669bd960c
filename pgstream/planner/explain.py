"""A plan as a tree for a person: what ``DESCRIBE <statement>`` shows and what the planner's tests compare.

Owns: the layout. Must not know: how plans are made or run. Start reading at ``explain``.
"""

from __future__ import annotations

from pgstream.planner import plan


def explain(node: plan.Node) -> str:
    """The plan, one step a line, inputs below and indented."""
    return "\n".join(_lines(node, 0))


def _lines(node: plan.Node, depth: int) -> list[str]:
    head, *more = _describe(node)
    out = ["  " * depth + head, *("  " * depth + "    " + line for line in more)]
    for child in _inputs(node):
        out += _lines(child, depth + 1)
    return out


def _inputs(node: plan.Node) -> list[plan.Node]:
    match node:
        case plan.Source():
            return []
        case plan.IntervalJoin():
            return [node.left, node.right]
        case plan.Union():
            return list(node.inputs)
        case _:
            return [node.input]


def _describe(node: plan.Node) -> list[str]:
    match node:
        case plan.Source():
            return [_source(node)]
        case plan.Filter():
            return [f"Filter {node.condition.sql}"]
        case plan.Project():
            return ["Project", *map(_expr, node.columns)]
        case plan.Aggregate():
            return [_aggregate(node), *(f"group {_expr(e)}" for e in node.group), *map(_expr, node.aggregates)]
        case plan.IntervalJoin():
            names = f"{node.left_alias or '(left)'}, {node.right_alias}"
            keys = f"{node.left_key.sql} = {node.right_key.sql}"
            return [f"IntervalJoin {node.how} {names} within {node.within_ms} ms on {keys}"]
        case plan.Union():
            return ["UnionAll"]


def _expr(e: plan.Expr) -> str:
    plain = "`" + e.name.replace("`", "``") + "`"
    return e.name if e.sql == plain else f"{e.name} := {e.sql}"


def _aggregate(node: plan.Aggregate) -> str:
    if node.window is None:
        return "Aggregate"
    window = node.window
    advance = f" advance {window.advance_ms} ms" if window.kind == "hop" else ""
    return f"Aggregate {window.kind} {window.size_ms} ms{advance}, {'final rows' if node.final else 'running values'}"


def _source(node: plan.Source) -> str:
    parts = [f"Source {node.kind} {node.relation}", f"store {node.store}", f"entity {node.entity}",
             f"from {node.starting_position}"]  # fmt: skip
    if node.timestamp:
        parts.append(f"time {node.timestamp}")
    if node.watermark:
        parts.append(f"watermark {node.lateness_ms} ms")
    if node.primary_key:
        parts.append(f"key {', '.join(node.primary_key)}")
    if node.on_bad_record != "terminate":
        target = f" to {node.bad_record_store}/{node.bad_record_topic}" if node.on_bad_record == "log" else ""
        parts.append(f"bad records: {node.on_bad_record}{target}")
    if node.wants:
        parts.append(f"wants {', '.join(node.wants)}")
    return ", ".join(parts)
