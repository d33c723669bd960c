"""MATCH_RECOGNIZE: the step that finds patterns of rows, and what its expressions may read of them.

Owns: pattern variables as qualifiers, FIRST, LAST, PREV and NEXT, aggregates of a match, which patterns can be looked
for. Must not know: FROM, how matches are found. Start reading at ``recognized``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from sqlglot import exp

from pgstream.errors import (
    DuplicateColumn,
    GroupingError,
    InvalidStatement,
    MissingFrom,
    NotSupported,
    NotYet,
    OffsetTooLarge,
    PatternTooLarge,
    ReservedName,
    TypeMismatch,
    UndefinedFunction,
    UndefinedObject,
)
from pgstream.names import quote_spark
from pgstream.planner import checked, plan
from pgstream.planner.aggregates import kernel_call
from pgstream.planner.bind import Column, Item, Scope, at, renamed
from pgstream.planner.expressions import Compiler, Typed, is_aggregate
from pgstream.planner.functions import GROUPS
from pgstream.planner.outputs import column_name, only
from pgstream.planner.steps import ROWTIME, Step, wanting, watermarked
from pgstream.sql import recognize
from pgstream.sql.recognize import MatchClause
from pgstream.sql.select import fold
from pgstream.types import Type

LARGEST = 10_000
"""Variables in a pattern with its repetitions written out, and rows that PREV and its like go along."""
_NAVIGATION = {"FIRST": 0, "LAST": 0, "PREV": 1, "NEXT": 1}  # and the offset where none is given
_RECORD = {f.name: f for f in GROUPS["rows"]}
_OF_ROW = ("row_timestamp", "row_key", "row_metadata")
_UNSTEADY = frozenset(("RAND", "RAND_INTEGER", "UUID", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME", "LOCALTIMESTAMP",
                       "CURRENT_TIMESTAMP", "NOW", "CURRENT_ROW_TIMESTAMP"))  # fmt: skip
_TIME = "cast(timestamp_millis(unix_millis(`__time`)) as timestamp_ntz)"
_TIME_TYPE = Type("TIMESTAMP", (3,))
_NOT_YET = {
    "CLASSIFIER": "COUNT(A.*) > 0 says whether a match has rows of A.",
    "MATCH_NUMBER": "COUNT(*) OVER (PARTITION BY … ORDER BY rowtime()) around it numbers the matches.",
    "MATCH_PROCTIME": "MATCH_ROWTIME() is the event time of the last row.",
}


def recognized(step: Step, scope: Scope, node: exp.MatchRecognize) -> tuple[Step, Scope]:
    """The matches in the rows of a step.

    Errors: NotSupported for rows that may be taken back, InvalidStatement, MissingFrom … with position.
    """
    clause: MatchClause = node.meta["clause"]
    if step.mode != "append":
        raise NotSupported(
            what="MATCH_RECOGNIZE over a changelog", at=at(node),
            detail="Its rows may be taken back.", hint="Declare its topic as a stream.",
        )  # fmt: skip
    names = _check_pattern(clause)
    times = {ROWTIME, *(Column(f, f).sql for f in step.times)}
    reads = Reads(tuple(names), times)
    partition = _partition(node, scope)
    order = _order(node, scope, reads)
    define = _define(node, clause, scope, reads)
    measures, kinds = _measures(node, scope, reads)
    columns = tuple(Column(n, n, t) for n, t in (*((e.name, t) for e, t in partition), *kinds))
    _check_columns(columns, node)
    made = plan.Recognize(
        watermarked(wanting(step.node, reads.wants)),
        [e for e, _ in partition], order, _plan(clause.pattern), define, reads.found, measures,
        clause.skip, clause.to.name if clause.to is not None else "", clause.within_ms,
        clause.within_ms + 1 if clause.within_ms and _is_open(clause.pattern) and not reads.look_ahead else 0,
    )  # fmt: skip
    kept = frozenset(m.name for m in measures if reads.is_time(m.sql))
    out = Step(made, columns, joined=step.joined, stateful=True, placed=False, times=kept)
    alias = node.args.get("alias")
    name = fold(alias.this) if alias is not None and alias.this is not None else scope.items[0].alias
    item = Item(name, columns, at=at(node), matched=True)
    found = Scope((item,), placed=False)
    renames = tuple(fold(c) for c in alias.args.get("columns") or []) if alias is not None else ()
    return out, renamed(found, renames, at(alias)) if renames else found


# The pattern


def _check_pattern(clause: MatchClause) -> list[str]:
    """The names of the pattern's variables, each once."""
    used = list(dict.fromkeys(v.name for v in recognize.variables(clause.pattern)))
    seen: set[str] = set()
    for variable in clause.defined:
        if variable.name not in used:
            raise UndefinedObject(
                kind="pattern variable", name=variable.name, at=variable.at,
                hint=f"PATTERN has {', '.join(used)}.",
            )  # fmt: skip
        if variable.name in seen:
            raise InvalidStatement(what=f'pattern variable "{variable.name}" is defined twice', at=variable.at)
        seen.add(variable.name)
    if (size := _size(clause.pattern)) > LARGEST:
        raise PatternTooLarge(size=size, most=LARGEST, at=clause.pattern_at)
    if not _length(clause.pattern)[0]:
        raise NotSupported(
            what="a pattern that matches no rows", at=clause.pattern_at,
            detail="Such a match has no last row, whose event time would be the result's.",
            hint="Write + instead of *, or begin or end it with a variable that must be there.",
        )  # fmt: skip
    _check_skip(clause, used)
    return used


