"""What the kernel is told of a record's two sides, its value and its key: the format, and what that format needs.

Owns: the JSON that ``Formats.scala`` reads. Must not know: plans, sources and sinks. Start reading at ``reading``.
"""

from __future__ import annotations

from typing import Any

from pgstream.planner.plan import Schema

Side = dict[str, Any]


def reading(format_: str, timestamp_format: str, registry: str) -> Side:
    """A side that is read. ``registry``: the connection that AVRO asks for the schemas that records were written by."""
    made: Side = {"format": format_.lower(), "timestamp_format": timestamp_format.lower()}
    return made | ({"registry": registry} if made["format"] == "avro" else {})


def writing(format_: str, timestamp_format: str, schema: Schema | None) -> Side:
    """A side that is written. ``schema``: the registered one, of a format that has schemas."""
    made: Side = {"format": format_.lower(), "timestamp_format": timestamp_format.lower()}
    return made | ({"schema": schema.text, "schema_id": schema.id} if schema is not None else {})
