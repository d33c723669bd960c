"""How many sessions there are, in this process and in the other listener processes.

Owns: one number a process in memory that all share. Each writes its own only, so nothing is locked: two processes may
give out the last seat at the same moment, and the limit is passed by at most one session for each other process.
Must not know: sessions. Start reading at ``Seats.taken``.
"""

from __future__ import annotations

import mmap
import os

SIZE = 4


class Seats:
    """``index`` is this process's place among ``count``; ``file`` describes the shared memory, None: there is none."""

    def __init__(self, index: int = 0, count: int = 1, file: int | None = None) -> None:
        self._memory = mmap.mmap(-1, count * SIZE) if file is None else mmap.mmap(file, count * SIZE)
        self._numbers = memoryview(self._memory).cast("i")
        self._index = index

    @property
    def mine(self) -> int:
        return self._numbers[self._index]

    @mine.setter
    def mine(self, number: int) -> None:
        self._numbers[self._index] = number

    @property
    def taken(self) -> int:
        return sum(self._numbers)

    def clear(self, index: int) -> None:
        """The process of that place has ended."""
        self._numbers[index] = 0


def shared(count: int) -> int:
    """A file descriptor for ``count`` processes."""
    file = os.memfd_create("pgstream-seats")
    os.ftruncate(file, count * SIZE)
    return file
