"""An interactive SELECT on streams and changelogs: rows to the client as they come.

Owns: the statement. A SELECT that names neither is PostgreSQL's (``recognize``).
Must not know: how it is planned or run. Manual: "SELECT".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.catalog.records import Snapshot
from pgstream.errors import InvalidStatement
from pgstream.planner.parameters import Parameter, infer
from pgstream.planner.plan import Plan, ResultSink, sources
from pgstream.planner.select import Planned
from pgstream.sql.cursor import Cursor
from pgstream.sql.select import Select as Query
from pgstream.sql.select import names
from pgstream.statements import access, alone, continuous, postgres_queries, topics
from pgstream.statements.access import Need
from pgstream.statements.answers import ROWS
from pgstream.statements.base import Column, Context, Result, Session, Statement
from pgstream.statements.continuous import QueryOptions, query_options, refuse_resume
from pgstream.statements.explained import Explained, relation_facts


@dataclass(frozen=True, slots=True)
class SelectStream(Statement):
    """[WITH name AS ( select_statement ) [, ...]] SELECT expression [AS name] [, ...] FROM relation
    [[AS] alias] [WITH ( 'parameter' = value [, ...] )] [...] [LIMIT count] [QUERY WITH ( 'parameter' = value )];

    Stream rows to the client until LIMIT, cancel, or the client goes away. It begins with new records unless
    'starting.position' = 'earliest'. A window's row comes when the window is final; a plain GROUP BY sends a row at
    every change. A relation with MATCH_RECOGNIZE ( … ) behind it gives the matches of a pattern of its rows. Values for
    $1, $2 … may be bound to it in the extended protocol.
    """

    words: ClassVar = ("SELECT",)

    select: Query
    options: QueryOptions

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        statement = cls.part(c)
        c.end()
        return statement

    @classmethod
    def part(cls, c: Cursor) -> Self:
        """The SELECT as a part of another statement."""
        select = c.select()
        if c.peek("PARTITION", "BY"):
            raise InvalidStatement(what="PARTITION BY cannot be used in an interactive SELECT", at=c.at)
        query_with = c.query_with()
        options = query_options(query_with)
        refuse_resume(options, "an interactive SELECT")
        return cls(select, options)

    def parameter_types(self, snapshot: Snapshot, session: Session) -> Mapping[int, int]:
        seen = snapshot.seen_by(session.role)
        read = [seen.relation(name, session.database, session.schema) for name in names(self.select)]
        columns = [(c.name, c.type.oid) for relation in read if relation is not None for c in relation.columns]
        # A name of two types says nothing.
        known = {name: oid for name, oid in columns if all(o == oid for n, o in columns if n == name)}
        return infer(self.select.tree, known)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return [*access.reads(self.select), access.runs(ctx.session)]

    async def describe(self, ctx: Context) -> tuple[Column, ...]:
        columns = await continuous.analyze(ctx, (await self._plan(ctx)).root)
        return tuple(Column(c.name, c.type) for c in columns)

    async def execute(self, ctx: Context) -> Result:
        planned = await self._plan(ctx)
        columns = await continuous.analyze(ctx, planned.root)
        plan = continuous.plan(ctx, planned, ResultSink(planned.limit), columns, self.options)
        hint = _hint(plan)
        plan = await continuous.begun(ctx, await alone.shared(ctx, plan))
        await topics.settle_logs(ctx, plan, AsyncExitStack())  # it stays: others may have found it by now
        # A user's tokens count with the user: anybody makes as many of them as wanted.
        user = ctx.catalog.snapshot.access.user_of(ctx.session.user)
        reads = [str(r.full) for r in planned.sources]
        rows = ctx.engine.open_result(
            plan, ctx.session.role, ctx.session.pool, user=user, login=ctx.session.user, reads=reads
        )
        rows.tell_when_quiet(lambda: ctx.notice("still waiting for the first row", hint=hint))
        return Result(ROWS, [Column(c.name, c.type) for c in columns], rows)

    async def explain(self, ctx: Context) -> Explained:
        planned = await self._plan(ctx)
        columns = await continuous.analyze(ctx, planned.root)
        plan = continuous.plan(ctx, planned, ResultSink(planned.limit), columns, self.options)
        return Explained("SELECT", sources=tuple(relation_facts(s) for s in planned.sources), plan=plan)

    async def _plan(self, ctx: Context) -> Planned:
        bound = [Parameter(v, oid) for v, oid in zip(ctx.parameters, ctx.parameter_oids, strict=True)]
        return await postgres_queries.plan(ctx, self.select, "result", bound, self.options.expires)


def _hint(plan: Plan) -> str:
    """What may be the reason that no row comes."""
    if any(s.starting_position == "latest" for s in sources(plan.root)):
        return "Only records from now on are read; those that are there with 'starting.position' = 'earliest'."
    return "The records that there are give no row yet; a window gives its rows when it ends."
