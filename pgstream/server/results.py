"""Rows of our statements to a client: descriptions, formats, limits, back-pressure.

Owns: how a ``Result`` becomes messages, at once or as its rows come.
Must not know: sessions beyond the sink it writes to, statements' meaning. Start reading at ``Sending.send``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from pgstream.errors import ProtocolViolation
from pgstream.server.copy_out import CopyRows
from pgstream.statements.base import Column, KeptRow, Result, TextRow
from pgstream.wire import backend, values
from pgstream.wire.encodings import UTF8, encode

_SIZES = {16: 1, 20: 8, 21: 2, 23: 4, 26: 4, 700: 4, 701: 8, 1082: 4, 1083: 8, 1114: 8, 1184: 8, 2950: 16}
"""pg_type.typlen of the types of fixed length."""
BATCH = 250
"""Rows of a finished result that are written together."""


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


def description(columns: Sequence[Column], forms: Sequence[int], codec: str = UTF8) -> bytes:
    """RowDescription, or NoData for a statement without columns."""
    if not columns:
        return backend.NO_DATA
    return backend.row_description(
        [(c.name, c.type.oid, _SIZES.get(c.type.oid, -1), c.type.modifier) for c in columns], forms, codec
    )


def value_encoder(oid: int, form: int, codec: str) -> Callable[[str], bytes]:
    """From a value's text to what a client gets: text or binary, in its encoding."""
    if form:
        return values.encoder(oid, codec)
    return str.encode if codec == UTF8 else lambda text: encode(text, codec)


class Rows:
    """Rows as DataRow messages."""

    opening = ending = b""
    limited = True

    def __init__(self, columns: Sequence[Column], forms: Sequence[int], codec: str) -> None:
        self._encoders = [value_encoder(c.type.oid, f, codec) for c, f in zip(columns, forms, strict=True)]
        self._plain = codec == UTF8 and not any(forms)

    def row(self, row: TextRow) -> bytes:
        if not self._plain or not isinstance(row, KeptRow):
            return self._message(row)
        if row.sent is None:
            row.sent = self._message(row)
        return row.sent

    def _message(self, row: TextRow) -> bytes:
        return backend.data_row(
            [None if v is None else encode(v) for v, encode in zip(row, self._encoders, strict=True)]
        )


LINGER_S = 0.1
"""How long what has come of a streaming result waits for more, where a part of what was asked for will do."""


class Sending:
    """A result on its way: rows not yet sent stay here between Executes. ``close`` ends a streaming result."""

    def __init__(self, result: Result, forms: Sequence[int], codec: str = UTF8) -> None:
        self._tag = result.tag
        self._form: Rows | CopyRows = (
            Rows(result.columns, forms, codec)
            if result.copy is None
            else CopyRows(result.copy, result.columns, codec, value_encoder)
        )
        rows = result.rows
        self._rows = rows if isinstance(rows, AsyncIterator) else iter(rows)
        self._coming: asyncio.Future[TextRow] | None = None  # the next row, which an Execute did not wait for
        self._counts = bool(result.columns) and result.copy is None
        self._finished = False

    async def send(self, sink: Sink, limit: int = 0, *, part: bool = False) -> bytes:
        """Send up to ``limit`` rows (0: all); gives the message that ends them, for the caller to send.

        ``part``: fewer will do, of a streaming result those that come within ``LINGER_S`` of the first. Never none:
        drivers take that for the end.
        """
        if self._finished:
            return self._complete(0)
        form = self._form
        if form.opening:
            sink.write(form.opening)
        if not form.limited:
            limit = 0
        rows = self._rows
        if isinstance(rows, AsyncIterator):
            count, ended = await self._stream(rows, sink, limit, part and limit > 1)
        else:
            count, ended = await self._walk(rows, sink, limit)
        if not ended:
            return backend.PORTAL_SUSPENDED
        self._finished = True
        return form.ending + self._complete(count)

    async def _stream(self, rows: AsyncIterator[TextRow], sink: Sink, limit: int, part: bool) -> tuple[int, bool]:
        """Send rows as they come; how many, and whether they have ended."""
        count, until = 0, 0.0
        now = asyncio.get_running_loop().time
        try:
            while not limit or count < limit:
                row = await (self._next_within(rows, until - now()) if part and count else self._next(rows))
                if row is None:
                    break
                sink.write(self._form.row(row))
                count += 1
                await sink.drained()
                if count == 1:
                    until = now() + LINGER_S
        except StopAsyncIteration:
            return count, True
        return count, False

    async def _next(self, rows: AsyncIterator[TextRow]) -> TextRow:
        if self._coming is None:
            return await anext(rows)
        coming = self._coming
        await asyncio.wait({coming})
        self._coming = None
        return coming.result()

    async def _next_within(self, rows: AsyncIterator[TextRow], seconds: float) -> TextRow | None:
        """None: it has not come yet, and is waited for by the next Execute."""
        if self._coming is None:
            if getattr(rows, "ready", False):
                return await anext(rows)
            self._coming = asyncio.ensure_future(anext(rows))
        done, _ = await asyncio.wait({self._coming}, timeout=max(seconds, 0))
        return await self._next(rows) if done else None

    async def _walk(self, rows: Iterator[TextRow], sink: Sink, limit: int) -> tuple[int, bool]:
        """Send rows that are all there, many at a time; how many, and whether they have ended."""
        count = 0
        while batch := [self._form.row(row) for row in islice(rows, min(BATCH, limit - count) if limit else BATCH)]:
            sink.write(b"".join(batch))
            count += len(batch)
            await sink.drained()
        return count, not limit or count < limit

    @property
    def ran(self) -> bool:
        """A statement without rows runs once; after the last row there are no more, which is no error."""
        return self._finished and not self._counts

    def _complete(self, count: int) -> bytes:
        tag = self._tag.format(rows=count) if "{rows}" in self._tag else self._tag
        return backend.command_complete(tag)

    async def close(self) -> None:
        """End a streaming result; rows not sent are lost."""
        self._finished = True
        if (coming := self._coming) is not None:
            self._coming = None
            coming.cancel()
            await asyncio.wait({coming})
            if not coming.cancelled():
                coming.exception()  # nobody waits for it any more
        aclose = getattr(self._rows, "aclose", None)
        if aclose is not None:
            await aclose()
