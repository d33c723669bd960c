"""What a schema gives a relation, whatever language it is written in.

Owns: ``Field``. Must not know: Avro, Protobuf.
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
