"""Indexes of materialized views: CREATE INDEX, DROP INDEX, REINDEX, LIST INDEXES.

Owns: the grammar around what PostgreSQL's manual calls the index elements, which go to PostgreSQL as they are, and what
of them is refused. PostgreSQL builds the index with the rights of the view's owner, who is not the client, so an
expression may call nothing but PostgreSQL's own functions: a name with a schema before it is refused, and the search
path is ``pg_catalog``. Must not know: how one is built (``catalog``).
PostgreSQL's CREATE INDEX, DROP INDEX and REINDEX over its own tables are PostgreSQL's: ``shared.py`` decides.
Manual: "CREATE INDEX".
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pgstream.catalog.records import RelationRecord
from pgstream.errors import DuplicateRelation, NotSupported, WrongKind
from pgstream.names import FullName, Name, QName, is_space, lexemes
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done, exists
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement
from pgstream.statements.relations import DropRelation, ListRelations

ODD = re.compile(r"\be'|\bu&|\$|--|/\*", re.I)
_TRIES = 20
_LONGEST = 63
"""Characters of a name that PostgreSQL makes up; the client's own are checked in bytes."""


@dataclass(frozen=True, slots=True)
class CreateIndex(Statement):
    """CREATE INDEX [[IF NOT EXISTS] index_name] ON [[database_name.]schema_name.]view_name [USING method]
    ( { column_name | ( expression ) } [...] [, ...] ) [INCLUDE ( ... )] [WITH ( ... )] [WHERE predicate];

    Make an index of PostgreSQL's on a materialized view: what follows the view's name is as in PostgreSQL, of any
    method. The index is in the view's schema and goes with the view. UNIQUE is refused, as it would stop the view's
    query; expressions may call PostgreSQL's own functions only.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "INDEX")
    tag: ClassVar[str] = "CREATE INDEX"
    columns: ClassVar[tuple[Column, ...]] = DDL_ROW

    name: Name | None
    if_not_exists: bool
    on: QName
    definition: str
    definition_at: int
    first: str

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect("CREATE")
        at = c.at
        if c.accept("UNIQUE"):
            raise NotSupported(
                what="a UNIQUE index on a materialized view", at=at, hint="It has one on its primary key already."
            )
        c.expect("INDEX")
        at = c.at
        if c.accept("CONCURRENTLY"):
            raise NotSupported(what="CREATE INDEX CONCURRENTLY on a materialized view", at=at)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = None if c.peek("ON") and not if_not_exists else c.name()
        c.expect("ON")
        c.accept("ONLY")
        on = c.qname()
        if c.at_end:
            raise c.fault()
        definition, at = c.rest()
        _check(definition, at)
        return cls(name, if_not_exists, on, definition, at, _first_column(definition))

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("relation", self.on),)

    async def execute(self, ctx: Context) -> Result:
        view = places.relation(ctx, self.on)
        if view.kind != "materialized_view":
            raise WrongKind(name=str(self.on), is_a=view.label, wanted="materialized view", at=self.on.at)
        full = self._full(ctx, view)
        if self.if_not_exists and (full.database, full.schema, full.name) in ctx.catalog.snapshot.relations:
            ctx.notice(f'relation "{full}" already exists, skipping')
            return done(self.tag, exists("index", str(full), full.path))
        record = RelationRecord(
            id=str(uuid.uuid4()), full=full, kind="index", columns=(), owner=ctx.session.role,
            properties={"on": str(view.full), "definition": self.definition},
        )  # fmt: skip
        full = await self._create(ctx, record)
        return done(self.tag, ddl("index", str(full), "CREATE", full.path))

    async def _create(self, ctx: Context, record: RelationRecord) -> FullName:
        """Under a name that PostgreSQL has free too: the view's key and clients' tables have indexes beside ours."""
        at, stem = self.name.at if self.name else self.definition_at, record.full.name
        for i in itertools.count(1):
            try:
                await ctx.catalog.create_relation(record, at=at)
                break
            except DuplicateRelation:
                if self.name is not None or i == _TRIES:
                    raise
                record = replace(record, full=replace(record.full, name=f"{stem}_{i}"))
        return record.full

    def _full(self, ctx: Context, view: RelationRecord) -> FullName:
        """In the view's schema; without a name as PostgreSQL would call it: ``view_column_idx``."""
        at = view.full
        if self.name is not None:
            return FullName(at.database, at.schema, self.name.text)
        taken = ctx.catalog.snapshot.relations
        stem = f"{at.name[: _LONGEST - len(self.first) - 10]}_{self.first}_idx"
        names = itertools.chain([stem], (f"{stem}{i}" for i in itertools.count(1)))
        free = next(n for n in names if (at.database, at.schema, n) not in taken)
        return FullName(at.database, at.schema, free)


