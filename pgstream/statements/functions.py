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
from pgstream.catalog.records import ObjectRecord, Snapshot
from pgstream.errors import InvalidOption
from pgstream.names import Name, quote
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Column, Context
from pgstream.statements.shapes import Create, Describe, Drop, List
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


def signature(name: Name, arguments: Sequence[Argument]) -> Name:
    """What a function is kept under: ``name(VARCHAR, BIGINT)``."""
    return Name(f"{quote(name.text)}({', '.join(str(type_) for _, type_ in arguments)})", name.at)


def is_named(name: str, snapshot: Snapshot) -> bool:
    """Whether functions of this name are in the catalogue, whatever their arguments."""
    begin = quote(name) + "("
    return any(o.kind == "function" and o.name.startswith(begin) for o in snapshot.objects.values())


@dataclass(frozen=True, slots=True)
class CreateFunction(Create):
    """CREATE FUNCTION [IF NOT EXISTS] function_name ( [[arg_name] data_type [, ...]] )
    RETURNS data_type LANGUAGE JAVA WITH ( 'source.name' = source_name, 'class.name' = 'package.Class' [, ...] );

    Name a class of a function source. The same name with other argument types is another function. Calling it in a
    query is not there yet.
    """

    kind: ClassVar[str] = "function"
    options: ClassVar[OptionTable] = OPTIONS

    shown: str

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_not_exists = c.accept("IF", "NOT", "EXISTS")
        name, arguments = c.name(), c.arguments()
        c.expect("RETURNS")
        returns = c.type()
        c.expect("LANGUAGE")
        language = c.name()
        if language.text != "java":
            what = f'language "{language.text}" is not one of functions'
            raise InvalidOption(what=what, at=language.at, hint="Use LANGUAGE JAVA.")
        c.expect("WITH")
        given = c.properties()
        c.end()
        listed = ", ".join(f"{quote(arg)} {type_}" if arg else str(type_) for arg, type_ in arguments)
        shown = f"{quote(name.text)}({listed}) RETURNS {returns}"
        return cls(signature(name, arguments), if_not_exists, given, shown)

    async def record(self, ctx: Context) -> tuple[ObjectRecord, dict[str, str]]:
        # Not super(): a dataclass with slots is made anew, and its zero-argument super() names the first one.
        record, secrets = await Create.record(self, ctx)
        return replace(record, options={**record.options, "signature": self.shown}), secrets


class DropFunction(Drop):
    """DROP FUNCTION [IF EXISTS] function_name ( [[arg_name] data_type [, ...]] );

    Forget a function; the argument types say which.
    """

    kind: ClassVar[str] = "function"

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        if_exists = c.accept("IF", "EXISTS")
        name = signature(c.name(), c.arguments())
        c.end()
        return cls(name, if_exists)


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


class DescribeFunction(Describe):
    """DESCRIBE FUNCTION function_name ( [[arg_name] data_type [, ...]] );

    The row of LIST FUNCTIONS and the parameters as JSON.
    """

    kind: ClassVar[str] = "function"
    of: ClassVar[type[List]] = ListFunctions

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        name = signature(c.name(), c.arguments())
        c.end()
        return cls(name)
