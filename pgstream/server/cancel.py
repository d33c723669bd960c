"""The cancel keys of this server's sessions: given out, found again, forgotten.

Owns: how long a key is in each protocol version, and a comparison that tells a guesser nothing by its time.
Must not know: what a cancel does. Start reading at ``CancelKeys``.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Generic, TypeVar

S = TypeVar("S")

SHORT, LONG = 4, 32
"""Bytes of a key in protocol 3.0, and from 3.2 on (which allows up to 256)."""


class CancelKeys(Generic[S]):
    """Sessions by process id and key. Two may have one process id: PostgreSQL gives out ids again."""

    def __init__(self) -> None:
        self._by_pid: dict[int, tuple[tuple[bytes, S], ...]] = {}

    def issue(self, session: S, pid: int, minor: int) -> bytes:
        """A new key for a session of protocol 3.``minor``."""
        key = secrets.token_bytes(LONG if minor >= 2 else SHORT)
        self._by_pid[pid] = (*self._by_pid.get(pid, ()), (key, session))
        return key

    def find(self, pid: int, key: bytes) -> S | None:
        """The session that a CancelRequest means; None when the key is not one of that process id's."""
        found = None
        for issued, session in self._by_pid.get(pid, ()):
            if hmac.compare_digest(issued, key):
                found = session
        return found

    def forget(self, session: S, pid: int) -> None:
        """May be called for a session that has none."""
        rest = tuple(entry for entry in self._by_pid.get(pid, ()) if entry[1] is not session)
        if rest:
            self._by_pid[pid] = rest
        else:
            self._by_pid.pop(pid, None)

    def __len__(self) -> int:
        return sum(map(len, self._by_pid.values()))
