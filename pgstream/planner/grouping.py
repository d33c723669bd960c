"""GROUP BY: grouped expressions, aggregates, windows, and the compiler for what stands above them.

Owns: which expressions are grouped (names, ordinals, aliases, expressions), the window rule, collecting each aggregate
call once, and refusing columns that are neither grouped nor aggregated.
Must not know: FROM, output names. Start reading at ``Grouping`` and ``group``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from sqlglot import exp

from pgstream.errors import GroupingError, InvalidStatement, NotSupported, NotYet
from pgstream.names import quote_spark
from pgstream.planner import plan, sets
from pgstream.planner.aggregates import is_distinct, kernel_call
from pgstream.planner.bind import Column, Scope, at, check_names, unique
from pgstream.planner.expressions import Compiler, Typed, has_aggregate, is_aggregate
from pgstream.planner.functions import ORDERED, RECORDS
from pgstream.planner.plan import WINDOW_BOUNDS
from pgstream.planner.relations import check_window_input
from pgstream.planner.steps import Bounds, Step, check_rowtime, retracting, wanting, watermarked
from pgstream.sql.select import fold
from pgstream.types import INTEGER, Type

KEEPS_ALL = ("listagg", "array_agg")  # functions that keep every value of all rows before
MARK = "grouping_id"  # the column that tells grouping sets apart


@dataclass(slots=True)
class Grouping:
    """What a GROUP BY makes: its columns by the Spark SQL they stand for, and the aggregates met so far.

    ``kernel``: the aggregates are calls of our operator (``kernel_calls``), otherwise Spark's own (``calls``).
    ``marks``: of grouping sets (``sets.py``).
    """

    kernel: bool = False
    columns: dict[str, Column] = field(default_factory=dict)
    group: list[plan.Expr] = field(default_factory=list)
    bounds: list[str] = field(default_factory=list)
    aggregates: dict[str, Column] = field(default_factory=dict)
    calls: list[plan.Expr] = field(default_factory=list)
    kernel_calls: list[plan.Call] = field(default_factory=list)
    wants: set[str] = field(default_factory=set)
    marks: list[int] = field(default_factory=list)

    @property
    def fields(self) -> list[str]:
        return [e.name for e in self.group] + [c.name for c in self.aggregates.values()] + [*WINDOW_BOUNDS, MARK]

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.bounds, *(e.name for e in self.group), *([MARK] if self.marks else []))


class Grouped(Compiler):
    """Compiles what stands above a GROUP BY: grouped expressions and aggregates, and what is made of them."""

    def __init__(self, scope: Scope, grouping: Grouping, place: str) -> None:
        super().__init__(scope, place)
        self.grouping = grouping
        self.rows = Compiler(scope, "a function of the select list")
        self.inside = Compiler(scope, "an aggregate function")

    def other(self, place: str) -> Grouped:
        return Grouped(self.scope, self.grouping, place)

    def compile(self, node: exp.Expr | None) -> Typed:
        if node is None or isinstance(node, (exp.Literal, exp.Null, exp.Boolean, exp.Paren)):
            return super().compile(node)
        if is_aggregate(node) or (isinstance(node, exp.Filter) and is_aggregate(node.this)):
            return self._aggregate(node)
        if not has_aggregate(node) and (column := self._grouped(node)) is not None:
            return Typed(column.sql, column.type)
        return super().compile(node)

    def column(self, column: Column, position: int | None) -> Typed:
        """A column of ``*``."""
        grouped = self.grouping.columns.get(column.sql)
        if grouped is None:
            raise _ungrouped(column.name, position)
        return Typed(grouped.sql, grouped.type)

    def _grouped(self, node: exp.Expr) -> Column | None:
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            return self.grouping.columns.get(self.scope.column(node).sql)
        if any(isinstance(n, (exp.Query, exp.Window, exp.Star)) or sets.is_call(n) for n in node.walk()):
            return None
        # Not every column of the tree is one: a unit of time, as in TIMESTAMPDIFF(DAY, …), reads like a name.
        names = [n for n in node.find_all(exp.Column) if fold(n.this) in WINDOW_BOUNDS]
        if any(self.scope.column(n).bound for n in names):
            return None
        return self.grouping.columns.get(self.rows.compile(node).sql)

    def on_column(self, node: exp.Column) -> Typed:
        if isinstance(node.this, exp.Star):
            return super().on_column(node)
        raise _ungrouped(".".join(fold(p) for p in node.parts if isinstance(p, exp.Identifier)), at(node))

    def on_anonymous(self, node: exp.Anonymous) -> Typed:
        if sets.is_call(node) and self.grouping.marks:
            name = str(node.this).upper()
            names = [e.name for e in self.grouping.group]
            found = [self._grouped(a) for a in node.expressions]
            places = [names.index(c.name) if c is not None and not c.bound else None for c in found]
            return Typed(sets.grouping(name, places, len(names), quote_spark(MARK), node), INTEGER)
        function = self.function(node)
        if function.call in RECORDS:
            raise _ungrouped(f"{function.name.lower()}()", at(node), "function")
        return self.call(function, node, self)

    def _aggregate(self, node: exp.Expr) -> Typed:
        call, where = node, ""
        if isinstance(node, exp.Filter):
            call, where = node.this, self.inside.condition(node.expression.this, "FILTER")
        assert isinstance(call, exp.Anonymous)
        for below in call.walk():
            if below is not call and is_aggregate(below):
                raise GroupingError(what="aggregate function calls cannot be nested", at=at(below))
        function = self.function(call)
        if self.grouping.kernel:
            made, type_ = kernel_call(function, call, self.inside, where)
            return self._once(repr(msgspec.structs.replace(made, at=None)), type_, made)
        typed = self.call(function, call, self.inside, where)
        return self._once(typed.sql, typed.type, plan.Expr("", typed.sql, at(node)))

    def _once(self, text: str, type_: Type | None, made: plan.Expr | plan.Call) -> Typed:
        """The column of an aggregate; the same aggregate written twice is one."""
        column = self.grouping.aggregates.get(text)
        if column is None:
            name = unique(f"agg_{len(self.grouping.aggregates) + 1}", self.grouping.fields)
            column = self.grouping.aggregates[text] = Column(name, name, type_)
            if isinstance(made, plan.Call):
                self.grouping.kernel_calls.append(msgspec.structs.replace(made, name=name))
            else:
                self.grouping.calls.append(msgspec.structs.replace(made, name=name))
        return Typed(column.sql, column.type)


def _ungrouped(name: str, position: int | None, kind: str = "column") -> GroupingError:
    what = f'{kind} "{name}" must appear in the GROUP BY clause or be used in an aggregate function'
    return GroupingError(what=what, at=position)


def group(select: exp.Select, scope: Scope, projections: Sequence[exp.Expr], kernel: bool) -> Grouping:
    """The grouping of a select. Errors: GroupingError, InvalidStatement, NotYet, with position."""
    grouping = Grouping(kernel)
    clause = select.args.get("group")
    rows = Compiler(scope, "GROUP BY")
    items, places = sets.expanded(clause) if clause is not None and sets.has_sets(clause) else (_items(clause), [])
    names = [_add(grouping, _meant(item, scope, projections), scope, rows) for item in items]
    if places:
        grouping.marks = _marks(grouping, names, places, clause)
    grouping.wants |= rows.wants
    if scope.window is not None and not grouping.bounds:
        raise GroupingError(
            what="a windowed query must group by window_start or window_end",
            at=at(clause) if clause is not None else scope.window.at,
            hint="Add window_start, window_end to GROUP BY.",
        )
    return grouping


def _marks(
    grouping: Grouping, names: Sequence[str | None], places: Sequence[set[int]], clause: exp.Expr | None
) -> list[int]:
    """The grouping sets; a window's bounds belong to each of them."""
    if any(n is None and not all(i in p for p in places) for i, n in enumerate(names)):
        raise NotSupported(what="a grouping set without the window", at=at(clause))
    order = [e.name for e in grouping.group]
    return sets.marks([{order.index(n) for i in p if (n := names[i]) is not None} for p in places], len(order))