def _size(pattern: recognize.Pattern) -> int:
    """How many variables it has, repetitions written out."""
    match pattern:
        case recognize.Variable():
            return 1
        case recognize.Repeat():
            return _size(pattern.part) * max(pattern.least + (pattern.most is None), pattern.most or 0)
        case recognize.Sequence() | recognize.Choice():
            return sum(map(_size, pattern.parts))


def _length(pattern: recognize.Pattern) -> tuple[int, float]:
    """How many rows it has at least, and at most."""
    match pattern:
        case recognize.Variable():
            return 1, 1
        case recognize.Repeat():
            least, most = _length(pattern.part)
            times = float("inf") if pattern.most is None else pattern.most
            return pattern.least * least, most * times if most else 0
        case recognize.Choice():
            parts = [_length(p) for p in pattern.parts]
            return min(n for n, _ in parts), max(n for _, n in parts)
        case recognize.Sequence():
            parts = [_length(p) for p in pattern.parts]
            return sum(n for n, _ in parts), sum(n for _, n in parts)


def _check_skip(clause: MatchClause, used: Sequence[str]) -> None:
    if clause.to is None:
        return
    if clause.to.name not in used:
        raise UndefinedObject(
            kind="pattern variable", name=clause.to.name, at=clause.to.at, hint=f"PATTERN has {', '.join(used)}."
        )
    first = _first(clause.pattern)
    # Its first row is the match's: the same match again and again. What depends on the rows, fails when it happens.
    loops = first == {clause.to.name} and (clause.skip == "to first" or _most(clause.pattern, clause.to.name) == 1)
    if loops:
        raise InvalidStatement(
            what="AFTER MATCH SKIP leads back to the first row of the match", at=clause.to.at,
            hint="Write AFTER MATCH SKIP TO NEXT ROW.",
        )  # fmt: skip


def _first(pattern: recognize.Pattern) -> set[str]:
    """The variables that the first row may be mapped to."""
    match pattern:
        case recognize.Variable():
            return {pattern.name}
        case recognize.Repeat():
            return _first(pattern.part)
        case recognize.Choice():
            return set[str]().union(*map(_first, pattern.parts))
        case recognize.Sequence():
            found: set[str] = set()
            for part in pattern.parts:
                found |= _first(part)
                if _length(part)[0]:
                    break
            return found


