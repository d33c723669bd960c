"""Which query makes its worker crash: found by starting those that may be to blame one at a time.

A query is on trial from its start to the end of its first batch; one that crashes the worker does it there, because the
batch that failed is the first to be repeated. Who was on trial when the worker crashed is a suspect, and is started
alone the next time; whoever crashes it alone again and again is told to be kept out.
Owns: trials and blame. Must not know: how queries are started. Start reading at ``Suspects.crashed``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

CRASHES = 3
# A store that does not answer keeps a query on trial; who has done no harm for so long is let off.
TRIAL_S = 30.0


class Suspects:
    """The trials of one pool."""

    def __init__(self) -> None:
        self._trial: set[str] = set()
        self._suspects: set[str] = set()
        self._crashes: dict[str, int] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._turn = asyncio.Lock()

    def __contains__(self, query: str) -> bool:
        return query in self._suspects

    def began(self, query: str) -> None:
        """It was given to the worker."""
        self._trial.add(query)
        self._quiet.clear()

    def well(self, query: str) -> None:
        """Its first batch is over."""
        self._suspects.discard(query)
        self._crashes.pop(query, None)
        self.over(query)

    def over(self, query: str) -> None:
        """It is no longer at the worker, or not on trial any more."""
        self._trial.discard(query)
        if not self._trial:
            self._quiet.set()

    def forget(self, query: str) -> None:
        """It is gone, or somebody asked to try it again."""
        self.well(query)

    def lost(self) -> None:
        """Nobody on trial is to blame: the worker was killed from outside, or ended on purpose, or lives on."""
        self._trial.clear()
        self._quiet.set()

    def crashed(self) -> str | None:
        """The worker ended by itself; the query that is to be kept out from now on."""
        trial = set(self._trial)
        self.lost()
        self._suspects |= trial
        if len(trial) != 1:
            return None
        (query,) = trial
        self._crashes[query] = self._crashes.get(query, 0) + 1
        if self._crashes[query] < CRASHES:
            return None
        self.forget(query)
        return query

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Start a suspect inside: nothing else is on trial before, and no other suspect is started until it is over."""
        async with self._turn:
            await self._settled()
            yield
            await self._settled()

    async def _settled(self) -> None:
        try:
            async with asyncio.timeout(TRIAL_S):
                await self._quiet.wait()
        except TimeoutError:
            self.lost()
