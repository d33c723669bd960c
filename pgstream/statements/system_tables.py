"""The system tables ``deltastream.sys."…"``: PostgreSQL reads them, by a name of its own.

Owns: their names in texts for PostgreSQL, the refusal of names that are none of theirs, and beginning the copy in a
database. Must not know: what they show (``catalog.system_tables``). Manual: "SELECT from deltastream.sys".
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.catalog.system_tables import TABLES
from pgstream.errors import NotReady, NotYet, UndefinedRelation
from pgstream.sql import system_names
from pgstream.sql.cursor import Cursor
from pgstream.sql.sniff import blanked
from pgstream.statements.base import Context, Result, Statement

_NAMED = re.compile(r'"?\bdeltastream"?\s*\.\s*"?sys"?\s*\.\s*(?P<table>"(?:[^"]++|"")*+"|`[^`]*`|\w+)', re.I)
_RENAMED = re.compile(r"\bpg_deltastream\s*\.", re.I)


def renamed(text: bytes) -> bytes:
    """A text of a client with PostgreSQL's names of system tables; its length is the same."""
    return system_names.renamed(text, TABLES)


def _blank(literal: str) -> str:
    return " " * len(literal)


def find(text: str) -> type[Statement] | None:
    """What a SELECT that names system tables is, when it is not one that PostgreSQL can answer."""
    code = blanked(text, _blank)
    return UnknownSystemTable if _NAMED.search(code) else None


def reads(text: str) -> bool:
    """Whether a text that was renamed names one."""
    return _RENAMED.search(blanked(text, _blank)) is not None


class UnknownSystemTable(Statement):
    """SELECT from a table of deltastream.sys that is not there.

    Refused with the name that is nearest.
    """

    words: ClassVar = ()

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        found = _NAMED.search(blanked(c.text, _blank))
        assert found is not None
        name = found["table"]
        name = name[1:-1] if name[0] in '"`' else name.lower()
        if name in TABLES:
            raise NotReady(
                what="the system tables cannot be read here",
                at=found.start(),
                hint="They are in every database of LIST DATABASES; the server's log says why if this is one.",
            )
        close = difflib.get_close_matches(name, TABLES, 1, 0.6)
        hint = f"Did you mean {close[0]}?" if close else f"The system tables are {', '.join(sorted(TABLES))}."
        raise UndefinedRelation(name=f"deltastream.sys.{name}", at=found.start(), hint=hint)


class SystemTableWithStream(Statement):
    """SELECT that reads a stream and a system table.

    Refused: PostgreSQL reads system tables, and no stream.
    """

    words: ClassVar = ()

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        raise NotYet(
            what="reading a stream together with a system table",
            at=c.at,
            hint="A materialized view over the stream can be joined with system tables.",
        )


@dataclass(frozen=True, slots=True)
class CopySystemTables(Statement):
    """What the front door runs when a session is the first of its database to name a system table."""

    words: ClassVar = ()
    free: ClassVar = "the tables show each role what it sees"

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        return cls()

    async def execute(self, ctx: Context) -> Result:
        await ctx.catalog.copy_system_tables(ctx.session.database)
        return Result("SELECT 0")
