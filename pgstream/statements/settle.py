"""What a session has done when a transaction has ended in which it made or dropped schemas.

No client can write this statement.

Owns: the statement, in the form in which it reaches the process that has the catalogue.
Must not know: transactions (``catalog.undecided``). Start reading at ``SettleSchemas``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.catalog.undecided import READ_ONLY, TRANSACTION
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Context, Result, Statement, Undecided

__all__ = ["READ_ONLY", "TRANSACTION", "SettleSchemas"]


@dataclass(frozen=True, slots=True)
class SettleSchemas(Statement):
    """Keep or drop each of the session's undecided schemas whose transaction has ended. ``gone``: see ``settle``."""

    words: ClassVar = ("SETTLE", "SCHEMAS")
    free: ClassVar = "it ends what the session has begun with the privileges for it"

    gone: bool

    @property
    def text(self) -> str:
        return "SETTLE SCHEMAS" + (" NOW" if self.gone else "")

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        gone = c.accept("NOW")
        c.end()
        return cls(gone)

    async def execute(self, ctx: Context) -> Result:
        ctx.session.undecided[:] = [u for u in ctx.session.undecided if not await self._settle(ctx, u)]
        return Result("SETTLE SCHEMAS")

    async def _settle(self, ctx: Context, u: Undecided) -> bool:
        if u.dropped is None:
            return await ctx.catalog.settle_schema(u.database, u.schema, wait=self.gone)
        return await ctx.catalog.settle_dropped(u.database, u.schema, u.dropped, wait=self.gone)
