"""Statements of the product that are not implemented yet, by their first words.

Owns: the table of names, so that each is refused by name and never falls to PostgreSQL's syntax error.
Must not know: their grammar. Implementing one: take its words out here and add its class to ``STATEMENTS``.
Start reading at ``LATER``. Older spellings are folded before the table is asked (``heading.newer``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from pgstream.errors import NotYet
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Statement
from pgstream.statements.heading import newer

_COLUMNS = "GENERATE STREAM DDL writes the columns of a topic."
# First words, and what does as well.
LATER: Mapping[tuple[str, ...], str | None] = {
    ("GENERATE", "TEMPLATE"): _COLUMNS,
}


def find(words: tuple[str, ...]) -> str | None:
    """The name of the planned statement that these first words begin."""
    words = newer(words)
    for count in range(min(4, len(words)), 1, -1):
        if words[:count] in LATER:
            return " ".join(words[:count])
    return None


def refuse(words: tuple[str, ...], at: int, within: str = "") -> None:
    """Raise NotYet if these are the first words of a planned statement."""
    name = find(words)
    if name is not None:
        raise NotYet(what=f"{within} {name}".strip(), at=at, hint=LATER[tuple(name.split())])


class Later(Statement):
    """A statement of the product that is planned.

    It is refused with 0A000 and its name.
    """

    words: ClassVar = ()

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        refuse(c.words(), c.at)
        raise c.fault()


class Unknown(Statement):
    """Words that begin a statement of ours and then go nowhere.

    A syntax error at the first word that does not fit.
    """

    words: ClassVar = ()

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*c.words(1))
        raise c.fault()
