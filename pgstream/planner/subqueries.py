"""Subqueries: IN, EXISTS, = ANY and scalar ones are columns of the rows that a clause reads, each a lookup.

Owns: which subqueries may stand beside which rows. Must not know: how a question is put (``lookups``,
``store_subqueries``). Start reading at ``Lookups.ask``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from pgstream import types
from pgstream.catalog.records import RelationRecord
from pgstream.errors import InvalidStatement, NotSupported
from pgstream.planner import plan
from pgstream.planner.bind import Column, at, unique
from pgstream.planner.bounded import Bounded, Env
from pgstream.planner.expressions import Compiler, Typed
from pgstream.planner.lookups import Lookup
from pgstream.planner.steps import Step
from pgstream.planner.store_subqueries import StoreSubquery


@dataclass(slots=True)
class Lookups:
    """The subqueries of one clause: each is a column of the rows that the clause reads."""

    bounded: Bounded
    compiler: Compiler
    env: Env
    taken: list[str]
    made: list[tuple[Lookup, plan.Column]] = field(default_factory=list)

    def ask(self, query: exp.Expr, before: str, values: Sequence[tuple[Typed, int | None]] = ()) -> Typed:
        """``before (query)`` of each row, where ``{}`` in ``before`` stands for the row's ``values``."""
        position = at(query)
        if not self.bounded.holds(query, self.env):
            if (table := self.bounded.table_in(query, self.env)) is not None:
                return self._of_store(table, query, before, values)
            raise NotSupported(
                what="a subquery that reads a stream or changelog", at=position,
                hint="Keep it as a materialized view and ask that, or write a join.",
            )  # fmt: skip
        found = Lookup(self.bounded, self.compiler, self.env)
        found.words.say(f"SELECT {before.format(*(found.argument(*v) for v in values))}(")
        found.cut(self.bounded.slices.inside(query), query, [query])
        found.words.say(")")
        columns = found.columns()
        if len(columns) != 1:
            raise InvalidStatement(what="subquery must return only one column", at=position)
        return self._column(found, columns[0].type)

    def _of_store(
        self, table: RelationRecord, query: exp.Expr, before: str, values: Sequence[tuple[Typed, int | None]]
    ) -> Typed:
        found = StoreSubquery(self.bounded, self.compiler, table, query, self.env)
        type_ = found.ask(before, values)
        return self._column(found, found.answer("", type_).type)

    def _column(self, found: Lookup, type_: str) -> Typed:
        """The rows' column that an answer is."""
        self.bounded.count += 1
        name = unique(f"lookup_{self.bounded.count}", self.taken)
        self.taken.append(name)
        self.made.append((found, plan.Column(name, type_)))
        return Typed(Column(name, name).sql, types.parse(type_))

    def over(self, step: Step, position: int | None) -> Step:
        """The rows with the columns."""
        if not self.made:
            return step
        step = self._told_by_key(step, position)
        node = step.node
        for found, column in self.made:
            node = found.step(node, [column], "inner")
        return replace(step, node=node)

    @staticmethod
    def _told_by_key(step: Step, position: int | None) -> Step:
        """Rows that may ask: what is replaced by its key is not asked for again, as what is taken back would be."""
        if step.mode != "retract":
            return step
        if not step.key or step.ambiguous:
            raise NotSupported(
                what="a subquery beside the rows of a changelog without a key", at=position,
                detail="When a row is taken back later, it would get another answer.",
                hint="Group it, or select its key.",
            )  # fmt: skip
        return replace(step, node=plan.Normalize(step.node, list(step.key), True), mode="upsert", stateful=True)
