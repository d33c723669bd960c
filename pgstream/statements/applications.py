"""APPLICATION: several statements as one.

Owns: the grammar: an application is read whole, each of its statements by its own class, so a fault is found where it
is. Running one is planned: it is refused when all is checked, and nothing is made.
Must not know: how its statements are checked (``trial``). Manual: "APPLICATION".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.errors import InvalidStatement, NotYet
from pgstream.names import Name
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import DDL_ROW, Context, Result, Statement
from pgstream.statements.continuous import QueryOptions, query_options
from pgstream.statements.create_as import CreateChangelogAs, CreateMaterializedViewAs, CreateStreamAs, as_form
from pgstream.statements.insert import InsertInto
from pgstream.statements.streams import CreateChangelog, CreateStream
from pgstream.statements.tables import CreateTable
from pgstream.statements.trial import Trial, Whole
from pgstream.statements.use import UseDatabase, UseSchema, UseStore
from pgstream.statements.virtual import CreateVirtualChangelog, CreateVirtualStream

_HINT = "Send its statements one by one: each CREATE … AS and INSERT INTO runs as a query of its own."


@dataclass(frozen=True, slots=True)
class BeginApplication(Statement):
    """BEGIN APPLICATION application_name
    statement; [...]
    END APPLICATION [WITH ( 'parameter' = value [, ...] )];

    Several statements as one: USE DATABASE, SCHEMA and STORE, CREATE STREAM and CHANGELOG (AS, and VIRTUAL), CREATE
    TABLE, CREATE MATERIALIZED VIEW AS, INSERT INTO. All of them are read and checked, each as if those before it were
    done, and DESCRIBE shows what they would make, write and read; running an application is not supported yet, so
    nothing is made.
    """

    words: ClassVar = ("BEGIN", "APPLICATION")
    columns: ClassVar = DDL_ROW
    free: ClassVar = "each of its statements is asked for what it needs"

    name: Name
    statements: tuple[Statement, ...]
    options: QueryOptions
    at: int

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        at = c.at
        c.expect(*cls.words)
        name = c.name()
        c.accept(";")
        statements: list[Statement] = []
        while not c.peek("END", "APPLICATION"):
            statements.append(_statement(c.inner()))
        c.expect("END", "APPLICATION")
        if not statements:
            raise InvalidStatement(what=f'application "{name}" has no statements', at=name.at)
        given = c.properties() if c.accept("WITH") else {}
        c.end()
        return cls(name, tuple(statements), query_options(given), at)

    async def execute(self, ctx: Context) -> Result:
        await self.explain(ctx)
        raise NotYet(what="BEGIN APPLICATION", at=self.at, hint=_HINT)

    async def explain(self, ctx: Context) -> Whole:
        return await Trial.of(ctx).run(self.statements, self.options)


_ALLOWED: tuple[type[Statement], ...] = (CreateVirtualStream, CreateVirtualChangelog, UseDatabase, UseSchema, UseStore,
                                         CreateTable, CreateMaterializedViewAs, InsertInto)  # fmt: skip


def _statement(c: Cursor) -> Statement:
    """One of an application's."""
    if c.peek("CREATE", "STREAM"):
        return CreateStreamAs.parse(c) if as_form(c.fork()) else CreateStream.parse(c)
    if c.peek("CREATE", "CHANGELOG"):
        return CreateChangelogAs.parse(c) if as_form(c.fork()) else CreateChangelog.parse(c)
    if c.peek("CREATE", "TABLE") and as_form(c.fork()):
        raise NotYet(what="CREATE TABLE AS", at=c.at)
    for allowed in _ALLOWED:
        if c.peek(*allowed.words):
            return allowed.parse(c)
    said = " ".join(c.words(2))
    if not said:
        raise c.fault()
    raise InvalidStatement(
        what=f"{said} cannot be used in an application",
        at=c.at,
        hint="USE DATABASE, SCHEMA and STORE, CREATE … [AS] and INSERT INTO can.",
    )
