"""Everything about relations of any kind: LIST, DESCRIBE, DROP.

Owns: the grammar and the answers for RELATION, and for STREAM, CHANGELOG and MATERIALIZED VIEW where only the kind
differs. ``streams.py`` and ``create_as.py`` make them. Must not know: what is behind a relation (``catalog``).
Manual: "LIST RELATIONS", "DESCRIBE RELATION", "DESCRIBE RELATION COLUMNS", "DROP RELATION".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream import stores, types
from pgstream.catalog.records import ColumnRecord, RelationRecord, Snapshot
from pgstream.errors import NotSupported
from pgstream.names import QName
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ROWS, ddl, done, json_text, listing, missing
from pgstream.statements.base import DDL_ROW, Column, Context, KeptRow, Result, Statement, TextRow, rows
from pgstream.statements.heading import accept, expect

_ROW = (
    Column("Name"), Column("Type"), Column("Owner"), Column("State"), Column("Properties"),
    Column("Created At", types.TIMESTAMP_LTZ), Column("Updated At", types.TIMESTAMP_LTZ), Column("Path"),
)  # fmt: skip


_LINE = "LIST RELATIONS"
_ONE = "Drop each by a statement of its own."


def properties(r: RelationRecord, snapshot: Snapshot) -> dict[str, str]:
    """A relation's parameters as resolved, with its key and a view's mode."""
    out = dict(r.properties)
    if r.store is not None:
        out |= {"store": r.store, **stores.find(snapshot.store_of(r).type).shows(r.entity or "")}
    if r.primary_key:
        out["primary.key"] = ", ".join(r.primary_key)
    if r.mode:
        out["mode"] = r.mode
    return out


def _line(r: RelationRecord, snapshot: Snapshot) -> TextRow:
    """Its row, made once: catalogues of thousands of relations are listed again and again."""
    line: KeptRow | None = r.memo.get(_LINE)
    if line is None:
        described = json_text(properties(r, snapshot))
        values = r.full.name, r.kind, r.owner, r.state, described, r.created_at, r.updated_at, json_text(r.full.path)
        line = r.memo[_LINE] = KeptRow(rows(values)[0])
    return line


@dataclass(frozen=True, slots=True)
class ListRelations(Statement):
    """LIST RELATIONS [IN SCHEMA [database_name.]schema_name];

    The streams, changelogs, tables and materialized views of a schema, one a row. Properties are their parameters as
    resolved, as JSON.
    """

    words: ClassVar[tuple[str, ...]] = ("LIST", "RELATIONS")
    columns: ClassVar = _ROW
    kind: ClassVar[str | None] = None

    schema: QName | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        schema = c.qname() if accept(c, "IN", "SCHEMA") else None
        c.end()
        return cls(schema)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, "schema", self.schema),)

    async def execute(self, ctx: Context) -> Result:
        place = places.schema(ctx, self.schema)
        found = [
            r
            for r in ctx.snapshot.relations.values()
            if (r.full.database, r.full.schema) == place and self.kind in (None, r.kind)
        ]
        return Result(ROWS, self.columns, [_line(r, ctx.snapshot) for r in sorted(found, key=lambda r: r.full.name)])


class ListStreams(ListRelations):
    """LIST STREAMS [IN SCHEMA [database_name.]schema_name];

    LIST RELATIONS, streams only.
    """

    words: ClassVar[tuple[str, ...]] = ("LIST", "STREAMS")
    kind: ClassVar[str | None] = "stream"


class ListChangelogs(ListRelations):
    """LIST CHANGELOGS [IN SCHEMA [database_name.]schema_name];

    LIST RELATIONS, changelogs only.
    """

    words: ClassVar[tuple[str, ...]] = ("LIST", "CHANGELOGS")
    kind: ClassVar[str | None] = "changelog"


class ListMaterializedViews(ListRelations):
    """LIST MATERIALIZED VIEWS [IN SCHEMA [database_name.]schema_name];

    LIST RELATIONS, materialized views only.
    """

    words: ClassVar[tuple[str, ...]] = ("LIST", "MATERIALIZED", "VIEWS")
    kind: ClassVar[str | None] = "materialized_view"


@dataclass(frozen=True, slots=True)
class DescribeRelation(Statement):
    """DESCRIBE RELATION [[database_name.]schema_name.]relation_name;

    The row of LIST RELATIONS for one relation of any kind.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "RELATION")
    columns: ClassVar[tuple[Column, ...]] = _ROW
    kind: ClassVar[str | None] = None

    name: QName

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.qname()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, "relation", self.name),)

    async def execute(self, ctx: Context) -> Result:
        return Result(ROWS, self.columns, [_line(places.relation(ctx, self.name, self.kind), ctx.snapshot)])


class DescribeStream(DescribeRelation):
    """DESCRIBE STREAM [[database_name.]schema_name.]stream_name;

    DESCRIBE RELATION of a stream.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "STREAM")
    kind: ClassVar[str | None] = "stream"


class DescribeChangelog(DescribeRelation):
    """DESCRIBE CHANGELOG [[database_name.]schema_name.]changelog_name;

    DESCRIBE RELATION of a changelog.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "CHANGELOG")
    kind: ClassVar[str | None] = "changelog"


