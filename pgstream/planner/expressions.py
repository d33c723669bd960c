"""Expressions: sqlglot tree to Spark SQL text.

Owns: operators, literals, casts, CASE, function calls by the table, and refusing aloud what has no meaning yet. Every
binary expression is put in parentheses, so the text never depends on Spark's precedence.
Must not know: FROM, GROUP BY; ``grouping.py`` derives the compiler of grouped expressions from this one.
Start reading at ``Compiler.compile``: it dispatches on sqlglot's node key to ``on_<key>``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from pgstream import types
from pgstream.errors import (
    CannotCast,
    GroupingError,
    IntervalOutOfRange,
    InvalidStatement,
    NotSupported,
    NotYet,
    PgStreamError,
    TooComplex,
    TypeMismatch,
    UndefinedColumn,
    UndefinedFunction,
    UndefinedOperator,
)
from pgstream.names import quote_spark, quote_text
from pgstream.planner import checked, comparisons, infer
from pgstream.planner.bind import Scope, at
from pgstream.planner.functions import ELSEWHERE, FUNCTIONS, PLANNED, Function
from pgstream.sql.dialect import WINDOWS, is_whole, window_form
from pgstream.sql.select import fold
from pgstream.types import Type

RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
NEIGHBOURS = ("LAG", "LEAD")
ROW = "named_struct("
_CLOCK = ("DAY", "HOUR", "MINUTE", "SECOND")
_WITHIN = {"HOUR": 23, "MINUTE": 59, "SECOND": 59, "MONTH": 11}  # the most of a part that is not an interval's first
_MOST = {"YEAR": 178_956_970, "MONTH": 2**31 - 1, "DAY": 106_751_991, "HOUR": 2_562_047_788, "MINUTE": 153_722_867_280,
         "SECOND": 9_223_372_036_854}  # fmt: skip
LONGEST = 1 << 17
"""Characters of an expression as Spark SQL. Reading more, which a short text may stand for, takes the server and a pool
from everybody else for too long."""
_AS_LONG_AS_WRITTEN = ("and", "in", "literal", "or", "paren")
_OF_WINDOWS = ("", "START", "END", "ROWTIME", "PROCTIME")  # TUMBLE_START and the like, beside windows in GROUP BY
_REFUSED = {
    "select": "a subquery in an expression",
    "withingroup": "WITHIN GROUP",
    "ignorenulls": "IGNORE NULLS",
    "respectnulls": "RESPECT NULLS",
    "distinct": "DISTINCT in a function",
    "order": "ORDER BY in a function",
    "limit": "LIMIT in a function",
    "concat": "a string literal in several parts",
}


@dataclass(frozen=True, slots=True)
class Typed:
    """Spark SQL text and its DeltaStream type, None where only Spark knows it."""

    sql: str
    type: Type | None = None


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node is the call of an aggregate function."""
    function = FUNCTIONS.get(str(node.this).upper()) if isinstance(node, exp.Anonymous) else None
    return function is not None and function.aggregate


def has_aggregate(node: exp.Expr) -> bool:
    """Whether an aggregate function is called in the expression (one inside OVER is not)."""
    return any(is_aggregate(n) for n in node.walk(prune=lambda n: isinstance(n, (exp.Query, exp.Window))))


