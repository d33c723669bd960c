"""Queries that exist: LIST, TERMINATE, RESTART, ALTER.

Owns: the grammar and the answers. ``create_as.py`` and ``insert.py`` start queries, ``query_details.py`` describes one.
Must not know: how a query runs (``engine``).
Manual: "LIST QUERIES", "TERMINATE QUERY", "RESTART QUERY".
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog import rights
from pgstream.catalog.privileges import OWNERSHIP
from pgstream.catalog.records import QueryRecord
from pgstream.catalog.store import REPLACES
from pgstream.engine.requests import check_logs
from pgstream.errors import InsufficientPrivilege, InvalidOption, NotReady, UndefinedObject
from pgstream.names import FullName, Name
from pgstream.planner.plan import load
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, alone, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, listing
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.heading import expect

_LONGEST_TAG = 256
_MOST_TAGS = 50


@dataclass(frozen=True, slots=True)
class ListQueries(Statement):
    """LIST QUERIES [WITH ('all')];

    The continuous queries, one a row; with 'all' the terminated ones too, which are known for 30 days (setting
    ended_queries_days), or as long as what they made is there. Message says why a query is errored or
    waits, and of one that is to replace another (CREATE OR REPLACE MATERIALIZED VIEW) how far it is; it is an addition
    of ours.
    """

    words: ClassVar = ("LIST", "QUERIES")
    free: ClassVar = "it shows what the role sees"
    columns: ClassVar = (
        Column("ID"), Column("Name"), Column("Version", types.BIGINT), Column("Intended State"),
        Column("Actual State"), Column("Query"), Column("Owner"), Column("Created At", types.TIMESTAMP_LTZ),
        Column("Updated At", types.TIMESTAMP_LTZ), Column("Message"),
    )  # fmt: skip

    ended_too: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        given = c.properties() if c.accept("WITH") else {}
        c.end()
        for g in given.values():
            if g.name.lower() != "all":
                raise InvalidOption(
                    what=f'unknown parameter "{g.name}" for LIST QUERIES', at=g.at, hint="Known: 'all'."
                )
        return cls("all" in given and given["all"].value == "true")

    async def execute(self, ctx: Context) -> Result:
        sees, role = ctx.snapshot.access.sees, ctx.session.role
        found = [q for q in await ctx.catalog.queries(self.ended_too) if sees(role, "query", q.id, q.owner)]
        lines = [
            (q.id, q.name, q.version, q.intended, q.actual, q.sql, q.owner, q.created_at, q.updated_at,
             q.message or replacing(ctx, q))
            for q in found
        ]  # fmt: skip
        return listing(self.columns, lines)


def replacing(ctx: Context, query: QueryRecord) -> str:
    """What is said of a query that is to replace the one that keeps a view; nothing of others."""
    view = ctx.snapshot.relations.get(FullName.read(query.sinks[0]).key)
    if query.kind != REPLACES or view is None or view.query == query.id or query.intended != "running":
        return ""
    sources = (ctx.engine.progress(query.id) or query.progress).get("sources")
    behind = sum(int(s.get("lag", 0)) for s in sources.values()) if isinstance(sources, dict) else None
    how_far = "nothing read yet" if behind is None else f"{behind} records to read"
    return f"replaces the query that keeps {view.full}: {how_far}"


@dataclass(frozen=True, slots=True)
class TerminateQuery(Statement):
    """TERMINATE QUERY { query_id | query_name[:query_version] };

    End a query for good. What it has written stays.
    """

    words: ClassVar = ("TERMINATE", "QUERY")
    tag: ClassVar = "TERMINATE QUERY"
    columns: ClassVar = DDL_ROW

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
        return (access.owns("query", Name(self.ref, self.at)),)

    async def execute(self, ctx: Context) -> Result:
        query = await access.query(ctx, OWNERSHIP, self.ref, self.at)
        if query.actual == "terminated":
            ctx.notice(f'query "{query.id}" is terminated already')
        else:
            await ctx.engine.terminate(query.id)
        return done(self.tag, ddl("query", query.id, "TERMINATE", [query.id]))


@dataclass(frozen=True, slots=True)
class RestartQuery(Statement):
    """RESTART QUERY { query_id | query_name[:query_version] } [IN COMPUTE_POOL pool_name];

    Start a query again, from where it stood; in another compute pool if one is named, which is an addition of ours. It
    runs with the rights of its owner role: a query whose role has lost one since stops, and says which. One that reads
    a view and stayed errored until what waited for it was given up (setting view_log_mb) is refused.
    """

    words: ClassVar = ("RESTART", "QUERY")
    tag: ClassVar = "RESTART QUERY"
    columns: ClassVar = DDL_ROW

    ref: str
    at: int
    pool: Name | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        at = c.at
        ref = c.query_ref()
        pool = c.name() if c.accept("IN", "COMPUTE_POOL") else None
        c.end()
        return cls(ref, at, pool)

    def needs(self, ctx: Context) -> Iterable[Need]:
        mine = access.owns("query", Name(self.ref, self.at))
        return (mine,) if self.pool is None else (mine, Need("usage", "compute_pool", self.pool))

    async def execute(self, ctx: Context) -> Result:
        query = await access.query(ctx, OWNERSHIP, self.ref, self.at)
        pool = places.object(ctx, "compute_pool", self.pool).name if self.pool is not None else None
        if query.intended == "terminated":
            raise NotReady(
                what=f'query "{query.id}" is terminated and cannot be restarted',
                at=self.at,
                hint="Run its statement again to make a new query.",
            )
        with suppress(ValueError):  # a plan that this version cannot read: the engine says so
            await check_logs(ctx.catalog, query, plan := load(query.plan), self.at)
            await alone.check(ctx, plan, self.at, query.id)
        missing = rights.lost(ctx.catalog.snapshot, replace(query, pool=pool or query.pool))
        await ctx.engine.restart(query.id, pool)
        if missing is not None:  # the engine asks the same, and has stopped it
            raise InsufficientPrivilege(
                kind="query", name=query.id, at=self.at, detail=f"Its {missing}.",
                hint="Grant it again, then RESTART QUERY.",
            )  # fmt: skip
        return done(self.tag, ddl("query", query.id, "RESTART", [query.id]))


@dataclass(frozen=True, slots=True)
class AlterQuery(Statement):
    """ALTER QUERY { query_id | query_name[:query_version] }
    { ADD TAG 'tag' = 'value' [, …] | DROP TAG 'tag' [, …] };

    Give a query words of one's own, to find it by: its team, its job. A tag that is there gets the new value. DESCRIBE
    QUERY shows them. The manual is silent on it; DeltaStream's public scripts have ADD TAG with one tag.
    """

    words: ClassVar = ("ALTER", "QUERY")
    tag: ClassVar = "ALTER QUERY"
    columns: ClassVar = DDL_ROW

    ref: str
    at: int
    added: tuple[tuple[str, str], ...]
    dropped: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        at = c.at
        ref = c.query_ref()
        added, dropped = [], []
        adds = c.accept("ADD", "TAG")
        if not adds:
            c.expect("DROP", "TAG")
        while True:
            name_at, name = c.at, c.string()
            if len(name.encode()) not in range(1, _LONGEST_TAG + 1):
                raise InvalidOption(what=f"a tag has 1 to {_LONGEST_TAG} bytes", at=name_at)
            if adds:
                c.expect("=")
                value_at, value = c.at, c.string()
                if len(value.encode()) > _LONGEST_TAG:
                    raise InvalidOption(what=f"the value of a tag has at most {_LONGEST_TAG} bytes", at=value_at)
                added.append((name, value))
            else:
                dropped.append((name, name_at))
            if not c.accept(","):
                break
        c.end()
        return cls(ref, at, tuple(added), tuple(dropped))

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("query", Name(self.ref, self.at)),)

    async def execute(self, ctx: Context) -> Result:
        query = await access.query(ctx, OWNERSHIP, self.ref, self.at)
        await ctx.catalog.tag_query(query.id, self._tagged)
        return done(self.tag, ddl("query", query.id, "ALTER", [query.id], f"query {query.id} was updated"))

    def _tagged(self, query: QueryRecord) -> dict[str, str]:
        """Errors: UndefinedObject, InvalidOption."""
        tags = {**query.tags, **dict(self.added)}
        for name, at in self.dropped:
            if tags.pop(name, None) is None:
                raise UndefinedObject(kind="tag", name=name, at=at, hint=_tags(query))
        if len(tags) > _MOST_TAGS:
            raise InvalidOption(what=f"a query has at most {_MOST_TAGS} tags", at=self.at, hint=_tags(query))
        return tags


def _tags(query: QueryRecord) -> str:
    return f"Its tags: {', '.join(query.tags)}." if query.tags else "It has no tags."
