"""OVER: what a row is told of the rows before it and after it.

Owns: which window functions and frames there are, and the steps that compute them; bounded ranks are ``ranks.py``'s.
Must not know: FROM, output names. Start reading at ``Overs.add``, then ``Overs.over``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
from sqlglot import exp

from pgstream import types
from pgstream.errors import InvalidStatement, NotSupported, NotYet, UndefinedFunction, UndefinedObject
from pgstream.planner import plan
from pgstream.planner.aggregates import kernel_call
from pgstream.planner.bind import Column, at, unique
from pgstream.planner.expressions import NEIGHBOURS, RANKS, Compiler, Typed, is_aggregate
from pgstream.planner.grouping import KEEPS_ALL
from pgstream.planner.outputs import only
from pgstream.planner.ranks import Numbering, ranked_rows
from pgstream.planner.steps import ROWTIME, Bounds, Step, watermarked
from pgstream.sql.dialect import UNIT_MS, is_whole

_FARTHEST = 2**31 - 1


@dataclass(slots=True)
class Overs:
    """The calls OVER a window of one select list: each once, with the step that computes it.

    ``fields``: the columns that a rank or an aggregate may not be named after. ``numbering``: of the whole statement.
    """

    fields: list[str]
    times: frozenset[str]
    numbering: Numbering
    rank: plan.Rank | None = None
    aggregates: list[plan.Over] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=dict)

    def add(self, node: exp.Window, compiler: Compiler) -> Typed:
        """A call; ``compiler`` compiles what is in it. Errors: NotYet, NotSupported, InvalidStatement."""
        if (alias := node.args.get("alias")) is not None:
            raise UndefinedObject(kind="window", name=alias.name, at=at(alias) or at(node))
        only(node, "this", "partition_by", "order", "spec", "over")
        by = [plan.Expr("", compiler.sql(p), at(p)) for p in node.args.get("partition_by") or []]
        order = [_order(o, compiler) for o in node.args["order"].expressions] if node.args.get("order") else []
        name = str(node.this.this).upper() if isinstance(node.this, exp.Anonymous) else ""
        if name in RANKS:
            return self._rank(name, node, by, order)
        if name in NEIGHBOURS:
            return self._neighbour(name, node, by, order, compiler)
        return self._aggregate(node, by, order, compiler)

    def _rank(self, name: str, node: exp.Window, by: list[plan.Expr], order: list[plan.Order]) -> Typed:
        if node.this.expressions:
            raise InvalidStatement(what=f"{name} takes no argument", at=at(node))
        if node.args.get("spec") is not None:
            raise InvalidStatement(what=f"{name} takes no frame", at=at(node))
        if not order:
            raise InvalidStatement(what=f"{name} needs ORDER BY", at=at(node), hint="Say which rows come first.")
        place = -1 if (found := at(node)) is None else found
        if place in self.numbering.found:
            call = plan.Call("", name.lower(), ["unix_micros(`__time`)"], at=at(node))
            return self._call(plan.Over(_HERE, by, [], peers=False), call, types.BIGINT)
        if self._by_time(order):
            self.numbering.open.add(place)
        made = plan.Rank(_HERE, "", name.lower(), by, order, at=at(node))
        column = self._once(repr(msgspec.structs.replace(made, at=None)), types.BIGINT)
        made = msgspec.structs.replace(made, name=column.field)
        self.rank = made if self.rank is None else _together(self.rank, made)
        return Typed(column.sql, column.type)

    def _neighbour(
        self, name: str, node: exp.Window, by: list[plan.Expr], order: list[plan.Order], compiler: Compiler
    ) -> Typed:
        """LAG and LEAD: value, how many rows away, and what holds where there is none."""
        given = node.this.expressions
        if not 1 <= len(given) <= 3:
            raise UndefinedFunction(name=f"{name.lower()}() with {len(given)} arguments", at=at(node))
        if node.args.get("spec") is not None:
            raise InvalidStatement(what=f"{name} takes no frame", at=at(node))
        away = given[1] if len(given) > 1 else exp.Literal.number(1)
        if not isinstance(away, exp.Literal) or away.is_string or not str(away.this).isdigit():
            raise NotSupported(what=f"an offset of {name} that is no whole number", at=at(away))
        self._check_order(node, order)
        value = compiler.compile(given[0])
        arguments, offset = [value.sql], _away(away)
        if len(given) > 2:
            arguments = [f"{value.sql}", _like(compiler.sql(given[2]), value)]
        shape = plan.Over(_HERE, by, [], rows=offset, peers=False, ahead=offset if name == "LEAD" else 0)
        return self._call(shape, plan.Call("", name.lower(), arguments, at=at(node), offset=offset), value.type)

    def _call(self, shape: plan.Over, call: plan.Call, type_: types.Type | None) -> Typed:
        column = self._once(repr((shape, msgspec.structs.replace(call, at=None))), type_)
        self._place(shape, msgspec.structs.replace(call, name=column.field))
        return Typed(column.sql, column.type)

    def _aggregate(self, node: exp.Window, by: list[plan.Expr], order: list[plan.Order], compiler: Compiler) -> Typed:
        rows, range_ms, peers = _frame(node.args.get("spec"))
        filtered = isinstance(node.this, exp.Filter)
        call = node.this.this if filtered else node.this
        if not isinstance(call, exp.Anonymous) or not is_aggregate(call):
            raise NotYet(what=f"{str(call.this).upper()} OVER", at=at(node))
        self._check_order(node, order)
        where = compiler.condition(node.this.expression.this, "FILTER") if filtered else ""
        # Rows of equal times are told apart by the operator: their order of arrival is not asked for.
        plain = type(compiler) is Compiler
        inner = Compiler(replace(compiler.scope, placed=True), compiler.place) if plain else compiler
        made, type_ = kernel_call(compiler.function(call), call, inner, where)
        compiler.wants |= inner.wants
        if rows is None and range_ms is None and (made.distinct or made.function in KEEPS_ALL):
            raise NotYet(
                what=f"{made.function.upper()}{'(DISTINCT …)' * made.distinct} over all rows before", at=at(node),
                hint="Give a frame: RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW.",
            )  # fmt: skip
        return self._call(plan.Over(_HERE, by, [], rows, range_ms, peers), made, type_)

    def _place(self, shape: plan.Over, call: plan.Call) -> None:
        """Calls over the same window are one step, and those that look ahead, however far."""
        texts = [e.sql for e in shape.partition]
        ahead = next((a for a in self.aggregates if a.ahead and shape.ahead), None)
        if ahead is not None:
            if [e.sql for e in ahead.partition] != texts:
                # The last rows of a partition wait: they would be missing in the other's.
                raise NotYet(what="LEAD over different partitions in one select list", at=call.at)
            self.aggregates.remove(ahead)
            far = max(ahead.ahead, shape.ahead)
            calls = ahead.calls if call.name in [c.name for c in ahead.calls] else [*ahead.calls, call]
            self.aggregates.append(msgspec.structs.replace(ahead, calls=calls, rows=far, ahead=far))
            return
        for i, known in enumerate(self.aggregates):
            bare = msgspec.structs.replace(known, calls=[], partition=[])
            if bare == msgspec.structs.replace(shape, partition=[]) and [e.sql for e in known.partition] == texts:
                if call.name not in [c.name for c in known.calls]:
                    self.aggregates[i] = msgspec.structs.replace(known, calls=[*known.calls, call])
                return
        self.aggregates.append(msgspec.structs.replace(shape, calls=[call]))

    def _by_time(self, order: list[plan.Order]) -> bool:
        allowed = {ROWTIME, *(Column(f, f).sql for f in self.times)}
        return len(order) == 1 and not order[0].descending and order[0].sql in allowed

    def _check_order(self, node: exp.Window, order: list[plan.Order]) -> None:
        if not self._by_time(order):
            raise NotSupported(
                what="a function OVER rows in another order than that of their event time", at=at(node),
                hint="Write ORDER BY the 'timestamp' column of the source, or ORDER BY rowtime().",
            )  # fmt: skip

    def _once(self, text: str, type_: types.Type | None) -> Column:
        if text not in self.columns:
            name = unique(f"over_{len(self.columns) + 1}", self.fields)
            self.fields.append(name)
            self.columns[text] = Column(name, name, type_)
        return self.columns[text]

    def check_times(self, outputs: Sequence[str]) -> None:
        """Beside LEAD a row's event time is that of the row that it waited for."""
        ahead = next((a for a in self.aggregates if a.ahead), None)
        ranked = [] if self.rank is None else [e.sql for e in self.rank.partition] + [o.sql for o in self.rank.order]
        if ahead is not None and any("`__time`" in sql for sql in (*outputs, *ranked)):
            raise NotYet(what="rowtime() beside LEAD", at=ahead.calls[0].at, hint="Select the 'timestamp' column.")

    def over(self, step: Step) -> Step:
        """The step with the columns of the calls."""
        if not self.columns:
            return step
        columns = (*step.columns, *self.columns.values())
        step = self._told(step) if self.aggregates else step
        if self.rank is not None:
            step = ranked_rows(step, self.rank)
        return replace(step, columns=columns)

    def _told(self, step: Step) -> Step:
        """The rows with what is not a bounded rank. Where one waits for those after it, that is the last thing done."""
        if step.mode != "append":
            raise NotSupported(what="a function OVER rows of a changelog", at=self.aggregates[0].calls[0].at)
        node = watermarked(step.node)
        for made in sorted(self.aggregates, key=lambda a: a.ahead):
            node = msgspec.structs.replace(made, input=node)
        step = replace(step, node=node, stateful=True)
        ahead = any(a.ahead for a in self.aggregates)
        return replace(step, times=frozenset(), bounds=Bounds(), placed=False) if ahead else step


