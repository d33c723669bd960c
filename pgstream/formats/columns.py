"""What a schema gives and what it does not take, whatever language it is written in.

Owns: ``Field``, ``Unfit``, how many types a schema may stand for and how deep they may lie in each other.
Must not know: Avro, Protobuf.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pgstream.errors import UnusableSchema
from pgstream.types import DEEPEST, Type

DECLARE = "Declare the columns that are wanted; others are passed over."
MOST = 20_000
"""Types that a schema is made of, those that are said by name counted each time."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record or message as a column."""

    name: str
    type: Type
    nullable: bool


class Unfit(ValueError):
    """A JSON value that a schema does not take, or bytes that are no value of it; the text is for a person."""


class Room:
    """How many types a schema may still have: a few lines that name each other twice stand for as many as one likes."""

    def __init__(self) -> None:
        self._left = MOST

    def take(self) -> None:
        """One more. UnusableSchema when there are too many."""
        self._left -= 1
        if self._left < 0:
            raise UnusableSchema(why=f"it has more than {MOST} types in each other", hint=DECLARE)


def not_deep(type_: Type) -> Type:
    """The type, if the language has types in each other that deep. UnusableSchema otherwise."""
    level = [type_]
    for _ in range(DEEPEST + 1):
        if not (level := [t for one in level for t in (*one.args, *(t for _, t in one.fields))]):
            return type_
    raise _too_deep()


@contextmanager
def within_reason() -> Iterator[None]:
    """Around what goes through a schema: UnusableSchema where it is nested deeper than anything can follow."""
    try:
        yield
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> UnusableSchema:
    return UnusableSchema(why=f"it has types nested more than {DEEPEST} deep", hint=DECLARE)
