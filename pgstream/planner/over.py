"""OVER: ranks that the query above bounds (Top-N, deduplication), and aggregates over the rows before each row.

Owns: which window functions and frames there are, the steps that compute them, finding the bound of a rank in a WHERE.
Must not know: FROM, output names. Start reading at ``Overs.add``, then ``Overs.over`` and ``bounded``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec
from sqlglot import exp

from pgstream import types
from pgstream.errors import InvalidStatement, NotSupported, NotYet
from pgstream.planner import plan
from pgstream.planner.aggregates import kernel_call
from pgstream.planner.bind import Column, Scope, at, unique
from pgstream.planner.expressions import RANKS, Compiler, Typed, is_aggregate
from pgstream.planner.outputs import only
from pgstream.planner.steps import ROWTIME, Step, check_rowtime, retracting, watermarked
from pgstream.sql.dialect import UNIT_MS

_KEEPS_ALL = ("listagg", "array_agg")


@dataclass(slots=True)
class Overs:
    """The calls OVER a window of one select list: each once, with the step that computes it.

    ``fields``: the columns that a rank or an aggregate may not be named after.
    """

    fields: list[str]
    times: frozenset[str]
    expires: bool = False
    rank: plan.Rank | None = None
    aggregates: list[plan.Over] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=dict)

    def add(self, node: exp.Window, compiler: Compiler) -> Typed:
        """A call; ``compiler`` compiles what is in it. Errors: NotYet, NotSupported, InvalidStatement."""
        only(node, "this", "partition_by", "order", "spec", "over")
        by = [plan.Expr("", compiler.sql(p), at(p)) for p in node.args.get("partition_by") or []]
        order = [_order(o, compiler) for o in node.args["order"].expressions] if node.args.get("order") else []
        name = str(node.this.this).upper() if isinstance(node.this, exp.Anonymous) else ""
        return self._rank(name, node, by, order) if name in RANKS else self._aggregate(node, by, order, compiler)

    def _rank(self, name: str, node: exp.Window, by: list[plan.Expr], order: list[plan.Order]) -> Typed:
        if node.this.expressions:
            raise InvalidStatement(what=f"{name} takes no argument", at=at(node))
        if node.args.get("spec") is not None:
            raise InvalidStatement(what=f"{name} takes no frame", at=at(node))
        if not order:
            raise InvalidStatement(what=f"{name} needs ORDER BY", at=at(node), hint="Say which rows come first.")
        made = plan.Rank(_HERE, "", name.lower(), by, order, at=at(node))
        column = self._once(repr(msgspec.structs.replace(made, at=None)), types.BIGINT)
        made = msgspec.structs.replace(made, name=column.field)
        if self.rank is not None and self.rank.name != made.name:
            raise NotYet(what="several ranks in one select list", at=at(node))
        self.rank = made
        return Typed(column.sql, column.type)

    def _aggregate(self, node: exp.Window, by: list[plan.Expr], order: list[plan.Order], compiler: Compiler) -> Typed:
        rows, range_ms, peers = _frame(node.args.get("spec"))
        filtered = isinstance(node.this, exp.Filter)
        call = node.this.this if filtered else node.this
        if not isinstance(call, exp.Anonymous) or not is_aggregate(call):
            raise NotYet(what=f"{str(call.this).upper()} OVER", at=at(node))
        self._check_order(node, order)
        where = compiler.sql(node.this.expression.this) if filtered else ""
        # Rows of equal times are told apart by the operator: their order of arrival is not asked for.
        plain = type(compiler) is Compiler
        inner = Compiler(replace(compiler.scope, placed=True), compiler.place) if plain else compiler
        made, type_ = kernel_call(compiler.function(call), call, inner, where)
        compiler.wants |= inner.wants
        if rows is None and range_ms is None and (made.distinct or made.function in _KEEPS_ALL):
            raise NotYet(
                what=f"{made.function.upper()}{'(DISTINCT …)' * made.distinct} over all rows before", at=at(node),
                hint="Give a frame: RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW.",
            )  # fmt: skip
        if self.expires and range_ms is None:
            raise NotYet(what="a time to live of rows OVER a frame that is not a time range", at=at(node))
        shape = plan.Over(_HERE, by, [], rows, range_ms, peers)
        column = self._once(repr((shape, msgspec.structs.replace(made, at=None))), type_)
        self._place(shape, msgspec.structs.replace(made, name=column.field))
        return Typed(column.sql, column.type)

    def _place(self, shape: plan.Over, call: plan.Call) -> None:
        """Calls over the same window are one step."""
        texts = [e.sql for e in shape.partition]
        for i, known in enumerate(self.aggregates):
            bare = msgspec.structs.replace(known, calls=[], partition=[])
            if bare == msgspec.structs.replace(shape, partition=[]) and [e.sql for e in known.partition] == texts:
                if call.name not in [c.name for c in known.calls]:
                    self.aggregates[i] = msgspec.structs.replace(known, calls=[*known.calls, call])
                return
        self.aggregates.append(msgspec.structs.replace(shape, calls=[call]))

    def _check_order(self, node: exp.Window, order: list[plan.Order]) -> None:
        allowed = {ROWTIME, *(Column(f, f).sql for f in self.times)}
        if len(order) != 1 or order[0].descending or order[0].sql not in allowed:
            raise NotSupported(
                what="an aggregate OVER rows in another order than that of their event time", at=at(node),
                hint="Write ORDER BY the 'timestamp' column of the source, or ORDER BY rowtime().",
            )  # fmt: skip

    def _once(self, text: str, type_: types.Type | None) -> Column:
        if text not in self.columns:
            name = unique(f"over_{len(self.columns) + 1}", self.fields)
            self.fields.append(name)
            self.columns[text] = Column(name, name, type_)
        return self.columns[text]

    def over(self, step: Step) -> Step:
        """The step with the columns of the calls."""
        if not self.columns:
            return step
        if self.rank is not None and self.aggregates:
            raise NotYet(what="a rank beside an aggregate OVER", at=self.rank.at)
        columns = (*step.columns, *self.columns.values())
        if self.rank is not None:
            return replace(_ranked(step, self.rank), columns=columns)
        if step.mode != "append":
            raise NotSupported(what="an aggregate OVER rows of a changelog", at=self.aggregates[0].calls[0].at)
        node = watermarked(step.node)
        for made in self.aggregates:
            node = msgspec.structs.replace(made, input=node)
        return replace(step, node=node, columns=columns, stateful=True)


_HERE = plan.Union([])  # the input of a step that is not placed yet


def _ranked(step: Step, made: plan.Rank) -> Step:
    """Its key: the partition and the rank; or that of its input. Ranks of a window are final when it closes."""
    check_rowtime(step, [*made.partition, *made.order])
    texts = [e.sql for e in made.partition]
    until = step.bounds.until(texts) if step.mode == "append" else None
    inner = watermarked(step.node) if until is not None else retracting(step).node
    fields = {Column(f, f).sql: f for f in (*(c.field for c in step.columns), *step.key, *_bounds(step))}
    known = made.function == "row_number" and all(t in fields for t in texts)
    own = (*(fields[t] for t in texts), made.name) if known else ()
    return replace(
        step, node=msgspec.structs.replace(made, input=inner, until=until), kind="changelog",
        mode="retract" if until is None else "append", key=own or step.key, other_key=step.key if own else (),
        keyless=not own and (step.keyless or not step.key), stateful=True, placed=False, ranked=made.name,
    )  # fmt: skip


def _bounds(step: Step) -> list[str]:
    return [b for b in (step.bounds.start, step.bounds.end) if b]


def _order(node: exp.Expr, compiler: Compiler) -> plan.Order:
    if not isinstance(node, exp.Ordered):
        raise NotYet(what="this form of ORDER BY", at=at(node))
    only(node, "this", "desc", "nulls_first")
    return plan.Order(
        compiler.sql(node.this), bool(node.args.get("desc")), bool(node.args.get("nulls_first")), at(node)
    )


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
        return int(str(start.this)), None, False
    unit = str(start.args["unit"].this).upper() if isinstance(start, exp.Interval) else ""
    if unit not in UNIT_MS or not isinstance(start, exp.Interval) or not str(start.this.this).isdigit():
        raise InvalidStatement(what="RANGE takes an interval of time", at=at(start), hint="INTERVAL '1' HOUR PRECEDING")
    return None, int(str(start.this.this)) * UNIT_MS[unit], True


# The bound of a rank


def bounded(step: Step, scope: Scope, where: exp.Expr) -> Step:
    """The step with its rank bounded by what the condition says of it, if it says so."""
    if not step.ranked:
        return step
    parts = where.unnest().flatten() if isinstance(where.unnest(), exp.And) else [where.unnest()]
    limits = [n for p in parts if (n := _limit(p.unnest(), step.ranked, scope)) is not None]
    if not limits:
        return step
    # Of a single row a partition the rank says nothing: the partition is the key.
    key = tuple(k for k in step.key if k != step.ranked or min(limits) > 1)
    return replace(step, node=_with_limit(step.node, max(1, min(limits))), ranked="", key=key)


def _with_limit(node: plan.Node, limit: int) -> plan.Node:
    if isinstance(node, plan.Rank):
        return msgspec.structs.replace(node, limit=limit)
    assert isinstance(node, plan.Project | plan.Filter)
    return msgspec.structs.replace(node, input=_with_limit(node.input, limit))


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
                "WHERE rn <= 10.",
            )  # fmt: skip