def of_windows(step: Step) -> frozenset[str]:
    """The bounds of the windows whose groups these rows are, if they are: by them they stand in the order of their
    event times, which are the ends less 1 ms.
    """
    node = step.node
    while isinstance(node, plan.Filter | plan.Project):
        node = node.input
    if not isinstance(node, plan.Aggregate) or step.mode != "append":
        return frozenset()
    bounds = step.bounds
    return frozenset(f for f in (bounds.end, bounds.start if bounds.size_ms else "") if f)


_HERE = plan.Union([])  # the input of a step that is not placed yet


def _together(one: plan.Rank, two: plan.Rank) -> plan.Rank:
    """Several ranks of one select list, in one order of one partition."""
    if one.name == two.name:
        return one
    if [e.sql for e in one.partition] != [e.sql for e in two.partition] or _bare(one.order) != _bare(two.order):
        raise NotYet(what="ranking over different windows in one select list", at=two.at,
                     hint="Order them by event time, or bound one in a query around the other.")  # fmt: skip
    return msgspec.structs.replace(one, also={**one.also, two.name: two.function})


def _bare(order: list[plan.Order]) -> list[plan.Order]:
    return [msgspec.structs.replace(o, at=None) for o in order]


def _like(sql: str, value: Typed) -> str:
    """The value that stands in for a missing one, of the same type."""
    return f"cast({sql} as {value.type.spark})" if value.type is not None else sql


