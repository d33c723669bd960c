"""REPAIR MATERIALIZED VIEW: a view computed anew from what it was made of, and put right where it differs.

Owns: the query that does it. Must not know: when that can be done (``anew``), how a view is replaced (``continuous``,
``catalog.replacing``). Start reading at ``execute``.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from msgspec import structs

from pgstream.catalog.records import QueryRecord, RelationRecord
from pgstream.catalog.store import REPLACES
from pgstream.planner.plan import Plan, Source, ViewSink, ViewSource
from pgstream.planner.steps import with_sources
from pgstream.sql.cursor import Cursor
from pgstream.statements import alone, continuous
from pgstream.statements.anew import ViewAnew
from pgstream.statements.answers import ddl, done
from pgstream.statements.base import DDL_ROW, Context, Result


@dataclass(frozen=True, slots=True)
class RepairMaterializedView(ViewAnew):
    """REPAIR MATERIALIZED VIEW [[database_name.]schema_name.]view_name;

    Compute a materialized view anew, by the same query, from the first record that it was made of, beside the view;
    then make the view what that gives, in one transaction that writes the rows which differ and no others. It goes
    as CREATE OR REPLACE MATERIALIZED VIEW does: the statement returns when the new query runs, LIST QUERIES shows
    how far it is, TERMINATE QUERY gives it up, and in the end the new query keeps the view.

    Refused with 55000 where the view cannot be made again: its query began at the latest records, a topic no longer
    holds the records that it began with, or it reads the rows of a view that only come. Where such records go before
    the new query has read them, that one is errored, and the view stays as it is. Not supported yet (0A000) are views
    of topics of one name in two stores, over other stores than Kafka, and of an application, which has other sinks.
    Where the order of arrival decides (late rows, rows that depend on the clock or on tables that have changed), the
    view is as a query has it that reads everything now. Needs ownership of the view, and SELECT on what its query
    reads.
    """

    words: ClassVar[tuple[str, ...]] = ("REPAIR", "MATERIALIZED", "VIEW")
    tag: ClassVar[str] = "REPAIR MATERIALIZED VIEW"
    columns: ClassVar = DDL_ROW

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.qname()
        c.end()
        return cls(name)

    async def execute(self, ctx: Context) -> Result:
        view, query, plan = await self.found(ctx)
        begun = await self.check_sources(ctx, query, plan)
        plan = _pinned(await alone.shared(ctx, plan), begun)
        read = [ctx.catalog.snapshot.relations[name.key] for name in continuous.views_read(plan)]
        made = await continuous.replace_view(
            ctx, _again(ctx, view, query, plan), view, plan, self.name.at, sources=read
        )
        said = f'materialized view "{view.full}" is being repaired by query {made.id}'
        row = ddl(view.kind, str(view.full), "REPAIR", view.full.path, said)
        return done(self.tag, row, ddl("query", made.id, "CREATE", [made.id]))


def _pinned(plan: Plan, begun: Mapping[str, Mapping[str, int]]) -> Plan:
    """The plan that fails where a record is gone that the view was made of: some may go before it is read."""

    def from_there(s: Source | ViewSource) -> Source | ViewSource:
        if not isinstance(s, Source) or not (at := begun.get(s.entity)):
            return s
        return structs.replace(s, starting_position="earliest:" + ",".join(f"{p}:{n}" for p, n in at.items()))

    return structs.replace(plan, root=with_sources(plan.root, from_there))


def _again(ctx: Context, view: RelationRecord, query: QueryRecord, plan: Plan) -> QueryRecord:
    """The same query once more."""
    assert isinstance(plan.sink, ViewSink)
    sink = structs.replace(plan.sink, options=dict(view.properties))
    return replace(
        query, id=str(uuid.uuid4()), kind=REPLACES, plan=structs.replace(plan, sink=sink).json(),
        owner=ctx.session.role, pool=ctx.session.pool, intended="running", actual="starting", message="", attempt=0,
        progress={},
    )  # fmt: skip
