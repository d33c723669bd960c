"""Cursors over a streaming SELECT: DECLARE, FETCH, MOVE, CLOSE.

Owns: the cursors of a session that read streams, and PostgreSQL's grammar of directions for them. PostgreSQL holds a
cursor of the same name in the same transaction: it says whether the name is free, which block, savepoint or CLOSE ALL
ends it, and lists it in pg_cursors. A cursor that PostgreSQL has lost is closed here too (``server.cursors``).
Must not know: the wire, how a SELECT runs. Start reading at ``DeclareCursor`` and ``OpenCursor.take``.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from pgstream.catalog.records import Snapshot
from pgstream.errors import ForwardOnly, InvalidOption, NotSupported, PgStreamError, UndefinedCursor
from pgstream.names import quote_always, quote_anywhere
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Column, Context, Result, Session, Statement, TextRow
from pgstream.statements.select import SelectStream

# PostgreSQL's twin of a cursor is never read, unless a FETCH that was prepared before the DECLARE goes there. One WITH
# HOLD is read at COMMIT, so it has no rows.
_TWIN = "SELECT pg_catalog.current_setting('a cursor of pgstream that PostgreSQL cannot read')"
_HELD_TWIN = "SELECT WHERE false"
_OWN = "a cursor is the session's own: what it reads was asked for when it was declared"
FETCH_WAIT = "pgstream.fetch_wait"
"""A session variable, in milliseconds, kept by PostgreSQL like any other."""
_MILLISECONDS = re.compile(r"[0-9]{1,9}")


class OpenCursor:
    """A streaming SELECT that is read a FETCH at a time; it begins at the first one."""

    def __init__(self, name: str, result: Result, *, binary: bool, hold: bool) -> None:
        self.name, self.columns, self.binary, self.hold = name, tuple(result.columns), binary, hold
        self.position = 0
        self.ended = False
        self._rows = result.rows
        self._stream = result.rows if isinstance(result.rows, AsyncIterator) else _each(result.rows)
        self._next: asyncio.Task[TextRow | None] | None = None
        self._error: PgStreamError | None = None

    async def take(self, skip: int, count: int | None, wait_ms: int = 0) -> AsyncIterator[TextRow]:
        """The rows of one FETCH, in order: ``count`` after ``skip``, fewer only when the SELECT ended.

        With ``wait_ms`` it also ends when the next row is not there that long after the FETCH began, if one is.
        """
        end = time.monotonic() + wait_ms / 1000 if wait_ms else None
        taken = 0
        while count is None or taken < skip + count:
            row = await self._row(end if taken > skip else None)
            if row is None:
                return
            self.position += 1
            taken += 1
            if taken > skip:
                yield row

    async def _row(self, end: float | None) -> TextRow | None:
        """The next row; None at the end of the SELECT, or when none has come by the time ``end``."""
        if self._error is not None:
            raise self._error
        if self.ended:
            return None
        try:
            if self._next is None and end is None and self.position:
                row = await anext(self._stream, None)
            else:
                # A task of its own: a canceled or timed-out FETCH leaves it for the next one.
                self._next = self._next or asyncio.ensure_future(anext(self._stream, None))
                timeout = None if end is None else max(0.0, end - time.monotonic())
                if not (await asyncio.wait({self._next}, timeout=timeout))[0]:
                    return None
                task, self._next = self._next, None
                row = task.result()
        except PgStreamError as e:
            self._error = e
            raise
        self.ended = row is None
        return row

    async def close(self) -> None:
        """End the SELECT. May be called twice."""
        self.ended = True
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
        aclose = getattr(self._rows, "aclose", None)
        if aclose is not None:
            await aclose()


async def _each(rows: Sequence[TextRow]) -> AsyncIterator[TextRow]:
    for row in rows:
        yield row


@dataclass(frozen=True, slots=True)
class DeclareCursor(Statement):
    """DECLARE name [BINARY] [ASENSITIVE | INSENSITIVE] [NO SCROLL] CURSOR [{WITH | WITHOUT} HOLD] FOR select_statement;

    A cursor over a SELECT that reads streams or changelogs, as PostgreSQL's: it lives to the end of its transaction,
    or WITH HOLD to CLOSE or the end of the session. The SELECT begins at the first FETCH and ends with its cursor.
    SCROLL is refused: fetched rows are not kept. See [streaming results](../streaming.md).
    """

    words: ClassVar = ("DECLARE",)
    free: ClassVar[str] = "the SELECT inside asks for what it reads"
    local: ClassVar = True

    text: str
    head: str
    name: str
    binary: bool
    hold: bool
    select: Statement

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        return cls.around(c, SelectStream.parse)

    @classmethod
    def around(cls, c: Cursor, select: Callable[[Cursor], Statement]) -> Self:
        """The statement up to FOR; ``select`` parses the rest."""
        c.expect("DECLARE")
        name, binary = c.name().text, False
        while not c.accept("CURSOR"):
            if c.accept("BINARY"):
                binary = True
            elif c.peek("SCROLL"):
                raise NotSupported(what="SCROLL of a cursor over a stream", at=c.at, hint=ForwardOnly.class_hint)
            elif not (c.accept("ASENSITIVE") or c.accept("INSENSITIVE") or c.accept("NO", "SCROLL")):
                raise c.fault()
        hold = c.accept("WITH", "HOLD")
        if not hold:
            c.accept("WITHOUT", "HOLD")
        c.expect("FOR")
        # Blanks instead of the words, so that positions stay those of the client's text.
        text, head = " " * c.at + c.text[c.at :], c.text[: c.at]
        return cls(text, head, name, binary, hold, select(c))

    def parameter_types(self, snapshot: Snapshot, session: Session) -> Mapping[int, int]:
        return self.select.parameter_types(snapshot, session)

    async def execute(self, ctx: Context) -> Result:
        result = await ctx.run(self.text, self.select)
        cursor = OpenCursor(self.name, result, binary=self.binary, hold=self.hold)
        try:
            await ctx.postgres(self.head + (_HELD_TWIN if self.hold else _TWIN))
        except BaseException:
            await cursor.close()
            raise
        if (lost := ctx.session.cursors.pop(self.name, None)) is not None:
            await lost.close()  # PostgreSQL closed it before and gave the name to the new one
        ctx.session.cursors[self.name] = cursor
        return Result("DECLARE CURSOR")


@dataclass(frozen=True, slots=True)
class Direction:
    """Where FETCH goes: ``word`` is FORWARD, ABSOLUTE or RELATIVE; ``count`` None is ALL."""

    word: str
    count: int | None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        """PostgreSQL's grammar: [direction] [FROM | IN]."""
        plain = {"NEXT": ("FORWARD", 1), "PRIOR": ("FORWARD", -1), "FIRST": ("ABSOLUTE", 1), "LAST": ("ABSOLUTE", -1)}
        for word, (kind, count) in plain.items():
            if c.words(1) == (word,) and not _is_name(c):
                c.expect(word)
                return cls(kind, count)
        for word in ("ABSOLUTE", "RELATIVE"):
            if c.words(1) == (word,) and not _is_name(c):
                c.expect(word)
                return cls(word, _signed(c))
        if c.words(1) in (("FORWARD",), ("BACKWARD",)) and not _is_name(c):
            sign = 1 if c.accept("FORWARD") else -1 if c.accept("BACKWARD") else 0
            found = cls._count(c)
            if sign < 0:
                return cls("FORWARD", -1 if found is None else -found.count if found.count is not None else -1)
            return found or cls("FORWARD", 1)
        return cls._count(c) or cls("FORWARD", 1)

    @classmethod
    def _count(cls, c: Cursor) -> Self | None:
        if c.words(1) == ("ALL",) and not _is_name(c):
            c.expect("ALL")
            return cls("FORWARD", None)
        return cls("FORWARD", _signed(c)) if c.peek("-") or c.peek("+") or c.peek_number() else None

    def steps(self, cursor: OpenCursor) -> tuple[int, int | None]:
        """Rows to skip and rows to take (None: all). Errors: ForwardOnly."""
        if self.count is None:
            return 0, None
        ahead = self.count - cursor.position if self.word == "ABSOLUTE" and self.count >= 0 else self.count
        if ahead > 0:
            return (0, ahead) if self.word == "FORWARD" else (ahead - 1, 1)
        if ahead == 0 and (cursor.position == 0 or cursor.ended):
            return 0, 0
        raise ForwardOnly()


