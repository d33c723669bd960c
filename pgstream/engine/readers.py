"""How many streaming results each user reads at once: each is a query in Spark, whose memory all of them share.

Owns: the count and its bound. Must not know: what is read, how. Start reading at ``Readers.place``.
"""

from __future__ import annotations

from collections import Counter

from pgstream.errors import TooManyStreams


class Readers:
    """Of all pools. ``most``: results that one user may read at once; 0: as many as it likes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reading: Counter[str] = Counter()

    def place(self, user: str) -> Place:
        return Place(self, user)

    def enter(self, user: str) -> None:
        """Errors: TooManyStreams."""
        if self._most and self._reading[user] >= self._most:
            raise TooManyStreams(most=self._most)
        self._reading[user] += 1

    def leave(self, user: str) -> None:
        self._reading[user] -= 1
        if not self._reading[user]:
            del self._reading[user]


class Place:
    """One result's. Taken when it begins to read, and left once, whenever it is closed."""

    def __init__(self, readers: Readers, user: str) -> None:
        self._readers, self._user = readers, user
        self._taken = False

    def take(self) -> None:
        """Errors: TooManyStreams."""
        self._readers.enter(self._user)
        self._taken = True

    def leave(self) -> None:
        """May be called twice, and of a place that was never taken."""
        if self._taken:
            self._taken = False
            self._readers.leave(self._user)
