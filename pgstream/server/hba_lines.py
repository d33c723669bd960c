"""The lines of PostgreSQL's access files, pg_hba.conf and pg_ident.conf, as words.

Owns: blanks, commas, quotes, comments, the line's number in an error.
Must not know: what the words mean. Start reading at ``read``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pgstream.errors import ConfigurationError

_TOKEN = re.compile(r'\s*(?:(#.*)|(,)|"((?:[^"]|"")*)"|([^\s,"#]+))')
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Word:
    """``quoted`` takes a keyword's meaning away."""

    text: str
    quoted: bool

    def means(self, *keywords: str) -> bool:
        return not self.quoted and self.text in keywords

    def begins(self, marks: str) -> bool:
        """Whether a mark before the name gives it another meaning."""
        return not self.quoted and self.text.startswith(tuple(marks))


Field = list[Word]


class BadLine(Exception):
    """What is wrong with a line."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        self.what, self.hint = what, hint


def read(path: Path, what: str, take: Callable[[list[Field]], T]) -> list[T]:
    """What ``take`` makes of each line that says anything. Errors: ConfigurationError with the line's number."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigurationError(what=f'could not read the {what} "{path}": {e}') from None
    taken = []
    for number, line in enumerate(lines, 1):
        try:
            if found := fields(line):
                taken.append(take(found))
        except BadLine as bad:
            raise ConfigurationError(what=f'line {number} of "{path}": {bad.what}', hint=bad.hint) from None
    return taken


def fields(line: str) -> list[Field]:
    """Fields with blanks between, each of words with commas between."""
    found: list[Field] = []
    at, joined = 0, False
    while token := _TOKEN.match(line, at):
        at = token.end()
        comment, comma, quoted, plain = token.groups()
        if comment is not None:
            return found
        if comma:
            joined = True
            continue
        word = Word(plain if quoted is None else quoted.replace('""', '"'), quoted is not None)
        if joined and found:
            found[-1].append(word)
        else:
            found.append([word])
        joined = False
    if line[at:].strip():
        raise BadLine("a quoted word does not end")
    return found


def one(field: Field) -> str:
    if len(field) != 1:
        raise BadLine("several values where one is expected", "Only databases and users may be lists.")
    return field[0].text
