"""COPY (SELECT … FROM stream) TO STDOUT.

Owns: the grammar of COPY's options, old and new, and what they mean for rows of ours. PostgreSQL checks them: it is
asked to copy nothing with the same options and columns, so its messages are the errors.
Must not know: how a format looks on the wire (``server.copy_out``). Start reading at ``CopyStream``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pgstream.catalog.records import Snapshot
from pgstream.errors import CannotCopy, NotSupported
from pgstream.names import quote_always
from pgstream.sql.cursor import Cursor
from pgstream.statements.base import Column, Context, Result, Session, Statement
from pgstream.statements.select import SelectStream

_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.S)
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_TRUE = ("TRUE", "ON", "1")


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """How rows look: ``format`` is text, csv or binary. ``null`` and ``delimiter`` are the format's own when None.

    ``force_quote``: column names, or ``("*",)``.
    """

    format: str = "text"
    delimiter: str | None = None
    null: str | None = None
    header: bool = False
    quote: str = '"'
    escape: str | None = None
    force_quote: tuple[str, ...] = ()
    encoding: str | None = None


@dataclass(frozen=True, slots=True)
class CopyStream(Statement):
    """COPY ( select_statement ) TO STDOUT [[WITH] ( option [, ...] )];

    Rows of a SELECT that reads streams or changelogs as COPY data, as they come, until LIMIT or cancel. Options are
    PostgreSQL's: FORMAT text, csv or binary, DELIMITER, NULL, HEADER, QUOTE, ESCAPE, FORCE_QUOTE, ENCODING.
    COPY of a materialized view, by name or by query, is PostgreSQL's. See [streaming results](../streaming.md).
    """

    words: ClassVar = ("COPY",)
    free: ClassVar[str] = "the SELECT inside asks for what it reads"
    local: ClassVar = True

    text: str
    select: Statement
    options: str
    format: CopyFormat

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        return cls.around(c, SelectStream.part)

    @classmethod
    def around(cls, c: Cursor, select: Callable[[Cursor], Statement]) -> Self:
        """``select`` parses what stands in the parentheses."""
        c.expect("COPY")
        if not c.peek("("):
            _refuse(c)
        c.expect("(")
        begin = c.at
        inner = select(c)
        # Blanks instead of the words, so that positions stay those of the client's text.
        text = " " * begin + c.text[begin : c.at]
        c.expect(")")
        if c.accept("TO") and (c.peek_string() or c.peek("PROGRAM")):
            raise NotSupported(
                what="COPY of a stream to a file of the server", at=c.at,
                hint="Use TO STDOUT; psql's \\copy writes it into a file of the client.",
            )  # fmt: skip
        c.expect("STDOUT")
        begin = c.at
        found = _options(c)
        options = c.text[begin : c.at]
        c.end()
        return cls(text, inner, options, found)

    def parameter_types(self, snapshot: Snapshot, session: Session) -> Mapping[int, int]:
        return self.select.parameter_types(snapshot, session)

    async def execute(self, ctx: Context) -> Result:
        result = await ctx.run(self.text, self.select)
        columns = ", ".join(f"NULL::text AS {quote_always(c.name)}" for c in result.columns)
        try:
            await ctx.postgres(f"COPY (SELECT {columns} WHERE false) TO STDOUT {self.options}")
        except BaseException:
            if (aclose := getattr(result.rows, "aclose", None)) is not None:
                await aclose()
            raise
        return replace(result, tag="COPY {rows}", copy=self.format)


def _refuse(c: Cursor) -> None:
    """COPY stream …"""
    name = c.qname()
    if c.peek("("):
        c.name_list()
    direction = "to" if c.peek("FROM") else "from"
    hint = "INSERT INTO writes into it." if direction == "to" else "Try the COPY (SELECT ...) TO STDOUT variant."
    raise CannotCopy(direction=direction, kind="stream", name=name.name, at=name.at, hint=hint)


def _options(c: Cursor) -> CopyFormat:
    c.accept("WITH")
    found: dict[str, str | bool | tuple[str, ...]] = {}
    if c.accept("("):
        while not c.accept(")"):
            key = c.take_word()[0]
            found[key] = _value(c)
            if not c.peek(")"):
                c.expect(",")
    else:
        _old_options(c, found)
    return _meaning(found)


def _old_options(c: Cursor, found: dict[str, str | bool | tuple[str, ...]]) -> None:
    """What PostgreSQL took before version 9: BINARY, CSV, HEADER, DELIMITER [AS] 'x', FORCE QUOTE a, b …"""
    while not c.at_end:
        if c.accept("BINARY"):
            found["FORMAT"] = "binary"
        elif c.accept("CSV"):
            found["FORMAT"] = "csv"
        elif c.accept("HEADER"):
            found["HEADER"] = True
        elif c.accept("FORCE", "QUOTE"):
            found["FORCE_QUOTE"] = _names(c)
        else:
            key = c.words(1)
            if key not in (("DELIMITER",), ("DELIMITERS",), ("NULL",), ("QUOTE",), ("ESCAPE",), ("ENCODING",)):
                raise c.fault()
            c.expect(*key)
            c.accept("AS")
            found[key[0].removesuffix("S")] = _string(c)


def _value(c: Cursor) -> str | bool | tuple[str, ...]:
    """An option's value; a word alone is true."""
    if c.peek(",") or c.peek(")"):
        return True
    if c.accept("("):
        names = _names(c)
        c.expect(")")
        return names
    if c.accept("*"):
        return ("*",)
    if c.peek_number():
        return str(c.integer())
    return _string(c) if c.peek_string() or c.peek_escaped() else c.take_word()[0]


def _names(c: Cursor) -> tuple[str, ...]:
    if c.accept("*"):
        return ("*",)
    names = [c.name().text]
    while c.accept(","):
        names.append(c.name().text)
    return tuple(names)


def _string(c: Cursor) -> str:
    if c.peek_escaped():
        c.expect("E")
        return _ESCAPE.sub(_unescape, c.string())
    return c.string()


def _unescape(m: re.Match[str]) -> str:
    if m[1]:
        return chr(int(m[1], 8))
    return chr(int(m[2], 16)) if m[2] else _LETTERS.get(m[3], m[3])


def _meaning(found: dict[str, str | bool | tuple[str, ...]]) -> CopyFormat:
    """Options that PostgreSQL will check; what it does not take is not asked for here."""

    def text(key: str) -> str | None:
        value = found.get(key)
        return value if isinstance(value, str) else None

    quoted = found.get("FORCE_QUOTE")
    header = found.get("HEADER", False)
    return CopyFormat(
        (text("FORMAT") or "text").lower(), text("DELIMITER"), text("NULL"),
        header if isinstance(header, bool) else str(header).upper() in _TRUE,
        text("QUOTE") or '"', text("ESCAPE"), quoted if isinstance(quoted, tuple) else (), text("ENCODING"),
    )  # fmt: skip


def columns_of(fmt: CopyFormat, columns: Sequence[Column]) -> list[bool]:
    """For each column, whether its values are quoted always."""
    return [fmt.force_quote == ("*",) or c.name in fmt.force_quote for c in columns]
