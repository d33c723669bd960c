"""Words that begin a statement of ours, and then go nowhere.

Owns: the error at the first of them that does not fit. Must not know: any statement.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar, Self

from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Statement


class Unknown(Statement):
    """Words that begin a statement of ours and then go nowhere.

    A syntax error at the first word that does not fit.
    """

    words: ClassVar = ()

    known: ClassVar[Iterable[tuple[str, ...]]] = ()
    """The words of the statements that there are."""

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        words = c.words(2)
        if not words:  # a word with a sign in it that no text of a client's can have
            raise c.fault()
        first, *rest = words
        c.expect(first)
        then = {words[1] for words in cls.known if words[0] == first and len(words) > 1}
        close = difflib.get_close_matches(rest[0], sorted(then), 1, 0.7) if rest else []
        raise c.fault(f"Perhaps you meant {first} {close[0]}." if close else None)
