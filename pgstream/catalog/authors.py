"""Who changes the catalogue: told to its transactions, whose triggers write it down (migration 0007).

Owns: the user and role that a statement works for. What the server does by itself has no author.
Must not know: statements. Start reading at ``working``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

_AUTHOR: ContextVar[tuple[str, str] | None] = ContextVar("author", default=None)
_SIGN = text("SELECT set_config('pgstream.user', :user, true), set_config('pgstream.role', :role, true)")


@contextmanager
def working(user: str, role: str) -> Iterator[None]:
    """What is changed inside is this user's doing, in this role."""
    before = _AUTHOR.set((user, role))
    try:
        yield
    finally:
        _AUTHOR.reset(before)


async def sign(session: AsyncSession) -> None:
    """Tell a transaction whose it is."""
    if (author := _AUTHOR.get()) is not None:
        await session.execute(_SIGN, {"user": author[0], "role": author[1]})
