"""COMMENT ON what is in the catalogue: PostgreSQL's statement, which PostgreSQL itself refuses, for the objects behind
relations and schemas are not their owner's there.

Owns: the grammar and the answer. ``alterations.py`` has ALTER … SET description, which says the same of a relation.
Must not know: whose a COMMENT is (``shared``), where the words are kept (``catalog``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.errors import NotYet, UndefinedSchema
from pgstream.names import QName, quote_literal
from pgstream.sql.cursor import Cursor
from pgstream.sql.sniff import blanked
from pgstream.statements import access, places
from pgstream.statements.access import Need
from pgstream.statements.base import Context, Result, Statement

SCHEMA = "schema"
# A stream is a view to PostgreSQL's clients, and a materialized view a table.
_KINDS = {"RELATION": None, "TABLE": None, "VIEW": None, "MATERIALIZED VIEW": "materialized_view",
          "STREAM": "stream", "CHANGELOG": "changelog", SCHEMA.upper(): SCHEMA}  # fmt: skip
_IN_DOLLARS = re.compile(r"\$(\w*)\$(.*)\$\1\$", re.S)


def quoted(text: str) -> str:
    """A COMMENT whose words stand in single quotes, where they stood in dollars, as dbt writes them."""
    return blanked(text, lambda literal: quote_literal(m[2]) if (m := _IN_DOLLARS.fullmatch(literal)) else literal)


@dataclass(frozen=True, slots=True)
class CommentOn(Statement):
    """COMMENT ON { RELATION | STREAM | CHANGELOG | TABLE | VIEW | MATERIALIZED VIEW }
        [[database_name.]schema_name.]relation_name IS { 'text' | NULL };
    COMMENT ON COLUMN [[database_name.]schema_name.]relation_name.column_name IS { 'text' | NULL };
    COMMENT ON SCHEMA [database_name.]schema_name IS { 'text' | NULL };

    Describe a relation, one of its columns or a schema in words, which psql's ``\\d+`` and ``\\dn+``, BI tools and dbt
    show; NULL takes them away. A relation's are its description: ``ALTER RELATION … SET description`` sets the same.
    DESCRIBE … COLUMNS shows those of columns. TABLE and VIEW stand for a relation of any kind. What is PostgreSQL's
    own has PostgreSQL's COMMENT. Inside a transaction it is not rolled back.
    """

    words: ClassVar[tuple[str, ...]] = ("COMMENT", "ON")
    tag: ClassVar[str] = "COMMENT"

    kind: str | None
    name: QName
    column: str | None
    text: str | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if c.peek("DATABASE"):
            raise NotYet(what="COMMENT ON a database", at=c.at)
        if c.accept("COLUMN"):
            kind, path = None, c.path()
            if not 2 <= len(path.parts) <= 4:
                raise c.fault()
            name, column = QName(path.parts[:-1], path.at), path.parts[-1]
        else:
            words = next((w for w in _KINDS if c.accept(*w.split())), None)
            if words is None:
                raise c.fault()
            kind, name, column = _KINDS[words], c.qname(), None
            if kind == SCHEMA and len(name.parts) > 2:
                raise UndefinedSchema(name=str(name), at=name.at)
        c.expect("IS")
        text = None if c.accept("NULL") else c.string()
        c.end()
        return cls(kind, name, column, text)

    def needs(self, ctx: Context) -> Iterable[Need]:
        return (access.owns(SCHEMA if self.kind == SCHEMA else "relation", self.name),)

    async def execute(self, ctx: Context) -> Result:
        if self.kind == SCHEMA:
            await ctx.catalog.describe_schema(*places.schema(ctx, self.name), self.text, at=self.name.at)
            return Result(self.tag)
        found = places.relation(ctx, self.name, self.kind)
        if self.column is None:
            await ctx.catalog.describe_relation(found.full, self.text, at=self.name.at)
        else:
            await ctx.catalog.describe_column(found.full, self.column, self.text, at=self.name.at)
        return Result(self.tag)
