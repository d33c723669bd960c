"""Syntax errors with PostgreSQL's words and the exact place.

Owns: turning "the parser cannot go on at this token" into SyntaxFault or SyntaxEnd.
Must not know: grammar. Used by the cursor, the properties reader and the dialect.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from pgstream.errors import SyntaxEnd, SyntaxFault


def fault(tokens: Sequence[Token], index: int, text: str, hint: str | None = None) -> SyntaxFault | SyntaxEnd:
    """The error at token ``index``; past the last token it is the end of the input."""
    if index >= len(tokens):
        return SyntaxEnd(at=len(text), hint=hint)
    token = tokens[index]
    return SyntaxFault(near=text[token.start : token.end + 1], at=token.start, hint=hint)
