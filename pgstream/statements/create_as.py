"""CREATE STREAM AS, CREATE CHANGELOG AS, CREATE MATERIALIZED VIEW AS: a relation and the query that writes it.

Owns: the grammar, which kind of result each takes, and what the new relation is.
Must not know: how a select is planned (``planner``) or a query started (``continuous``).
Manual: "CREATE STREAM AS SELECT", "CREATE CHANGELOG AS SELECT", "CREATE MATERIALIZED VIEW AS".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from msgspec import structs

from pgstream.catalog.expiry import RETENTION, TIMESTAMP
from pgstream.catalog.ledger import NOTIFY
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.catalog.store import REPLACES
from pgstream.errors import (
    ColumnsDiffer,
    DuplicateColumn,
    InvalidOption,
    InvalidStatement,
    NotSupported,
    NotYet,
    TypeMismatch,
    WrongKind,
)
from pgstream.names import FullName, Name, QName
from pgstream.planner.held import lateness
from pgstream.planner.nulls import filled
from pgstream.planner.plan import Expr, Project, ViewSink
from pgstream.planner.select import Planned
from pgstream.planner.sources import TIME_TYPES
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.sql.select import Select
from pgstream.statements import access, continuous, declared, places, postgres_queries, sinks
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done
from pgstream.statements.base import DDL_ROW, Context, Result, Statement
from pgstream.statements.continuous import VIEW, Prepared
from pgstream.statements.explained import Explained, relation_facts
from pgstream.statements.streams import already
from pgstream.stores.shared import LATENESS, LATENESS_MS
from pgstream.stores.spec import Can


def as_form(c: Cursor) -> bool:
    """Whether CREATE STREAM, CHANGELOG or TABLE has the AS form: what follows its name and WITH decides."""
    c.expect("CREATE")
    _ = c.accept("STREAM") or c.accept("CHANGELOG") or c.accept("TABLE")
    c.accept("IF", "NOT", "EXISTS")
    c.qname()
    if c.accept("WITH"):
        c.properties()
    return c.peek("AS")


@dataclass(frozen=True, slots=True)
class CreateAs(Statement):
    """What the three have in common."""

    columns: ClassVar = DDL_ROW
    kind: ClassVar[str] = ""

    name: QName
    if_not_exists: bool
    given: Options
    select: Select
    partition_by: tuple[Name, ...]
    query_with: Options

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        return cls.tail(c)

    @classmethod
    def tail(cls, c: Cursor) -> Self:
        """What follows the first words."""
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = c.qname()
        given = c.properties() if c.accept("WITH") else {}
        c.expect("AS")
        select = c.select()
        if c.peek("PARTITION", "BY") and cls.kind != "stream":
            raise InvalidStatement(
                what=f"PARTITION BY cannot be used in {cls.tag}",
                at=c.at,
                hint="It sets the record key of a stream; a changelog's is its primary key.",
            )
        partition_by = c.partition_by()
        query_with = c.query_with()
        c.end()
        return cls(name, if_not_exists, given, select, partition_by, query_with)

    def needs(self, ctx: Context) -> Iterable[Need]:
        made = (Need("create_query"), access.makes_relation(self.name), *access.reads(self.select),
                access.runs(ctx.session))  # fmt: skip
        return made if self.kind == "materialized_view" else (*made, access.in_store(self.given))

    async def prepare(self, ctx: Context) -> Prepared:
        """Everything checked and typed; no effects."""
        raise NotImplementedError

    async def execute(self, ctx: Context) -> Result:
        full = places.new_relation(ctx, self.name)
        if (full.database, full.schema, full.name) in ctx.snapshot.relations:
            return already(ctx, self, full)
        query = await continuous.begin(ctx, self.select.text, await self.prepare(ctx), self.name.at)
        made = ddl(self.kind, str(full), "CREATE", full.path)
        return done(self.tag, made, ddl("query", query.id, "CREATE", [query.id]))

    async def explain(self, ctx: Context) -> Explained:
        p = await self.prepare(ctx)
        sources = tuple(relation_facts(s) for s in p.planned.sources)
        return Explained(f"CREATE_{self.kind.upper()}_AS", relation_facts(p.into), sources=sources, plan=p.plan)

    async def _plan(self, ctx: Context, want: str, options: continuous.QueryOptions) -> Planned:
        return await postgres_queries.plan(ctx, self.select, want, expires=options.expires)


@dataclass(frozen=True, slots=True)
class CreateStreamAs(CreateAs):
    """CREATE STREAM [IF NOT EXISTS] stream_name [WITH ( 'parameter' = value [, ...] )] AS select_statement
    [PARTITION BY column [, ...]] [QUERY WITH ( 'parameter' = value [, ...] )];

    Make a stream and a continuous query that writes it, exactly once. The topic is the lower-cased name in the
    session's store, 'value.format' and the counts of partitions and replicas are the leftmost source's, unless given.
    PARTITION BY makes the record key of these columns. Each record carries its row's event time as its timestamp.
    The select must give a stream: a filter, a projection, an interval join. Other than the DDL form, the answer has
    two rows: the stream, and the query with its id. QUERY WITH ('execution.mode' = 'realtime') writes each record as it
    comes, at least once, where the select filters or projects one stream of a Kafka store; docs/semantics.md, "In real
    time", has the rest.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "STREAM")
    tag: ClassVar[str] = "CREATE STREAM"
    kind: ClassVar[str] = "stream"

    async def prepare(self, ctx: Context) -> Prepared:
        full = places.new_relation(ctx, self.name)
        d = sinks.declare(ctx, self.given, self.name)
        d.kind.require(Can.STREAM if self.kind == "stream" else Can.CHANGELOG, self.name.at)
        options = continuous.query_options(self.query_with)
        planned, columns, key = await self.typed(ctx, options)
        d = sinks.settle(d, planned, columns, self.partition_by, key, at=self.select.at)
        relation = _relation(ctx, full, columns, planned, kind=self.kind, d=d, key=key)
        sink = sinks.record_sink(relation, d, planned.mode, [c.name for c in columns])
        plan = continuous.plan(ctx, planned, sink, columns, options)
        return Prepared(f"create_{self.kind}_as", plan, planned, options, relation, relation, d)

    async def typed(
        self, ctx: Context, options: continuous.QueryOptions
    ) -> tuple[Planned, tuple[ColumnRecord, ...], tuple[str, ...]]:
        """The plan of its select, the columns that it gives, and the primary key."""
        planned = await self._plan(ctx, self.kind, options)
        sinks.check_kind(planned, self.kind, f"{self.tag} AS", self.select.at)
        columns = await continuous.analyze(ctx, planned.root)
        check_columns(columns, self.select.at)
        return planned, columns, self._key(planned)

    def _key(self, planned: Planned) -> tuple[str, ...]:
        return ()


