"""REPAIR MATERIALIZED VIEW: a view computed anew from what it was made of, and put right where it differs.

Owns: when that can be done: the sources still hold all that the view was made of, and can be read again.
Must not know: how a view is replaced (``continuous``, ``catalog.replacing``). Start reading at ``execute``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from msgspec import structs

from pgstream.catalog.records import QueryRecord, RelationRecord
from pgstream.catalog.store import REPLACES
from pgstream.errors import NotReady, NotYet
from pgstream.names import FullName, QName
from pgstream.planner.plan import Plan, Source, ViewSink, load, sources, view_sources
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, continuous, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done
from pgstream.statements.base import DDL_ROW, Context, Result, Statement

_ANEW = "CREATE OR REPLACE MATERIALIZED VIEW makes the view of what is there."


@dataclass(frozen=True, slots=True)
class RepairMaterializedView(Statement):
    """REPAIR MATERIALIZED VIEW [[database_name.]schema_name.]view_name;

    Compute a materialized view anew, by the same query, from the first record that it was made of, beside the view;
    then make the view what that gives, in one transaction that writes the rows which differ and no others. It goes
    as CREATE OR REPLACE MATERIALIZED VIEW does: the statement returns when the new query runs, LIST QUERIES shows
    how far it is, TERMINATE QUERY gives it up, and in the end the new query keeps the view.

    Refused with 55000 where the view cannot be made again: its query began at the latest records, a topic no longer
    holds the records that it began with, or it reads the rows of a view that only come. Where the order of arrival
    decides (late rows, rows that depend on the clock or on tables that have changed), the view is as a query has it
    that reads everything now. Needs ownership of the view, and SELECT on what its query reads.
    """

    words: ClassVar[tuple[str, ...]] = ("REPAIR", "MATERIALIZED", "VIEW")
    tag: ClassVar[str] = "REPAIR MATERIALIZED VIEW"
    columns: ClassVar = DDL_ROW

    name: QName

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.qname()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return access.owns("relation", self.name), Need("create_query"), access.runs(ctx.session)

    async def execute(self, ctx: Context) -> Result:
        view = places.relation(ctx, self.name, "materialized_view")
        query = await continuous.check_replaceable(ctx, view, self.name.at)
        for name in query.sources:
            await access.require(ctx, Need("select", "relation", QName(FullName.parse(name), self.name.at)))
        try:
            plan = load(query.plan)
        except ValueError as e:
            raise self._lost(f"the plan of its query cannot be read: {e}") from None
        await self._check(ctx, query, plan)
        made = await continuous.replace_view(ctx, _again(ctx, view, query, plan), view, plan, self.name.at)
        said = f'materialized view "{view.full}" is being repaired by query {made.id}'
        row = ddl(view.kind, str(view.full), "REPAIR", view.full.path, said)
        return done(self.tag, row, ddl("query", made.id, "CREATE", [made.id]))

    async def _check(self, ctx: Context, query: QueryRecord, plan: Plan) -> None:
        """Whether the query would read again all that it has read. Errors: NotReady, NotYet."""
        for read in view_sources(plan.root):
            if read.mode == "append":
                raise self._lost(f"it is made of the rows of {read.relation}, of which some may have been taken away")
        begun = ctx.engine.beginnings(query.id)
        for source in sources(plan.root):
            if source.starting_position != "earliest":
                raise self._lost(f"its query began to read {source.relation} at '{source.starting_position}'")
            await self._check_topic(ctx, source, begun.get(source.entity, {}))

    async def _check_topic(self, ctx: Context, source: Source, begun: dict[str, int]) -> None:
        store = ctx.catalog.snapshot.stores[source.store]
        if store.type != "kafka":
            raise NotYet(what=f"REPAIR of a view over a store of type {store.type}", at=self.name.at, hint=_ANEW)
        async with places.open_store(ctx, store, self.name.at) as admin:
            for extent in await admin.extents(source.entity):
                first = extent.first if isinstance(extent.first, int) else 0
                if first > (start := begun.get(str(extent.partition), 0)):
                    raise self._lost(
                        f'partition {extent.partition} of topic "{source.entity}" begins with record {first} now,'
                        f" its query began with {start}"
                    )

    def _lost(self, why: str) -> NotReady:
        what = f'materialized view "{self.name}" cannot be computed anew: {why}'
        return NotReady(what=what, at=self.name.at, hint=_ANEW)


def _again(ctx: Context, view: RelationRecord, query: QueryRecord, plan: Plan) -> QueryRecord:
    """The same query once more."""
    assert isinstance(plan.sink, ViewSink)
    sink = structs.replace(plan.sink, options=dict(view.properties))
    return replace(
        query, id=str(uuid.uuid4()), kind=REPLACES, plan=structs.replace(plan, sink=sink).json(),
        owner=ctx.session.role, pool=ctx.session.pool, intended="running", actual="starting", message="", attempt=0,
        progress={},
    )  # fmt: skip
