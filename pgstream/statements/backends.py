"""Ending the user's own backends: ``SELECT pg_terminate_backend(pid)`` and ``pg_cancel_backend``.

PostgreSQL lets a user end the backends of its own login; a session here works in a role, which is not that login.
Owns: the one form of text in which people and tools write it. In any other text the functions are PostgreSQL's, for
roles that it lets. Must not know: how a backend is ended (``catalog``). Start reading at ``EndBackend``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream import types
from pgstream.catalog.records import Snapshot
from pgstream.sql.cursor import Cursor
from pgstream.statements.answers import ROWS
from pgstream.statements.base import Column, Context, Result, Session, Statement, rows

_ARGUMENT = r"(?:(?P<{0}>\d{{1,10}})|(?P<{0}_bound>\$[12]))(?:\s*::\s*(?:int|int4|integer|int8|bigint))?"
_OWN = r"(?:pg_catalog\s*\.\s*)?pg_backend_pid\s*\(\s*\)"
_FORM = re.compile(
    rf"""\s*SELECT\s+(?:pg_catalog\s*\.\s*)?(?P<function>pg_(?:terminate|cancel)_backend)\s*
         \(\s*(?:(?P<own>{_OWN})|(?!0+\b){_ARGUMENT.format("pid")})(?:\s*,\s*{_ARGUMENT.format("timeout")})?\s*\)
         (?:\s*(?:AS\s+)?(?P<name>"[^"]+"|[a-z_]\w*))?\s*+;?\s*+\Z""",
    re.I | re.X | re.A,
)
_INTEGER, _BIGINT = 23, 20
OWN = "own"
LAST_WORD_S = 5
"""How long a session that has ended itself waits to be gone."""


@dataclass(frozen=True, slots=True)
class EndBackend(Statement):
    """SELECT { pg_terminate_backend | pg_cancel_backend } ( { pid | pg_backend_pid() } [, timeout] ) [[AS] name];

    End a session of your own login, or what it runs. Others' are PostgreSQL's to refuse or to end.
    """

    words: ClassVar = ()
    free: ClassVar = "a login ends its own; of others PostgreSQL decides"

    function: str
    name: str
    arguments: tuple[str, ...]
    """Numbers, ``$1``, ``$2`` for bound ones, and OWN for the session's."""

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        found = _FORM.match(c.text)
        assert found is not None
        function, name = found["function"].lower(), found["name"]
        given = tuple(found[a] or found[f"{a}_bound"] for a in ("pid", "timeout"))
        if found["own"]:
            given = (OWN, *given[1:])
        shown = function if name is None else name[1:-1] if name[0] == '"' else name.lower()
        return cls(function, shown, tuple(a for a in given if a))

    def parameter_types(self, snapshot: Snapshot, session: Session) -> Mapping[int, int]:
        return {int(a[1:]): (_INTEGER, _BIGINT)[n] for n, a in enumerate(self.arguments) if a[0] == "$"}

    async def describe(self, ctx: Context) -> tuple[Column, ...]:
        return (Column(self.name, types.BOOLEAN),)

    async def execute(self, ctx: Context) -> Result:
        numbers = [await self._value(ctx, a) for a in self.arguments]
        done: bool | None = None
        if None not in numbers:
            oneself = self.function == "pg_terminate_backend" and numbers[0] == await self._own(ctx)
            if self.function == "pg_cancel_backend" and await ctx.cancel_own(numbers[0] or 0):
                done = True  # a streaming SELECT, say: its backend rests meanwhile
                await asyncio.sleep(0)  # whoever ends its own statement gets the error, and no answer
            else:
                done = await ctx.catalog.end_backend(self.function, numbers, ctx.session.user)
            if done is None:
                listed = ", ".join(map(str, numbers))
                done = await ctx.postgres(f"SELECT pg_catalog.{self.function}({listed})") == "t"
            elif oneself:
                await asyncio.sleep(LAST_WORD_S)  # whoever ends its own session gets PostgreSQL's last word, no answer
        return Result(ROWS, await self.describe(ctx), rows([done]))

    async def _value(self, ctx: Context, argument: str) -> int | None:
        if argument == OWN:
            return await self._own(ctx)
        text = ctx.parameters[int(argument[1:]) - 1] if argument[0] == "$" else argument
        return None if text is None else int(text)

    async def _own(self, ctx: Context) -> int:
        return int(await ctx.postgres("SELECT pg_catalog.pg_backend_pid()") or 0)


def find(text: str) -> type[Statement] | None:
    """Whether a SELECT is of this form."""
    return EndBackend if _FORM.match(text) else None
