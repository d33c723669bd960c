"""Statements that compute a materialized view anew, from what it was made of: what both ask for first.

Owns: when that can be done: the sources still hold all that the view was made of, and can be read again.
Must not know: what is then done with it (``repairs``, ``checks``). Start reading at ``ViewAnew.found``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from pgstream.catalog.records import QueryRecord, RelationRecord
from pgstream.errors import NotReady, NotYet
from pgstream.names import FullName, QName
from pgstream.planner.plan import Plan, Source, ViewSource, load, sources, view_sources
from pgstream.statements import access, continuous, places
from pgstream.statements.access import Need
from pgstream.statements.base import Context, Statement

_ANEW = "CREATE OR REPLACE MATERIALIZED VIEW makes the view of what is there."


@dataclass(frozen=True, slots=True)
class ViewAnew(Statement):
    """A statement about the view ``name``, which runs its query once more. Its first word names it in errors."""

    words: ClassVar[tuple[str, ...]] = ()

    name: QName

    def needs(self, ctx: Context) -> Iterable[Need]:
        return access.owns("relation", self.name), Need("create_query"), access.runs(ctx.session)

    async def found(self, ctx: Context) -> tuple[RelationRecord, QueryRecord, Plan]:
        """The view, the query that keeps it, its plan; SELECT on what it reads. Errors: NotYet, NotReady."""
        view = places.relation(ctx, self.name, "materialized_view")
        query = await continuous.check_replaceable(ctx, view, self.name.at, f"{self.words[0]} of")
        for name in query.sources:
            await access.require(ctx, Need("select", "relation", QName(FullName.parse(name), self.name.at)))
        try:
            plan = load(query.plan)
        except ValueError as e:
            raise self.lost(f"the plan of its query cannot be read: {e}") from None
        return view, query, plan

    async def check_sources(self, ctx: Context, query: QueryRecord, plan: Plan) -> dict[str, dict[str, int]]:
        """Whether the query would read again all that it has read, and the offsets that it began with, by topic and
        partition. Errors: NotReady, NotYet.
        """
        self._check_names(plan)
        for read in view_sources(plan.root):
            if not _is_as_read(ctx, read):
                raise self.lost(f"{read.relation}, which its query reads, is another view by now")
            if read.mode == "append":
                raise self.lost(f"it is made of the rows of {read.relation}, of which some may have been taken away")
        begun, had = ctx.engine.beginnings(query.id), await self._had(ctx, query)
        found: dict[str, dict[str, int]] = {}
        for source in sources(plan.root):
            if source.starting_position.partition(":")[0] != "earliest":
                raise self.lost(f"its query began to read {source.relation} at '{source.starting_position}'")
            first, end = begun.get(source.entity, {}), had.get((source.store, source.entity), {})
            await self._check_topic(ctx, source, first, end)
            found[source.entity] = {p: first.get(p, 0) for p in {**first, **end}}
        return found

    def _check_names(self, plan: Plan) -> None:
        """Where the query began is known by topic alone: that of one store is not where that of another begins."""
        stores: dict[str, str] = {}
        for source in sources(plan.root):
            if stores.setdefault(source.entity, source.store) != source.store:
                what = f'{self.words[0]} of a view that reads topics "{source.entity}" of two stores'
                raise NotYet(what=what, at=self.name.at, hint=_ANEW)

    async def _had(self, ctx: Context, query: QueryRecord) -> dict[tuple[str, str], dict[str, int]]:
        """How far the query has read, by store and topic."""
        view = places.relation(ctx, self.name, "materialized_view")
        _, consumed = (await ctx.catalog.consumed(view, [query.id])).get(query.id, (-1, []))
        return {(source["store"], topic): at for source in consumed for topic, at in source["at"].items()}

    async def _check_topic(self, ctx: Context, source: Source, begun: dict[str, int], had: dict[str, int]) -> None:
        store = ctx.catalog.snapshot.stores[source.store]
        if store.type != "kafka":
            what = f"{self.words[0]} of a view over a store of type {store.type}"
            raise NotYet(what=what, at=self.name.at, hint=_ANEW)
        async with places.open_store(ctx, store, self.name.at) as admin:
            extents = {str(extent.partition): extent for extent in await admin.extents(source.entity)}
        for partition, extent in extents.items():
            first = extent.first if isinstance(extent.first, int) else 0
            if first > (start := begun.get(partition, 0)):
                raise self.lost(
                    f'partition {partition} of topic "{source.entity}" begins with record {first} now,'
                    f" its query began with {start}"
                )
        for partition, end in had.items():
            there = extents[partition].next if partition in extents else 0
            if isinstance(there, int) and there < end:
                raise self.lost(
                    f'partition {partition} of topic "{source.entity}" ends before record {there} now,'
                    f" its query had read those before {end}"
                )

    def lost(self, why: str, hint: str = _ANEW) -> NotReady:
        what = f'materialized view "{self.name}" cannot be computed anew: {why}'
        return NotReady(what=what, at=self.name.at, hint=hint)


def _is_as_read(ctx: Context, read: ViewSource) -> bool:
    """Whether a view that a plan reads is what it was when that was made: queries that have ended keep none from being
    dropped or replaced.
    """
    now = ctx.catalog.snapshot.relations.get(FullName.read(read.relation).key)
    if now is None or (now.id, now.mode, list(now.primary_key)) != (read.view, read.mode, read.key):
        return False
    types = {c.name: str(c.type) for c in now.columns}
    return all(types.get(c.name) == c.type for c in read.columns)
