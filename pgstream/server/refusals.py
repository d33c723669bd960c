"""Log lines about clients that were refused, however many there are.

Owns: the limit on such lines, and the count of those left out. An attacker must not fill the disk or hide in the log.
Must not know: why a client was refused. Start reading at ``Refusals.note``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import structlog

from pgstream.errors import PgStreamError

log = structlog.get_logger(__name__)

LINES, WINDOW_S = 20, 10.0
"""So many lines in so many seconds; the others are counted."""
SHOWN = 200
"""Characters shown of a message: it may hold names that the client made up."""


class Refusals:
    """Of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lines = self._left_out = 0
        self.counted: Counter[str] = Counter()
        """How many there were, by SQLSTATE; without one where the protocol gives no answer."""

    def note(self, e: PgStreamError, address: str) -> None:
        """A client was refused with ``e``."""
        self.say(e.text, address, e.sqlstate, e.detail)

    def say(self, why: str, address: str, code: str | None = None, detail: str | None = None) -> None:
        self.counted[code or ""] += 1
        now = self._clock()
        if now - self._began >= WINDOW_S:
            self.flush()
            self._began, self._lines = now, 0
        if self._lines >= LINES:
            self._left_out += 1
            return
        self._lines += 1
        fields = {"code": code, "detail": detail and printable(detail)}
        log.warning("client refused", why=printable(why), address=address, **{k: v for k, v in fields.items() if v})

    def flush(self) -> None:
        """Tell how many lines were left out; called at the end too."""
        if self._left_out:
            log.warning("more clients refused", count=self._left_out)
            self._left_out = 0


def printable(text: str) -> str:
    """Without what would move a terminal or begin a line of its own."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:SHOWN])
    return shown + ("…" if len(text) > SHOWN else "")
