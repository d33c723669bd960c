"""What the kernel is told of a record's two sides, its value and its key: the format, and what that format needs.

Owns: the JSON that ``Formats.scala`` reads. Must not know: plans, sources and sinks. Start reading at ``reading``.
"""

from __future__ import annotations

from typing import Any

Side = dict[str, Any]


def side(format_: str, timestamp_format: str) -> Side:
    """A value or key in a format that its columns describe: JSON or PRIMITIVE."""
    return {"format": format_.lower(), "timestamp_format": timestamp_format.lower()}