def _check(definition: str, at: int) -> None:
    """Refuse what could call a function of a client's. Read as PostgreSQL reads it, or not at all."""
    if odd := ODD.search(definition):
        what = f"{odd[0].strip()} in an index of a materialized view"
        raise NotSupported(what=what, at=at + odd.start(), hint="Write it as a plain string, without comments.")
    last = ""
    for part in lexemes(definition):
        if part == ";" or (part == "." and last.lower() != "pg_catalog"):
            raise NotSupported(
                what="a name with a schema in an index of a materialized view",
                at=at,
                hint="Use the view's columns and PostgreSQL's own functions, types and operators.",
            )
        at += len(part)
        if not is_space(part):
            last = part


def _first_column(definition: str) -> str:
    """The first column's name, for the index's; ``expr`` when it is an expression."""
    found = re.match(r'[^(]*\(\s*(?:"(?P<quoted>[^"]+)"|(?P<plain>\w+)\s*(?![\w(]))', definition)
    return ((found["quoted"] or found["plain"].lower()) if found else "expr")[:20]


class DropIndex(DropRelation):
    """DROP INDEX [IF EXISTS] [[database_name.]schema_name.]index_name;

    Remove an index of a materialized view. PostgreSQL's own indexes are dropped by PostgreSQL.
    """

    words: ClassVar[tuple[str, ...]] = ("DROP", "INDEX")
    kind: ClassVar[str | None] = "index"


@dataclass(frozen=True, slots=True)
class Reindex(Statement):
    """REINDEX { TABLE | INDEX | SCHEMA } [CONCURRENTLY] [[database_name.]schema_name.]name;

    Build an index of a materialized view anew, all of a view, or those of all views in a schema. Meanwhile the view's
    query waits, unless CONCURRENTLY is said. It needs the view, index or schema. The indexes of PostgreSQL's own tables
    are PostgreSQL's to build, also where the schema holds views of ours.
    """

    words: ClassVar[tuple[str, ...]] = ("REINDEX",)
    tag: ClassVar[str] = "REINDEX"

    what: str
    concurrently: bool
    name: QName

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if c.peek("("):
            raise NotSupported(what="REINDEX with options over a materialized view", at=c.at)
        what = next((w for w in ("TABLE", "INDEX", "SCHEMA") if c.accept(w)), None)
        if what is None:
            raise c.fault()
        concurrently = c.accept("CONCURRENTLY")
        name = c.qname()
        c.end()
        return cls(what, concurrently, name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("schema" if self.what == "SCHEMA" else "relation", self.name),)

    async def execute(self, ctx: Context) -> Result:
        for record in self._records(ctx):
            await ctx.catalog.reindex(record, concurrently=self.concurrently)
        return Result(self.tag)

    def _records(self, ctx: Context) -> list[RelationRecord]:
        if self.what == "SCHEMA":
            place = places.schema(ctx, self.name)
            # Whoever they belong to, as with PostgreSQL's schemas.
            inside = (r for r in ctx.catalog.snapshot.relations.values() if (r.full.database, r.full.schema) == place)
            return [r for r in inside if r.kind == "materialized_view"]
        found, wanted = places.relation(ctx, self.name), "index" if self.what == "INDEX" else "materialized_view"
        if found.kind != wanted:
            raise WrongKind(name=str(self.name), is_a=found.label, wanted=wanted.replace("_", " "), at=self.name.at)
        return [found]


class ListIndexes(ListRelations):
    """LIST INDEXES [IN SCHEMA [database_name.]schema_name];

    LIST RELATIONS, indexes of materialized views only.
    """

    words: ClassVar[tuple[str, ...]] = ("LIST", "INDEXES")
    kind: ClassVar[str | None] = "index"
