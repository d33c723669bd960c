"""DESCRIBE <statement>: what a statement would do, without doing it.

Owns: which statements can be described, and the answer. Must not know: how each is planned (``Explained``).
Manual: "DESCRIBE <statement>".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from pgstream.sql.cursor import Cursor
from pgstream.statements.access import Need
from pgstream.statements.answers import json_text, listing
from pgstream.statements.applications import BeginApplication
from pgstream.statements.base import Column, Context, Result, Statement
from pgstream.statements.create_as import (
    CreateChangelogAs,
    CreateMaterializedViewAs,
    CreateStreamAs,
    CreateTableAs,
    as_form,
)
from pgstream.statements.explained import Explained
from pgstream.statements.insert import InsertInto
from pgstream.statements.select import SelectStream
from pgstream.statements.streams import CreateChangelog, CreateStream
from pgstream.statements.tables import CreateTable
from pgstream.statements.trial import Whole


class Describable(Protocol):
    """A statement that DESCRIBE can show."""

    def needs(self, ctx: Context) -> Iterable[Need]: ...

    async def explain(self, ctx: Context) -> Explained | Whole:
        """Check and plan it; nothing is changed."""


_OBJECTS = "Say of what: DESCRIBE RELATION, QUERY, STORE or ENTITY with a name, or DESCRIBE and a statement."


@dataclass(frozen=True, slots=True)
class DescribeStatement(Statement):
    """DESCRIBE statement;

    Check and plan a statement without running it: CREATE STREAM, CREATE CHANGELOG, their AS forms, CREATE TABLE, CREATE
    MATERIALIZED VIEW AS, INSERT INTO, BEGIN APPLICATION, or an interactive SELECT. Info says as JSON what would be made
    (ddl), written (sink) and read (sources); of an application ddls, statements, sources and sinks. Plan shows the
    steps, the sink first, each with its changelog mode unless its rows only come, and what it keeps in state; Physical
    the operators that run them, Spark's own or the kernel's. Both are additions of ours.
    """

    words: ClassVar = ("DESCRIBE",)
    columns: ClassVar = (Column("Type"), Column("Info"), Column("Plan"), Column("Physical"))

    statement: Describable

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect("DESCRIBE")
        # Blanks instead of the word, so that positions stay those of the client's text.
        return cls(_parse(Cursor(" " * c.at + c.text[c.at :])))

    def needs(self, ctx: Context) -> Iterable[Need]:
        return self.statement.needs(ctx)

    async def execute(self, ctx: Context) -> Result:
        e = await self.statement.explain(ctx)
        return listing(self.columns, [(e.kind, json_text(e.info), e.steps or None, e.operators or None)])


def _parse(c: Cursor) -> Describable:
    if c.peek("CREATE", "STREAM"):
        return CreateStreamAs.parse(c) if as_form(c.fork()) else CreateStream.parse(c)
    if c.peek("CREATE", "CHANGELOG"):
        return CreateChangelogAs.parse(c) if as_form(c.fork()) else CreateChangelog.parse(c)
    if c.peek("CREATE", "MATERIALIZED", "VIEW"):
        return CreateMaterializedViewAs.parse(c)
    if c.peek("CREATE", "TABLE"):
        return CreateTableAs.parse(c) if as_form(c.fork()) else CreateTable.parse(c)
    if c.peek("INSERT", "INTO"):
        return InsertInto.parse(c)
    if c.peek("SELECT") or c.peek("WITH"):
        return SelectStream.parse(c)
    if c.peek(*BeginApplication.words):
        return BeginApplication.parse(c)
    unknown = c.fault()
    unknown.hint = _OBJECTS
    raise unknown