class CreateChangelogAs(CreateStreamAs):
    """CREATE CHANGELOG [IF NOT EXISTS] changelog_name [WITH ( 'parameter' = value [, ...] )] AS select_statement
    [QUERY WITH ( 'parameter' = value [, ...] )];

    Make a changelog and a continuous query that writes it, exactly once. Its primary key is the grouping columns
    (with a window: its bounds too), or the source changelog's key; the record key carries it. The select must give a
    changelog. Windowed results are written when the window is final; those of a plain GROUP BY at every change, of
    several in one batch the last: a stream that is joined with the topic by event time finds no value between. Joined
    with the GROUP BY itself, in one statement, it finds them all.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "CHANGELOG")
    tag: ClassVar[str] = "CREATE CHANGELOG"
    kind: ClassVar[str] = "changelog"

    def _key(self, planned: Planned) -> tuple[str, ...]:
        if not planned.key:
            raise NotYet(
                what="CREATE CHANGELOG AS of a select without a key",
                at=self.select.at,
                hint="Add GROUP BY, or use CREATE MATERIALIZED VIEW AS for a single row.",
            )
        return planned.key


@dataclass(frozen=True, slots=True)
class CreateTableAs(CreateAs):
    """CREATE TABLE [IF NOT EXISTS] table_name [WITH ( 'parameter' = value [, ...] )] AS select_statement
    [QUERY WITH ( 'parameter' = value [, ...] )];

    Make a table in a store that holds tables, and a continuous query that fills it, exactly once. A select that gives a
    stream adds every row; one that gives a changelog keeps one row per key, which becomes the table's primary key, or,
    where a column of the key may be NULL, a unique key whose NULLs are equal. The answer has two rows: the table, and
    the query with its id.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "TABLE")
    tag: ClassVar[str] = "CREATE TABLE"
    kind: ClassVar[str] = "table"

    async def prepare(self, ctx: Context) -> Prepared:
        full = places.new_relation(ctx, self.name)
        d = declared.declare(ctx, self.given, self.name.name.lower(), Can.TABLE, self.name.at)
        d.kind.require(Can.SINK, self.name.at)
        options = continuous.query_options(self.query_with)
        planned = await self._plan(ctx, "view", options)
        columns = await continuous.analyze(ctx, planned.root)
        check_columns(columns, self.select.at)
        key = tuple(planned.key) if planned.mode == "upsert" else ()
        relation = _relation(ctx, full, columns, planned, kind=self.kind, d=d, key=key)
        sink = sinks.table_sink(relation, d, planned, self.select.at)
        plan = continuous.plan(ctx, planned, sink, columns, options)
        return Prepared("create_table_as", plan, planned, options, relation, relation, d)


