"""Bounded relations: tables of PostgreSQL, materialized views, VALUES, and queries of these alone.

Owns: what is bounded, CTEs and which of them a name means. What is done with it is ``lookups``'s.
Must not know: expressions, plans. Start reading at ``Bounded.holds``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlglot import exp

from pgstream.catalog.records import RelationRecord
from pgstream.names import QName
from pgstream.planner.relations import Relations, given
from pgstream.planner.slices import Slices
from pgstream.sql.select import Select, fold, mentioned, qname


@dataclass(frozen=True, slots=True)
class Cte:
    """A common table expression: its query, the names that held where it was written, those it gives its columns."""

    query: exp.Expr
    env: Mapping[str, Cte] = field(default_factory=lambda: MappingProxyType({}))
    columns: tuple[str, ...] = ()


Env = Mapping[str, Cte]


class Bounded:
    """What of one statement is bounded."""

    def __init__(self, relations: Relations, select: Select) -> None:
        self.relations = relations
        self.slices = Slices(select.text, select.end)
        self.count = 0

    def holds(self, tree: exp.Expr, env: Env) -> bool:
        """Whether a relation or query reads bounded relations alone. Error: UndefinedRelation."""
        windows = any(q.meta.get("window") is not None for q in tree.find_all(exp.Subquery))
        if windows or tree.find(exp.MatchRecognize) is not None:
            return False
        for table in tree.find_all(exp.Table):
            if table.meta.get("window") is not None or given(table) or not isinstance(table.this, exp.Identifier):
                return False
        return all(self._is_bounded(name, env) for name in mentioned(tree))

    def _is_bounded(self, name: QName, env: Env) -> bool:
        if (cte := cte_of(name, env)) is not None:
            return self.holds(cte.query, cte.env)
        relation = self.relations.known(name)
        if relation is not None or self.relations.virtual(name) is not None:
            return relation is not None and relation.kind == "materialized_view"
        if self.relations.foreign(name) is None:
            raise self.relations.missing(name)
        return True

    def table(self, node: exp.Expr, env: Env) -> RelationRecord | None:
        """The table of a store that a relation of a FROM is, if the store answers for rows of a stream."""
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            return None
        if node.args.get("match") is not None or node.meta.get("window") is not None or given(node):
            return None
        name = qname(node)
        return None if cte_of(name, env) is not None else self.relations.looked_up(name)

    def table_in(self, tree: exp.Expr, env: Env) -> RelationRecord | None:
        """A table of a store somewhere in a query."""
        found = (self.relations.looked_up(n) for n in mentioned(tree) if cte_of(n, env) is None)
        return next((t for t in found if t is not None), None)

    def is_view(self, node: exp.Expr, env: Env) -> bool:
        """Whether a relation of a FROM is a materialized view itself."""
        if not isinstance(node, exp.Table) or node.args.get("match") is not None:
            return False
        if len(node.parts) == 1 and fold(node.this) in env:
            return False
        return self.relations.is_view(node)

    def record(self, name: QName) -> RelationRecord | None:
        """The relation that a name means, the catalogue's or PostgreSQL's own."""
        return self.relations.known(name) or self.relations.foreign(name)


def cte_of(name: QName, env: Env) -> Cte | None:
    """The CTE that a name means."""
    return env.get(name.name) if len(name.parts) == 1 else None