def _most(pattern: recognize.Pattern, name: str) -> float:
    """How many rows a variable can have."""
    match pattern:
        case recognize.Variable():
            return pattern.name == name
        case recognize.Repeat():
            inner = _most(pattern.part, name)
            return inner * (float("inf") if pattern.most is None else pattern.most) if inner else 0
        case recognize.Choice():
            return max(_most(p, name) for p in pattern.parts)
        case recognize.Sequence():
            return sum(_most(p, name) for p in pattern.parts)


def _is_open(pattern: recognize.Pattern) -> bool:
    """Whether a row behind a match may have to be seen before it is known that the match has ended."""
    match pattern:
        case recognize.Variable():
            return False
        case recognize.Repeat():
            more = pattern.most is None or pattern.most > pattern.least
            return (more and not pattern.reluctant) or _is_open(pattern.part)
        case recognize.Choice():
            lengths = [_length(p) for p in pattern.parts]
            waits = any(a > b for i, (_, a) in enumerate(lengths) for b, _ in lengths[i + 1 :])
            return waits or any(map(_is_open, pattern.parts))
        case recognize.Sequence():
            for part in reversed(pattern.parts):
                if _is_open(part):
                    return True
                if _length(part)[0]:
                    return False
            return True


def _plan(pattern: recognize.Pattern) -> plan.Pattern:
    match pattern:
        case recognize.Variable():
            return plan.Row(pattern.name)
        case recognize.Sequence():
            return plan.Sequence([_plan(p) for p in pattern.parts])
        case recognize.Choice():
            return plan.Choice([_plan(p) for p in pattern.parts])
        case recognize.Repeat():
            return plan.Repeat(_plan(pattern.part), pattern.least, pattern.most, pattern.reluctant)


# The other parts


def _partition(node: exp.MatchRecognize, scope: Scope) -> list[tuple[plan.Expr, Type | None]]:
    compiler = Compiler(scope, "PARTITION BY")
    found = []
    for i, part in enumerate(node.args["partition_by"], 1):
        typed = compiler.compile(part)
        found.append((plan.Expr(column_name(part, i), typed.sql, at(part)), typed.type))
    if compiler.wants:
        raise NotYet(what="ROWKEY() in PARTITION BY", at=at(node.args["partition_by"][0]))
    return found


def _order(node: exp.MatchRecognize, scope: Scope, reads: Reads) -> list[plan.Order]:
    compiler = Compiler(scope, "ORDER BY")
    found: list[plan.Order] = []
    for part in node.args["order"]:
        only(part, "this", "desc", "nulls_first")
        desc, nulls_first = bool(part.args.get("desc")), bool(part.args.get("nulls_first"))
        found.append(plan.Order(compiler.sql(part.this), desc, nulls_first, at(part)))
    reads.wants |= compiler.wants
    if not found or found[0].sql not in reads.times or found[0].descending:
        raise InvalidStatement(
            what="MATCH_RECOGNIZE needs ORDER BY the event time, ascending, as the first column",
            at=found[0].at if found else at(node),
            hint="Write ORDER BY the 'timestamp' column of the source, or ORDER BY rowtime().",
        )  # fmt: skip
    return found[1:]


def _define(node: exp.MatchRecognize, clause: MatchClause, scope: Scope, reads: Reads) -> list[plan.Expr]:
    found = []
    for variable, condition in zip(clause.defined, node.args["define"], strict=True):
        typed = Match(scope, "DEFINE", reads).compile(condition)
        if typed.type is not None and typed.type.name != "BOOLEAN":
            raise TypeMismatch(
                what=f"argument of DEFINE must be type boolean, not type {typed.type.pg}", at=at(condition)
            )
        found.append(plan.Expr(variable.name, typed.sql, at(condition)))
    return found