def _signed(c: Cursor) -> int:
    sign = -1 if c.accept("-") else 1
    if sign > 0:
        c.accept("+")
    return sign * c.integer()


def _is_name(c: Cursor) -> bool:
    """Whether the next word is the cursor's name: nothing follows it. ``FETCH next`` fetches from "next"."""
    return len(c.words(2)) == 1 and c.ends_after(1)


@dataclass(frozen=True, slots=True)
class FetchCursor(Statement):
    """FETCH [direction] [FROM | IN] name;

    The next rows of a cursor over a stream: NEXT, a count, ALL, FORWARD, ABSOLUTE and RELATIVE as in PostgreSQL;
    backwards is an error (55000). It answers with fewer rows than asked only when the SELECT has ended, as psql and
    drivers take a short answer for the end; SET pgstream.fetch_wait = '500' (milliseconds) gives what has come.
    """

    words: ClassVar = ("FETCH",)
    free: ClassVar[str] = _OWN
    local: ClassVar = True

    name: str
    direction: Direction

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect(*cls.words)
        direction = Direction.parse(c)
        if not c.accept("FROM"):
            c.accept("IN")
        name = c.name().text
        c.end()
        return cls(name, direction)

    async def describe(self, ctx: Context) -> tuple[Column, ...]:
        cursor = ctx.session.cursors.get(self.name)
        return cursor.columns if cursor is not None else ()

    async def execute(self, ctx: Context) -> Result:
        cursor, wait_ms = await self._open(ctx)
        rows = cursor.take(*self.direction.steps(cursor), wait_ms)
        return Result("FETCH {rows}", cursor.columns, rows, binary=cursor.binary)

    async def _open(self, ctx: Context) -> tuple[OpenCursor, int]:
        """The cursor, if PostgreSQL has it still, and how long a FETCH waits."""
        cursor = ctx.session.cursors.get(self.name)
        setting = f"pg_catalog.current_setting('{FETCH_WAIT}', true)"
        question = f"SELECT coalesce({setting}, '') FROM pg_catalog.pg_cursors"
        wait = await ctx.postgres(f"{question} WHERE name OPERATOR(pg_catalog.=) {quote_anywhere(self.name)}")
        if cursor is None or wait is None:
            await drop(ctx.session, self.name)
            raise UndefinedCursor(name=self.name)
        if wait and not _MILLISECONDS.fullmatch(wait):
            raise InvalidOption(
                what=f"{FETCH_WAIT} is not a number of milliseconds", hint=f"SET {FETCH_WAIT} = '500', for example."
            )
        return cursor, int(wait or 0)


