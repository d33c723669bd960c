"""MATCH_RECOGNIZE: the clause as written, and the grammar of row patterns.

Owns: the order of the clause's parts, patterns with their quantifiers; what SQL:2016 has and this has not is refused by
name. Expressions in it are sqlglot's. Must not know: what a name or a function means. Start reading at ``read``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from pgstream.errors import NotSupported, NotYet

T = TokenType
_SIGNS = {T.STAR: (0, None), T.PLUS: (1, None), T.PLACEHOLDER: (0, 1)}
SKIPS = ("past last row", "to next row", "to first", "to last")


@dataclass(frozen=True, slots=True)
class Variable:
    """A pattern that one row is mapped to."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """Patterns one after the other."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several patterns, those on the left preferred."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A pattern from ``least`` to ``most`` times (None: without end): as often as it can be, or as little."""

    part: Pattern
    least: int
    most: int | None
    reluctant: bool
    at: int


Pattern = Variable | Sequence | Choice | Repeat


def variables(pattern: Pattern) -> Iterator[Variable]:
    """The variables of a pattern, as often as they stand in it."""
    match pattern:
        case Variable():
            yield pattern
        case Repeat():
            yield from variables(pattern.part)
        case _:
            for part in pattern.parts:
                yield from variables(part)


@dataclass(frozen=True, slots=True)
class MatchClause:
    """What ``MATCH_RECOGNIZE (…)`` says beside its expressions. ``skip``: one of ``SKIPS``, with the variable ``to``
    where it names one. ``defined``: the variables of DEFINE.
    """

    pattern: Pattern
    pattern_at: int
    skip: str
    to: Variable | None
    within_ms: int | None
    defined: tuple[Variable, ...]


def read(parser: Any) -> exp.MatchRecognize:
    """The clause, from its opening parenthesis on; ``parser`` is the dialect's, at that sign.

    Of the node ``partition_by``, ``order``, ``measures`` (aliases) and ``define`` (the conditions) are lists of
    expressions, ``meta["clause"]`` is a MatchClause.
    """
    name = parser._prev
    _take(parser, T.L_PAREN)
    partition = parser._parse_partition_by()
    order = parser._parse_order()
    measures = parser._parse_csv(lambda: _measure(parser)) if parser._match_text_seq("MEASURES") else []
    _rows(parser)
    skip, to = _skip(parser)
    parser._expect("PATTERN")
    pattern_at = parser._curr.start
    _take(parser, T.L_PAREN)
    pattern = _choice(parser)
    _take(parser, T.R_PAREN)
    within = _within(parser)
    if parser._curr.text.upper() == "SUBSET":
        raise NotYet(
            what="SUBSET", at=parser._curr.start,
            hint="Read the variables apart: COALESCE(LAST(B.x), LAST(A.x)), COUNT(A.*) + COUNT(B.*).",
        )  # fmt: skip
    parser._expect("DEFINE")
    define = parser._parse_csv(lambda: _definition(parser))
    _take(parser, T.R_PAREN)
    node = exp.MatchRecognize(
        partition_by=partition, order=order.expressions if order else [], measures=measures,
        define=[condition for _, condition in define],
    ).update_positions(name)  # fmt: skip
    node.meta["clause"] = MatchClause(pattern, pattern_at, skip, to, within, tuple(v for v, _ in define))
    return node


def _take(parser: Any, type_: TokenType) -> Token:
    token: Token = parser._curr
    if token is None or token.token_type is not type_:
        parser.raise_error("a sign")
    parser._advance()
    return token


def _measure(parser: Any) -> exp.Expr:
    value = parser._parse_disjunction()
    if value is None or not parser._match(T.ALIAS):
        parser.raise_error("AS")
    name = parser._parse_id_var(any_token=False)
    if name is None:
        parser.raise_error("a name")
    return exp.Alias(this=value, alias=name)


def _definition(parser: Any) -> tuple[Variable, exp.Expr]:
    name = _variable(parser)
    if not parser._match(T.ALIAS):
        parser.raise_error("AS")
    condition = parser._parse_disjunction()
    if condition is None:
        parser.raise_error("a condition")
    return name, condition


def _rows(parser: Any) -> None:
    at = parser._curr.start
    if parser._curr.text.upper() == "ALL" and parser._next.text.upper() == "ROWS":
        raise NotSupported(what="ALL ROWS PER MATCH", at=at, hint="A match is ONE ROW PER MATCH, of its MEASURES.")
    if parser._match_text_seq("ONE"):
        parser._expect("ROW", "PER", "MATCH")


def _skip(parser: Any) -> tuple[str, Variable | None]:
    if not parser._match_text_seq("AFTER"):
        return SKIPS[0], None
    parser._expect("MATCH", "SKIP")
    if parser._match_text_seq("PAST"):
        parser._expect("LAST", "ROW")
        return SKIPS[0], None
    parser._expect("TO")
    # FIRST, LAST and NEXT may be variables, too: SKIP TO first.
    following = _is_name(parser, parser._next) and parser._next.text.upper() != "PATTERN"
    if following and parser._match_text_seq("NEXT"):
        parser._expect("ROW")
        return SKIPS[1], None
    if following and parser._match_text_seq("FIRST"):
        return SKIPS[2], _variable(parser)
    if following:
        parser._expect("LAST")
    return SKIPS[3], _variable(parser)


def _within(parser: Any) -> int | None:
    if parser._curr is None or parser._curr.text.upper() != "WITHIN":
        return None
    parser._advance()
    parser._match(T.INTERVAL)
    within: int = parser._duration()
    return within


def _is_name(parser: Any, token: Token) -> bool:
    return token.token_type is T.IDENTIFIER or token.token_type in parser.ID_VAR_TOKENS


def _variable(parser: Any) -> Variable:
    token = parser._curr
    if token is None or not _is_name(parser, token) or token.text == "$":
        parser.raise_error("a variable")
    parser._advance()
    quoted = token.token_type is T.IDENTIFIER
    return Variable(token.text if quoted else token.text.lower(), token.start)


# Patterns


def _choice(parser: Any) -> Pattern:
    parts = [_sequence(parser)]
    while parser._match(T.PIPE):
        parts.append(_sequence(parser))
    return parts[0] if len(parts) == 1 else Choice(tuple(parts))


def _sequence(parser: Any) -> Pattern:
    parts: list[Pattern] = []
    while parser._curr and parser._curr.token_type not in (T.PIPE, T.R_PAREN):
        parts.append(_factor(parser))
        # DeltaStream's manual has commas in its grammar, and none in its examples.
        if parser._match(T.COMMA) and parser._curr.token_type in (T.PIPE, T.R_PAREN):
            parser.raise_error("a pattern")
    if not parts:
        parser.raise_error("a pattern")
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _factor(parser: Any) -> Pattern:
    token = parser._curr
    if token.token_type is T.L_BRACE and parser._next.token_type is T.DASH:
        if any(t.token_type is T.NUMBER for t in parser._tokens[parser._index + 2 : parser._index + 3]):
            parser._advance()
            parser.raise_error("a number above zero")
        raise NotYet(
            what="an exclusion {- … -} in a pattern", at=token.start,
            hint="MEASURES that name variables read the rows of these alone.",
        )  # fmt: skip
    # Right behind a name the sign is taken as part of it.
    anchor = token.token_type is T.VAR and (token.text.startswith("$") or token.text.endswith("$"))
    if anchor or token.token_type is T.CARET:
        raise NotSupported(
            what=f'the anchor "{"$" if anchor else "^"}" in a pattern',
            at=token.start if token.text.startswith("$") else token.end,
            hint="What is read of a stream has no borders.",
        )
    if token.text.upper() == "PERMUTE" and parser._next.token_type is T.L_PAREN:
        raise NotYet(what="PERMUTE in a pattern", at=token.start, hint="Write the orders out: (A B | B A).")
    made: Pattern
    if parser._match(T.L_PAREN):
        made = _choice(parser)
        _take(parser, T.R_PAREN)
    else:
        made = _variable(parser)
    return _quantified(parser, made)


def _quantified(parser: Any, part: Pattern) -> Pattern:
    token = parser._curr
    if token is None or token.token_type not in (*_SIGNS, T.L_BRACE):
        return part
    if token.token_type is T.L_BRACE and parser._next.token_type is T.DASH:
        return part
    parser._advance()
    least, most = _bounds(parser) if token.token_type is T.L_BRACE else _SIGNS[token.token_type]
    reluctant = bool(parser._match(T.PLACEHOLDER))
    return Repeat(part, least, most, reluctant, token.start)


def _bounds(parser: Any) -> tuple[int, int | None]:
    """``n}``, ``n,}``, ``n,m}``, ``,m}`` and ``,}``."""
    first = _number(parser)
    if not parser._match(T.COMMA):
        _take(parser, T.R_BRACE)
        if not first:
            parser._retreat(parser._index - (1 if first is None else 2))
            parser.raise_error("a number above zero")
        return first or 0, first
    place = parser._index
    most = _number(parser)
    if most is not None and (most == 0 or most < (first or 0)):
        parser._retreat(place)
        parser.raise_error("a number not below the first")
    _take(parser, T.R_BRACE)
    return first or 0, most


def _number(parser: Any) -> int | None:
    token = parser._curr
    if token is None or token.token_type is not T.NUMBER:
        return None
    if not token.text.isdigit():
        parser.raise_error("a whole number")
    parser._advance()
    return int(token.text)
