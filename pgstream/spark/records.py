"""What the kernel is told of a record's two sides, its value and its key: the format, and what that format needs.

Owns: the JSON that ``Formats.scala`` reads. Must not know: plans, sources and sinks. Start reading at ``reading``.
"""

from __future__ import annotations

from typing import Any

from pgstream.engine.channel import Descriptor
from pgstream.planner.plan import Schema

Side = dict[str, Any]


def reading(format_: str, timestamp_format: str, registry: str, descriptor: Descriptor | None = None) -> Side:
    """A side that is read.

    ``registry``: the connection that is asked for the schemas that records were written by; ``descriptor``: the message
    that they are instead.
    """
    made: Side = {"format": format_.lower(), "timestamp_format": timestamp_format.lower()}
    if descriptor is not None:
        return made | _message(descriptor)
    return made | ({"registry": registry} if made["format"] in ("avro", "protobuf") else {})


def writing(format_: str, timestamp_format: str, schema: Schema | None, descriptor: Descriptor | None = None) -> Side:
    """A side that is written. ``schema``: the registered one, of a format that has schemas."""
    made: Side = {"format": format_.lower(), "timestamp_format": timestamp_format.lower()}
    if descriptor is not None:
        return made | _message(descriptor)
    if schema is None:
        return made
    if made["format"] == "protobuf":
        return made | _message(Descriptor(schema.text, schema.message)) | {"schema_id": schema.id}
    return made | {"schema": schema.text, "schema_id": schema.id}


def _message(descriptor: Descriptor) -> Side:
    return {"descriptors": descriptor.files, "message": descriptor.message}
