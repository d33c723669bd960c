"""Subqueries over a table of a store: IN, EXISTS, = ANY and scalar ones, as what is looked up for a stream's row.

The text is ours, as ``store_lookups`` says: one table, WHERE, and a select list of expressions over it, COUNT, MIN or
MAX. Names mean the table's columns first, as in PostgreSQL.
Owns: which subqueries there are, their text and type. Must not know: where one may stand (``subqueries``).
Start reading at ``StoreSubquery``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from pgstream import types
from pgstream.catalog.records import RelationRecord
from pgstream.errors import InvalidStatement, NotYet, UndefinedOperator
from pgstream.planner import infer, plan
from pgstream.planner.answers import Described
from pgstream.planner.bind import Column, Item, Scope, at
from pgstream.planner.bounded import Bounded, Env
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.outputs import only
from pgstream.planner.store_lookups import ROWS, StoreLookup, Words, read_as
from pgstream.sql.select import fold

_AGGREGATES = {"COUNT", "MIN", "MAX"}
"""Those that answer with the same in every PostgreSQL and here, whatever the column's type."""
_JOIN = "Write a join: FROM stream LEFT JOIN table ON …"


class StoreSubquery(StoreLookup):
    """One subquery, under way. ``before``: what stands before its parenthesis, with ``{}`` for the row's values."""

    clause, hint = "a subquery", _JOIN

    def __init__(self, bounded: Bounded, compiler: Compiler, table: RelationRecord, query: exp.Expr, env: Env) -> None:
        select = query.unnest() if isinstance(query, exp.Subquery) else query
        item = select.args["from_"].this if isinstance(select, exp.Select) and select.args.get("from_") else None
        if not isinstance(item, exp.Table) or bounded.table(item, env) is not table:
            raise _refused(query)
        try:
            only(select, "expressions", "from_", "where", "distinct")
            only(item, "this", "db", "catalog", "alias")
        except NotYet:
            raise _refused(query) from None
        alias = item.args.get("alias")
        called = alias.this if isinstance(alias, exp.TableAlias) and alias.this is not None else item.this
        assert isinstance(called, exp.Identifier)
        super().__init__(bounded, compiler.scope, table, item, fold(called))
        self.compiler = compiler.other("a lookup")
        self.select = select
        self.outer, self.inner = compiler.scope, Scope((self.both.items[-1],))
        self.text = ""

    def column(self, node: exp.Column) -> Column:
        """The table's, unless it has none of this name."""
        qualifier = tuple(fold(p) for p in node.parts[:-1] if isinstance(p, exp.Identifier))
        item: Item = self.inner.items[0]
        mine = item.answers(qualifier) if qualifier else self.inner.has(fold(node.this))
        return (self.inner if mine or not self.outer.items else self.outer).column(node)

    def ask(self, before: str, values: Sequence[tuple[Typed, int | None]]) -> types.Type:
        """Settles the text; the type of what it answers with."""
        words = Words(self)
        if (condition := self.select.args.get("where")) is not None:
            self.condition = words.sql(condition.this)
        rows = f"FROM {self.entity} AS {ROWS}" + (f" WHERE {self.condition}" if self.condition else "")
        if before.startswith("EXISTS"):
            if any(_aggregate(e) for e in self.select.expressions):
                raise _refused(self.select)  # there is always one row
            for item in self.select.expressions:
                if not _is_star(item):
                    self._given(words, item)  # its names are to be ones
            self.text = f"SELECT EXISTS (SELECT 1 {rows})"
            return types.BOOLEAN
        given = [self._given(words, e) for e in self.select.expressions]
        if values and len(values) != len(given):
            few = "few" if len(given) < len(values) else "many"
            raise InvalidStatement(what=f"subquery has too {few} columns", at=at(self.select))
        if not values and len(given) != 1:
            raise InvalidStatement(what="subquery must return only one column", at=at(self.select))
        for (value, place), (one, item) in zip(values, zip(given, self.select.expressions, strict=True), strict=False):
            if value.type is not None and one.type is not None and not infer.can_match(value.type, one.type):
                what = f"{str(value.type).lower()} = {str(one.type).lower()}"
                where = place if place is not None else at(item)
                raise UndefinedOperator(what=what, at=where, hint="CAST one side to the type of the other.")
        compared = before.format(*(self.argument(*v) for v in values))
        distinct = "DISTINCT " if self.select.args.get("distinct") else ""
        type_ = types.BOOLEAN if values else given[0].type or types.TEXT
        listed = [g.sql for g in given] if values else [f"CAST({given[0].sql} AS {read_as(type_).pg})"]
        self.text = f"SELECT {compared}(SELECT {distinct}{', '.join(listed)} {rows})"
        return type_

    def _given(self, words: Words, item: exp.Expr) -> Typed:
        """One of the select list."""
        node = item.this if isinstance(item, exp.Alias) else item
        if _is_star(node):
            if len(self.given) != 1:
                raise InvalidStatement(what="subquery must return only one column", at=at(node))
            node = exp.column(exp.to_identifier(self.given[0].name, quoted=True))
        name = _aggregate(node)
        if not name:
            return words.compile(node)
        arguments = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
        if len(arguments) != 1 or any(v for k, v in node.args.items() if k not in ("this", "expressions", "big_int")):
            raise _refused(self.select)
        if isinstance(arguments[0], exp.Star):
            return Typed("count(*)", types.parse("BIGINT"))
        made = words.compile(arguments[0])
        return Typed(f"{name.lower()}({made.sql})", types.parse("BIGINT") if name == "COUNT" else made.type)

    def described(self) -> Described:
        return self.question(self.text)

    def answer(self, name: str, type_: types.Type) -> plan.Column:
        """Its column, once the store has said that it can answer. Raises Unanswered."""
        self.bounded.relations.answers.described(self.described())
        return plan.Column(name, str(read_as(type_)))


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _aggregate(node: exp.Expr) -> str:
    """The name of an aggregate call, in upper case; empty for anything else."""
    inside = node.this if isinstance(node, exp.Alias) else node
    name = str(inside.this).upper() if isinstance(inside, exp.Anonymous) else inside.key.upper()
    return name if name in _AGGREGATES and isinstance(inside, exp.Func) else ""


def _refused(query: exp.Expr) -> NotYet:
    return NotYet(
        what="this subquery over a table of a store", at=at(query),
        hint="It may be SELECT columns, COUNT, MIN or MAX FROM table WHERE …. " + _JOIN,
    )  # fmt: skip