def _order(node: exp.Expr, compiler: Compiler) -> plan.Order:
    if not isinstance(node, exp.Ordered):
        raise NotYet(what="this form of ORDER BY", at=at(node))
    only(node, "this", "desc", "nulls_first")
    return plan.Order(
        compiler.sql(node.this), bool(node.args.get("desc")), bool(node.args.get("nulls_first")), at(node)
    )


def _away(number: exp.Literal) -> int:
    """How many rows away. Error: NotSupported, for more than the kernel counts."""
    rows = int(str(number.this))
    if rows > _FARTHEST:
        raise NotSupported(what=f"a row more than {_FARTHEST} rows away", at=at(number))
    return rows


def _frame(spec: exp.Expr | None) -> tuple[int | None, int | None, bool]:
    """Rows before, milliseconds before, and whether rows of one time count together."""
    if spec is None:
        return None, None, True
    kind, start, place = str(spec.args["kind"]).upper(), spec.args["start"], at(spec)
    if spec.args.get("exclude") or spec.args.get("end") not in (None, "CURRENT ROW") or kind == "GROUPS":
        raise NotYet(what="a frame other than … PRECEDING AND CURRENT ROW", at=place)
    if str(spec.args.get("start_side")).upper() != "PRECEDING" and start != "CURRENT ROW":
        raise NotYet(what="a frame that begins after the row", at=place)
    if start == "UNBOUNDED":
        return None, None, kind == "RANGE"
    if start == "CURRENT ROW":
        return (None, 0, True) if kind == "RANGE" else (0, None, False)
    if kind == "ROWS":
        if not isinstance(start, exp.Literal) or start.is_string or not str(start.this).isdigit():
            raise InvalidStatement(what="ROWS takes a whole number", at=at(start))
        return _away(start), None, False
    unit = str(start.args["unit"].this).upper() if isinstance(start, exp.Interval) else ""
    if " TO " in unit:
        raise NotYet(what="a RANGE of several units of time", at=at(start), hint="Write it in one, INTERVAL '26' HOUR.")
    if unit not in UNIT_MS or not isinstance(start, exp.Interval) or not is_whole(str(start.this.this)):
        raise InvalidStatement(what="RANGE takes an interval of time", at=at(start), hint="INTERVAL '1' HOUR PRECEDING")
    return None, int(str(start.this.this)) * UNIT_MS[unit], True
