"""Words that begin a statement of ours, and then go nowhere.

Owns: the error at the first of them that does not fit. Must not know: any statement.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Statement


class Unknown(Statement):
    """Words that begin a statement of ours and then go nowhere.

    A syntax error at the first word that does not fit.
    """

    words: ClassVar = ()

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*c.words(1))
        raise c.fault()