class DescribeMaterializedView(DescribeRelation):
    """DESCRIBE MATERIALIZED VIEW [[database_name.]schema_name.]view_name;

    DESCRIBE RELATION of a materialized view.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "MATERIALIZED", "VIEW")
    kind: ClassVar[str | None] = "materialized_view"


@dataclass(frozen=True, slots=True)
class DescribeRelationColumns(Statement):
    """DESCRIBE RELATION COLUMNS [[database_name.]schema_name.]relation_name;

    The columns of a relation of any kind, one a row.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "RELATION", "COLUMNS")
    columns: ClassVar = (Column("Name"), Column("Type"), Column("Nullable", types.BOOLEAN), Column("Properties"))
    kind: ClassVar[str | None] = None

    name: QName

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.qname()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (Need(access.SEES, "relation", self.name),)

    async def execute(self, ctx: Context) -> Result:
        found = places.relation(ctx, self.name, self.kind)
        return listing(self.columns, [(c.name, str(c.type), c.nullable, _said(c)) for c in found.columns])


def _said(column: ColumnRecord) -> str:
    return json_text({"description": column.description} if column.description else {})


class DescribeColumns(DescribeRelationColumns):
    """DESCRIBE COLUMNS [[database_name.]schema_name.]relation_name;

    DESCRIBE RELATION COLUMNS.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "COLUMNS")


class DescribeStreamColumns(DescribeRelationColumns):
    """DESCRIBE STREAM COLUMNS [[database_name.]schema_name.]stream_name;

    The columns of a stream.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "STREAM", "COLUMNS")
    kind: ClassVar[str | None] = "stream"


class DescribeChangelogColumns(DescribeRelationColumns):
    """DESCRIBE CHANGELOG COLUMNS [[database_name.]schema_name.]changelog_name;

    The columns of a changelog.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "CHANGELOG", "COLUMNS")
    kind: ClassVar[str | None] = "changelog"


class DescribeMaterializedViewColumns(DescribeRelationColumns):
    """DESCRIBE MATERIALIZED VIEW COLUMNS [[database_name.]schema_name.]view_name;

    The columns of a materialized view.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "MATERIALIZED", "VIEW", "COLUMNS")
    kind: ClassVar[str | None] = "materialized_view"


@dataclass(frozen=True, slots=True)
class DropRelation(Statement):
    """DROP RELATION [IF EXISTS] [[database_name.]schema_name.]relation_name;

    Forget a relation of any kind. The topic and its records stay; the rows of a materialized view go. Refused while a
    query that is not terminated reads or writes it.
    """

    words: ClassVar[tuple[str, ...]] = ("DROP", "RELATION")
    columns: ClassVar = DDL_ROW
    kind: ClassVar[str | None] = None

    name: QName
    if_exists: bool

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_exists = c.accept("IF", "EXISTS")
        name = c.qname()
        if c.peek(","):
            raise NotSupported(
                what=f"{' '.join(cls.words)} of several relations, some of them pgstream's,", at=c.at, hint=_ONE
            )
        c.end()
        return cls(name, if_exists)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("relation", self.name, self.if_exists),)

    async def execute(self, ctx: Context) -> Result:
        snapshot, tag = ctx.snapshot, " ".join(self.words)
        if self.if_exists and snapshot.relation(self.name, ctx.session.database, ctx.session.schema) is None:
            full = snapshot.full_name(self.name, ctx.session.database, ctx.session.schema)
            return missing(ctx, tag, self.kind or "relation", str(full), full.path)
        found = places.relation(ctx, self.name, self.kind)
        await ctx.catalog.drop_relation(found.full, at=self.name.at)
        summary = f"relation {found.full} was dropped"
        return done(tag, ddl(found.kind, str(found.full), "DROP", found.full.path, summary))


class DropStream(DropRelation):
    """DROP STREAM [IF EXISTS] [[database_name.]schema_name.]stream_name;

    DROP RELATION of a stream.
    """

    words: ClassVar[tuple[str, ...]] = ("DROP", "STREAM")
    kind: ClassVar[str | None] = "stream"


class DropChangelog(DropRelation):
    """DROP CHANGELOG [IF EXISTS] [[database_name.]schema_name.]changelog_name;

    DROP RELATION of a changelog.
    """

    words: ClassVar[tuple[str, ...]] = ("DROP", "CHANGELOG")
    kind: ClassVar[str | None] = "changelog"


class DropMaterializedView(DropRelation):
    """DROP MATERIALIZED VIEW [IF EXISTS] [[database_name.]schema_name.]view_name;

    DROP RELATION of a materialized view. Its query must be terminated first.
    """

    words: ClassVar[tuple[str, ...]] = ("DROP", "MATERIALIZED", "VIEW")
    kind: ClassVar[str | None] = "materialized_view"


class DropTable(DropRelation):
    """DROP TABLE [IF EXISTS] [[database_name.]schema_name.]table_name;

    DROP RELATION of a table in a store. PostgreSQL's own tables are dropped by PostgreSQL.
    """

    words: ClassVar[tuple[str, ...]] = ("DROP", "TABLE")
    kind: ClassVar[str | None] = "table"


class DropView(DropRelation):
    """DROP VIEW view_name;

    PostgreSQL's statement for its own views; for a relation of ours an error that says what to use.
    """

    words: ClassVar[tuple[str, ...]] = ("DROP", "VIEW")
    kind: ClassVar[str | None] = "view"
