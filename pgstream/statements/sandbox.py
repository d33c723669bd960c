"""Everything about SANDBOX: START, DESCRIBE, STOP.

Owns: the sandbox's row. Here it is a compute pool of its own, ``sandbox``, on which interactive SELECTs run without
disturbing the queries of other pools; it stops after ten idle minutes. The manual gives no options.
Must not know: how a pool is run (``engine``). Manual: "START SANDBOX", "DESCRIBE SANDBOX", "STOP SANDBOX".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.records import ObjectRecord
from pgstream.errors import UndefinedObject
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, json_text, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement

NAME = "sandbox"
IDLE_MIN = "10"


class _Sandbox(Statement):
    """No name follows: an organization has one sandbox."""

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        c.end()
        return cls()


def _pool(ctx: Context) -> ObjectRecord | None:
    return places.find(ctx, "compute_pool", NAME)


def _there(ctx: Context) -> ObjectRecord:
    found = _pool(ctx)
    if found is None:
        raise UndefinedObject(
            kind="sandbox", name=NAME, hint="START SANDBOX starts it.", ds_code=kinds.KINDS["sandbox"].missing_code
        )
    return found


@dataclass(frozen=True, slots=True)
class StartSandbox(_Sandbox):
    """START SANDBOX;

    Start the sandbox: a compute pool named ``sandbox`` for trying SELECTs out. USE COMPUTE_POOL sandbox runs this
    session's statements on it. It stops by itself after ten idle minutes.
    """

    words: ClassVar = ("START", "SANDBOX")
    tag: ClassVar = "START SANDBOX"
    columns: ClassVar = DDL_ROW

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.creates("sandbox"),)

    async def execute(self, ctx: Context) -> Result:
        if _pool(ctx) is not None:
            raise kinds.duplicate("sandbox", NAME)
        options = {"compute_pool.size": "SMALL", "compute_pool.timeout_min": IDLE_MIN}
        record = ObjectRecord(
            "compute_pool",
            NAME,
            options=options,
            owner=ctx.session.role,
            organization=ctx.session.organization,
            created_by=ctx.session.user,
        )
        made = await ctx.catalog.inventory.create(record)
        await ctx.engine.start_pool(NAME)
        return done(self.tag, ddl("sandbox", made.id, "START", [NAME]))


@dataclass(frozen=True, slots=True)
class DescribeSandbox(_Sandbox):
    """DESCRIBE SANDBOX;

    The sandbox's state.
    """

    words: ClassVar = ("DESCRIBE", "SANDBOX")
    columns: ClassVar = (
        Column("Status"), Column("Id"), Column("Region"), Column("Error Messages"), Column("Function Sources"),
        Column("Created At", types.TIMESTAMP_LTZ), Column("Updated At", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, "compute_pool", Name(NAME), if_exists=True),)

    async def execute(self, ctx: Context) -> Result:
        r = _there(ctx)
        state, why = ctx.engine.pool_state(NAME)
        sources = json_text([s.name for s in places.objects(ctx, "function_source")])
        line = (state.upper(), r.id, "local", json_text([why] if why else []), sources, r.created_at, r.updated_at)
        return listing(self.columns, [line])


@dataclass(frozen=True, slots=True)
class StopSandbox(_Sandbox):
    """STOP SANDBOX;

    End the sandbox, with every SELECT that runs on it.
    """

    words: ClassVar = ("STOP", "SANDBOX")
    tag: ClassVar = "STOP SANDBOX"
    columns: ClassVar = DDL_ROW

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("compute_pool", Name(NAME), if_exists=True),)

    async def execute(self, ctx: Context) -> Result:
        record = _there(ctx)
        await ctx.catalog.inventory.drop(record.key)
        await ctx.engine.stop_pool(NAME)
        if ctx.session.pool == NAME:
            ctx.session.pool = "default"
        return done(self.tag, ddl("sandbox", record.id, "STOP", [NAME]))
