"""What only PostgreSQL knows of a statement: its own relations, and the columns of a query in its language.

Owns: the questions and their answers, which the planner is given; a missing one stops it with ``Unanswered``.
Must not know: how they are asked (``statements.postgres_queries``). Start reading at ``Answers``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pgstream.catalog.records import RelationRecord
from pgstream.names import FullName
from pgstream.planner import plan


@dataclass(frozen=True, slots=True)
class Named:
    """Which relation of PostgreSQL's own has this name? The answer is None when there is none."""

    full: FullName


@dataclass(frozen=True, slots=True)
class Described:
    """Which columns has ``sql``, with ``arguments`` of these types, for the statement's role?

    ``places``: pairs of an offset in it and the client's offset there, for errors. ``store``: the one that is asked
    instead of ``database``, about its ``entity``; it says no more than that it can answer.
    """

    database: str
    schema: str
    sql: str
    arguments: tuple[str, ...] = ()
    places: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    store: str = ""
    entity: str = ""


class Unanswered(Exception):
    """The planner cannot go on without an answer."""

    def __init__(self, question: Named | Described) -> None:
        super().__init__(str(question))
        self.question = question


@dataclass(slots=True)
class Answers:
    """What is known so far."""

    relations: dict[Named, RelationRecord | None] = field(default_factory=dict)
    queries: dict[Described, tuple[plan.Column, ...]] = field(default_factory=dict)

    def named(self, question: Named) -> RelationRecord | None:
        if question not in self.relations:
            raise Unanswered(question)
        return self.relations[question]

    def described(self, question: Described) -> tuple[plan.Column, ...]:
        if question not in self.queries:
            raise Unanswered(question)
        return self.queries[question]
