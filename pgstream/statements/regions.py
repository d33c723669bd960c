"""LIST REGIONS: where this server connects from.

Manual: "LIST REGIONS" (older). There is one region: the machine that the server runs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.sql.cursor import Cursor
from pgstream.statements.answers import listing
from pgstream.statements.base import Column, Context, Result, Statement
from pgstream.statements.heading import expect


@dataclass(frozen=True, slots=True)
class ListRegions(Statement):
    """LIST REGIONS;

    The one region of this server. ``access_region`` is accepted in statements and changes nothing.
    """

    words: ClassVar = ("LIST", "REGIONS")
    free: ClassVar = "there is one, and everybody knows it"
    columns: ClassVar = (Column("Name"), Column("Cloud"), Column("Region"))

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        expect(c, *cls.words)
        c.end()
        return cls()

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, [("local", "local", "local")])