@dataclass(frozen=True, slots=True)
class CreateMaterializedViewAs(CreateAs):
    """CREATE MATERIALIZED VIEW [IF NOT EXISTS] view_name [WITH ( 'parameter' = value [, ...] )] AS select_statement
    [QUERY WITH ( 'parameter' = value [, ...] )];

    Make a materialized view and a continuous query that keeps it, exactly once; any PostgreSQL client reads it as a
    table. A select that gives a stream appends every row; one that gives a changelog keeps one row per key. A windowed
    result may show running values before its window is final. Columns must be of primitive types. Rows are kept for
    ever, or for 'retention.millis': by the clock, from the time in the column 'timestamp', without it from when the row
    was last written. With 'notify' = 'channel' each batch that changes rows sends a NOTIFY to that channel when it is
    committed. A select that reads materialized views goes on with their changes; with PostgreSQL's WITH DATA or
    WITH NO DATA at its end it is PostgreSQL's statement, and is not kept current.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "MATERIALIZED", "VIEW")
    tag: ClassVar[str] = "CREATE MATERIALIZED VIEW"
    kind: ClassVar[str] = "materialized_view"

    async def prepare(self, ctx: Context) -> Prepared:
        full = places.new_relation(ctx, self.name)
        kept = VIEW.check(self.given)
        options = continuous.query_options(self.query_with, self.given.get("query.name"))
        planned = await self._plan(ctx, "view", options)
        columns = await continuous.analyze(ctx, planned.root)
        check_columns(columns, self.select.at)
        for column in columns:
            if not column.type.is_scalar:
                raise TypeMismatch(
                    what=f'column "{column.name}" of a materialized view cannot be of type {column.type}',
                    at=_output_at(planned, column.name) or self.select.at,
                    hint="Columns of a materialized view have primitive types; take the fields out with -> or [].",
                )
        kept = await _retention(ctx, full, kept, columns, self.given)
        if len(kept.get(NOTIFY, "x").encode()) not in range(1, 64):
            raise InvalidOption(what="the name of a channel has 1 to 63 bytes", at=self.given[NOTIFY].value_at)
        relation = _relation(ctx, full, columns, planned, kind=self.kind, d=None, key=planned.key)
        relation = replace(relation, properties={**relation.properties, **kept})
        table = ctx.catalog.staging_stem(relation.id)
        key = list(planned.key) if planned.mode == "upsert" else []
        sink = ViewSink(str(full), full.database, table, planned.mode, key)
        plan = continuous.plan(ctx, planned, sink, relation.columns, options)
        return Prepared("create_materialized_view_as", plan, planned, options, relation, relation, None)


class ReplaceMaterializedViewAs(CreateMaterializedViewAs):
    """CREATE OR REPLACE MATERIALIZED VIEW view_name [WITH ( 'parameter' = value [, ...] )] AS select_statement
    [QUERY WITH ( 'parameter' = value [, ...] )];

    Make a materialized view, or let another query keep the one of that name, without a moment in which it cannot be
    read. The statement returns when the new query runs. It fills a table beside the view; the view is as it was,
    kept by its old query. When the new query has read what the old one has, the view becomes what the new one made,
    in one transaction, and the old query is terminated. LIST QUERIES shows how far that is; TERMINATE QUERY of the
    new one before then gives it up.

    The view stays the same relation of PostgreSQL: grants, policies, indexes, views over it and publications stay.
    As with PostgreSQL's CREATE OR REPLACE VIEW its columns keep names, types and order, and more may follow at the
    end; its key may change. Readers wait for the exchange only then, and not at all otherwise; who reads in a
    transaction goes on with what it sees. Queries that read the view's changes are told the difference; they need
    columns and key as they are, and rows that can be taken back. The new query begins where a new view's would:
    with 'earliest', or the view holds only what has come since. The view's parameters are those of this statement.
    Not supported yet (0A000) is a view that an application keeps, which has other sinks. Needs ownership of the view.
    """

    # Of the five, as many as a statement is known by.
    words: ClassVar[tuple[str, ...]] = ("CREATE", "OR", "REPLACE", "MATERIALIZED")

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words, "VIEW")
        if c.peek("IF"):
            raise InvalidStatement(what="IF NOT EXISTS cannot be used with OR REPLACE", at=c.at)
        return cls.tail(c)

    def needs(self, ctx: Context) -> Iterable[Need]:
        if ctx.snapshot.relation(self.name, ctx.session.database, ctx.session.schema) is None:
            return super().needs(ctx)
        return (access.owns("relation", self.name), Need("create_query"), *access.reads(self.select),
                access.runs(ctx.session))  # fmt: skip

    async def execute(self, ctx: Context) -> Result:
        full = places.new_relation(ctx, self.name)
        if full.key not in ctx.snapshot.relations:
            return await super().execute(ctx)
        p = await self.prepare(ctx)
        continuous.refuse_resume(p.options, "CREATE OR REPLACE MATERIALIZED VIEW")
        p = replace(p, plan=await continuous.begun(ctx, p.plan))
        record = continuous.record(ctx, self.select.text, p.kind, p.plan, [p])
        query = await continuous.replace_view(ctx, record, p.into, p.plan, self.name.at, sources=p.planned.sources)
        ctx.notice(f'materialized view "{full}" stays as it is until query {query.id} is as far as its own')
        said = f'materialized view "{full}" is being replaced by query {query.id}'
        made = ddl(self.kind, str(full), "REPLACE", full.path, said)
        return done(self.tag, made, ddl("query", query.id, "CREATE", [query.id]))

    async def prepare(self, ctx: Context) -> Prepared:
        p = await super().prepare(ctx)
        before = ctx.snapshot.relations.get(p.into.full.key)
        if before is None:
            return p
        if before.kind != self.kind:
            raise WrongKind(name=str(self.name), is_a=before.label, wanted="materialized view", at=self.name.at)
        await continuous.check_replaceable(ctx, before, self.name.at, "replacing")
        if await self._comes_from(ctx, before, p):
            raise InvalidStatement(
                what=f'materialized view "{before.full}" cannot be replaced by a query that reads what comes of it',
                at=self.select.at,
                hint="Make it under another name.",
            )
        self._check_columns(p, before)
        assert isinstance(p.plan.sink, ViewSink)
        table = ctx.catalog.staging_stem(before.id)
        sink = structs.replace(p.plan.sink, table=table, options=dict(p.into.properties))
        return replace(p, kind=REPLACES, plan=structs.replace(p.plan, sink=sink), into=before, relation=None)

    async def _comes_from(self, ctx: Context, before: RelationRecord, p: Prepared) -> bool:
        """Whether the new query reads the view, or what other queries make of it, those too that are to take over a
        view themselves, and those that have ended and REPAIR would run again.
        """
        keepers = {r.query for r in ctx.catalog.snapshot.relations.values() if r.kind == self.kind}
        every = await ctx.catalog.queries(include_ended=True)
        queries = [q for q in every if q.intended == "running" or q.id in keepers]
        found, ahead = set[str](), [str(s.full) for s in p.planned.sources]
        while ahead:
            if (name := ahead.pop()) not in found:
                found.add(name)
                if name != str(before.full):
                    ahead += [s for q in queries if name in q.sinks for s in q.sources]
        return str(before.full) in found

    def _check_columns(self, p: Prepared, before: RelationRecord) -> None:
        """As PostgreSQL's CREATE OR REPLACE VIEW has it. Errors: ColumnsDiffer."""
        new = p.into.columns
        for i, old in enumerate(before.columns):
            if i >= len(new):
                raise ColumnsDiffer(what="cannot drop columns from view", at=self.select.at, hint=_KEPT)
            at = _output_at(p.planned, new[i].name) or self.select.at
            if new[i].name != old.name:
                what = f'cannot change name of view column "{old.name}" to "{new[i].name}"'
                raise ColumnsDiffer(what=what, at=at, hint=_KEPT)
            if new[i].type.pg != old.type.pg:
                what = f'cannot change data type of view column "{old.name}" from {old.type} to {new[i].type}'
                raise ColumnsDiffer(what=what, at=at, hint="CAST it, or make a view of another name.")


