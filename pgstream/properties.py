"""WITH properties as written: name, value and where they stood.

Owns: ``Given``, the value that ``sql`` makes from text and ``stores`` and ``planner`` validate.
Must not know: which properties exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Given:
    """A WITH property as written. ``value`` is None for NULL; a bare flag has the value ``true``.

    ``at`` and ``value_at`` are 0-based character offsets of key and value in the statement's text.
    """

    name: str
    value: str | None
    at: int | None = None
    value_at: int | None = None


Options = Mapping[str, Given]
