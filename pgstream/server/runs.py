"""Runs of rows: skip many DataRow or CopyData messages at once, exactly, without a turn of Python for each.

Owns: a compiled pattern that matches whole messages of the lengths seen so far. Rows of one result have few lengths; a
run is walked by the regular-expression engine about seven times quicker than by a loop over headers.
Must not know: what the messages hold, who reads them. Start reading at ``Runs.after``.
"""

from __future__ import annotations

import re
import struct

MOST = 24
"""Lengths in the pattern; more make it slower than the loop."""
LONGEST = 4096
"""Longer rows are few to a chunk; the loop takes them."""
MISSES = 16
"""Rows of unknown lengths before the pattern is made anew."""


class Runs:
    """What one connection has learnt of its rows' lengths."""

    __slots__ = ("_known", "_missed", "_pattern", "_seen")

    def __init__(self) -> None:
        self._known: list[int] = []
        self._seen: set[int] = set()
        self._missed = 0
        self._pattern: re.Pattern[bytes] | None = None

    def after(self, data: bytes, pos: int, length: int) -> int:
        """The end of the run of whole rows that begins at ``pos``; ``length`` is the first row's length field.

        At least the end of the first row, which may lie beyond ``data``.
        """
        if self._pattern is not None:
            match = self._pattern.match(data, pos)
            if match is not None:
                return match.end()
        if length <= LONGEST:
            self._learn(length)
        return pos + length + 1

    def _learn(self, length: int) -> None:
        self._seen.add(length)
        self._missed += 1
        if self._missed < MISSES:
            return
        # The newest lengths first: a result's rows resemble its own more than an earlier result's.
        self._known = [*self._seen, *(n for n in self._known if n not in self._seen)][:MOST]
        self._seen, self._missed = set(), 0
        lengths = (re.escape(struct.pack(">I", n)) + b".{%d}" % (n - 4) for n in sorted(self._known))
        # Possessive: whole messages never need to be given back.
        self._pattern = re.compile(b"(?:[Dd](?:%b))++" % b"|".join(lengths), re.DOTALL)