def _items(clause: exp.Group | None) -> list[exp.Expr]:
    if clause is None:
        return []
    for key, words in (("totals", "WITH TOTALS"), ("all", "GROUP BY ALL")):
        if clause.args.get(key) is not None and clause.args.get(key) != []:
            raise NotYet(what=words, at=at(clause))
    # GROUP BY () is of all rows, and adds nothing beside others; GROUP BY (a, b) is by both.
    return [i for e in clause.expressions for i in sets.unit(e)]


def _meant(item: exp.Expr, scope: Scope, projections: Sequence[exp.Expr]) -> exp.Expr:
    """The expression a GROUP BY item stands for: an ordinal's, an alias's (columns of the input win), or itself."""
    if isinstance(item, exp.Literal) and not item.is_string:
        number = int(str(item.this)) if str(item.this).isdigit() else 0
        if not 1 <= number <= len(projections):
            raise InvalidStatement(what=f"GROUP BY position {item.this} is not in select list", at=at(item))
        chosen = projections[number - 1]
        if chosen.is_star:
            raise NotYet(what="a GROUP BY position of *", at=at(item))
        return chosen.this if isinstance(chosen, exp.Alias) else chosen
    if isinstance(item, exp.Column) and not item.table and not scope.has(fold(item.this)):
        for projection in projections:
            if isinstance(projection, exp.Alias) and fold(projection.args["alias"]) == fold(item.this):
                meant: exp.Expr = projection.this
                return meant
    return item


