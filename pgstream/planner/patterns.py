"""Patterns of dates and times, ``yyyy-MM-dd``: what means nothing to Spark is refused before a query is made.

Owns: which functions take a pattern, and which letters, how many of one, and which other characters cannot stand in
one. Must not know: scopes, other letters' meaning. Start reading at ``check``.
"""

from __future__ import annotations

import re

from sqlglot import exp

from pgstream.errors import InvalidPattern, NotSupported
from pgstream.planner.bind import at

_WRITES = ("DATE_FORMAT", "FROM_UNIXTIME")
_READS = ("TO_DATE", "TO_TIMESTAMP", "TO_TIMESTAMP_LTZ", "UNIX_TIMESTAMP")
_NEVER, _NOT_READ = frozenset("bcefijlnoprtuwABCIJNPRTUWY"), frozenset("EFqQ")
_MOST = {**dict.fromkeys("aF", 1), **dict.fromkeys("dhHkKms", 2), "D": 3, **dict.fromkeys("GMLEQqzOv", 4),
         **dict.fromkeys("ZXx", 5), "y": 6, "S": 9, "V": 2}  # fmt: skip
"""How many of a letter may stand together."""
_FEWER = {"V": (2,), "O": (1, 4), "v": (1, 4)}
_DAY, _WEEK = "E is the name of the day; EXTRACT(DOW FROM …) counts from Sunday, 1.", "EXTRACT(WEEK FROM …) gives it."
_HINTS = {
    "Y": "y is the year; a year of weeks has no letter.",
    **dict.fromkeys("wW", _WEEK),
    **dict.fromkeys("uec", _DAY),
    **dict.fromkeys(_NOT_READ, "It can only be written; take it out before, with SUBSTRING or REGEXP_REPLACE."),
}


def check(function: str, node: exp.Anonymous) -> None:
    """Refuse a pattern, given as a text, that Spark would refuse with the first row. Errors: NotSupported,
    InvalidPattern.
    """
    if function not in (*_WRITES, *_READS) or len(node.expressions) != 2 or not node.expressions[1].is_string:
        return
    refused = _NEVER if function in _WRITES else _NEVER | _NOT_READ
    pattern = node.expressions[1]
    # Every other part is a text in quotes; '' is a quote, and the parts around it are told apart all the same.
    parts = str(pattern.this).split("'")[::2]
    for part in parts:
        for letter in part:
            if letter in refused:
                what = f'the letter "{letter}" in a pattern of {function}'
                hint = _HINTS.get(letter, f"Letters that are no more than text stand in quotes: ''{letter}''.")
                raise NotSupported(what=what, at=at(pattern), hint=hint)
    if (why := _wrong(str(pattern.this), parts)) is not None:
        raise InvalidPattern(pattern=pattern.this, why=why, at=at(pattern))


def _wrong(pattern: str, parts: list[str]) -> str | None:
    """Why nothing could be written or read by a pattern. ``parts``: those of it that do not stand in quotes."""
    if pattern.count("'") % 2:
        return "a text in quotes does not end"
    bare = "".join(parts)
    for sign in "#{}":
        if sign in bare:
            return f'"{sign}" must stand in quotes'
    depth = 0
    for bracket in re.findall(r"[\[\]]", bare):
        depth += 1 if bracket == "[" else -1
        if depth < 0:
            return '"]" has no "[" before it'
    for run in (m[0] for part in parts for m in re.finditer(r"([A-Za-z])\1*", part)):
        most = _MOST.get(run[0], len(run))
        if len(run) > most:
            return f'more than {most} of the letter "{run[0]}"'
        if len(run) not in _FEWER.get(run[0], (len(run),)):
            return f'"{run}" has no meaning, "{run[0] * most}" has'
    return None
