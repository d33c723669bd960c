"""Identifiers: folding, quoting, qualified names.

Owns: PostgreSQL's and DeltaStream's naming rules (unquoted names fold to lower case; ``"x"`` and back-ticks keep case).
Must not know: the catalogue; resolution of a partial name against a session belongs to ``catalog``.
Start reading at ``QName``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

HIDDEN = ("__time", "__delete", "__partition", "__offset", "__key", "__rowkey", "__metadata", "__timestamp_type")
"""Columns that a query's rows have besides their own; no relation that queries read may have one of that name."""
_PART = re.compile(r'"(?:[^"]++|"")*+"|[^."]+')
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*\Z")
_LEXEME = re.compile(r"""(?as)'(?:[^']++|'')*+'|"(?:[^"]++|"")*+"|\d+\.\d*|\.\d+|[\w\x80-\U0010ffff]+|\s+|.""")


def quote(name: str) -> str:
    """Quote an identifier for PostgreSQL or DeltaStream text, only when it needs it."""
    return name if _PLAIN.match(name) else quote_always(name)


def quote_always(name: str) -> str:
    """Quote an identifier with double quotes (for PostgreSQL text that we build)."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Quote a string literal for PostgreSQL text (``standard_conforming_strings`` on)."""
    return "'" + text.replace("'", "''") + "'"


def quote_anywhere(text: str) -> str:
    """Quote a string literal for a client's connection, whose ``standard_conforming_strings`` may be off."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def quote_spark(name: str) -> str:
    """Quote an identifier for Spark SQL text: always back-ticked."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """A string literal for Spark SQL text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def lexemes(text: str) -> list[str]:
    """PostgreSQL text as PostgreSQL takes it apart: strings, quoted names, numbers, words, spaces, and single signs.

    To PostgreSQL every sign that is not ASCII's is a letter: a digit, space or dash of another script begins a word or
    goes on with one. For text without ``E'…'``, ``U&"…"``, dollars and comments.
    """
    return _LEXEME.findall(text)


def is_space(lexeme: str) -> bool:
    """Whether PostgreSQL sees nothing in it."""
    return lexeme.isascii() and lexeme.isspace()


def closest(name: str, known: Iterable[str]) -> str | None:
    """A hint for a name that means nothing: the one of those that are known which it is most like."""
    close = difflib.get_close_matches(name, sorted(set(known)), 1, 0.6)
    return f'Perhaps you meant "{close[0]}".' if close else None


def view_log(query: str, view: str = "") -> str:
    """The table in which the changes of a materialized view wait for a query, both by their ids; without a view the
    beginning of the names of all of the query's.
    """
    return f"c_{query.replace('-', '')}_{view.replace('-', '')[:16]}"


def beside(query: str) -> str:
    """The table that a query fills which is to replace the one that keeps a view, by its id; quoted."""
    return f'pg_pgstream."r_{query.replace("-", "")}"'


@dataclass(frozen=True, slots=True)
class Name:
    """One identifier as the client meant it (already folded), and where it stood: a 0-based character offset."""

    text: str
    at: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class QName:
    """A possibly qualified name, one to three parts: ``[database.][schema.]name``."""

    parts: tuple[str, ...]
    at: int | None = None

    @property
    def name(self) -> str:
        return self.parts[-1]

    def __str__(self) -> str:
        return ".".join(quote(p) for p in self.parts)


@dataclass(frozen=True, slots=True)
class FullName:
    """A resolved relation name: database, schema, name; ``str()`` gives ``database.schema.name`` quoted as needed."""

    database: str
    schema: str
    name: str

    def __str__(self) -> str:
        return ".".join(quote(p) for p in (self.database, self.schema, self.name))

    @classmethod
    def read(cls, text: str) -> FullName:
        """What ``str()`` wrote."""
        return cls(*cls.parse(text))

    @staticmethod
    def parse(text: str) -> tuple[str, ...]:
        """The parts of a name as ``str()`` of two or three of them gave it."""
        return tuple(p[1:-1].replace('""', '"') if p[0] == '"' else p for p in _PART.findall(text))

    @property
    def key(self) -> tuple[str, str, str]:
        """What the snapshot keeps relations by."""
        return self.database, self.schema, self.name

    @property
    def path(self) -> list[str]:
        return [self.database, self.schema, self.name]
