"""A plan as a tree for a person: what ``DESCRIBE <statement>`` shows and what the planner's tests compare.

Owns: the layout, and the words for who runs a step. Must not know: how plans are made or run.
Start reading at ``explain`` and ``physical``.
"""

from __future__ import annotations

from pgstream.planner import plan

_STATE = "state by key in RocksDB"
# Aggregates that cannot take a row back without the other values of its group.
_VALUED = ("min", "max", "listagg", "array_agg", "first_value", "last_value")


def explain(node: plan.Node) -> str:
    """The plan, one step a line, inputs below and indented: what it computes, its mode unless its rows only come
    (append), and what it keeps in state.
    """
    return "\n".join(_lines(node, 0))


def physical(node: plan.Node) -> str:
    """The same plan as it runs, one operator a line, inputs below and indented: Spark's own, or the kernel's, and which
    keep state.
    """
    return "\n".join(_operators(node, 0))


def _operators(node: plan.Node, depth: int) -> list[str]:
    runs = _runs(node)
    out = ["  " * (depth + i) + line for i, line in enumerate(runs)]
    for child in plan.inputs(node):
        out += _operators(child, depth + len(runs))
    return out


def _runs(node: plan.Node) -> list[str]:
    """The operators of a step, from the last that a row meets to the first."""
    match node:
        case plan.Source():
            emptied = [_kernels("Emptied")] if node.follows else []
            watermark = ["kernel EventTime, the watermark"] if node.watermark else []
            return [*emptied, *watermark, f"read entity {node.entity} of store {node.store}"]
        case plan.ViewSource():
            watermark = ["kernel EventTime, the watermark"] if node.watermark else []
            return [*watermark, f"read changes of view {node.relation}"]
        case plan.Filter() | plan.Project() | plan.Windows() | plan.Expand() | plan.Unnest() | plan.Union():
            return [f"Spark {type(node).__name__}"]
        case plan.Outputs():
            return ["Spark Union"]
        case plan.Aggregate():
            session = node.window is not None and node.window.kind == "session"
            return [f"Spark {'Session' * session}Aggregate, {_STATE}"]
        case plan.Lookup():
            return ["kernel Lookup"]
        case plan.IntervalJoin():
            held = [_kernels("Hold")] if node.ahead_ms is not None else []
            return [*held, _kernels("IntervalJoin") if node.by_key else f"Spark Join, {_STATE}"]
        case _:
            return [_kernels(type(node).__name__)]


def _kernels(operator: str) -> str:
    return f"kernel {operator} (TransformWithState), {_STATE}"


def _lines(node: plan.Node, depth: int) -> list[str]:
    head, *more = _describe(node)
    mode = plan.mode(node)
    head += f" → {mode}" if mode != "append" else ""
    kept = _keeps(node)
    more += [f"keeps {kept}"] if kept else []
    out = ["  " * depth + head, *("  " * depth + "    " + line for line in more)]
    for child in plan.inputs(node):
        out += _lines(child, depth + 1)
    return out


