"""Changing a relation that is there: ALTER … SET description, TRUNCATE RELATION.

Owns: the grammar and the answers. ``relations.py`` has LIST, DESCRIBE and DROP, ``indexes.py`` a view's indexes.
Must not know: the comment or the table behind a relation (``catalog``).
Manual: "ALTER RELATION … SET description". TRUNCATE RELATION is what dbt's adapter sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.errors import NotSupported
from pgstream.names import QName
from pgstream.sql.cursor import Cursor
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.answers import ddl, done
from pgstream.statements.base import DDL_ROW, Column, Context, Result, Statement

KINDS = {"RELATION": None, "STREAM": "stream", "CHANGELOG": "changelog", "TABLE": "table",
         "MATERIALIZED VIEW": "materialized_view"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AlterRelation(Statement):
    """ALTER RELATION [[database_name.]schema_name.]relation_name SET description = { 'text' | NULL };

    Describe a relation in words; STREAM, CHANGELOG, TABLE or MATERIALIZED VIEW may stand for RELATION. psql's ``\\d+``
    and BI tools show them as the comment on the view or table; NULL takes them away.
    """

    words: ClassVar[tuple[str, ...]] = ("ALTER", "RELATION")
    tag: ClassVar[str] = "ALTER RELATION"
    columns: ClassVar[tuple[Column, ...]] = DDL_ROW

    kind: str | None
    name: QName
    description: str | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect("ALTER")
        words = next((w for w in KINDS if c.accept(*w.split())), None)
        if words is None:
            raise c.fault()
        name = c.qname()
        c.expect("SET", "DESCRIPTION", "=")
        description = None if c.accept("NULL") else c.string()
        c.end()
        return cls(KINDS[words], name, description)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("relation", self.name),)

    async def execute(self, ctx: Context) -> Result:
        found = places.relation(ctx, self.name, self.kind)
        await ctx.catalog.describe_relation(found.full, self.description, at=self.name.at)
        summary = f"relation {found.full} was updated"
        return done(self.tag, ddl(found.kind, str(found.full), "ALTER", found.full.path, summary))


@dataclass(frozen=True, slots=True)
class TruncateRelation(Statement):
    """TRUNCATE RELATION [[database_name.]schema_name.]relation_name;

    Take away the rows of a materialized view. Its query goes on: what it writes from then on is there, and a key comes
    back when its row changes. The records of a stream or changelog lie in its topic and stay.
    """

    words: ClassVar[tuple[str, ...]] = ("TRUNCATE", "RELATION")
    tag: ClassVar[str] = "TRUNCATE RELATION"
    columns: ClassVar[tuple[Column, ...]] = DDL_ROW

    name: QName

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = c.qname()
        c.end()
        return cls(name)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns("relation", self.name),)

    async def execute(self, ctx: Context) -> Result:
        found = places.relation(ctx, self.name)
        if found.kind != "materialized_view":
            raise NotSupported(
                what=f"TRUNCATE of a {found.label}",
                at=self.name.at,
                hint="DROP ENTITY deletes a topic with its records.",
            )
        await ctx.catalog.truncate_relation(found.full, at=self.name.at)
        summary = f"relation {found.full} was truncated"
        return done(self.tag, ddl(found.kind, str(found.full), "TRUNCATE", found.full.path, summary))
