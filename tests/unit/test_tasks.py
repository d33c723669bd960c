"""Work that a cancellation does not cut in two."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pgstream.tasks import whole


class Work:
    """Goes on until it is let, and fails then if it is to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.go, self.is_done = error, asyncio.Event(), False

    async def run(self) -> str:
        await self.go.wait()
        self.is_done = True
        if self.error is not None:
            raise self.error
        return "done"


async def _ended(started: Coroutine[Any, Any, Any], work: Work, cancels: int) -> asyncio.Task[Any]:
    task = asyncio.create_task(started)
    for _ in range(cancels):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    work.go.set()
    await asyncio.wait({task})
    return task


async def test_its_result_and_its_error() -> None:
    assert (await _ended(whole((w := Work()).run()), w, 0)).result() == "done"
    failed = await _ended(whole((w := Work(ValueError("no"))).run()), w, 0)
    with pytest.raises(ValueError, match="no"):
        failed.result()


@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_who_is_canceled_meanwhile_is_so_whatever_becomes_of_the_work(error: Exception | None) -> None:
    """Who does its work for ever, and goes on after an error, would else never end."""
    work = Work(error)
    causes: list[BaseException | None] = []

    async def canceled() -> None:
        try:
            await whole(work.run())
        except asyncio.CancelledError as e:
            causes.append(e.__cause__)
            raise

    task = await _ended(canceled(), work, 2)
    assert task.cancelled() and work.is_done and causes == [error]