def _measures(
    node: exp.MatchRecognize, scope: Scope, reads: Reads
) -> tuple[list[plan.Expr], list[tuple[str, Type | None]]]:
    compiler = Match(scope, "MEASURES", reads)
    found, kinds = [], []
    for measure in node.args["measures"]:
        name, typed = fold(measure.args["alias"]), compiler.compile(measure.this)
        found.append(plan.Expr(name, typed.sql, at(measure.this)))
        kinds.append((name, typed.type))
    return found, kinds


def _check_columns(columns: Sequence[Column], node: exp.MatchRecognize) -> None:
    if not columns:
        raise InvalidStatement(what="MATCH_RECOGNIZE without PARTITION BY and MEASURES has no columns", at=at(node))
    places = [*node.args["partition_by"], *(m.args["alias"] for m in node.args["measures"])]
    seen: set[str] = set()
    for column, place in zip(columns, places, strict=True):
        if column.name.startswith("__"):
            raise ReservedName(kind="column", name=column.name, at=at(place))
        if column.name in seen:
            partition = len(seen) < len(node.args["partition_by"])
            hint = "Name the expressions in a subquery." if partition else "Give the measure another name."
            raise DuplicateColumn(name=column.name, at=at(place), hint=hint)
        seen.add(column.name)


# Expressions


@dataclass(slots=True)
class Reads:
    """What the conditions and measures of one clause read, each once. ``variables``: those of the pattern; ``times``:
    what is the event time of a row.
    """

    variables: tuple[str, ...]
    times: Collection[str]
    found: list[plan.Read] = field(default_factory=list)
    wants: set[str] = field(default_factory=set)

    def add(self, read: plan.Read, type_: Type | None, position: int | None) -> Typed:
        bare = _bare(read)
        known = next((r for r in self.found if _bare(r) == bare), None)
        if known is None:
            raises = any(map(checked.raises, _texts(read)))
            known = msgspec.structs.replace(read, name=f"__r{len(self.found)}", at=position, raises=raises)
            self.found.append(known)
        return Typed(quote_spark(known.name), type_)

    @property
    def look_ahead(self) -> bool:
        """Whether a row behind one that is mapped is read, which is waited for, WITHIN or not."""
        return any(r.shift > 0 for r in self.found)

    def is_time(self, sql: str) -> bool:
        """Whether that is the event time of the last row."""
        last = [plan.Read("", value=v) for v in (_TIME, *self.times)]
        return any(quote_spark(r.name) == sql and _bare(r) in last for r in self.found)


def _bare(read: plan.Read) -> plan.Read:
    call = None if read.call is None else msgspec.structs.replace(read.call, at=None)
    return msgspec.structs.replace(read, name="", at=None, call=call, raises=False)


def _texts(read: plan.Read) -> list[str]:
    return [read.value] if read.call is None else [*read.call.arguments, read.call.where or ""]


def _check_told(node: exp.Expr, place: str) -> None:
    """RUNNING or FINAL, where it stands before an expression."""
    told = node.meta.get("told")
    if told is None:
        return
    call = node.this if isinstance(node, exp.Filter) else node
    name = str(call.this).upper() if isinstance(call, exp.Anonymous) else ""
    if name not in _NAVIGATION and not is_aggregate(call):
        raise InvalidStatement(
            what=f"{told.text.upper()} stands before FIRST, LAST or an aggregate only", at=told.start
        )
    if place == "DEFINE" and told.text.upper() == "FINAL":
        raise InvalidStatement(what="FINAL in DEFINE", at=told.start, detail="The match is not known there yet.")


def _check_known(name: str, node: exp.Expr) -> None:
    """What the standard and Flink have of a match, and this has not."""
    if name in _NOT_YET:
        raise NotYet(what=f"function {name}", at=at(node), hint=_NOT_YET[name])