_KEPT = "Columns keep their names and order, more may follow at the end; or make a view of another name."


async def _retention(
    ctx: Context, full: FullName, kept: dict[str, str], columns: Sequence[ColumnRecord], given: Options
) -> dict[str, str]:
    """How long a view keeps its rows. Errors: InvalidOption for a column that tells no time, NotSupported."""
    name = kept.get(TIMESTAMP)
    types = {c.name: c.type for c in columns}
    if name is not None:
        column = name if name in types else name.lower()
        if column not in types or types[column].name not in TIME_TYPES:
            raise InvalidOption(
                what=f'column "{name}" does not tell how old a row is', at=given[TIMESTAMP].value_at,
                hint="Name a column that it selects, of type BIGINT (epoch milliseconds), TIMESTAMP or TIMESTAMP_LTZ.",
            )  # fmt: skip
        kept = {**kept, TIMESTAMP: column}
    elif RETENTION in kept and not await ctx.catalog.knows_when_written(full.database):
        raise NotSupported(
            what="'retention.millis' without 'timestamp' in this PostgreSQL", at=given[RETENTION].at,
            hint="Name a column with 'timestamp', or set track_commit_timestamp = on in postgresql.conf.",
        )  # fmt: skip
    return {k: v for k, v in kept.items() if k in (RETENTION, TIMESTAMP, NOTIFY)}