def _add(grouping: Grouping, node: exp.Expr, scope: Scope, rows: Compiler) -> str | None:
    """The name of a grouped expression, None for a window's bound."""
    if isinstance(node, exp.Column) and (column := scope.column(node)).bound:
        if column.field not in grouping.bounds:
            grouping.bounds.append(column.field)
        # Either bound names the window, so both may be selected.
        for bound in WINDOW_BOUNDS:
            grouping.columns[quote_spark(bound)] = Column(bound, bound, column.type, bound=True)
        return None
    typed = rows.compile(node)
    known = grouping.columns.get(typed.sql)
    if known is not None:
        return known.name
    name = fold(node.this) if isinstance(node, exp.Column) else f"group_{len(grouping.group) + 1}"
    name = unique(name, grouping.fields)
    grouping.columns[typed.sql] = Column(name, name, typed.type)
    grouping.group.append(plan.Expr(name, typed.sql, at(node)))
    return name


def needs_kernel(select: exp.Select, step: Step, scope: Scope, last: bool) -> bool:
    """Whether Spark's own aggregate cannot do this one.

    Spark's takes nothing back, does not know DISTINCT or windows whose bounds are columns, and runs beside other
    operators with state only where its windows are final; so what is above one, or below one (not ``last``), is ours.
    """
    session = scope.window is not None and scope.window.kind == "session"
    if not session and any(is_distinct(n) for n in select.find_all(exp.Anonymous)):
        return True
    if scope.window is not None and step.kind == "changelog":  # windows of windows that are final
        return True
    return step.mode != "append" or (scope.window is None and (step.stateful or not last or step.bounds.known))


def tells_versions(step: Step, scope: Scope, clause: exp.Group | None) -> bool:
    """Whether each version of a group can be told with its event time: of rows that only come, and no window."""
    windowed = scope.window is not None or step.bounds.known
    return step.mode == "append" and not windowed and clause is not None and not sets.has_sets(clause)


