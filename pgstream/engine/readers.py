"""How many streaming results each user reads at once: each is a query in Spark, whose memory all of them share.

Owns: the count and its bound, and who has to wait because its results made workers crash. Must not know: what is read,
how. Start reading at ``Readers.place``.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable

from pgstream.engine.suspects import CRASHES, TRIAL_S
from pgstream.errors import CrashedWorkers, TooManyStreams

WAITS_S = 600.0
"""How long a user reads nothing after so many crashes within that time."""


class Readers:
    """Of all pools. ``most``: results that one user may read at once; 0: as many as it likes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reading: Counter[str] = Counter()
        self._crashes: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=CRASHES))

    def place(self, user: str) -> Place:
        return Place(self, user)

    def enter(self, user: str, by_worker: bool) -> None:
        """Errors: TooManyStreams; CrashedWorkers where a worker serves it."""
        crashes = self._crashes.get(user) if by_worker else None
        if crashes and len(crashes) == CRASHES and (left := crashes[0] + WAITS_S - time.monotonic()) > 0:
            raise CrashedWorkers(times=CRASHES, minutes=math.ceil(left / 60))
        if self._most and self._reading[user] >= self._most:
            raise TooManyStreams(most=self._most)
        self._reading[user] += 1

    def leave(self, user: str) -> None:
        self._reading[user] -= 1
        if not self._reading[user]:
            del self._reading[user]

    def blame(self, user: str) -> None:
        self._crashes[user].append(time.monotonic())


def crashed(places: Iterable[Place]) -> bool:
    """A worker ended by itself, and these were read from it; whether one of them is to blame. One crashes it soon after
    its begin. Where several users began, none of them is.
    """
    young = {p.user: p for p in places if p.is_young}
    if len(young) != 1:
        return False
    [place] = young.values()
    place.blame()
    return True


class Place:
    """One result's. Taken when it begins to read, and left once, whenever it is closed."""

    def __init__(self, readers: Readers, user: str) -> None:
        self._readers, self.user = readers, user
        self._taken: float | None = None

    @property
    def is_young(self) -> bool:
        return self._taken is not None and time.monotonic() - self._taken < TRIAL_S

    def take(self, *, by_worker: bool = True) -> None:
        """Errors: TooManyStreams; CrashedWorkers where a worker serves it."""
        self._readers.enter(self.user, by_worker)
        self._taken = time.monotonic()

    def blame(self) -> None:
        self._readers.blame(self.user)

    def leave(self) -> None:
        """May be called twice, and of a place that was never taken."""
        if self._taken is not None:
            self._taken = None
            self._readers.leave(self.user)