class OfRow(Compiler):
    """Expressions over one row of a match; ``of`` collects the variables that name it, empty for none."""

    def __init__(self, scope: Scope, place: str, variables: Sequence[str]) -> None:
        super().__init__(scope, place)
        self.variables = variables
        self.of: dict[str, int | None] = {}

    def other(self, place: str) -> Compiler:
        return OfRow(self.scope, place, self.variables)

    def compile(self, node: exp.Expr | None) -> Typed:
        if node is not None:
            _check_told(node, self.place)
        return super().compile(node)

    def on_column(self, node: exp.Column) -> Typed:
        if isinstance(node.this, exp.Star):
            raise InvalidStatement(what="* stands where an expression is expected", at=at(node))
        self.of.setdefault(self._variable(node), at(node))
        name = fold(node.this)
        if node.args.get("table") is not None and name in _OF_ROW and not self.scope.has(name):
            return super().on_anonymous(exp.Anonymous(this=name).update_positions(node.this))
        bare = exp.Column(this=node.this.copy())
        column = self.scope.column(bare)
        return Typed(column.sql, column.type)

    def _variable(self, node: exp.Column) -> str:
        table = node.args.get("table")
        if table is None:
            return ""
        name = fold(table)
        if name not in self.variables or node.args.get("db") is not None:
            known = f"In MATCH_RECOGNIZE columns are of {', '.join(self.variables)}."
            raise MissingFrom(name=name, at=at(node), hint=self.scope.of_struct(name) or known)
        return name

    def on_anonymous(self, node: exp.Anonymous) -> Typed:
        if (name := str(node.this).upper()) in _NAVIGATION:
            raise InvalidStatement(
                what=f"{name} inside another function of rows", at=at(node),
                hint="PREV and NEXT take FIRST and LAST; no other is nested.",
            )  # fmt: skip
        if is_aggregate(node):
            raise GroupingError(what=f"{name} inside another function of rows", at=at(node))
        if name == "MATCH_ROWTIME":
            raise InvalidStatement(
                what="MATCH_ROWTIME inside another function of rows",
                at=at(node),
                hint="A row has rowtime().",
            )
        _check_known(name, node)
        return self._record(node) if name in _RECORD else super().on_anonymous(node)

    def _record(self, node: exp.Anonymous) -> Typed:
        """``ROWTIME()`` and its like, of the variable that they name."""
        named = node.expressions[0] if len(node.expressions) == 1 else None
        if isinstance(named, exp.Column) and (path := self.scope.path(named))[-1] in self.variables and len(path) == 1:
            self.of.setdefault(path[0], at(named))
            node = exp.Anonymous(this=node.this).update_positions(node)
        else:
            self.of.setdefault("", at(node))
        return super().on_anonymous(node)

    @property
    def variable(self) -> str:
        """The one variable. Error: InvalidStatement where there are several."""
        if len(self.of) > 1:
            shown = ", ".join(v or "no variable" for v in self.of)
            raise InvalidStatement(
                what=f"the columns of one function are of different variables: {shown}", at=list(self.of.values())[1]
            )
        return next(iter(self.of), "")