class Compiler:
    """Compiles expressions over the rows of a scope. ``place`` names the clause, for errors.

    ``wants`` collects what sources must add beyond their columns (``Source.wants``). ``over`` takes the calls OVER a
    window, ``ask`` the subqueries (``subqueries.Lookups``), where they may stand.
    """

    over: Callable[[exp.Window, Compiler], Typed] | None = None
    ask: Callable[[exp.Expr, str, Sequence[tuple[Typed, int | None]]], Typed] | None = None

    def __init__(self, scope: Scope, place: str) -> None:
        self.scope = scope
        self.place = place
        self.wants: set[str] = set()

    def other(self, place: str) -> Compiler:
        """A compiler of another clause over the same rows."""
        return Compiler(self.scope, place)

    def compile(self, node: exp.Expr | None) -> Typed:
        """Spark SQL of an expression. Errors carry the position of the part that is wrong."""
        if node is None:
            return Typed("null")
        method: Callable[[exp.Expr], Typed] | None = getattr(self, "on_" + node.key, None)
        if method is not None:
            made = method(node)
            if len(made.sql) > LONGEST and node.key not in _AS_LONG_AS_WRITTEN:
                detail = f"Written out for Spark it has more than {LONGEST} characters."
                raise TooComplex(what="an expression", detail=detail, at=at(node))
            return made
        if node.key == "star":
            raise InvalidStatement(what="* stands where an expression is expected", at=at(node))
        raise NotYet(what=_REFUSED.get(node.key, f'the expression "{node.key}"'), at=at(node))

    def sql(self, node: exp.Expr | None) -> str:
        return self.compile(node).sql

    # Atoms

    def on_column(self, node: exp.Column) -> Typed:
        if isinstance(node.this, exp.Star):
            raise InvalidStatement(what="* stands where an expression is expected", at=at(node))
        column = self.scope.column(node)
        if column.bound:
            raise NotYet(
                what=f"{column.name} in {self.place}", at=at(node), detail="A window's bounds exist above its GROUP BY."
            )
        return Typed(column.sql, column.type)

    def on_literal(self, node: exp.Literal) -> Typed:
        text = str(node.this)
        if node.is_string:
            return Typed(quote_text(text), types.TEXT)
        if text.isdigit():
            return Typed(text, types.INTEGER if int(text) < 2**31 else types.BIGINT)
        return Typed(text, Type("DOUBLE" if "e" in text.lower() else "DECIMAL"))

    def on_hexstring(self, node: exp.Expr) -> Typed:
        return Typed(f"X'{node.this}'", Type("BYTES"))

    def on_null(self, node: exp.Expr) -> Typed:
        return Typed("null")

    def on_boolean(self, node: exp.Expr) -> Typed:
        return Typed("true" if node.this else "false", types.BOOLEAN)

    def on_interval(self, node: exp.Interval) -> Typed:
        number, unit = str(node.this.this), str(node.args["unit"].this).upper()
        if " TO " in unit:
            return _span(number, unit, at(node))
        fraction = r"(\.\d+)?" if unit in ("SECOND", "MILLISECOND") else ""
        if not re.fullmatch(rf"[+-]?\d+{fraction}", number):
            raise InvalidStatement(what=f'invalid interval "{number} {unit}"', at=at(node))
        if unit == "MILLISECOND":
            number, unit = f"{Decimal(number) / 1000:f}", "SECOND"
        elif unit in ("WEEK", "QUARTER"):
            number, unit = (str(int(number) * 7), "DAY") if unit == "WEEK" else (str(int(number) * 3), "MONTH")
        if abs(Decimal(number)) > _MOST[unit]:
            raise IntervalOutOfRange(text=f"{node.this.this} {node.args['unit'].this}", at=at(node))
        return Typed(f"INTERVAL '{number}' {unit}")

    def on_paren(self, node: exp.Paren) -> Typed:
        return self.compile(node.this)

    # Operators

    def on_and(self, node: exp.Expr) -> Typed:
        return self._connected(node, "AND")

    def on_or(self, node: exp.Expr) -> Typed:
        return self._connected(node, "OR")

    def on_not(self, node: exp.Expr) -> Typed:
        return Typed(f"(NOT {self.condition(node.this, 'NOT')})", types.BOOLEAN)

    def _connected(self, node: exp.Expr, word: str) -> Typed:
        left, right = self.condition(node.this, word), self.condition(node.expression, word)
        return Typed(f"({left} {word} {right})", types.BOOLEAN)

    def on_neg(self, node: exp.Expr) -> Typed:
        value = self.compile(node.this)
        if not infer.is_number(value.type):
            raise UndefinedOperator(what=f"- {str(value.type).lower()}", at=at(node))
        return Typed(f"(- {value.sql})", value.type)

    def on_eq(self, node: exp.Expr) -> Typed:
        return self._compare(node, "=")

    def on_neq(self, node: exp.Expr) -> Typed:
        return self._compare(node, "<>")

    def on_lt(self, node: exp.Expr) -> Typed:
        return self._compare(node, "<")

    def on_lte(self, node: exp.Expr) -> Typed:
        return self._compare(node, "<=")

    def on_gt(self, node: exp.Expr) -> Typed:
        return self._compare(node, ">")

    def on_gte(self, node: exp.Expr) -> Typed:
        return self._compare(node, ">=")

    def on_nullsafeeq(self, node: exp.Expr) -> Typed:
        if (rows := comparisons.of_rows(self, node.this, "<=>", node.expression)) is not None:
            return rows
        left, right = self.compare(node.this, "=", node.expression)
        return Typed(f"({left.sql} <=> {right.sql})", types.BOOLEAN)

    def on_nullsafeneq(self, node: exp.Expr) -> Typed:
        return Typed(f"(NOT {self.on_nullsafeeq(node).sql})", types.BOOLEAN)

    def on_add(self, node: exp.Expr) -> Typed:
        return self._arithmetic(node, "+")

    def on_sub(self, node: exp.Expr) -> Typed:
        return self._arithmetic(node, "-")

    def on_mul(self, node: exp.Expr) -> Typed:
        return self._arithmetic(node, "*")

    def on_mod(self, node: exp.Expr) -> Typed:
        left, right = self._operands(node, "%")
        text = checked.divided(left.sql, right.sql, (left.type, right.type), node.expression, "({0} % {1})")
        return Typed(text, infer.arithmetic(left.type, right.type))

    def on_div(self, node: exp.Expr) -> Typed:
        left, right = self._operands(node, "/")
        both = (left.type, right.type)
        result = infer.widest(*both)
        if result is not None and infer.is_integral(*both):
            # Flink: whole numbers divide to a whole number; Spark's / would give a fraction.
            whole = f"cast({{0}} div {{1}} as {result.spark})"
            return Typed(checked.divided(left.sql, right.sql, both, node.expression, whole), result)
        known = None not in both
        type_ = Type("DECIMAL") if known and infer.is_a(result, "DECIMAL") else Type("DOUBLE") if known else None
        return Typed(checked.divided(left.sql, right.sql, both, node.expression, "({0} / {1})"), type_)

    def on_dpipe(self, node: exp.Expr) -> Typed:
        return self._binary(node, "||", types.TEXT)

    def on_is(self, node: exp.Is) -> Typed:
        unknown = node.expression
        if isinstance(unknown, exp.Column) and not unknown.table and fold(unknown.this) == "unknown":
            node = exp.Is(this=node.this, expression=exp.Null(), negate=node.args.get("negate"))
        if not isinstance(node.expression, (exp.Null, exp.Boolean)):
            raise NotYet(what="this form of IS", at=at(node.expression) or at(node))
        negation = "NOT " if node.args.get("negate") else ""
        return Typed(f"({self.sql(node.this)} IS {negation}{self.sql(node.expression)})", types.BOOLEAN)

    def on_in(self, node: exp.In) -> Typed:
        if (query := node.args.get("query")) is not None:
            values = comparisons.row_of(node.this) or [node.this]
            return self.asked(query, f"({', '.join(['{}'] * len(values))}) IN ", values)
        if not node.expressions or node.args.get("unnest") or node.args.get("field"):
            raise NotYet(what="this form of IN", at=at(node))
        if (rows := comparisons.within(self, node)) is not None:
            return rows
        value, items = self.compile(node.this), [self.compile(e) for e in node.expressions]
        for item, typed in zip(node.expressions, items, strict=True):
            comparisons.check("=", (node.this, value), (item, typed))
        return Typed(f"({value.sql} IN ({', '.join(i.sql for i in items)}))", types.BOOLEAN)

    def on_exists(self, node: exp.Exists) -> Typed:
        return self.asked(node.this, "EXISTS ")

    def on_subquery(self, node: exp.Subquery) -> Typed:
        return self.asked(node, "")

    def asked(self, query: exp.Expr, before: str, values: Sequence[exp.Expr] = ()) -> Typed:
        """What PostgreSQL answers: ``before (query)``, of the row's values."""
        if self.ask is None:
            raise NotYet(
                what=f"a subquery in {self.place}", at=at(query),
                hint="It may stand in WHERE, in HAVING and in a select list.",
            )  # fmt: skip
        return self.ask(query, before, [(self.compile(v), at(v)) for v in values])

    def on_between(self, node: exp.Between) -> Typed:
        nodes = (node.this, node.args["low"], node.args["high"])
        typed = [self.compile(n) for n in nodes]
        for operator, other in ((">=", 1), ("<=", 2)):
            comparisons.check(operator, (nodes[0], typed[0]), (nodes[other], typed[other]))
        value, low, high = (t.sql for t in typed)
        text = f"({value} BETWEEN {low} AND {high})"
        return Typed(
            f"({text} OR ({value} BETWEEN {high} AND {low}))" if "symmetric" in node.meta else text, types.BOOLEAN
        )

    def on_like(self, node: exp.Expr, escape: str = "") -> Typed:
        word = f"{'NOT ' if node.args.get('negate') else ''}{node.key.upper()}"
        pattern = self.sql(node.expression) if escape else self._pattern(node.expression)
        return Typed(f"({self.sql(node.this)} {word} {pattern}{escape})", types.BOOLEAN)

    def on_ilike(self, node: exp.Expr) -> Typed:
        return self.on_like(node)

    def _pattern(self, node: exp.Expr) -> str:
        """A pattern without ESCAPE: a backslash is a character like others in it, and Spark's own mark to escape."""
        if node.is_string:
            return quote_text(str(node.this).replace("\\", "\\\\"))
        return f"replace({self.sql(node)}" + r", '\\', '\\\\')"

    def on_escape(self, node: exp.Expr) -> Typed:
        mark = node.expression
        if not isinstance(node.this, (exp.Like, exp.ILike)) or not mark.is_string or len(str(mark.this)) != 1:
            raise InvalidStatement(what="ESCAPE takes one character after LIKE", at=at(mark) or at(node))
        return self.on_like(node.this, f" ESCAPE {quote_text(str(mark.this))}")

    def on_case(self, node: exp.Case) -> Typed:
        rows = node.this is not None and comparisons.row_of(node.this) is not None
        subject = self.sql(node.this) if node.this is not None and not rows else ""
        # Spark writes it out for each WHEN itself: where it is long, its length is to be seen.
        is_long = "(" in subject

        def when(value: exp.Expr) -> str:
            if rows:
                return self.sql(exp.EQ(this=node.this.copy(), expression=value.copy()))
            if is_long:
                return f"({subject} = {self.sql(value)})"
            return self.sql(value) if subject else self.condition(value, "CASE/WHEN")

        branches = [(when(i.this), self.compile(i.args["true"])) for i in node.args["ifs"]]
        text = "".join(f" WHEN {condition} THEN {value.sql}" for condition, value in branches)
        results = [value for _, value in branches]
        default = node.args.get("default")
        if default is not None:
            results.append(self.compile(default))
            text += f" ELSE {results[-1].sql}"
        start = f"(CASE {subject}" if subject and not is_long else "(CASE"
        return Typed(f"{start}{text} END)", _common(results))

    def _compare(self, node: exp.Expr, operator: str) -> Typed:
        made = comparisons.compare(self, node, operator)
        if made is not None:
            return made
        left, right = self.compare(node.this, operator, node.expression)
        return Typed(f"({left.sql} {operator} {right.sql})", types.BOOLEAN)

    def compare(self, left: exp.Expr, operator: str, right: exp.Expr) -> tuple[Typed, Typed]:
        """Both operands of a comparison, which can be compared."""
        one, two = self.compile(left), self.compile(right)
        comparisons.check(operator, (left, one), (right, two))
        return one, two

    def condition(self, node: exp.Expr, word: str) -> str:
        """What must be true or false: an operand of AND, OR or NOT, or what a clause asks."""
        typed = self.compile(node)
        if typed.type is not None and typed.type.name != "BOOLEAN":
            what = f"argument of {word} must be type boolean, not type {str(typed.type).lower()}"
            raise TypeMismatch(what=what, at=at(node))
        return typed.sql

    def _binary(self, node: exp.Expr, operator: str, type_: Type | None = None) -> Typed:
        return Typed(f"({self.sql(node.this)} {operator} {self.sql(node.expression)})", type_)

    def _arithmetic(self, node: exp.Expr, operator: str) -> Typed:
        left, right = self._operands(node, operator)
        text = f"({left.sql} {operator} {right.sql})"
        for clock, span, by in ((left, right, node.expression), (right, left, node.this)):
            if infer.is_a(clock.type, "TIME") and infer.is_interval(by) and (clock is left or operator == "+"):
                # Behind midnight a day begins anew, where Spark has an error.
                day = f"cast(concat('2000-01-01 ', cast({clock.sql} as string)) as timestamp_ntz)"
                return Typed(f"to_time(date_format({day} {operator} {span.sql}, 'HH:mm:ss.SSSSSS'))", clock.type)
        moved = infer.moved((node.this, left.type), (node.expression, right.type))
        return Typed(text, moved or infer.arithmetic(left.type, right.type))

    def _operands(self, node: exp.Expr, operator: str) -> tuple[Typed, Typed]:
        left, right = self.compile(node.this), self.compile(node.expression)
        for side, value in ((node.this, left), (node.expression, right)):
            if not infer.can_calculate(value.type):
                # Spark would read text as a number, and what is none as NULL.
                names = [str(v.type).lower() if v.type is not None else "unknown" for v in (left, right)]
                raise UndefinedOperator(what=f" {operator} ".join(names), at=at(side) or at(node))
        return left, right

    # Nested values

    def on_dot(self, node: exp.Dot) -> Typed:
        base, field = self.compile(node.this), node.expression
        if not isinstance(field, exp.Identifier):
            raise NotSupported(what="this form of field access", at=at(field) or at(node))
        return self._field(base, fold(field), at(field))

    def _field(self, base: Typed, name: str, position: int | None) -> Typed:
        if base.type is not None and base.type.name != "STRUCT":
            raise TypeMismatch(what=f'cannot read field "{name}" of a value of type {base.type}', at=position)
        if base.type is None:
            return Typed(f"{base.sql}.{quote_spark(name)}")
        fields = dict(base.type.fields)
        if name not in fields:
            close = difflib.get_close_matches(name, fields, 1, 0.6)
            hint = f'Perhaps you meant "{close[0]}".' if close else f"Its fields are {', '.join(fields)}."
            raise UndefinedColumn(name=name, at=position, hint=hint)
        return Typed(f"{base.sql}.{quote_spark(name)}", None if fields[name] == types.NULL else fields[name])

    def on_bracket(self, node: exp.Bracket) -> Typed:
        if self._is_map_constructor(node):
            return self._map(node.expressions, at(node))
        if len(node.expressions) != 1:
            raise InvalidStatement(what="one index is expected between the brackets", at=at(node))
        base, index = self.compile(node.this), node.expressions[0]
        if isinstance(index, exp.Slice):
            raise NotYet(what="an array slice", at=at(index))
        if infer.is_a(base.type, "STRUCT") and index.is_string:
            return self._field(base, str(index.this), at(index))
        if infer.is_a(base.type, "MAP") or (base.type is None and index.is_string):
            value = base.type.args[1] if base.type is not None else None
            return Typed(f"{base.sql}[{self.sql(index)}]", value)
        if base.type is not None and base.type.name != "ARRAY":
            raise TypeMismatch(what=f"cannot take an element of a value of type {base.type}", at=at(node))
        element = base.type.args[0] if base.type is not None else None
        number = str(index.this) if isinstance(index, exp.Literal) else ""
        # Arrays begin at 1 here and at 0 in get(), which gives NULL out of range.
        place = str(int(number) - 1) if is_whole(number) else f"{self.sql(index)} - 1"
        return Typed(f"get({base.sql}, {place})", element)

    def _is_map_constructor(self, node: exp.Bracket) -> bool:
        base = node.this
        return isinstance(base, exp.Column) and not base.table and base.name.upper() == "MAP" and len(node.args) > 0 \
            and not self.scope.has(base.name.lower())  # fmt: skip

    def _map(self, items: Sequence[exp.Expr], position: int | None) -> Typed:
        if len(items) % 2:
            raise InvalidStatement(what="MAP takes pairs of key and value", at=position)
        parts = [self.compile(i) for i in items]
        key, value = _common(parts[::2]), _common(parts[1::2])
        type_ = Type("MAP", args=(key, value)) if key is not None and value is not None else None
        return Typed(f"map({', '.join(p.sql for p in parts)})", type_)

    def on_array(self, node: exp.Expr) -> Typed:
        items = [self.compile(e) for e in node.expressions]
        element = _common(items)
        type_ = Type("ARRAY", args=(element,)) if element is not None else None
        return Typed(f"array({', '.join(i.sql for i in items)})", type_)

    def on_tuple(self, node: exp.Tuple) -> Typed:
        if not node.expressions:
            raise InvalidStatement(what="a row has at least one value", at=at(node))
        return row([self.compile(e) for e in node.expressions])

    # Casts

    def on_attimezone(self, node: exp.AtTimeZone) -> Typed:
        """A moment as the clock of a zone shows it, and what a zone's clock shows as a moment, as in PostgreSQL."""
        value, zone = self.compile(node.this), self.compile(node.args["zone"])
        if (
            value.type is None
            or not infer.is_a(value.type, "TIMESTAMP", "TIMESTAMP_LTZ")
            or not infer.is_a(zone.type, "VARCHAR")
        ):
            raise UndefinedFunction(
                name=f"timezone({str(zone.type).lower()}, {str(value.type).lower()})", at=at(node),
                hint="AT TIME ZONE takes a TIMESTAMP or TIMESTAMP_LTZ and a zone's name, such as 'Europe/Berlin'.",
            )  # fmt: skip
        local = f"cast({value.sql} as timestamp_ntz)"
        if infer.is_a(value.type, "TIMESTAMP"):
            moment = f"cast(convert_timezone({zone.sql}, 'UTC', {local}) as timestamp)"
            return Typed(moment, Type("TIMESTAMP_LTZ", value.type.params))
        return Typed(f"convert_timezone('UTC', {zone.sql}, {local})", Type("TIMESTAMP", value.type.params))

    def on_cast(self, node: exp.Cast) -> Typed:
        return self._as(node.this, self._type(node.args["to"]), False, at(node))

    def on_trycast(self, node: exp.Expr) -> Typed:
        return self._as(node.this, self._type(node.args["to"]), True, at(node))

    def _as(self, node: exp.Expr, to: Type, tries: bool, position: int | None) -> Typed:
        """The cast of an expression; of a row that is written out each value is cast where it stands."""
        value = self.compile(node)
        if not infer.can_cast(value.type, to):
            raise CannotCast(source=str(value.type).lower(), to=str(to).lower(), at=position)
        row = comparisons.row_of(node) if to.name == "STRUCT" and value.sql.startswith(ROW) else None
        if row is None or value.type is None or not checked.is_ours(value.type, to):
            return Typed(checked.cast(value.sql, value.type, to, node, tries), to)
        values = [self._as(v, t, tries, at(v)).sql for v, (_, t) in zip(row, to.fields, strict=True)]
        text = ", ".join(f"{quote_text(n)}, {v}" for v, (n, _) in zip(values, to.fields, strict=True))
        return Typed(f"{ROW}{text})", to)

    def _type(self, node: exp.Expr) -> Type:
        try:
            return types.parse(str(node.this))
        except PgStreamError as e:
            e.at = at(node)
            raise

    # Functions

    def on_anonymous(self, node: exp.Anonymous) -> Typed:
        function = self.function(node)
        if function.aggregate:
            raise GroupingError(what=f"aggregate functions are not allowed in {self.place}", at=at(node))
        return self.call(function, node, self)

    def on_window(self, node: exp.Window) -> Typed:
        if self.over is None:
            raise InvalidStatement(what=f"window functions are not allowed in {self.place}", at=at(node))
        return self.over(node, self)

    def on_filter(self, node: exp.Filter) -> Typed:
        if not is_aggregate(node.this):
            raise GroupingError(what="FILTER stands after an aggregate function only", at=at(node))
        return self.compile(node.this)

    def function(self, node: exp.Anonymous) -> Function:
        """The row of the function a node calls, arity checked. Errors: UndefinedFunction, NotYet."""
        quoted = isinstance(node.this, exp.Identifier)
        name = str(node.this.this) if quoted else str(node.this)
        row = FUNCTIONS.get(name.upper())
        if row is None:
            if name.upper() in (*RANKS, *NEIGHBOURS):
                raise InvalidStatement(what=f"window function {name.lower()} requires an OVER clause", at=at(node))
            if name.upper() in PLANNED:
                hint = "Write FROM s CROSS JOIN UNNEST(a) AS e(x)." if name.upper() == "UNNEST" else None
                raise NotYet(what=f"function {name.upper()}", at=at(node), hint=hint)
            close = difflib.get_close_matches(name.upper(), FUNCTIONS, 1, 0.7)
            hint = f"Perhaps you meant {close[0].lower()}." if close else "docs/functions.md lists the functions."
            if name.upper() in ELSEWHERE:
                hint = f"Write {ELSEWHERE[name.upper()]}."
            window, _, of = name.upper().partition("_")
            if window in WINDOWS and of in _OF_WINDOWS:
                hint = f"{window} stands in FROM: {window_form(window)} GROUP BY window_start, window_end."
            raise UndefinedFunction(name=f"{name.lower()}()", at=at(node), hint=hint)
        if row.template(len(node.expressions)) is None:
            given = f"{name.lower()}() with {len(node.expressions)} argument{'s' * (len(node.expressions) != 1)}"
            raise UndefinedFunction(name=given, at=at(node), hint=f"{row.name} takes {row.arity}.")
        return row

    def call(self, function: Function, node: exp.Anonymous, inner: Compiler, where: str = "") -> Typed:
        """The call's text; arguments are compiled by ``inner``, ``where`` is an aggregate's FILTER."""
        from pgstream.planner import calls

        return calls.build(self, function, node, inner, where)


