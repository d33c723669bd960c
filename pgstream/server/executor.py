"""Where statements of ours run: in this process, or in the one that holds catalogue and engine.

Owns: the seam between sessions and that place. ``remote.Remote`` is the other one, of listener processes.
Must not know: protocols, any statement. Start reading at ``Executor``.
"""

from __future__ import annotations

from typing import Protocol

from pgstream.catalog.authors import working
from pgstream.errors import DependentsExist, Superseded
from pgstream.statements import access
from pgstream.statements.base import Column, Context, Result, Statement


class Executor(Protocol):
    """``statement`` was parsed from ``text``. Errors: PgStreamError with positions in that text."""

    async def execute(self, text: str, statement: Statement, context: Context) -> Result: ...

    async def describe(self, text: str, statement: Statement, context: Context) -> tuple[Column, ...]: ...


class Here:
    """In this process."""

    async def execute(self, text: str, statement: Statement, context: Context) -> Result:
        try:
            return await self._execute(statement, context)
        except Superseded:  # the change that found it out has told this server what there is now
            return await self._execute(statement, context)

    async def _execute(self, statement: Statement, context: Context) -> Result:
        await access.check(context, statement)
        session = context.session
        with working(context.catalog.snapshot.access.user_of(session.user), session.role):
            try:
                return await statement.execute(context)
            except DependentsExist as e:
                await access.name_only_seen(context, e)
                raise

    async def describe(self, text: str, statement: Statement, context: Context) -> tuple[Column, ...]:
        await access.check(context, statement)
        return await statement.describe(context)
