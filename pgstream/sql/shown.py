"""A statement's text as it may be shown to others than its client: every value is a question mark.

Owns: which tokens are values: strings, numbers, and all that is given to a property, which may be a password without
quotes. Comments are left out. Must not know: who is shown it. Start reading at ``shown``.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenType

from pgstream.errors import PgStreamError
from pgstream.sql.dialect import tokenize
from pgstream.sql.properties import UUID, after

LONGEST = 1 << 14
# Strings with escapes and in dollars, which the tokenizer does not see as PostgreSQL does.
_DOUBTFUL = re.compile(r"\\|\$(?!\d)")
_NAMES = frozenset((TokenType.IDENTIFIER, TokenType.VAR))


def shown(text: str) -> str | None:
    """A text that has been parsed, without its values. None: it is long, or not certain to be shown without them."""
    if len(text) > LONGEST or _DOUBTFUL.search(text):
        return None
    try:
        tokens = tokenize(text)
    except PgStreamError:
        return None
    out: list[str] = []
    end = index = 0
    while index < len(tokens):
        token = tokens[index]
        index, words = _next(tokens, index, text)
        out.append((" " if out and token.start > end else "") + words)
        end = tokens[index - 1].end + 1
    return "".join(out)


def _next(tokens: list[Token], index: int, text: str) -> tuple[int, str]:
    """The index behind what begins at a token, and what is shown for it."""
    token = tokens[index]
    if (found := UUID.match(text, token.start)) is not None:
        return after(tokens, index, found.end()), "?"
    if [t.token_type for t in tokens[index : index + 2]] == [TokenType.STRING, TokenType.EQ]:
        return _value_end(tokens, index + 2, text), "? = ?"
    raw = text[token.start : token.end + 1]
    is_value = token.token_type not in _NAMES and (raw[:1] == "'" or raw[:1].isdigit() or raw[-1:] == "'")
    return index + 1, "?" if is_value or token.token_type in (TokenType.STRING, TokenType.NUMBER) else raw


def _value_end(tokens: list[Token], index: int, text: str) -> int:
    """The index behind a property's value, as ``properties`` reads it."""
    if index < len(tokens) and (found := UUID.match(text, tokens[index].start)) is not None:
        return after(tokens, index, found.end())
    if index < len(tokens) and tokens[index].token_type is TokenType.DASH:
        index += 1
    return min(index + 1, len(tokens))
