"""``WITH ('property' = value, …)``: reading properties with the position of every key and value.

Owns: the grammar of ``statements.md`` §1.4, wherever such a list stands (relations, sources, queries).
Must not know: which properties exist; ``stores`` and ``planner`` validate. Start reading at ``read``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from pgstream.errors import InvalidStatement, SyntaxFault
from pgstream.properties import Given
from pgstream.sql.faults import fault

UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w-])")


def read(tokens: Sequence[Token], index: int, text: str) -> tuple[dict[str, Given], int]:
    """The list whose "(" is token ``index``: properties by lower-case name, and the index after the ")"."""
    if index >= len(tokens) or tokens[index].token_type is not TokenType.L_PAREN:
        raise fault(tokens, index, text)
    out: dict[str, Given] = {}
    while True:
        given, index = _one(tokens, index + 1, text)
        if given.name.lower() in out:
            raise InvalidStatement(what=f'parameter "{given.name}" specified more than once', at=given.at)
        out[given.name.lower()] = given
        kind = tokens[index].token_type if index < len(tokens) else None
        if kind is TokenType.R_PAREN:
            return out, index + 1
        if kind is not TokenType.COMMA:
            raise fault(tokens, index, text)


def _one(tokens: Sequence[Token], index: int, text: str) -> tuple[Given, int]:
    if index >= len(tokens) or tokens[index].token_type is not TokenType.STRING:
        unquoted = fault(tokens, index, text)
        if isinstance(unquoted, SyntaxFault) and re.match(r"\w", unquoted.values["near"]):
            unquoted.hint = f"The names of properties are strings: '{unquoted.values['near'].lower()}'."
        raise unquoted
    key = tokens[index]
    index += 1
    if index >= len(tokens) or tokens[index].token_type is not TokenType.EQ:
        return Given(key.text, "true", key.start, key.start), index
    index += 1
    if index >= len(tokens):
        raise fault(tokens, index, text)
    at = tokens[index].start
    value, after = _value(tokens, index, text)
    return Given(key.text, value, key.start, at), after


def _value(tokens: Sequence[Token], index: int, text: str) -> tuple[str | None, int]:
    token = tokens[index]
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return token.text, index + 1
    if uuid := UUID.match(text, token.start):
        return uuid[0].lower(), after(tokens, index, uuid.end())
    sign = ""
    if token.token_type is TokenType.DASH and index + 1 < len(tokens):
        sign, index = "-", index + 1
        token = tokens[index]
    if token.token_type is TokenType.NUMBER:
        return sign + token.text, index + 1
    if sign or not re.match(r"[^\W\d]\w*\Z", token.text):
        raise fault(tokens, index, text)
    word = token.text.lower()
    return (None if word == "null" else word), index + 1


def after(tokens: Sequence[Token], index: int, end: int) -> int:
    """The first token from ``index`` on that begins at or after the character ``end``."""
    while index < len(tokens) and tokens[index].start < end:
        index += 1
    return index
