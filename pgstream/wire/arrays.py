"""One-dimensional arrays between PostgreSQL's text and binary format.

Owns: the text form's quoting, the binary form's header. Must not know: element types; it is given their conversion.
Start reading at ``encode``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

# Each part takes all that it can (``*+``): to share spaces between them in every way would take time without end.
_ITEM = re.compile(r'\s*+(?:"((?:[^"\\]|\\.)*+)"\s*+|([^,{}"]*+))([,}])', re.S)
_ESCAPED = re.compile(r"\\(.)", re.S)
_PLAIN = re.compile(r"[^\s{},\"\\]+\Z")
_NULL = b"\xff\xff\xff\xff"
ELEMENTS = {1000: 16, 1001: 17, 1005: 21, 1007: 23, 1009: 25, 1015: 1043, 1016: 20, 1021: 700, 1022: 701, 1115: 1114,
            1182: 1082, 1183: 1083, 1185: 1184, 1231: 1700, 2951: 2950, 3807: 3802}  # fmt: skip
"""The element type of each array type."""


def items(text: str) -> Iterator[str | None]:
    """The elements of ``{a,"b c",NULL}``. Errors: ValueError."""
    if not text.startswith("{"):
        raise ValueError(f"malformed array literal: {text}")
    if text[1:].strip() == "}":
        return
    at = 1
    while (m := _ITEM.match(text, at)) is not None:
        at = m.end()
        if m[1] is not None:
            yield _ESCAPED.sub(r"\1", m[1])
        else:
            plain = m[2].rstrip()
            yield None if plain.upper() == "NULL" else plain
        if m[3] == "}":
            break
    if m is None or at != len(text):
        raise ValueError(f"malformed array literal: {text}")


def encode(text: str, oid: int, element: Callable[[str], bytes]) -> bytes:
    """Text to binary; ``oid`` is the elements' type."""
    values = [None if v is None else element(v) for v in items(text)]
    head = struct.pack(">iiI", 1 if values else 0, None in values, oid)
    if not values:
        return head
    parts = [_NULL if v is None else struct.pack(">I", len(v)) + v for v in values]
    return head + struct.pack(">ii", len(values), 1) + b"".join(parts)


def decode(data: bytes, element: Callable[[bytes], str]) -> str:
    """Binary to text. Errors: ValueError for more than one dimension, struct.error for a short value."""
    dimensions, _, _ = struct.unpack_from(">iiI", data)
    if dimensions == 0:
        return "{}"
    if dimensions != 1:
        raise ValueError("an array of more than one dimension")
    count, _ = struct.unpack_from(">ii", data, 12)
    at, out = 20, []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size < 0:
            out.append("NULL")
            continue
        if at + size > len(data):
            raise ValueError("insufficient data left in message")
        out.append(_quote(element(data[at : at + size])))
        at += size
    return "{" + ",".join(out) + "}"


def _quote(text: str) -> str:
    if _PLAIN.match(text) and text.upper() != "NULL":
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
