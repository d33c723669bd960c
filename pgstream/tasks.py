"""Work that a cancellation must not cut in two.

Must not know: what the work is. Start reading at ``whole``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def outlast(*waited: asyncio.Future[Any]) -> None:
    """Wait for one of these, also when canceled meanwhile, however often. Errors: CancelledError, after that."""
    canceled: asyncio.CancelledError | None = None
    while not any(one.done() for one in waited):
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as e:
            canceled = e
    if canceled is not None:
        raise canceled


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Do it in a task of its own, to the end. Errors: its own; CancelledError (from it) when canceled meanwhile."""
    task = asyncio.create_task(work)
    try:
        await outlast(task)
    except asyncio.CancelledError as e:
        raise e from None if task.cancelled() else task.exception()
    return task.result()
