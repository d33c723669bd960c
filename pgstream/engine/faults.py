"""Faults of the worker as errors for a client.

Must not know: which query; who waits for it.
"""

from __future__ import annotations

from pgstream.engine.channel import Fault
from pgstream.errors import PgStreamError, RelayedError

RETRIED = frozenset({"store", "engine"})
"""Kinds of faults that pass by themselves. One more is tried again by a query that was made already: *refused*, since
credentials that worked may work again, or others are given by UPDATE STORE."""
OVERTAKEN = 3
"""How often in a row a fault of the kind *overtaken* is tried again: another start's worker, which had not ended yet,
has written a batch more than its checkpoint said. It says so by now, or else one of the two was put back."""


def error(fault: Fault) -> PgStreamError:
    """The same sentence, code, hint and position."""
    return RelayedError(code=fault.sqlstate, text=fault.message, detail=fault.detail, hint=fault.hint, at=fault.at)


def sentence(fault: Fault) -> str:
    """A fault in one text, for the catalogue's ``message``."""
    parts = [part for part in (fault.message, fault.detail, fault.hint) if part]
    return " ".join([p if p.endswith((".", "!", "?")) else f"{p}." for p in parts[:-1]] + parts[-1:])
