"""Lookups in a table of a store: the store answers, in PostgreSQL's language, for the rows of each batch.

A store answers as its own user, who may read more than the query's role: so unlike ``lookups`` it is never given the
client's words, but a text of ours, in which names and values stand quoted, and columns are of the types that the table
is declared with. What a condition reads of the stream, or of nothing, Spark computes before.
Owns: that text, which conditions there are. Must not know: FROM (``lookup_joins``), connections.
Start reading at ``StoreLookup``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from pgstream import types
from pgstream.catalog.records import RelationRecord
from pgstream.errors import InvalidStatement, NotYet, UndefinedOperator
from pgstream.names import quote_always
from pgstream.planner import comparisons, infer, plan
from pgstream.planner.answers import Described
from pgstream.planner.bind import Column, Item, Scope, at
from pgstream.planner.bounded import Bounded
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.lookups import Lookup
from pgstream.planner.slices import Range
from pgstream.sql.select import fold

ROWS = "t"  # what the text calls the table
_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren)
_CONSTANTS = (exp.Literal, exp.Boolean, exp.Null)
_SAID = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ,
    exp.NullSafeNEQ, exp.Is, exp.In, exp.Between, exp.Like, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.DPipe, exp.Cast,
    exp.Anonymous,
)  # fmt: skip
"""What a condition may do with the table's columns, as sqlglot has it."""
_FUNCTIONS = {"LOWER": types.TEXT, "UPPER": types.TEXT, "ABS": None, "COALESCE": None}
"""Functions of them that mean the same in PostgreSQL, and their types; None: that of the first argument."""
_NO_ITEMS = {"TINYINT", "TIME"}  # of arrays: the driver gives other Java objects for them than Spark wants
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?")


class StoreLookup(Lookup):
    """What a table of a store has for each row of a stream, under way. ``rows``: the stream's scope; ``item``: how the
    text names the table, as ``name``.
    """

    clause, hint = "ON", "What an inner join must meet beyond comparisons may stand in WHERE."
    """Where its conditions stand, and where else they may."""

    def __init__(self, bounded: Bounded, rows: Scope, table: RelationRecord, item: exp.Expr, name: str) -> None:
        super().__init__(bounded, Compiler(rows, "ON"), {})
        alias, place = item.args.get("alias"), at(item)
        names = [fold(c) for c in alias.args.get("columns") or []] if alias is not None else []
        if len(names) > len(table.columns):
            what = f'table "{name}" has {len(table.columns)} columns available but {len(names)} columns specified'
            raise InvalidStatement(what=what, at=place)
        self.table, self.place = table, place
        called = [*names, *(c.name for c in table.columns[len(names) :])]
        self.given = [Column(n, c.name, c.type) for n, c in zip(called, table.columns, strict=True)]
        mine = Item(name, tuple(self.given), () if alias is not None else tuple(table.full.path))
        self.both = replace(rows, items=(*rows.items, mine))
        self.condition = ""
        bounded.relations.read.append(table)
        bounded.relations.met.append(table)

    def on(self, where: Range, condition: exp.Expr, item: exp.Expr) -> None:
        self.condition = Words(self).sql(condition)

    def equal(self, name: str, column: exp.Column) -> str:
        mine = next(c for c in self.given if c.name == fold(column.this))
        return f"{said(mine)} = {self.argument(self.compiler.compile(column), at(column))}"

    def require(self, conditions: Sequence[str]) -> None:
        self.condition = " AND ".join(conditions)

    def column(self, node: exp.Column) -> Column:
        """What a name means in a condition. Errors: UndefinedColumn, AmbiguousColumn, MissingFrom."""
        return self.both.column(node)

    def described(self) -> Described:
        nested = next((c for c in self.given if not is_read(c)), None)
        if nested is not None:
            raise NotYet(
                what=f'looking up column "{nested.name}" of type {nested.type}', at=self.place,
                hint="Declare the table without it; json may be declared as VARCHAR, which is its text.",
            )  # fmt: skip
        every = ", ".join(f"CAST({ROWS}.{quote_always(c.field)} AS {types.parse(kind(c)).pg})" for c in self.given)
        where = f" WHERE {self.condition}" if self.condition else ""
        return self.question(f"SELECT {every} FROM {self.entity} AS {ROWS}{where}")

    @property
    def entity(self) -> str:
        """The table's name in the text."""
        return ".".join(map(quote_always, (self.table.entity or "").split(".")))

    def question(self, text: str) -> Described:
        # Without precision: that of a calculated DECIMAL is Spark's to say.
        kinds = tuple(types.TABLE[types.parse(a.type).name].pg for a in self.arguments)
        places = ((0, self.place),) if self.place is not None else ()
        return Described("", "", text, kinds, places, self.table.store or "", self.table.entity or "")

    def columns(self) -> list[plan.Column]:
        """Those that are declared, once the store has said that it can answer. Raises Unanswered."""
        super().columns()
        return [plan.Column(c.name, kind(c)) for c in self.given]

    def step(
        self, node: plan.Node, columns: list[plan.Column], how: str, left_alias: str = "", right_alias: str = ""
    ) -> plan.Lookup:
        if self.compiler.wants:
            raise NotYet(what="the record key in a lookup")
        return plan.Lookup(
            node, str(self.table.full), "", columns, how, [], left_alias, right_alias, self.described().sql,
            self.arguments, store=self.table.store or "",
        )  # fmt: skip