def _common(values: Sequence[Typed]) -> Type | None:
    known = [v.type for v in values if v.sql != "null"]
    return infer.widest(*known)


def row(values: Sequence[Typed]) -> Typed:
    """A STRUCT of values, whose fields are called ``f0``, ``f1`` …"""
    fields = [(f"f{i}", types.NULL if v.sql == "null" else v.type) for i, v in enumerate(values)]
    known = tuple((name, type_) for name, type_ in fields if type_ is not None)
    text = ", ".join(f"'{name}', {v.sql}" for (name, _), v in zip(fields, values, strict=True))
    return Typed(f"{ROW}{text})", Type("STRUCT", fields=known) if len(known) == len(fields) else None)


def _span(text: str, unit: str, position: int | None) -> Typed:
    """An interval of several units, ``'10 00:00:00.004' DAY TO SECOND``. Errors: InvalidStatement,
    IntervalOutOfRange.
    """
    first, _, last = unit.partition(" TO ")
    units: tuple[str, ...] = (first, last)
    form = r"\d+-\d+" if units == ("YEAR", "MONTH") else ""
    if first in _CLOCK and last in _CLOCK[_CLOCK.index(first) + 1 :]:
        units = _CLOCK[_CLOCK.index(first) : _CLOCK.index(last) + 1]
        form = r"\d+" + "".join((" " if one == "DAY" else ":") + r"\d{1,2}" for one in units[:-1])
        form += r"(\.\d{1,9})?" * (last == "SECOND")
    if not form or not re.fullmatch(f"[+-]?{form}", text):
        raise InvalidStatement(what=f'invalid interval "{text} {unit}"', at=position)
    numbers = [int(n) for n in re.findall(r"\d+", text)]
    if numbers[0] >= _MOST[first] or any(n > _WITHIN[u] for u, n in zip(units[1:], numbers[1:], strict=False)):
        raise IntervalOutOfRange(text=f"{text} {unit}", at=position)
    return Typed(f"INTERVAL '{text}' {unit}")