class Match(Compiler):
    """Expressions over a match: a column is that of the last row mapped to its variable."""

    def __init__(self, scope: Scope, place: str, reads: Reads) -> None:
        super().__init__(scope, place)
        self.reads = reads

    def other(self, place: str) -> Compiler:
        return Match(self.scope, place, self.reads)

    def compile(self, node: exp.Expr | None) -> Typed:
        if node is not None:
            _check_told(node, self.place)
        return super().compile(node)

    def on_column(self, node: exp.Column) -> Typed:
        return self._value(node)

    def _row(self) -> OfRow:
        return OfRow(self.scope, self.place, self.reads.variables)

    def _value(self, node: exp.Expr, last: bool = True, offset: int = 0, shift: int = 0) -> Typed:
        inner = self._row()
        value = inner.compile(node)
        self.reads.wants |= inner.wants
        read = plan.Read("", inner.variable, value.sql, last, offset, shift)
        return self.reads.add(read, value.type, at(node))

    def on_anonymous(self, node: exp.Anonymous) -> Typed:
        name = str(node.this).upper()
        if name in _NAVIGATION:
            return self._navigated(name, node)
        if name == "MATCH_ROWTIME":
            return self._rowtime(node)
        _check_known(name, node)
        if name in _RECORD:
            return self._value(node)
        if name in _UNSTEADY and self.place == "DEFINE":
            raise NotSupported(
                what=f"{name} in DEFINE", at=at(node), detail="A condition is asked of the same rows again and again."
            )
        if is_aggregate(node):
            return self._aggregate(node)
        return super().on_anonymous(node)

    def on_filter(self, node: exp.Filter) -> Typed:
        if not is_aggregate(node.this):
            raise GroupingError(what="FILTER stands after an aggregate function only", at=at(node))
        return self._aggregate(node.this, node.expression.this)

    def _rowtime(self, node: exp.Anonymous) -> Typed:
        if self.place != "MEASURES":
            raise InvalidStatement(what="MATCH_ROWTIME stands in MEASURES only", at=at(node))
        if not node.expressions:
            return self.reads.add(plan.Read("", value=_TIME), _TIME_TYPE, at(node))
        if len(node.expressions) > 1:
            name = f"match_rowtime() with {len(node.expressions)} arguments"
            raise UndefinedFunction(name=name, at=at(node), hint="It takes none or 1.")
        inner = self._row()
        time = inner.compile(node.expressions[0])
        if inner.variable or time.sql not in self.reads.times:
            raise InvalidStatement(
                what="MATCH_ROWTIME of what is not the event time", at=at(node.expressions[0]),
                hint="Write MATCH_ROWTIME().",
            )  # fmt: skip
        self.reads.wants |= inner.wants
        return self.reads.add(plan.Read("", value=time.sql), time.type, at(node))

    def _navigated(self, name: str, node: exp.Anonymous) -> Typed:
        """FIRST and LAST go along the rows of a variable, PREV and NEXT from there along those of the partition."""
        value, offset = self._arguments(name, node)
        if name in ("FIRST", "LAST"):
            return self._value(value, name == "LAST", offset)
        shift = -offset if name == "PREV" else offset
        inner = str(value.this).upper() if isinstance(value, exp.Anonymous) else ""
        if inner in ("FIRST", "LAST") and isinstance(value, exp.Anonymous):
            _check_told(value, self.place)
            of, from_ = self._arguments(inner, value)
            return self._value(of, inner == "LAST", from_, shift)
        return self._value(value, shift=shift)

    def _arguments(self, name: str, node: exp.Anonymous) -> tuple[exp.Expr, int]:
        given = node.expressions
        if not 1 <= len(given) <= 2:
            raise UndefinedFunction(
                name=f"{name.lower()}() with {len(given)} arguments", at=at(node), hint=f"{name} takes 1 or 2."
            )
        if len(given) == 1:
            return given[0], _NAVIGATION[name]
        away = given[1]
        if not isinstance(away, exp.Literal) or away.is_string or not str(away.this).isdigit():
            raise NotSupported(what=f"an offset of {name} that is no whole number", at=at(away) or at(node))
        if (offset := int(str(away.this))) > LARGEST:
            raise OffsetTooLarge(name=name, size=offset, most=LARGEST, at=at(away))
        return given[0], offset

    def _aggregate(self, node: exp.Anonymous, where: exp.Expr | None = None) -> Typed:
        inner = self._row()
        counted = node.expressions[0] if len(node.expressions) == 1 else None
        if isinstance(counted, exp.Column) and isinstance(counted.this, exp.Star):
            inner.of[inner._variable(counted)] = at(counted)
            star = exp.Star().update_positions(counted.this)
            node = exp.Anonymous(this=node.this, expressions=[star]).update_positions(node)
        condition = inner.sql(where) if where is not None else ""
        inner.scope = replace(inner.scope, placed=True)
        call, type_ = kernel_call(self.function(node), node, inner, condition)
        self.reads.wants |= inner.wants
        typed = self.reads.add(plan.Read("", inner.variable, call=call), type_, call.at)
        return Typed(f"cast({typed.sql} as {call.cast})", type_) if call.cast else typed