def _describe(node: plan.Node) -> list[str]:
    match node:
        case plan.Source():
            return [_source(node)]
        case plan.ViewSource():
            return [_view_source(node)]
        case plan.Outputs():
            return ["Outputs"]
        case plan.Filter():
            return [f"Filter {node.condition.sql}"]
        case plan.Project():
            return ["Project", *map(_expr, node.columns)]
        case plan.Aggregate():
            return [
                _aggregate("Aggregate", node),
                *(f"group {_expr(e)}" for e in node.group),
                *map(_expr, node.aggregates),
            ]
        case plan.Normalize():
            return [f"{'Upserts' if node.upserts else 'Normalize'} by {', '.join(node.key)}"]
        case plan.ChangeAggregate():
            return [
                _aggregate("ChangeAggregate", node),
                *(f"group {_expr(e)}" for e in node.group),
                *map(_call, node.calls),
            ]
        case plan.IntervalJoin():
            names = f"{node.left_alias or '(left)'}, {node.right_alias}"
            keys = f"{node.left_key.sql} = {node.right_key.sql}"
            keys += "".join(f" and {a.sql} = {b.sql}" for a, b in node.more)
            keys += f" and {node.condition.sql}" if node.condition is not None else ""
            return [f"IntervalJoin {node.how} {names} within {node.within_ms} ms on {keys}"]
        case plan.TemporalJoin() | plan.ChangelogJoin() | plan.StreamJoin():
            names = f"{node.left_alias or '(left)'}, {node.right_alias}"
            keys = " and ".join(f"{a.sql} = {b.sql}" for a, b in node.keys)
            if isinstance(node, plan.StreamJoin) and node.condition is not None:
                keys += f" and {node.condition.sql}"
            return [f"{type(node).__name__} {node.how} {names} on {keys}"]
        case plan.Lookup():
            return _lookup(node)
        case plan.Windows():
            return [f"Windows {_window(node.window)}"]
        case plan.Unnest():
            return [
                f"Unnest{' outer' * node.outer}{' numbered' * node.numbered} {node.item.sql}",
                *map(_expr, node.columns),
            ]
        case plan.Expand():
            return [f"Expand {node.mark} in {', '.join(map(str, node.marks))}", *map(_expr, node.columns)]
        case plan.Rank():
            by = ", ".join(map(_order, node.order))
            until = ", final rows" if node.until is not None else ""
            also = "".join(f", {n} := {f}" for n, f in node.also.items())
            return [f"Rank {node.name} := {node.function} up to {node.limit}{also} order by {by}{until}",
                    *(f"partition {e.sql}" for e in node.partition)]  # fmt: skip
        case plan.Over():
            return [f"Over {_frame(node)}", *(f"partition {e.sql}" for e in node.partition), *map(_call, node.calls)]
        case plan.Recognize():
            return _recognize(node)
        case plan.Union():
            return ["UnionAll"]


def _lookup(node: plan.Lookup) -> list[str]:
    if not node.sql:
        keys = " and ".join(f"{e.sql} = {c}" for e, c in node.keys)
        return [f"Lookup {node.how} {node.left_alias or '(left)'} in view {node.relation} {node.right_alias} on {keys}"]
    names = [f"{c.name} {c.type}" for c in node.columns]
    return [
        f"Lookup {node.how} in {node.relation}{f' as {node.right_alias}' if node.right_alias else ''}",
        *(f"p{i} {a.type} := {a.sql}" for i, a in enumerate(node.arguments, 1)),
        f"asks {f'store {node.store}' if node.store else 'PostgreSQL'}: {' '.join(node.sql.split())}",
        f"gives {', '.join(names)}",
    ]


def _keeps(node: plan.Node) -> str:
    """What an operator's state holds, and until when."""
    match node:
        case plan.Aggregate():
            return f"a row a group{_until(node)}"
        case plan.ChangeAggregate():
            values = [c.name for c in node.calls if c.distinct or c.function in _VALUED]
            every = f", every value of {', '.join(values)}" if values else ""
            return f"a row a group{every}{_until(node)}"
        case plan.Normalize():
            return "the last row of each key"
        case plan.ChangelogJoin():
            return "the rows of both sides"
        case plan.StreamJoin():
            return "the rows of both sides for the query's time to live"
        case plan.Rank():
            rows = "the first rows of each partition" if plan.mode(node.input) == "append" else "every row"
            return rows + (" until its window is closed" if node.until is not None else "")
        case plan.Over():
            frame = "" if node.rows is None and node.range_ms is None else " and the rows of its frame"
            return f"rows until the watermark reaches them{frame}"
        case plan.Recognize():
            within = "" if node.within_ms is None else f", for {node.within_ms} ms"
            late = f"; above it time is {node.behind_ms} ms behind, as matches are" if node.behind_ms else ""
            return f"rows until the watermark reaches them, and those that a match may still have{within}{late}"
        case plan.IntervalJoin():
            held = f", results that are {node.ahead_ms} ms ahead of the watermark" if node.ahead_ms is not None else ""
            return f"rows of both sides for {node.within_ms} ms{held}"
        case plan.TemporalJoin():
            return "versions of the right rows from the watermark on, left rows until it reaches them"
        case _:
            return ""


def _recognize(node: plan.Recognize) -> list[str]:
    within = "" if node.within_ms is None else f" within {node.within_ms} ms"
    order = "".join(f", {_order(o)}" for o in node.order)
    skip = f"skip {node.skip}{' ' * bool(node.to)}{node.to}"
    return [
        f"Recognize {_pattern(node.pattern)}{within} in event time{order}, {skip}",
        *(f"partition {e.sql}" for e in node.partition),
        *(f"{r.name} := {_read(r)}" for r in node.reads),
        *(f"define {e.name} as {e.sql}" for e in node.define),
        *map(_expr, node.measures),
    ]


