"""Slices: where the parts of a query stand in the client's text, so that PostgreSQL can be given its own words.

Owns: finding a parenthesis' inside, a relation of a FROM with its ON, an expression's range; cutting a slice out with
some ranges replaced, and telling where in the client's text a place of the result lies.
Must not know: what the parts mean. Start reading at ``Slices`` and ``Words``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from pgstream.names import quote_always
from pgstream.sql.dialect import WITHIN, tokenize

T = TokenType
_HEAD = (T.COMMA, T.LEFT, T.RIGHT, T.FULL, T.INNER, T.OUTER, T.CROSS, T.JOIN, T.NATURAL)
_BORDER = (T.COMMA, T.LEFT, T.RIGHT, T.FULL, T.INNER, T.CROSS, T.JOIN, T.NATURAL, T.ON, T.USING, T.WHERE, T.GROUP_BY,
           T.HAVING, T.ORDER_BY, T.LIMIT, T.OFFSET, T.FETCH, T.UNION, T.EXCEPT, T.INTERSECT, T.WITH, T.SEMICOLON,
           T.MATCH_RECOGNIZE, WITHIN)  # fmt: skip
_OPEN = {T.L_PAREN: 1, T.L_BRACKET: 1, T.R_PAREN: -1, T.R_BRACKET: -1}
_PARAMETER = re.compile(r"\$\d+")
Range = tuple[int, int]


class Slices:
    """A query's text: ``text`` up to ``end``. Ranges are offsets in it, the end not included."""

    def __init__(self, text: str, end: int) -> None:
        self.text = text
        self.tokens: Sequence[Token] = tokenize(text[:end])
        self._index = {t.start: i for i, t in enumerate(self.tokens)}
        self._casts = {t.start for t in self.tokens if t.text.upper() in ("CAST", "TRY_CAST")}

    def inside(self, query: exp.Expr) -> Range:
        """The inside of the parentheses around a query."""
        starts = [int(n.meta["start"]) for n in query.walk() if "start" in n.meta]
        i, depth = self._index[min(starts)], 0
        while True:
            i -= 1
            depth -= _OPEN.get(self.tokens[i].token_type, 0)
            # A part of it may stand in parentheses of its own.
            if depth < 0 and (end := self.tokens[self._closing(i)].start) > max(starts):
                return self.tokens[i].end + 1, end
            depth = max(depth, 0)

    def _closing(self, i: int) -> int:
        """The index of the sign that closes the one at an index."""
        depth = 1
        while depth:
            i += 1
            depth += _OPEN.get(self.tokens[i].token_type, 0)
        return i

    def relation(self, join: int) -> tuple[Range, Range | None]:
        """The relation of the join that begins at an offset, with its alias, and its ON condition."""
        i = self._index[join]
        while self.tokens[i].token_type in _HEAD:
            i += 1
        first, i = i, self._border(i)
        relation = self.tokens[first].start, self.tokens[i - 1].end + 1
        if i == len(self.tokens) or self.tokens[i].token_type is not T.ON:
            return relation, None
        last = self._border(i + 1)
        return relation, (self.tokens[i + 1].start, self.tokens[last - 1].end + 1)

    def first(self, name: int) -> Range:
        """The first relation of a FROM, whose name begins at an offset, with its alias."""
        i = self._index[name]
        return self.tokens[i].start, self.tokens[self._border(i) - 1].end + 1

    def _border(self, i: int) -> int:
        depth = 0
        while i < len(self.tokens):
            type_ = self.tokens[i].token_type
            depth += _OPEN.get(type_, 0)
            called = i + 1 < len(self.tokens) and self.tokens[i + 1].token_type is T.L_PAREN
            function = type_ in (T.LEFT, T.RIGHT) and called
            if depth < 0 or (depth == 0 and type_ in _BORDER and not function):
                return i
            i += 1
        return i

    def range(self, node: exp.Expr) -> Range | None:
        """Where an expression stands, of the kinds that can be told; None for others."""
        start = node.meta.get("start")
        if start is not None and (parameter := _PARAMETER.match(self.text, start)):
            return start, parameter.end()
        if isinstance(node, exp.Column):
            ends = [(p.meta["start"], p.meta["end"] + 1) for p in node.parts if "end" in p.meta]
            return (min(b for b, _ in ends), max(e for _, e in ends)) if ends else None
        if isinstance(node, exp.Dot) and (base := self.range(node.this)) and "end" in node.expression.meta:
            return base[0], node.expression.meta["end"] + 1
        if isinstance(node, exp.Bracket) and (base := self.range(node.this)):
            return base[0], self._closed(base[1], T.L_BRACKET)
        # A cast may be written with :: as well, and is then not told.
        called = isinstance(node, exp.Anonymous) or (isinstance(node, exp.Cast) and start in self._casts)
        # Nor is what begins with a parenthesis: (a, b) OVERLAPS (c, d).
        if called and start is not None and self.text[start] != "(":
            return start, self._closed(start, T.L_PAREN)
        return None

    def _closed(self, at: int, sign: TokenType) -> int:
        """The offset behind what closes the first such sign from an offset on."""
        i = next(i for i, t in enumerate(self.tokens) if t.start >= at and t.token_type is sign)
        return self.tokens[self._closing(i)].end + 1


@dataclass(slots=True)
class Words:
    """A text for PostgreSQL under way. ``places``: pairs of an offset in it and the client's offset there."""

    slices: Slices
    text: str = ""
    places: list[tuple[int, int]] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Words of ours."""
        self.text += text

    def cut(self, where: Range, replaced: Sequence[tuple[Range, str]] = ()) -> None:
        """A slice of the client's text, with ranges replaced. Back-ticks are not PostgreSQL's."""
        ticks = [
            ((t.start, t.end + 1), quote_always(t.text))
            for t in self.slices.tokens
            if t.token_type is T.IDENTIFIER and self.slices.text[t.start] == "`"
        ]
        begin, end = where
        for (first, last), text in sorted([*replaced, *(t for t in ticks if not _within(t[0], replaced))]):
            if begin <= first and last <= end:
                self._copy(begin, first)
                self.text += text
                begin = last
        self._copy(begin, end)
        # The slice may end in a comment.
        self.text += "\n"

    def _copy(self, begin: int, end: int) -> None:
        self.places.append((len(self.text), begin))
        self.text += self.slices.text[begin:end]


def _within(where: Range, others: Sequence[tuple[Range, str]]) -> bool:
    return any(b <= where[0] and where[1] <= e for (b, e), _ in others)


def place(places: Sequence[tuple[int, int]], at: int) -> int | None:
    """The client's offset for one in a text that was put together; None before any of the client's."""
    found = [(mine, theirs) for mine, theirs in places if mine <= at]
    return found[-1][1] + at - found[-1][0] if found else None
