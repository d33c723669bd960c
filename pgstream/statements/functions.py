"""Everything about FUNCTION: CREATE, DROP, LIST, DESCRIBE. The catalogue's part: what calls one refuses it.

Owns: signatures. A function is kept under ``name(types)``, so one name may stand for several; its JAR is a function
source's (``sources.py``). Must not know: how a class is run. Manual: "CREATE FUNCTION", "LIST FUNCTIONS".
CREATE FUNCTION and DROP FUNCTION are PostgreSQL's statements too: ``shared.py`` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pgstream import types
from pgstream.catalog import kinds
from pgstream.catalog.records import ObjectRecord
from pgstream.errors import InvalidOption
from pgstream.names import Name, quote
from pgstream.properties import Options
from pgstream.sql.cursor import Cursor
from pgstream.statements import places
from pgstream.statements.answers import ddl, done, exists, missing
from pgstream.statements.base import DDL_ROW, Column, Context, Result
from pgstream.statements.shapes import Create, Drop, List
from pgstream.stores.spec import Kind, Option, OptionTable

OPTIONS = OptionTable(
    "a function",
    (
        Option("source.name", Kind.TEXT, "Function source that holds the class.", required=True,
               names="function_source", example="my_source"),
        Option("class.name", Kind.TEXT, "The class, with its package.", required=True, example="com.example.Upper"),
        Option("egress.allow.uris", Kind.TEXT, "Comma-separated addresses that the class may call."),
    ),
)  # fmt: skip

Argument = tuple[str | None, types.Type]


def signature(name: str, arguments: Sequence[Argument]) -> str:
    """What a function is kept under: ``name(VARCHAR, BIGINT)``."""
    return f"{quote(name)}({', '.join(str(type_) for _, type_ in arguments)})"


@dataclass(frozen=True, slots=True)
class CreateFunction(Create):
    """CREATE FUNCTION [IF NOT EXISTS] function_name ( [arg_name data_type [, ...]] )
    RETURNS data_type LANGUAGE JAVA WITH ( 'source.name' = source_name, 'class.name' = 'package.Class' [, ...] );

    Name a class of a function source. The same name with other argument types is another function. Calling it in a
    query is not there yet.
    """

    kind: ClassVar[str] = "function"
    options: ClassVar[OptionTable] = OPTIONS

    arguments: tuple[Argument, ...]
    returns: types.Type

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name = c.name()
        arguments = tuple((n.text, t) for n, t in _named(c))
        c.expect("RETURNS")
        returns = c.type()
        c.expect("LANGUAGE")
        at = c.at
        language = c.name()
        if language.text != "java":
            raise InvalidOption(what=f'language "{language}" is not one of functions', at=at, hint="Use LANGUAGE JAVA.")
        c.expect("WITH")
        given: Options = c.properties()
        c.end()
        return cls(name, if_not_exists, given, arguments, returns)

    @property
    def label(self) -> str:
        return signature(self.name.text, self.arguments)

    def found(self, ctx: Context) -> bool:
        return places.find(ctx, self.kind, self.label) is not None

    async def execute(self, ctx: Context) -> Result:
        if self.found(ctx):
            if not self.if_not_exists:
                raise kinds.duplicate(self.kind, self.label, self.name.at)
            ctx.notice(f'function "{self.label}" already exists, skipping')
            return done(self.tag, exists(self.kind, self.label, [self.label]))
        record, secrets = await self.record(ctx)
        shown = ", ".join(f"{quote(name or '')} {type_}" for name, type_ in self.arguments)
        facts = {"signature": f"{quote(self.name.text)}({shown}) RETURNS {self.returns}"}
        record = replace(record, options={**record.options, **facts})
        await ctx.catalog.inventory.create(record, secrets, at=self.name.at)
        return done(self.tag, ddl(self.kind, self.label, "CREATE", [self.label]))


def _named(c: Cursor) -> list[tuple[Name, types.Type]]:
    """``( [name type [, …]] )``"""
    c.expect("(")
    out: list[tuple[Name, types.Type]] = []
    if c.accept(")"):
        return out
    while True:
        name = c.name()
        out.append((name, c.type()))
        if c.accept(")"):
            return out
        c.expect(",")


@dataclass(frozen=True, slots=True)
class DropFunction(Drop):
    """DROP FUNCTION [IF EXISTS] function_name ( [[arg_name] data_type [, ...]] );

    Forget a function; the argument types say which.
    """

    kind: ClassVar[str] = "function"

    arguments: tuple[Argument, ...]

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_exists = c.accept("IF", "EXISTS")
        name = c.name()
        c.expect("(")
        arguments: list[Argument] = []
        while not (not arguments and c.accept(")")):
            arguments.append(c.argument())
            if c.accept(")"):
                break
            c.expect(",")
        c.end()
        return cls(name, if_exists, tuple(arguments))

    @property
    def label(self) -> str:
        return signature(self.name.text, self.arguments)

    async def execute(self, ctx: Context) -> Result:
        if self.if_exists and places.find(ctx, self.kind, self.label) is None:
            return missing(ctx, self.tag, self.kind, self.label, [self.label])
        record = places.object(ctx, self.kind, Name(self.label, self.name.at))
        await ctx.catalog.inventory.drop(record.key, at=self.name.at)
        return done(self.tag, ddl(self.kind, self.label, "DROP", [self.label]))


class ListFunctions(List):
    """LIST FUNCTIONS;

    The functions made by CREATE FUNCTION, one a row; ``docs/functions.md`` has the built-in ones.
    """

    kind: ClassVar[str] = "function"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Signature"), Column("Type"), Column("SourceName"), Column("ClassName"), Column("EgressAllowURIs"),
        Column("Properties"), Column("Owner"), Column("CreatedAt", types.TIMESTAMP_LTZ),
        Column("UpdatedAt", types.TIMESTAMP_LTZ),
    )  # fmt: skip

    @classmethod
    def line(cls, ctx: Context, record: ObjectRecord) -> Sequence[Any]:
        r, o = record, record.options
        return (o.get("signature"), "java", o.get("source.name"), o.get("class.name"), o.get("egress.allow.uris"),
                "{}", r.owner, r.created_at, r.updated_at)  # fmt: skip
