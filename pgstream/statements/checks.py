"""CHECK MATERIALIZED VIEW: a view compared with what its query makes, once more, of the records that it has consumed.

Owns: of which views that says something, the query that computes them again, how far it has to go, the answer.
Must not know: how rows are compared (``catalog.comparing``). Start reading at ``execute``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from msgspec import structs

from pgstream.catalog.comparing import Comparison, Moment
from pgstream.catalog.records import QueryRecord, RelationRecord
from pgstream.catalog.replacing import Consumed
from pgstream.engine.computation import Computation
from pgstream.engine.requests import Limits
from pgstream.errors import NotReady, NotYet, PgStreamError
from pgstream.names import FullName
from pgstream.planner.plan import (
    IntervalJoin,
    Lookup,
    Node,
    Over,
    Plan,
    Recognize,
    Source,
    TemporalJoin,
    ViewSink,
    ViewSource,
    readings,
    sources,
    view_sources,
    walk,
)
from pgstream.planner.steps import with_sources
from pgstream.sql.cursor import Cursor
from pgstream.statements import alone
from pgstream.statements.anew import ViewAnew
from pgstream.statements.base import Column, Context, Result

MOST = 100
LOOK_S, TELL_S, START_S = 0.3, 10.0, 30.0
_SOON = ("starting", "terminate_requested")
# What Spark computes of a moment, or by chance.
_VOLATILE = re.compile(
    rb"\b(?:current_(?:timestamp|date|time)|localtimestamp|unix_timestamp|uuid)\(\)|\brand\(", re.IGNORECASE
)
# The time of a change of a view, where nothing in the view says another.
_TIME = b"`__time`"
_REPAIR = "REPAIR MATERIALIZED VIEW makes it what its query gives today."
Offsets = dict[str, dict[int, int]]
"""Next offsets, by topic and partition."""


@dataclass(frozen=True, slots=True)
class CheckMaterializedView(ViewAnew):
    """CHECK MATERIALIZED VIEW [[database_name.]schema_name.]view_name [LIMIT count];

    Compute a materialized view anew, by the same query, from exactly the records that it has consumed, and answer with
    the rows in which the view differs: a row that is missing from it, one that is unexpected in it or, of a view with
    a key, one that is different. Of the row, JSON objects show the key, what the view has, and what was computed. At
    most count of them are shown (100); a notice says how many there are, or that the view is right.

    The view is taken as it was after one batch, in one snapshot with the ledger that says what had been consumed by
    then. Its query and its readers go on; nothing is changed. Meanwhile notices say how far it is, and PostgreSQL holds
    the rows twice more. A cancel request ends it, and leaves nothing.

    Refused with 55000 where the view cannot be made again: a topic no longer holds the records that its query began
    with, it began at the latest ones, or it does not run (one that starts is waited for); where rows are forgotten
    ('state.ttl.millis', 'retention.millis') or depend on the clock, on chance, on tables that are looked up or on
    when another view got its rows. A view over other views is compared at a moment at which its query has read all
    their changes, for which up to 30 seconds are waited; not supported yet (0A000) are views over views of another
    database, over other stores than Kafka, and of an application. Rows that wait for the watermark are compared as of
    the batch's. Where the order of arrival decides (late rows, of which computing anew may count some, FIRST_VALUE
    over several partitions), a row that differs need not be wrong; the notice says how many rows came late. DOUBLE and
    FLOAT values of a row with a key are the same where nine digits are. Needs ownership of the view, and SELECT on
    what its query reads.
    """

    words: ClassVar[tuple[str, ...]] = ("CHECK", "MATERIALIZED", "VIEW")
    tag: ClassVar[str] = "CHECK {rows}"
    columns: ClassVar = (Column("Difference"), Column("Key"), Column("View"), Column("Computed"))

    limit: int

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.qname()
        limit = c.integer() if c.accept("LIMIT") else MOST
        c.end()
        return cls(name, limit)

    async def execute(self, ctx: Context) -> Result:
        view, query, plan = await self._settled(ctx)
        self._check(view, query, plan)
        await self.check_sources(ctx, query, plan)
        if not ctx.engine.is_ready(ctx.session.pool):
            ctx.notice("waiting for the query engine to start")
        reads = self._reads(ctx, view, plan)
        async with ctx.catalog.comparison(view) as compared:
            moment = await self._moment(view, compared, reads)
            begun = ctx.engine.beginnings(query.id)
            ends = self._ends(moment.consumed, plan)
            limits = {topic: {**at, -1: 0} for topic, at in ends.items()}
            ends |= {name: {0: rows} if rows else {} for name, rows in moment.read.items()}
            if not any(ends.values()):
                raise self.lost(f"{' and '.join(moment.read) or 'what it reads'} is empty", _REPAIR)
            reached = _watermark(moment.consumed)
            if reached is None:
                raise NotReady(
                    what=f'the query of materialized view "{view.full}" has not written a batch since the update',
                    at=self.name.at, hint="It does with the next records.",
                )  # fmt: skip
            records = _between(begun, ends)
            async with ctx.engine.computation(
                compared.query, _again(await alone.shared(ctx, plan), _known(begun), compared, ctx), compared.table,
                Limits(limits, reached), ctx.session.pool,
                user=ctx.catalog.snapshot.access.user_of(ctx.session.user),
            ) as computation:  # fmt: skip
                await self._wait(
                    ctx, compared, computation, begun, Limits(ends, reached if _waits_for_time(plan) else 0)
                )
            counts, rows = await compared.differences(self.limit)
        right = f"its {moment.rows} rows are what {records} records give"
        _tell(ctx, view, counts, right, ctx.engine.progress(query.id).get("late_rows", 0))
        return Result(self.tag, self.columns, rows)

    async def _settled(self, ctx: Context) -> tuple[RelationRecord, QueryRecord, Plan]:
        """What is found when a query that starts, or gives way to the one that replaces it, has done so."""
        clock = asyncio.get_running_loop().time
        end, told = clock() + START_S, False
        while True:
            found = await self.found(ctx)
            if found[1].actual not in _SOON or clock() >= end:
                return found
            if not told:
                ctx.notice(f'waiting until query "{found[1].name or found[1].id}" runs')
                told = True
            await asyncio.sleep(LOOK_S)

    def _check(self, view: RelationRecord, query: QueryRecord, plan: Plan) -> None:
        """Whether the same records give the same rows again. Errors: NotReady, NotYet."""
        if plan.state_ttl_ms is not None:
            raise self.lost("its query forgets state by the clock ('state.ttl.millis')", _REPAIR)
        if "retention.millis" in view.properties:
            raise self.lost("rows are taken away from it by the clock ('retention.millis')", _REPAIR)
        if found := _VOLATILE.search(query.plan):
            function = found[0].decode().rstrip("()").upper()
            raise self.lost(f"{function} gives its query something else each time", _REPAIR)
        for node in walk(plan.root):
            if isinstance(node, Lookup):
                raise self.lost(f"its query looks up rows of {node.relation}, which may have changed", _REPAIR)
        for read in view_sources(plan.root):
            if read.watermark or (read.timestamp is None and _TIME in query.plan):
                raise self.lost(f"its query depends on when {read.relation} got its rows", _REPAIR)
        if query.actual != "running":
            soon = query.actual == "starting"
            raise NotReady(
                what=f'the query of materialized view "{view.full}" does not run: it is {query.actual}',
                at=self.name.at,
                hint="It is tried all the time; DESCRIBE QUERY says how far it is." if soon
                else "RESTART QUERY starts it again, unless it is terminated.",
            )  # fmt: skip

    def _reads(self, ctx: Context, view: RelationRecord, plan: Plan) -> list[RelationRecord]:
        """The views that the query reads, whose rows must be those of the same moment. Errors: NotYet."""
        read = {s.view: ctx.catalog.snapshot.relations[FullName.read(s.relation).key] for s in view_sources(plan.root)}
        for other in read.values():
            if other.full.database != view.full.database:
                what = f"CHECK of a view over {other.full}, which is in another database"
                raise NotYet(what=what, at=self.name.at, hint=_REPAIR)
        return list(read.values())

    async def _moment(self, view: RelationRecord, compared: Comparison, reads: list[RelationRecord]) -> Moment:
        try:
            moment = await compared.begin(reads)
        except TimeoutError:
            raise NotReady(
                what=f'the query of materialized view "{view.full}" has not read all changes of'
                f" {', '.join(str(r.full) for r in reads)} at any moment",
                at=self.name.at, hint="Its rows can be compared at such a moment: try again when fewer changes come.",
            ) from None  # fmt: skip
        if moment is None:
            raise NotReady(
                what=f'the query of materialized view "{view.full}" has not written a batch', at=self.name.at,
                hint="It does soon; LIST QUERIES shows what it waits for.",
            )  # fmt: skip
        return moment

    def _ends(self, consumed: Consumed, plan: Plan) -> Offsets:
        """Where each partition was read to."""
        ends: Offsets = {}
        for source in consumed:
            for topic, parts in source["at"].items():
                at = {int(p): n for p, n in parts.items()}
                if ends.setdefault(topic, at) != at:
                    what = f'CHECK of a view that reads topic "{topic}" in two ways'
                    raise NotYet(what=what, at=self.name.at, hint=_REPAIR)
        return {s.entity: ends.get(s.entity, {}) for s in sources(plan.root)}

    async def _wait(
        self, ctx: Context, compared: Comparison, computation: Computation, begun: Mapping[str, dict[str, int]],
        until: Limits,
    ) -> None:  # fmt: skip
        """Until everything is computed, and event time has come as far. Errors: what the query fails with."""
        ends = until.offsets
        clock = asyncio.get_running_loop().time
        total, told = _between(begun, ends), clock()
        while True:
            computation.check()
            consumed = await compared.consumed()
            if consumed is None:
                raise self._disturbed()
            here = _reached(consumed, ends)
            if consumed and _is_there(here, ends) and (_watermark(consumed) or 0) >= until.ceiling_ms:
                return
            if clock() - told >= TELL_S:
                told = clock()
                ctx.notice(f"computed {_between(begun, here)} of {total} records")
            await asyncio.sleep(LOOK_S)

    def _disturbed(self) -> PgStreamError:
        return NotReady(what="another server has started meanwhile", at=self.name.at, hint="Try again.")


def _waits_for_time(plan: Plan) -> bool:
    return any(s.watermark for s in readings(plan.root)) and any(map(_waits, walk(plan.root)))


def _waits(node: Node) -> bool:
    """Whether its rows come when the watermark has passed them: when that is, batches decide."""
    if isinstance(node, IntervalJoin):
        return node.how != "inner"
    held = getattr(node, "final", False) or getattr(node, "until", None) is not None
    return held or isinstance(node, (Over, Recognize, TemporalJoin))


def _again(plan: Plan, begun: Mapping[str, str], compared: Comparison, ctx: Context) -> Plan:
    """The query once more: from where it began, and telling nobody of bad records again."""

    def told(s: Source | ViewSource) -> Source | ViewSource:
        if isinstance(s, ViewSource):
            return s
        mode = "ignore" if s.on_bad_record == "log" else s.on_bad_record
        position = begun.get(s.entity, s.starting_position)
        return structs.replace(s, on_bad_record=mode, bad_record_store=None, starting_position=position)

    assert isinstance(plan.sink, ViewSink)
    sink = structs.replace(plan.sink, table=ctx.catalog.staging_stem(compared.query), options={})
    return structs.replace(plan, root=with_sources(plan.root, told), sink=sink)


def _known(begun: Mapping[str, dict[str, int]]) -> dict[str, str]:
    """Starting positions, by topic: a record of them that is gone is an error then."""
    return {topic: "offset:" + ",".join(f"{p}:{n}" for p, n in at.items()) for topic, at in begun.items() if at}


def _watermark(consumed: Consumed) -> int | None:
    """Milliseconds, of the last batch; None: a version wrote it that did not keep it."""
    return next((source.get("watermark") for source in consumed), None)


def _reached(consumed: Consumed, ends: Offsets) -> Offsets:
    """How far each partition was read by all that read it, but not beyond its end."""
    here: Offsets = {topic: {} for topic in ends}
    for source in consumed:
        for topic, parts in source["at"].items():
            for p, n in parts.items():
                at, end = here[topic], ends[topic].get(int(p), 0)
                at[int(p)] = min(n, end, at.get(int(p), end))
    return here


def _is_there(here: Offsets, ends: Offsets) -> bool:
    return all(here[topic].get(p, -1) >= end for topic, at in ends.items() for p, end in at.items())


def _between(begun: Mapping[str, dict[str, int]], ends: Offsets) -> int:
    """How many offsets lie between; of transactions' marks there is no telling."""
    return sum(n - begun.get(topic, {}).get(str(p), 0) for topic, at in ends.items() for p, n in at.items())


def _tell(ctx: Context, view: RelationRecord, counts: Mapping[str, int], right: str, late: object) -> None:
    if not counts:
        ctx.notice(f'materialized view "{view.full}" is right: {right}')
        return
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("missing", "unexpected", "different") if kind in counts)
    what = f'materialized view "{view.full}" differs in {sum(counts.values())} rows: {kinds}'
    hint = "REPAIR MATERIALIZED VIEW puts it right."
    if late:
        hint = f"{late} rows came late since its query started, and were dropped; computed anew some count. {hint}"
    ctx.notice(what, hint=hint)
