"""APPLICATION: several statements as one.

Owns: the grammar: an application is read whole, each of its statements by its own class, so a fault is found where it
is. Must not know: how its statements are checked (``trial``) and run (``together``). Manual: "APPLICATION".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.errors import InvalidOption, InvalidStatement
from pgstream.names import Name
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import together
from pgstream.statements.answers import ddl, done
from pgstream.statements.base import DDL_ROW, Context, Result, Statement
from pgstream.statements.continuous import query_options
from pgstream.statements.create_as import (
    CreateChangelogAs,
    CreateMaterializedViewAs,
    CreateStreamAs,
    CreateTableAs,
    as_form,
)
from pgstream.statements.insert import InsertInto
from pgstream.statements.streams import CreateChangelog, CreateStream
from pgstream.statements.tables import CreateTable
from pgstream.statements.trial import Trial, Whole
from pgstream.statements.use import UseDatabase, UseSchema, UseStore
from pgstream.statements.virtual import CreateVirtualChangelog, CreateVirtualStream

_LEAVE = "Leave 'resume.from.query.…' out."


@dataclass(frozen=True, slots=True)
class BeginApplication(Statement):
    """BEGIN APPLICATION application_name
    statement; [...]
    END APPLICATION [WITH ( 'parameter' = value [, ...] )];

    Several statements as one: USE DATABASE, SCHEMA and STORE, CREATE STREAM and CHANGELOG (AS, and VIRTUAL), CREATE
    TABLE (AS), CREATE MATERIALIZED VIEW AS, INSERT INTO. Each is checked as if those before it were done; if one fails,
    nothing is made. Their selects run as one query: a source that several of them read is read once, its materialized
    views of one database change in one transaction, TERMINATE and RESTART QUERY end and start all of it, and when one
    fails all stop. The answer is a row for each relation that was made, and the query's row with its id. Virtual
    relations are seen by the application's own statements only; USE holds within it. Windows are told when they are
    final, and event time is that of the slowest of the sources that work by it. The parameters are those of QUERY WITH.
    'resume.from.query.…' begins where another query or application stopped, in each topic that is read; neither may
    keep state.
    """

    words: ClassVar = ("BEGIN", "APPLICATION")
    tag: ClassVar = "BEGIN APPLICATION"
    columns: ClassVar = DDL_ROW
    free: ClassVar = "each of its statements is asked for what it needs"

    name: Name
    statements: tuple[Statement, ...]
    query_with: Options
    at: int
    text: str

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
        query_options(given)
        return cls(name, tuple(statements), given, at, c.text)

    async def execute(self, ctx: Context) -> Result:
        trial = Trial.of(ctx)
        await trial.run(self.statements, self.query_with)
        if (asked := query_options(self.query_with).resume) is not None and not trial.starts:
            raise InvalidOption(what=f'application "{self.name}" has no query', at=asked.at, hint=_LEAVE)
        query = await together.begin(ctx, self.text, trial.steps, self.at)
        lines = [] if query is None else [ddl("query", query.id, "CREATE", [query.id])]
        return done(self.tag, *trial.rows, *lines)

    async def explain(self, ctx: Context) -> Whole:
        return await Trial.of(ctx).run(self.statements, self.query_with)


_ALLOWED: tuple[type[Statement], ...] = (CreateVirtualStream, CreateVirtualChangelog, UseDatabase, UseSchema, UseStore,
                                         CreateTable, CreateMaterializedViewAs, InsertInto)  # fmt: skip


def _statement(c: Cursor) -> Statement:
    """One of an application's."""
    if c.peek("CREATE", "STREAM"):
        return CreateStreamAs.parse(c) if as_form(c.fork()) else CreateStream.parse(c)
    if c.peek("CREATE", "CHANGELOG"):
        return CreateChangelogAs.parse(c) if as_form(c.fork()) else CreateChangelog.parse(c)
    if c.peek("CREATE", "TABLE") and as_form(c.fork()):
        return CreateTableAs.parse(c)
    for allowed in _ALLOWED:
        if c.peek(*allowed.words):
            return allowed.parse(c)
    said = " ".join(c.words(3 if c.peek("CREATE", "OR") else 2))
    if not said:
        raise c.fault()
    raise InvalidStatement(
        what=f"{said} cannot be used in an application",
        at=c.at,
        hint="USE DATABASE, SCHEMA and STORE, CREATE … [AS] and INSERT INTO can.",
    )