@dataclass(frozen=True, slots=True)
class MoveCursor(FetchCursor):
    """MOVE [direction] [FROM | IN] name;

    Skip rows of a cursor over a stream; the answer counts them.
    """

    words: ClassVar = ("MOVE",)
    local: ClassVar = True

    async def describe(self, ctx: Context) -> tuple[Column, ...]:
        return ()

    async def execute(self, ctx: Context) -> Result:
        cursor, wait_ms = await self._open(ctx)
        moved = 0
        async for _ in cursor.take(*self.direction.steps(cursor), wait_ms):
            moved += 1
        return Result(f"MOVE {moved}")


@dataclass(frozen=True, slots=True)
class CloseCursor(Statement):
    """CLOSE name;

    End a cursor over a stream, and the SELECT that feeds it. CLOSE ALL ends every cursor.
    """

    words: ClassVar = ("CLOSE",)
    free: ClassVar[str] = _OWN
    local: ClassVar = True

    name: str

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        c.expect("CLOSE")
        name = c.name().text
        c.end()
        return cls(name)

    async def execute(self, ctx: Context) -> Result:
        await drop(ctx.session, self.name)
        await ctx.postgres(f"CLOSE {quote_always(self.name)}")
        return Result("CLOSE CURSOR")


async def drop(session: Session, name: str) -> None:
    """Close a cursor of ours, if it is there."""
    if (cursor := session.cursors.pop(name, None)) is not None:
        await cursor.close()


def reader(text: str, words: Sequence[str], session: Session) -> type[Statement] | None:
    """The class of a FETCH, MOVE or CLOSE of a cursor of ours. Asked only while there is one."""
    kind: type[FetchCursor | CloseCursor] | None = _READERS.get(words[0])
    try:
        return kind if kind is not None and kind.parse(Cursor(text)).name in session.cursors else None
    except PgStreamError:
        return None


_READERS: dict[str, type[FetchCursor | CloseCursor]] = {"FETCH": FetchCursor, "MOVE": MoveCursor, "CLOSE": CloseCursor}
