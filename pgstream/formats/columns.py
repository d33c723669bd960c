"""What a schema gives and what it does not take, whatever language it is written in.

Owns: ``Field``, ``Unfit``. Must not know: Avro, Protobuf.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgstream.types import Type


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record or message as a column."""

    name: str
    type: Type
    nullable: bool


class Unfit(ValueError):
    """A JSON value that a schema does not take, or bytes that are no value of it; the text is for a person."""