def as_of_times(step: Step, grouping: Grouping, wants: set[str]) -> Step:
    """The groups as a temporal join wants them: as they were after each event time, not after each batch."""
    for call in grouping.kernel_calls:
        if call.distinct or call.function in KEEPS_ALL:
            raise NotYet(
                what=f"{call.function.upper()}{'(DISTINCT …)' * call.distinct} of a group that a stream is joined with",
                at=call.at, detail="It would be kept for each event time.",
                hint="Keep the groups in a changelog of their own: CREATE CHANGELOG … AS SELECT …",
            )  # fmt: skip
    fields = [c.field for c in step.columns]
    names = {e.name: unique(e.name, fields) for e in grouping.group}
    names |= {c.name: unique(c.name, (*fields, *names.values())) for c in grouping.kernel_calls}
    calls = [msgspec.structs.replace(c, name=names[c.name]) for c in grouping.kernel_calls]
    node = plan.Over(watermarked(wanting(step.node, wants)), grouping.group, calls, versions=True)
    columns = [plan.Expr(e.name, e.sql, e.at) for e in grouping.group]
    columns += [plan.Expr(c.name, quote_spark(names[c.name]), c.at) for c in grouping.kernel_calls]
    return Step(plan.Project(node, columns), (), "upsert", "changelog", grouping.key, stateful=True, placed=False)


def aggregate(step: Step, scope: Scope, grouping: Grouping, wants: set[str], early: bool) -> Step:
    """The aggregate step. ``early``: a window shows its running value before it closes."""
    window = scope.window
    if window is not None:
        check_window_input(step, window)
    check_rowtime(
        step, [*grouping.group, *(plan.Expr("", a, c.at) for c in grouping.kernel_calls for a in c.arguments)]
    )
    by_time = not scope.placed and _keeps_order(step, grouping.kernel_calls)
    until = None if window is not None or grouping.marks or step.mode != "append" else _until(step, grouping)
    final = not early if until is not None else (
        window is not None and (window.kind == "session" or step.stateful or not early)
    )  # fmt: skip
    step = retracting(step)
    node = wanting(step.node, wants)
    if window is not None or until is not None:
        node = watermarked(node)
    group = grouping.group
    if grouping.marks:
        copies = [plan.Expr(f"__set_{i}", e.sql, e.at) for i, e in enumerate(group)]
        node = plan.Expand(node, copies, grouping.marks, "__set")
        group = [plan.Expr(e.name, quote_spark(c.name), e.at) for e, c in zip(group, copies, strict=True)]
        group.append(plan.Expr(MARK, "`__set`"))
    shape = plan.Window(window.kind, window.size_ms, window.advance_ms) if window is not None else None
    made: plan.Node
    if grouping.kernel:
        every = step.bounds.every_ms if until is not None else 0
        made = plan.ChangeAggregate(node, group, grouping.kernel_calls, shape, final, until, every, by_time)
    else:
        made = plan.Aggregate(node, group, grouping.calls, shape, final)
    names = {e.sql: e.name for e in reversed(group)}
    grouped = step.bounds.renamed(lambda f: names.get(quote_spark(f), "")) if until is not None else Bounds()
    bounds = Bounds.of(window) if window is not None else grouped
    mode = "append" if final else "upsert"
    return Step(made, (), mode, "changelog", grouping.key, stateful=True, placed=False, bounds=bounds)


def _keeps_order(step: Step, calls: Sequence[plan.Call]) -> bool:
    """Whether some call takes values in the order of arrival, of rows that have none."""
    ordered = [c for c in calls if c.function.upper() in ORDERED]
    for call in ordered:
        if step.mode != "append" and call.function in ("first_value", "last_value"):
            what = f"{call.function.upper()} of rows that may be taken back and have no order of arrival"
            raise NotYet(what=what, at=call.at)
    return bool(ordered) and step.mode == "append"


def _until(step: Step, grouping: Grouping) -> str | None:
    """The end of the window that each group is of, where the input's windows are grouped by their bounds."""
    return step.bounds.until([e.sql for e in grouping.group])


def distinct_rows(step: Step, top: bool, want: str) -> Step:
    """SELECT DISTINCT: each row once. Of rows that only come, where a stream is wanted, the first appearances."""
    stream = step.is_plain and want in ("stream", "result")
    if top and want != "result":
        check_names(step.columns)
    group_by = [plan.Expr(c.field, c.sql) for c in step.columns]
    made = plan.ChangeAggregate(retracting(step).node, group_by, [], final=stream)
    key = () if stream else tuple(c.field for c in step.columns)
    kind, mode = ("stream", "append") if stream else ("changelog", "upsert")
    return Step(made, step.columns, mode, kind, key, joined=step.joined, stateful=True, placed=False)
