"""What is known of one query: DESCRIBE QUERY, and its STATE, METRICS and EVENTS.

Owns: the grammar and the columns. Of METRICS and EVENTS the manual has only the names; their columns are ours.
Must not know: how a query runs (``engine``), what the worker measures.
Manual: "DESCRIBE QUERY", "DESCRIBE QUERY STATE", "DESCRIBE QUERY METRICS", "DESCRIBE QUERY EVENTS".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pgstream import stores, types
from pgstream.catalog.records import QueryRecord
from pgstream.names import Name
from pgstream.planner import plan
from pgstream.sql.cursor import Cursor
from pgstream.statements import access
from pgstream.statements.access import Need
from pgstream.statements.answers import json_text, listing
from pgstream.statements.base import Column, Context, Result, Statement

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _OfQuery(Statement):
    """About one query, which the role sees."""

    ref: str
    at: int

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        at = c.at
        ref = c.query_ref()
        c.end()
        return cls(ref, at)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, "query", Name(self.ref, self.at)),)

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, await self.lines(ctx, await access.query(ctx, access.SEES, self.ref, self.at)))

    async def lines(self, ctx: Context, query: QueryRecord) -> list[tuple[Any, ...]]:
        raise NotImplementedError


def _progress(ctx: Context, query: QueryRecord) -> Facts:
    """The engine knows the newest batch; the catalogue has it a little later, and when the query runs elsewhere."""
    return ctx.engine.progress(query.id) or query.progress


class DescribeQuery(_OfQuery):
    """DESCRIBE QUERY { query_id | query_name[:query_version] };

    What there is to know of a query, as properties and values: states and error, statement, sources and sink, rows in
    and out, lag of every source, state size, watermark.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "QUERY")
    columns: ClassVar[tuple[Column, ...]] = (Column("Property"), Column("Value"))

    async def lines(self, ctx: Context, query: QueryRecord) -> list[tuple[Any, ...]]:
        return list(_properties(query, _progress(ctx, query)))


class DescribeQueryState(_OfQuery):
    """DESCRIBE QUERY STATE { query_id | query_name[:query_version] };

    Where a terminated query stopped, a row for each relation that it read: Info has, as JSON, the entity and the next
    offset of each of its partitions. No rows while the query is active.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "QUERY", "STATE")
    columns: ClassVar[tuple[Column, ...]] = (Column("Relation Name"), Column("Store Type"), Column("Info"))

    async def lines(self, ctx: Context, query: QueryRecord) -> list[tuple[Any, ...]]:
        if query.actual != "terminated":
            return []
        read = _sources(query.progress)
        out: list[tuple[Any, ...]] = []
        for source in plan.sources(plan.load(query.plan).root):
            store = ctx.catalog.snapshot.stores.get(source.store)
            info = {"entity": source.entity, "offsets": read.get(source.relation, {}).get("offset", {})}
            line = (source.relation, stores.find(store.type).label if store is not None else None, json_text(info))
            if line not in out:  # one that is read twice
                out.append(line)
        return out


class DescribeQueryMetrics(_OfQuery):
    """DESCRIBE QUERY METRICS { query_id | query_name[:query_version] };

    The figures of a query's last batch, one a row, with the relation and the partition that they are about where they
    are about one. Late rows and bad records are counted since the query started; ``lag`` is in records. Of a table's
    changes ``slot_lag_bytes`` is what its PostgreSQL has written and the query has not confirmed, ``slot_kept_bytes``
    what it keeps for the slot, ``slot_room_bytes`` how much more there may be before it gives the slot up, and
    ``slot_warning`` says when that is near.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "QUERY", "METRICS")
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Metric"), Column("Relation"), Column("Partition"), Column("Value"), Column("Unit"),
    )  # fmt: skip

    async def lines(self, ctx: Context, query: QueryRecord) -> list[tuple[Any, ...]]:
        return list(_metrics(_progress(ctx, query)))


class DescribeQueryEvents(_OfQuery):
    """DESCRIBE QUERY EVENTS { query_id | query_name[:query_version] };

    What happened to a query, oldest first: created, starting, running, waiting, errored, moved, terminate_requested,
    terminated; with the attempt (a start of the query), the compute pool, and why. The newest hundred are kept.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "QUERY", "EVENTS")
    columns: ClassVar[tuple[Column, ...]] = (
        Column("At", types.TIMESTAMP_LTZ), Column("Event"), Column("Attempt", types.BIGINT), Column("Compute Pool"),
        Column("Message"),
    )  # fmt: skip

    async def lines(self, ctx: Context, query: QueryRecord) -> list[tuple[Any, ...]]:
        found = await ctx.catalog.query_events(query.id)
        return [(e.at, e.event, e.attempt, e.pool, e.message or None) for e in found]


# Name in the worker's progress, and unit.
_FIGURES = (
    ("batch", None), ("rows_in", "rows"), ("rows_out", "rows"), ("rows_per_s", "rows/s"), ("batch_ms", "ms"),
    ("late_rows", "rows"), ("bad_records", "records"), ("state_rows", "rows"), ("state_bytes", "bytes"),
    ("watermark", None), ("at", None),
)  # fmt: skip
_OF_SOURCE = ("offset", "latest", "lag", "rows_in")  # what every source has; some stores tell more
_SHOWN = {"at": "measured_at", "rows_per_s": "rows_per_second"}


def _sources(progress: Facts) -> Mapping[str, Facts]:
    found = progress.get("sources")
    return found if isinstance(found, Mapping) else {}


def _properties(q: QueryRecord, p: Facts) -> Iterator[tuple[str, Any]]:
    yield from (("id", q.id), ("name", q.name), ("version", q.version), ("kind", q.kind))
    yield from (("state", q.actual), ("intended state", q.intended))
    yield "error" if q.actual == "errored" else "message", q.message or None
    yield from (("sql", q.sql), ("owner", q.owner), ("sources", ", ".join(q.sources)), ("sink", ", ".join(q.sinks)))
    yield "compute pool", q.pool
    if q.tags:
        yield "tags", json_text(q.tags)
    yield from (("attempts", q.attempt), ("created at", q.created_at), ("updated at", q.updated_at))
    names = ("batch", "rows_in", "rows_out", "rows_per_s", "late_rows", "bad_records", "batch_ms", "state_rows",
             "state_bytes", "watermark")  # fmt: skip
    yield from ((name.replace("_", " "), p.get(name)) for name in names if name in p)
    for relation, facts in _sources(p).items():
        yield from ((f"{fact.replace('_', ' ')} of {relation}", value) for fact, value in facts.items())


def _metrics(p: Facts) -> Iterator[tuple[Any, ...]]:
    for name, unit in _FIGURES:
        if name in p:
            yield _SHOWN.get(name, name), None, None, p[name], unit
    for step, ms in sorted(p.get("durations", {}).items()):
        yield f"batch_ms.{step}", None, None, ms, "ms"
    for relation, facts in _sources(p).items():
        yield "rows_in", relation, None, facts.get("rows_in"), "rows"
        yield "lag", relation, None, facts.get("lag"), "records"
        for partition, end in sorted(facts.get("latest", {}).items(), key=lambda item: (len(item[0]), item[0])):
            read = facts.get("offset", {}).get(partition, 0)
            yield "read_offset", relation, partition, read, None
            yield "end_offset", relation, partition, end, None
            if isinstance(end, int) and isinstance(read, int):
                yield "lag", relation, partition, max(0, end - read), "records"
        for name, value in facts.items():
            if name not in _OF_SOURCE:
                yield name, relation, None, value, "bytes" if name.endswith("_bytes") else None
