"""What a process of the server counts, for ``metrics``: plain numbers, added to where something happens.

Owns: the counters and how those of several processes are added up. Labels are kinds of statements and SQLSTATEs, never
a client's text. Must not know: how they are shown. Start reading at ``Counts``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgstream.server.session import ClientSession
    from pgstream.statements.base import Statement


@dataclass(frozen=True, slots=True)
class Figures:
    """One process's, or the sum of several. ``statements``: (kind, SQLSTATE) → how many; ``seconds``: kind → how long
    they took together; ``refused``: SQLSTATE → how many clients.
    """

    sessions: int = 0
    starting: int = 0
    connections: int = 0
    received: int = 0
    relayed: int = 0
    rounds: int = 0
    errors: int = 0
    statements: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)  # of floats
    refused: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def left_behind(self) -> Figures:
        """What stays of a process that has ended: no sessions."""
        return replace(self, sessions=0, starting=0)


def name_of(kind: type[Statement]) -> str:
    """What a statement is called to those who look on: its first words."""
    return " ".join(kind.words) or kind.__name__


class Counts:
    """Of this process, since it began."""

    def __init__(self) -> None:
        self.connections = 0
        self._received = self._relayed = self._rounds = self._errors = 0
        self._statements: Counter[tuple[str, str]] = Counter()
        self._seconds: Counter[str] = Counter()

    def ran(self, kind: type[Statement], sqlstate: str, seconds: float) -> None:
        """A statement of ours is over, but for rows that stream."""
        name = name_of(kind)
        self._statements[name, sqlstate] += 1
        self._seconds[name] += seconds  # type: ignore[assignment]  # a Counter of floats

    def take(self, session: ClientSession) -> None:
        """Add what a session has counted since the last time."""
        if session.pair is not None:
            session.pair.count()
        self._received += session.received
        self._relayed += session.relayed
        self._rounds += session.rounds
        self._errors += session.errors
        session.received = session.relayed = session.rounds = session.errors = 0
        session.asked = -1

    def figures(self, sessions: int, starting: int, refused: Mapping[str, int]) -> Figures:
        return Figures(
            sessions,
            starting,
            self.connections,
            self._received,
            self._relayed,
            self._rounds,
            self._errors,
            Counter(self._statements),
            Counter(self._seconds),
            Counter(refused),
        )
