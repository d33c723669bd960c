"""Bytes of others walked over by an Avro schema, before a library without bounds reads them.

Owns: what a value may cost. The library's reader is native code: it follows records into each other until its stack
ends, which ends the process, and believes each count of items. Nothing is made here, so little can be asked of it.
Must not know: registries, what is made of a value (``avro_values``). The kernel has the same bounds in
``AvroBytes.scala``. Source: Avro's specification, "Binary Encoding". Start reading at ``check``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pgstream.formats.columns import MOST, Unfit

_DEEPEST = 250
"""Half of what the kernel follows: a level takes up to two calls here, and of those Python has a thousand."""
_FREE = 10_000
"""Items and nested values that a value may have beyond what its size says: those without bytes of their own."""
_VALUES = 1 << 20
_TEXT = 32 << 20
"""Characters that are made of a value's bytes, of the names of fields and symbols, which it says without their text."""
_SQUARES = 32
"""For a decimal each byte is computed with each other one; so many times that cost as much as a character."""
_NUMBER = 10  # bytes


def check(data: bytes, schema: Any, names: Mapping[str, Any]) -> None:
    """Unfit for bytes that are no value of the schema, or one that holds more than is read. ``names``: its types."""
    walk = _Walk(data, names)
    walk.value(schema, 0)
    if walk.at != len(data):
        raise Unfit("bytes after the end of the value")


class _Walk:
    """``at``: where in the bytes. What is left of the bounds goes down as values are passed over."""

    def __init__(self, data: bytes, names: Mapping[str, Any]) -> None:
        self.at = 0
        self._data, self._names = data, names
        self._values, self._text = min(_FREE + 4 * len(data), _VALUES), _TEXT

    def value(self, schema: Any, depth: int) -> None:
        self._spend(1)
        if depth > _DEEPEST:
            raise Unfit(f"values nested more than {_DEEPEST} deep")
        if isinstance(schema, str) and schema not in _PLAIN:
            schema = self._names.get(schema, schema)
        if isinstance(schema, list):
            branch = self._number()
            if not 0 <= branch < len(schema):
                raise Unfit(f"a union has no branch {branch}")
            self.value(schema[branch], depth + 1)
            return
        word = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(word, (Mapping, list)):
            self.value(word, depth + 1)
        elif (plain := _PLAIN.get(word)) is not None:
            plain(self, schema)
        elif (holding := _HOLDING.get(word)) is not None and isinstance(schema, Mapping):
            holding(self, schema, depth + 1)
        else:
            raise Unfit(f"a value of type {word}")

    def _spend(self, values: int) -> None:
        self._values -= values
        if self._values < 0:
            raise Unfit("it says that it holds more than its bytes can, or more than is shown")

    def _say(self, characters: int) -> None:
        self._text -= characters
        if self._text < 0:
            raise Unfit("it is longer than is shown")

    def _pass(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self.at:
            raise Unfit(f"{size} bytes where {len(self._data) - self.at} are left")
        self.at += size

    def _number(self, _: Any = None) -> int:
        found = 0
        for i, byte in enumerate(self._data[self.at : self.at + _NUMBER]):
            found |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                if found >= 1 << 64:
                    break
                self.at += i + 1
                return (found >> 1) ^ -(found & 1)
        raise Unfit("no number of 64 bits")

    def _sized(self, schema: Any) -> None:
        size = self._number()
        self._pass(size)
        self._said(schema, size)

    def _fixed(self, schema: Any) -> None:
        self._pass(schema["size"])
        self._said(schema, schema["size"])

    def _said(self, schema: Any, size: int) -> None:
        """What is made of ``size`` bytes."""
        if isinstance(schema, Mapping) and schema.get("logicalType") == "decimal":
            if size > MOST:
                raise Unfit(f"a decimal of {size} bytes")
            size = 3 * size + schema.get("scale", 0) + size * size // _SQUARES
        self._say(size)

    def _enum(self, schema: Any) -> None:
        symbol = self._number()
        if not 0 <= symbol < len(schema["symbols"]):
            raise Unfit(f"an enum has no symbol {symbol}")
        self._say(len(schema["symbols"][symbol]))

    def _record(self, schema: Any, depth: int) -> None:
        for f in schema["fields"]:
            self._say(len(f["name"]))
            self.value(f["type"], depth)

    def _array(self, schema: Any, depth: int) -> None:
        while items := self._block():
            for _ in range(items):
                self.value(schema["items"], depth)

    def _map(self, schema: Any, depth: int) -> None:
        while items := self._block():
            for _ in range(items):
                self._sized("string")
                self.value(schema["values"], depth)

    def _block(self) -> int:
        """How many items come next; 0 at the end."""
        items = self._number()
        if items < 0:
            self._number()  # their bytes
        self._spend(abs(items))
        return abs(items)


_PLAIN: Mapping[str, Callable[[_Walk, Any], object]] = {
    "null": lambda _, __: None,
    "boolean": lambda w, _: w._pass(1),
    "int": _Walk._number,
    "long": _Walk._number,
    "float": lambda w, _: w._pass(4),
    "double": lambda w, _: w._pass(8),
    "string": _Walk._sized,
    "bytes": _Walk._sized,
    "fixed": _Walk._fixed,
    "enum": _Walk._enum,
}
_HOLDING: Mapping[str, Callable[[_Walk, Any, int], None]] = {
    "record": _Walk._record,
    "error": _Walk._record,
    "array": _Walk._array,
    "map": _Walk._map,
}
