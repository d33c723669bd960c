"""First words and statement borders of a text, without parsing it.

Owns: what the session asks of every ``Query`` and ``Parse`` message: ``head`` (first words) and ``split`` (top-level
semicolons). PostgreSQL's lexical rules hold here, since most texts are PostgreSQL's: nested comments, ``E''`` strings,
dollar quotes; and ours: back-ticks, ``BEGIN APPLICATION … END APPLICATION``.
Must not know: sqlglot (importing it here would put it on the relay path), statements. Start reading at ``head``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

_WORD = r"[A-Za-z_][A-Za-z0-9_$]*"
_FAST = re.compile(rf"\s*({_WORD}(?:\s+{_WORD}(?:\s+{_WORD}(?:\s+{_WORD}(?![.\w$]))?)?)?)?\s*")
_WORD_AT = re.compile(_WORD)
_SPACE = re.compile(r"(?:\s++|--[^\n\r]*+)++")
_COMMENT_MARK = re.compile(r"/\*|\*/")
_ITEM = re.compile(
    r"""(?P<line>--[^\n\r]*)
      | (?P<block>/\*)
      | (?P<escaped>\b[eE]'(?:[^'\\]++|\\.|'')*+(?P<escaped_end>'?))
      | (?P<string>'(?:[^']++|'')*+(?P<string_end>'?))
      | (?P<quoted>"(?:[^"]++|"")*+(?P<quoted_end>"?))
      | (?P<tick>`(?:[^`]++|``)*+(?P<tick_end>`?))
      | (?P<dollar>(?<![\w$])\$(?:[A-Za-z_\x80-\uffff][\w]*)?\$)
      | (?P<word>[A-Za-z_][\w$]*)
      | (?P<mark>[;()])""",
    re.X | re.S,
)


# One that never ends goes to the end of the text, so that each character is looked at once: a long text of beginnings
# would otherwise keep every session waiting.
_LITERAL = re.compile(
    r"'(?:[^']++|'')*+(?:'|\Z)|\"(?:[^\"]++|\"\")*+(?:\"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|(?<![\w$])\$((?:[^\W\d]\w*)?)\$.*?(?:\$\1\$|\Z)",
    re.S,
)


def blanked(text: str, by: Callable[[str], str] | str) -> str:
    """A text with something else for each string and comment, for patterns that look for words outside them. Quoted
    names stay.
    """
    made = by if callable(by) else lambda _: by
    return _LITERAL.sub(lambda m: m[0] if m[0][0] == '"' else made(m[0]), text)


def has_pieces(text: str, most: int) -> bool:
    """Whether a text has more characters than so many that a lexer takes in small pieces: of a long string those are
    its doubled quotes alone. A text that has looks no further than there.
    """
    count = at = 0
    for m in _LITERAL.finditer(text):
        count += m.start() - at
        at = m.end()
        is_whole = m[0][0] == "'" and at - m.start() > _LONG
        count += 2 * m[0].count("''") if is_whole else at - m.start()
        if count > most:
            return True
    return count + len(text) - at > most


_LONG = 256
_WORD_OR_SIGN = re.compile(_LITERAL.pattern + r"|[\w$]+|[^\w\s]", re.S)


def begin(text: str, most: int) -> str:
    """The first so many words, signs, strings and comments of a text."""
    if len(text) <= most:
        return text
    m = next(islice(_WORD_OR_SIGN.finditer(text), most, None), None)
    return text if m is None else text[: m.start()]


def _skip_comment(text: str, at: int) -> int:
    """The offset after the block comment that begins at ``at``; comments nest. Unclosed: the end of the text."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def _skip_space(text: str, at: int) -> int:
    while True:
        if space := _SPACE.match(text, at):
            at = space.end()
        if not text.startswith("/*", at):
            return at
        at = _skip_comment(text, at)


_BEFORE = 1 << 18
"""Characters that are looked at for a text's first words; comments that fill them make it PostgreSQL's."""


def head(text: str) -> tuple[str, ...]:
    """Up to four first words in upper case, over white space and comments; quoted names and signs end the list."""
    if len(text) > _BEFORE:
        begin = _skip_space(text[:_BEFORE], 0)
        return _head(text[begin : begin + _BEFORE]) if begin < _BEFORE else ()
    return _head(text)


def _head(text: str) -> tuple[str, ...]:
    fast = _FAST.match(text)
    if fast is not None and (end := fast.end()) is not None and text[end : end + 2] not in ("--", "/*"):
        return tuple(fast[1].upper().split()) if fast[1] else ()
    words: list[str] = []
    at = _skip_space(text, 0)
    while len(words) < 4 and (word := _WORD_AT.match(text, at)):
        words.append(word[0].upper())
        at = _skip_space(text, word.end())
    return tuple(words)


def start(text: str) -> int:
    """The offset of the first character that is neither white space nor comment."""
    return _skip_space(text, 0)


def _items(text: str) -> Iterator[tuple[str, int, int]]:
    """Lexical items that matter: (kind, start, end); kind is ``word``, ``(``, ``)``, ``;``, or ``open`` (unclosed)."""
    at = 0
    while item := _ITEM.search(text, at):
        at, kind = item.end(), item.lastgroup or ""
        kind = kind.removesuffix("_end")
        if kind == "block":
            at = _skip_comment(text, item.start())
            if not text.endswith("*/", 0, at):
                yield "open", item.start(), at
        elif kind == "dollar":
            close = text.find(item[0], at)
            if close < 0:
                yield "open", item.start(), len(text)
                return
            at = close + len(item[0])
        elif kind in ("escaped", "string", "quoted", "tick"):
            if not item[kind + "_end"]:
                yield "open", item.start(), at
        elif kind == "word":
            yield "word", item.start(), at
        elif kind == "mark":
            yield item[0], item.start(), at


def unclosed(text: str) -> int | None:
    """Where a string, quoted name or comment begins that never ends; None when all do."""
    return next((begin for kind, begin, _ in _items(text) if kind == "open"), None)


def split(text: str) -> list[tuple[str, int]]:
    """The statements of a text with their offsets; the semicolons between them and empty pieces are left out."""
    if ";" not in text:
        return [(text, 0)] if _skip_space(text, 0) < len(text) else []
    out: list[tuple[str, int]] = []
    border = _Border()
    begin = 0
    for kind, first, last in _items(text):
        if border.inside(kind, text[first:last]):
            continue
        if _skip_space(text, begin) < first:
            out.append((text[begin:first], begin))
        begin, border = last, _Border()
    if _skip_space(text, begin) < len(text):
        out.append((text[begin:], begin))
    return out


class _Border:
    """Decides whether a semicolon ends the statement: not inside parentheses, an application, or an ATOMIC body."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.parens = self.blocks = 0
        self.application = self.atomic = False

    def inside(self, kind: str, text: str) -> bool:
        if kind == ";":
            return self.parens > 0 or self.application or self.blocks > 0
        if kind in "()":
            self.parens = max(0, self.parens + (1 if kind == "(" else -1))
        elif kind == "word":
            self._word(text.upper())
        return True

    def _word(self, word: str) -> None:
        before = self.words[-1] if self.words else ""
        if word == "APPLICATION" and before in ("BEGIN", "END"):
            self.application = before == "BEGIN" and len(self.words) <= 2
        elif word == "ATOMIC" and before == "BEGIN":
            self.atomic, self.blocks = True, self.blocks + 1
        elif self.atomic and word == "CASE":
            self.blocks += 1
        elif self.atomic and word == "END":
            self.blocks = max(0, self.blocks - 1)
        self.words.append(word)
