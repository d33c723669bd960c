"""LIST REGIONS: where this server connects from.

Manual: "LIST REGIONS" (older). There is one region: the machine that the server runs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pgstream.statements.answers import listing
from pgstream.statements.base import Column, Context, Result
from pgstream.statements.shapes import Words

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class ListRegions(Words):
    """LIST REGIONS;

    The one region of this server. ``access_region`` is accepted in statements and changes nothing.
    """

    words: ClassVar = ("LIST", "REGIONS")
    free: ClassVar = "there is one, and everybody knows it"
    columns: ClassVar = (Column("Name"), Column("Cloud"), Column("Region"))

    async def execute(self, ctx: Context) -> Result:
        return listing(self.columns, [(LOCAL, LOCAL, LOCAL)])