def check_columns(columns: Sequence[ColumnRecord], at: int) -> None:
    """Output names are unique."""
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise DuplicateColumn(name=column.name, at=at, hint="Give each output column a name of its own with AS.")
        seen.add(column.name)


def output(planned: Planned) -> list[Expr]:
    """The output expressions, where the plan ends in a projection."""
    return planned.root.columns if isinstance(planned.root, Project) else []


def _output_at(planned: Planned, name: str) -> int | None:
    return next((e.at for e in output(planned) if e.name == name), None)


def _told(column: ColumnRecord, planned: Planned, key: Sequence[str]) -> ColumnRecord:
    """A column as the relation has it. There is a group of those that have NULL, too."""
    return replace(column, nullable=not (column.name in key and filled(planned.root, column.name)))


def _relation(
    ctx: Context,
    full: FullName,
    columns: tuple[ColumnRecord, ...],
    planned: Planned,
    *,
    kind: str,
    d: declared.Declared | None,
    key: tuple[str, ...],
) -> RelationRecord:
    late = None if kind == "table" else lateness(planned.root)
    left_out = declared.excluded(d) if d is not None else ()
    return RelationRecord(
        id=str(uuid.uuid4()),
        full=full,
        kind=kind,
        columns=tuple(_told(c, planned, key) for c in columns if c.name not in left_out),
        owner=ctx.session.role,
        primary_key=key,
        store=d.store.name if d is not None else None,
        entity=d.entity if d is not None else None,
        properties={
            **({LATENESS.name: str(late)} if late is not None and late > LATENESS_MS else {}),
            **(d.properties if d is not None else {}),
        },
    )