class Words(Compiler):
    """Conditions in PostgreSQL's language instead of Spark's: what reads no column of the table is an argument."""

    def __init__(self, found: StoreLookup) -> None:
        super().__init__(found.both, found.clause)
        self.found = found

    def other(self, place: str) -> Compiler:
        return self

    def compile(self, node: exp.Expr | None) -> Typed:
        if node is None or isinstance(node, _CONSTANTS):
            return super().compile(node)
        if (query := node.find(exp.Query)) is not None:
            raise NotYet(what=f"a subquery in {self.place}", at=at(query), hint="It may stand in WHERE of the stream.")
        if not isinstance(node, _LOGIC) and not self._is_of_table(node):
            given = self.found.compiler.compile(node)
            return Typed(self.found.argument(given, at(node)), given.type)
        if type(node) not in _SAID:
            raise self._refused(node)
        return super().compile(node)

    def _is_of_table(self, node: exp.Expr) -> bool:
        """Whether an expression reads a column of the table. Errors: UndefinedColumn, AmbiguousColumn, MissingFrom."""
        found = [self.found.column(c) for c in node.find_all(exp.Column) if not isinstance(c.this, exp.Star)]
        return any(c is mine for c in found for mine in self.found.given)

    def _refused(self, node: exp.Expr) -> NotYet:
        return NotYet(
            what=f"this expression over columns of a store's table in {self.place}", at=at(node), hint=self.found.hint
        )  # fmt: skip

    def on_column(self, node: exp.Column) -> Typed:
        column = self.found.column(node)
        if column.type is None or not column.type.is_scalar:
            raise self._refused(node)
        return Typed(said(column), column.type)

    def on_literal(self, node: exp.Literal) -> Typed:
        text = str(node.this)
        if node.is_string:
            return Typed(quoted(text), types.TEXT)
        if not _NUMBER.fullmatch(text):
            raise self._refused(node)
        return super().on_literal(node)

    def _pattern(self, node: exp.Expr) -> str:
        # As PostgreSQL quotes and reads it, where a backslash escapes.
        return self.sql(node)

    def on_nullsafeeq(self, node: exp.Expr) -> Typed:
        return self._compare(node, "IS NOT DISTINCT FROM")

    def on_nullsafeneq(self, node: exp.Expr) -> Typed:
        return self._compare(node, "IS DISTINCT FROM")

    def on_cast(self, node: exp.Cast) -> Typed:
        to = self._type(node.args["to"])
        if not to.is_scalar:
            raise self._refused(node)
        return Typed(f"CAST({self.sql(node.this)} AS {to.pg})", to)

    def on_anonymous(self, node: exp.Anonymous) -> Typed:
        name = str(node.this).upper()
        if name not in _FUNCTIONS or isinstance(node.this, exp.Identifier):
            raise self._refused(node)
        self.function(node)  # how many arguments it takes
        given = [self.compile(e) for e in node.expressions]
        return Typed(f"{name.lower()}({', '.join(v.sql for v in given)})", _FUNCTIONS[name] or given[0].type)

    def _compare(self, node: exp.Expr, operator: str) -> Typed:
        left, right = node.this, node.expression
        if any(comparisons.quantifier(side) or isinstance(side, (exp.Tuple, exp.All)) for side in (left, right)):
            raise self._refused(node)
        one, two = self.compile(left), self.compile(right)
        # A literal is of the type that it is compared with.
        free = any(isinstance(side, exp.Null) or (isinstance(side, exp.Literal) and side.is_string)
                   for side in (left, right))  # fmt: skip
        if not free and not infer.can_match(one.type, two.type):
            what = f"{str(one.type).lower()} {operator} {str(two.type).lower()}"
            raise UndefinedOperator(what=what, at=at(node), hint="CAST one side to the type of the other.")
        return Typed(f"({one.sql} {operator} {two.sql})", types.BOOLEAN)


def is_read(column: Column) -> bool:
    """Whether a lookup gives a column of its type: scalars, and arrays of most of them."""
    type_ = column.type
    assert type_ is not None
    return type_.is_scalar or (type_.name == "ARRAY" and type_.args[0].name in types.TABLE.keys() - _NO_ITEMS)


def kind(column: Column) -> str:
    """The type that a column is read as."""
    assert column.type is not None
    return str(read_as(column.type))


def read_as(type_: types.Type) -> types.Type:
    """Without a length: a cast to one would cut the text off."""
    return types.TEXT if type_.name == "VARCHAR" else type_


def said(column: Column) -> str:
    """A column of the table, as its declared type without parameters: where it is of that, an index still counts."""
    assert column.type is not None
    return f"CAST({ROWS}.{quote_always(column.field)} AS {types.TABLE[column.type.name].pg})"


def quoted(text: str) -> str:
    """A string literal whatever ``standard_conforming_strings`` says."""
    inner = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{inner}'" if "\\" in text else f"'{inner}'"
