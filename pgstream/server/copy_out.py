"""Rows of our statements as COPY data: PostgreSQL's text, csv and binary formats.

Owns: the bytes of each. Must not know: options' grammar (``statements.copy``), sessions. Start reading at ``CopyRows``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pgstream.errors import NotSupported
from pgstream.statements.base import Column, TextRow
from pgstream.statements.copy import CopyFormat, columns_of
from pgstream.wire import backend
from pgstream.wire.encodings import CODECS, encode

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = backend.message(b"d", b"\xff\xff")
_LETTERS = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
ValueEncoder = Callable[[int, int, str], Callable[[str], bytes]]


class CopyRows:
    """Rows as CopyData messages. ``opening`` comes before the first, ``ending`` after the last."""

    limited = False  # PostgreSQL: a row limit does not apply to COPY

    def __init__(self, fmt: CopyFormat, columns: Sequence[Column], codec: str, value_encoder: ValueEncoder) -> None:
        binary = fmt.format == "binary"
        if fmt.encoding is not None:
            codec = _codec(fmt.encoding)
        self.opening = backend.copy_out_response(binary, len(columns))
        self.ending = backend.COPY_DONE
        self.row: Callable[[TextRow], bytes]
        self._codec = codec
        self._delimiter = fmt.delimiter or ("," if fmt.format == "csv" else "\t")
        if binary:
            self.row = self._binary
            self._encoders = [value_encoder(c.type.oid, 1, codec) for c in columns]
            self.opening += backend.message(b"d", _HEADER)
            self.ending = _TRAILER + self.ending
            return
        self._null = fmt.null if fmt.null is not None else ("" if fmt.format == "csv" else "\\N")
        if fmt.format == "csv":
            self.row = self._csv
            self._forced = columns_of(fmt, columns)
            self._quote, self._escape = fmt.quote, fmt.escape or fmt.quote
            # A value like the end-of-data mark is quoted where it would stand alone.
            self._special = re.compile(f"[{re.escape(self._delimiter + fmt.quote)}\n\r]")
        else:
            self.row = self._text
            self._special = re.compile("[" + re.escape("".join(_LETTERS) + self._delimiter) + "]")
        if fmt.header:
            names: list[str | None] = [c.name for c in columns]
            line = self._csv(names, forced=[False] * len(names)) if fmt.format == "csv" else self._text(names)
            self.opening += line

    def _line(self, fields: list[str]) -> bytes:
        return backend.message(b"d", encode(self._delimiter.join(fields) + "\n", self._codec))

    def _text(self, row: TextRow) -> bytes:
        special = self._special
        return self._line([self._null if v is None else special.sub(_escape, v) for v in row])

    def _csv(self, row: TextRow, forced: Sequence[bool] | None = None) -> bytes:
        alone = len(row) == 1
        fields = []
        for value, always in zip(row, self._forced if forced is None else forced, strict=True):
            if value is None:
                fields.append(self._null)
            elif always or value == self._null or self._special.search(value) or (alone and value == "\\."):
                fields.append(self._quoted(value))
            else:
                fields.append(value)
        return self._line(fields)

    def _quoted(self, value: str) -> str:
        if self._escape != self._quote:
            value = value.replace(self._escape, self._escape * 2)
        return self._quote + value.replace(self._quote, self._escape + self._quote) + self._quote

    def _binary(self, row: TextRow) -> bytes:
        body = backend.data_row([None if v is None else e(v) for v, e in zip(row, self._encoders, strict=True)])
        return b"d" + body[1:]


def _escape(m: re.Match[str]) -> str:
    return _LETTERS.get(m[0], "\\" + m[0])


def _codec(name: str) -> str:
    wanted = re.sub("[^A-Z0-9]", "", name.upper())
    for known, codec in CODECS.items():
        if wanted in (known.replace("_", ""), known.replace("_", "").replace("LATIN1", "ISO88591")):
            return codec
    raise NotSupported(what=f'COPY with ENCODING "{name}" of a stream', hint="ENCODING 'UTF8' takes every character.")
