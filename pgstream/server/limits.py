"""Time limits of a session while a statement of ours runs: PostgreSQL's settings, honoured here.

Owns: asking PostgreSQL for them, ending a statement after ``statement_timeout``, and keeping the session's PostgreSQL
connection from being ended as idle while the client waits for us.
Must not know: statements. Start reading at ``Limits.ask``.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from pgstream.errors import RelayedError
from pgstream.server.ask import ask
from pgstream.server.backend import Backend
from pgstream.server.flight import BLOCK, FAILED

_QUESTION = (
    "SELECT pg_catalog.concat_ws(',', pg_catalog.current_setting('statement_timeout'), "
    "pg_catalog.current_setting('idle_in_transaction_session_timeout'), "
    "pg_catalog.current_setting('idle_session_timeout'))"
)
_UNITS = {"": 0.001, "us": 0.000001, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds; 0 is none."""

    statement_s: float = 0
    in_block_s: float = 0
    idle_s: float = 0

    @classmethod
    async def ask(cls, backend: Backend) -> Limits:
        return cls(*map(seconds, (await ask(backend, _QUESTION) or "0,0,0").split(",")))

    async def keep_awake(self, backend: Backend) -> None:
        """Ask for nothing now and then, for as long as the client is not the one who is idle. Runs until canceled."""
        flight = backend.flight
        limit = self.in_block_s if flight.status == BLOCK else self.idle_s
        while limit and not flight.open:  # PostgreSQL is not idle in a pipeline
            await asyncio.sleep(limit / 3)
            try:
                await ask(backend, "")
            except RelayedError as e:  # a cancel request of another session, say
                if e.severity == "FATAL" or flight.status == FAILED:
                    raise


def seconds(text: str) -> float:
    """A duration as PostgreSQL shows it: ``5s``, ``1min``, ``250ms``, ``0``."""
    m = re.fullmatch(r"(-?\d+)([a-z]*)", text.strip())
    return int(m[1]) * _UNITS[m[2]] if m is not None else 0
