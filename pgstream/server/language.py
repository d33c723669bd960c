"""What the front door needs of the language, as one value: whose a text is, its statements, its parse.

Owns: the seam between sessions and statements, so that the door can be run with another language in tests.
Must not know: any statement. Start reading at ``Language``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pgstream.catalog.records import Snapshot
from pgstream.errors import UndefinedParameter
from pgstream.statements.base import Session, Statement

_PARAMETER = re.compile(
    r"""'(?:[^']++|'')*+(?:'|\Z)|"(?:[^"]++|"")*+(?:"|\Z)|`[^`]*`|--[^\n]*|/\*.*?(?:\*/|\Z)|\$([0-9]+)""", re.S
)
MOST = 65_535
"""Parameters of a statement, as the protocol counts them."""
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Language:
    """``recognize`` finds a statement's class (None: PostgreSQL's), ``split`` cuts a text, ``parse`` reads one.

    ``is_postgres`` may say of a text, at a glance, that it is one of PostgreSQL's that changes no setting.
    """

    recognize: Callable[[str, Snapshot, Session], type[Statement] | None]
    split: Callable[[str], list[tuple[str, int]]]
    parse: Callable[[str, type[Statement]], Statement]
    head: Callable[[str], tuple[str, ...]]
    is_postgres: Callable[[bytes | bytearray, Snapshot], bool]

    @classmethod
    def ours(cls) -> Language:
        from pgstream import statements
        from pgstream.sql import sniff
        from pgstream.statements import glance

        return cls(statements.recognize, sniff.split, statements.parse, sniff.head, glance.is_postgres)


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a text: ``at`` is its offset, ``kind`` its class when it is ours."""

    text: str
    at: int
    kind: type[Statement] | None


def parameter_count(text: str) -> int:
    """The highest ``$n`` outside strings, quoted names and comments. Errors: UndefinedParameter, at one that no Bind
    can give.
    """
    most = 0
    for m in _PARAMETER.finditer(text):
        if m[1]:
            # Its digits first: a number of very many takes long to read.
            if len(m[1].lstrip("0")) > len(str(MOST)) or int(m[1]) > MOST:
                raise UndefinedParameter(number=m[1][:_SHOWN], at=m.start())
            most = max(most, int(m[1]))
    return most