def _pattern(pattern: plan.Pattern) -> str:
    """A row pattern as it is written, with all parentheses."""
    match pattern:
        case plan.Row():
            return pattern.name
        case plan.Sequence():
            return f"({' '.join(map(_pattern, pattern.parts))})"
        case plan.Choice():
            return f"({' | '.join(map(_pattern, pattern.parts))})"
        case plan.Repeat():
            bounds = f"{pattern.least},{'' if pattern.most is None else pattern.most}"
            return f"{_pattern(pattern.part)}{{{bounds}}}{'?' * pattern.reluctant}"


def _read(r: plan.Read) -> str:
    rows = f" of {r.variable}" if r.variable else ""
    if r.call is not None:
        return _call(r.call).split(" := ", 1)[1] + rows
    place = ("last" if r.last else "first") + (f" but {r.offset}" if r.offset else "")
    shift = f", {abs(r.shift)} rows {'on' if r.shift > 0 else 'back'}" if r.shift else ""
    return f"{r.value} {place}{rows}{shift}"


def _until(node: plan.Aggregate | plan.ChangeAggregate) -> str:
    ends = node.window is not None or (isinstance(node, plan.ChangeAggregate) and node.until is not None)
    return " until its window is closed" if ends else ""


def _expr(e: plan.Expr) -> str:
    plain = "`" + e.name.replace("`", "``") + "`"
    return e.name if e.sql == plain else f"{e.name} := {e.sql}"


def _aggregate(word: str, node: plan.Aggregate | plan.ChangeAggregate) -> str:
    rows = "final rows" if node.final else "running values"
    if node.window is not None:
        return f"{word} {_window(node.window)}, {rows}"
    return f"{word} of each window, {rows}" if isinstance(node, plan.ChangeAggregate) and node.until else word


def _window(window: plan.Window) -> str:
    advance = f" advance {window.advance_ms} ms" if window.kind in ("hop", "cumulate") else ""
    gap = "gap " if window.kind == "session" else ""
    return f"{window.kind} {gap}{window.size_ms} ms{advance}"


def _order(o: plan.Order) -> str:
    nulls = "" if o.nulls_first != o.descending else f" nulls {'first' if o.nulls_first else 'last'}"
    return f"{o.sql}{' desc' if o.descending else ''}{nulls}"


def _frame(node: plan.Over) -> str:
    if node.ahead:
        return f"{node.ahead} rows ahead"
    if node.rows is not None:
        return f"{node.rows} rows before"
    if node.range_ms is not None:
        return f"{node.range_ms} ms before"
    return "all before, with those of the same time" if node.peers else "all rows before"


def _call(c: plan.Call) -> str:
    arguments, where = c.arguments, c.where
    if c.function == "array_agg" and len(arguments) == 2:
        arguments, where = arguments[:1], arguments[1]
    words = ("DISTINCT " if c.distinct else "") + ", ".join(arguments)
    words += f" {c.offset} rows away" if c.offset > 1 else ""
    separator = f" separated by {c.separator!r}" if c.function == "listagg" else ""
    told = f" where {where}" if where else ""
    cast = f" as {c.cast}" if c.cast else ""
    return f"{c.name} := {c.function}({words}){separator}{told}{cast}"


def _view_source(node: plan.ViewSource) -> str:
    key = [f"key {', '.join(node.key)}"] if node.key else []
    return ", ".join([f"Changes of materialized view {node.relation}", *_time(node), *key])


def _time(node: plan.Source | plan.ViewSource) -> list[str]:
    parts = [f"time {node.timestamp}"] if node.timestamp else []
    if node.watermark:
        parts.append(f"watermark {node.lateness_ms} ms")
        if node.idle_ms is not None:
            parts.append(f"idle after {node.idle_ms} ms")
    return parts


def _source(node: plan.Source) -> str:
    parts = [f"Source {node.kind} {node.relation}", f"store {node.store}", f"entity {node.entity}",
             f"from {node.starting_position}", *_time(node)]  # fmt: skip
    if node.primary_key:
        parts.append(f"key {', '.join(node.primary_key)}")
    if node.on_bad_record != "terminate":
        target = f" to {node.bad_record_store}/{node.bad_record_topic}" if node.on_bad_record == "log" else ""
        parts.append(f"bad records: {node.on_bad_record}{target}")
    if node.wants:
        parts.append(f"wants {', '.join(node.wants)}")
    return ", ".join(parts)
