"""Parse messages that have been found to be PostgreSQL's: drivers send the same ones again and again.

Owns: the messages, for the catalogue's snapshot of the moment; shared by all sessions of a process. Only what depends
on nothing but the text and the snapshot is kept here. Must not know: how a text is judged (``Inbound``).
"""

from __future__ import annotations

from pgstream.catalog.records import Snapshot

LONGEST = 1024
"""Bytes of a message that is kept."""
KEPT = 1000
"""Messages; with more of them all are forgotten, which costs each its next look."""


class Settled:
    """Whole messages, in which the text stands together with the statement's name and its parameters' types."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._parses: set[bytes] = set()

    def has(self, message: bytes, snapshot: Snapshot) -> bool:
        return self._snapshot is snapshot and message in self._parses

    def add(self, message: bytes, snapshot: Snapshot) -> None:
        if self._snapshot is not snapshot or len(self._parses) >= KEPT:
            self._snapshot, self._parses = snapshot, set()
        if len(message) <= LONGEST:
            self._parses.add(message)
