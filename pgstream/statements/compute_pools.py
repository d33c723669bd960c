"""Everything about COMPUTE_POOL: CREATE, UPDATE, START, STOP, DROP, LIST, DESCRIBE. ``use.py`` has USE COMPUTE_POOL.

Owns: its options and columns, and the pool ``default`` that always exists. Must not know: how a worker is run
(``engine``). Manual: "CREATE COMPUTE_POOL", "UPDATE COMPUTE_POOL", "START COMPUTE_POOL", "LIST COMPUTE_POOLS".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog.records import ObjectRecord
from pgstream.engine.launch import SPARK_SETTINGS, master
from pgstream.errors import DependentsExist, NotSupported
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, json_text
from pgstream.statements.base import DDL_ROW, Column, Context, Result
from pgstream.statements.shapes import Create, Describe, Drop, List, OfKind, Update
from pgstream.stores.spec import Kind, Option, OptionTable

DEFAULT = "default"
OPTIONS = OptionTable(
    "a compute pool",
    (
        Option("compute_pool.size", Kind.WORD, "Memory: once, twice or four times the setting spark_memory_mb.",
               default="SMALL", choices=("SMALL", "MEDIUM", "LARGE")),
        Option("compute_pool.timeout_min", Kind.INTEGER, "Idle minutes before the pool stops by itself.", minimum=1),
        Option("compute_pool.memory_mb", Kind.INTEGER, "Heap of the pool's Spark driver, instead of the size's.",
               minimum=256),
        Option("compute_pool.cores", Kind.INTEGER, "Cores of this machine that it uses; all when absent.", minimum=1),
        Option("compute_pool.master", Kind.TEXT, "Spark master, instead of this machine.", example="spark://host:7077",
               shape=master),
        Option("compute_pool.silent_partition_ms", Kind.INTEGER,
               "For how long the partitions of a source wait for one without records; 2000 when absent.", minimum=0),
        Option("spark.", Kind.TEXT, "A setting of Spark, for this pool: of those that say how much and how often.",
               prefix=True, example="spark.sql.shuffle.partitions", begins=SPARK_SETTINGS),
    ),
)  # fmt: skip


class CreateComputePool(Create):
    """CREATE COMPUTE_POOL [IF NOT EXISTS] pool_name [WITH ( 'parameter' = value [, ...] )];

    Make a pool: a process of its own with Spark in it, that queries run in. It starts when it is first needed.
    Parameters: ``compute_pool.size`` (SMALL, MEDIUM, LARGE), ``compute_pool.timeout_min``, and of ours
    ``compute_pool.memory_mb``, ``compute_pool.cores``, ``compute_pool.master``,
    ``compute_pool.silent_partition_ms``, ``spark.…``: how much and how often, such as shuffle partitions, adaptive
    execution, RocksDB, memory, executors and their number, compression, time-outs. What loads code, runs programs or
    opens files belongs to who runs the server.
    """

    kind: ClassVar[str] = "compute_pool"
    options: ClassVar[OptionTable] = OPTIONS
    needs_with: ClassVar[bool] = False


class UpdateComputePool(Update):
    """UPDATE COMPUTE_POOL pool_name WITH ( 'parameter' = { value | NULL } [, ...] );

    Change parameters of a pool; NULL takes one away. A pool that runs keeps its old size until STOP and START.
    """

    kind: ClassVar[str] = "compute_pool"
    options: ClassVar[OptionTable] = OPTIONS


@dataclass(frozen=True, slots=True)
class _Switch(OfKind):
    """START or STOP of a pool."""

    columns: ClassVar[tuple[Column, ...]] = DDL_ROW

    name: Name

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.name()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns(self.kind, self.name),)

    async def switch(self, ctx: Context, state: str) -> Result:
        """Record what is intended, and answer."""
        record = places.object(ctx, self.kind, self.name)
        await ctx.catalog.inventory.update(replace(record, state=state), at=self.name.at)
        return done(self.tag, ddl(self.kind, self.label, self.verb, [self.label]))


class StartComputePool(_Switch):
    """START COMPUTE_POOL pool_name;

    Start a pool now; the queries that waited for it go on.
    """

    kind: ClassVar[str] = "compute_pool"
    verb: ClassVar[str] = "START"

    async def execute(self, ctx: Context) -> Result:
        result = await self.switch(ctx, "ready")
        await ctx.engine.start_pool(self.label)
        return result


class StopComputePool(_Switch):
    """STOP COMPUTE_POOL pool_name;

    End a pool's process after its running batches. Its queries wait until START; new ones are refused.
    """

    kind: ClassVar[str] = "compute_pool"
    verb: ClassVar[str] = "STOP"

    async def execute(self, ctx: Context) -> Result:
        result = await self.switch(ctx, "stopped")
        await ctx.engine.stop_pool(self.label)
        return result


class DropComputePool(Drop):
    """DROP COMPUTE_POOL [IF EXISTS] pool_name;

    Forget a pool and end its process. Refused while a query runs in it, and for the pool ``default``.
    """

    kind: ClassVar[str] = "compute_pool"

    async def drop(self, ctx: Context) -> None:
        if self.label == DEFAULT:
            raise NotSupported(
                what='dropping compute pool "default"', at=self.name.at, hint="STOP COMPUTE_POOL default stops it."
            )
        record = places.object(ctx, self.kind, self.name)
        queries = [q.id for q in await ctx.catalog.queries() if q.pool == self.label]
        if queries:
            raise DependentsExist(
                kind="compute pool",
                name=self.label,
                at=self.name.at,
                users=[("query", id) for id in queries],
                hint="TERMINATE the queries, or RESTART them in another pool.",
            )
        await ctx.catalog.inventory.drop(record.key, at=self.name.at)
        await ctx.engine.stop_pool(self.label)
        if ctx.session.pool == self.label:
            ctx.session.pool = DEFAULT


class ListComputePools(List):
    """LIST COMPUTE_POOLS;

    The compute pools, one a row. ActualState is what this server knows: running, starting or stopped.
    """

    kind: ClassVar[str] = "compute_pool"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Name"), Column("IntendedState"), Column("ActualState"), Column("ErrorMessages"), Column("Size"),
        Column("Timeout", types.INTEGER), Column("Owner"), Column("CreatedAt", types.TIMESTAMP_LTZ),
        Column("UpdatedAt", types.TIMESTAMP_LTZ), Column("Path"),
    )  # fmt: skip

    @classmethod
    def line(cls, ctx: Context, record: ObjectRecord) -> Sequence[Any]:
        r = record
        actual, why = ctx.engine.pool_state(r.name)
        intended = "stopped" if r.state == "stopped" else "running"
        size = r.options.get("compute_pool.size", "SMALL").lower()
        timeout = r.options.get("compute_pool.timeout_min")
        return (r.name, intended, actual, json_text([why] if why else []), size, timeout, r.owner, r.created_at,
                r.updated_at, json_text([r.name]))  # fmt: skip


class DescribeComputePool(Describe):
    """DESCRIBE COMPUTE_POOL pool_name;

    The row of LIST COMPUTE_POOLS and the parameters as JSON.
    """

    kind: ClassVar[str] = "compute_pool"
    of: ClassVar[type[List]] = ListComputePools
