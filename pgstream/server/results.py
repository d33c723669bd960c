"""Rows of our statements to a client: descriptions, formats, limits, back-pressure.

Owns: how a ``Result`` becomes messages, at once or as its rows come.
Must not know: sessions beyond the sink it writes to, statements' meaning. Start reading at ``Sending.send``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

from pgstream.errors import ProtocolViolation
from pgstream.statements.base import Column, Result, TextRow
from pgstream.wire import backend, values

_SIZES = {16: 1, 20: 8, 21: 2, 23: 4, 26: 4, 700: 4, 701: 8, 1082: 4, 1114: 8, 1184: 8, 2950: 16}
"""pg_type.typlen of the types of fixed length."""


class Sink(Protocol):
    """Where messages go."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None:
        """Wait until the client has taken most of what was written."""


def formats(columns: Sequence[Column], asked: Sequence[int]) -> tuple[int, ...]:
    """One format a column from a Bind's result formats: none is text, one is for all."""
    if len(asked) <= 1:
        return (asked[0] if asked else 0,) * len(columns)
    if len(asked) != len(columns):
        raise ProtocolViolation(
            what=f"bind message has {len(asked)} result formats but query has {len(columns)} columns"
        )
    return tuple(asked)


def description(columns: Sequence[Column], forms: Sequence[int]) -> bytes:
    """RowDescription, or NoData for a statement without columns."""
    if not columns:
        return backend.NO_DATA
    return backend.row_description([(c.name, c.type.oid, _SIZES.get(c.type.oid, -1), -1) for c in columns], forms)


class Sending:
    """A result on its way: rows not yet sent stay here between Executes. ``close`` ends a streaming result."""

    def __init__(self, result: Result, columns: Sequence[Column], forms: Sequence[int]) -> None:
        self._tag = result.tag
        self._encoders = [values.encoder(c.type.oid) if f else str.encode for c, f in zip(columns, forms, strict=True)]
        rows = result.rows
        self._stream: AsyncIterator[TextRow] | None = rows if isinstance(rows, AsyncIterator) else None
        self._rows: Iterator[TextRow] = iter(()) if isinstance(rows, AsyncIterator) else iter(rows)
        self._counts = bool(columns)
        self._finished = False

    def _encode(self, row: TextRow) -> bytes:
        return backend.data_row(
            [None if v is None else encode(v) for v, encode in zip(row, self._encoders, strict=True)]
        )

    async def send(self, sink: Sink, limit: int = 0) -> bytes:
        """Send up to ``limit`` rows (0: all); gives the message that ends them, for the caller to send."""
        if self._finished:
            return self._complete(0)
        count = 0
        async for row in self._each():
            sink.write(self._encode(row))
            count += 1
            await sink.drained()
            if count == limit:
                return backend.PORTAL_SUSPENDED
        self._finished = True
        return self._complete(count)

    @property
    def ran(self) -> bool:
        """A statement without rows runs once; after the last row there are no more, which is no error."""
        return self._finished and not self._counts

    async def _each(self) -> AsyncIterator[TextRow]:
        if self._stream is not None:
            async for row in self._stream:
                yield row
        else:
            for row in self._rows:
                yield row

    def _complete(self, count: int) -> bytes:
        tag = self._tag.format(rows=count) if "{rows}" in self._tag else self._tag
        return backend.command_complete(tag)

    async def close(self) -> None:
        """End a streaming result; rows not sent are lost."""
        self._finished = True
        aclose = getattr(self._stream, "aclose", None)
        if aclose is not None:
            await aclose()
