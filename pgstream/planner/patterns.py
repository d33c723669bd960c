"""Patterns of dates and times, ``yyyy-MM-dd``: letters that mean nothing to Spark are refused before a query is made.

Owns: which functions take a pattern, and which letters cannot stand in one. Must not know: scopes, other letters'
meaning. Start reading at ``check``.
"""

from __future__ import annotations

from sqlglot import exp

from pgstream.errors import NotSupported
from pgstream.planner.bind import at

_WRITES = ("DATE_FORMAT", "FROM_UNIXTIME")
_READS = ("TO_DATE", "TO_TIMESTAMP", "TO_TIMESTAMP_LTZ", "UNIX_TIMESTAMP")
_NEVER, _NOT_READ = frozenset("bcefijlnoprtuwABCIJNPRTUWY"), frozenset("EFqQ")
_DAY, _WEEK = "E is the name of the day; EXTRACT(DOW FROM …) counts from Sunday, 1.", "EXTRACT(WEEK FROM …) gives it."
_HINTS = {
    "Y": "y is the year; a year of weeks has no letter.",
    **dict.fromkeys("wW", _WEEK),
    **dict.fromkeys("uec", _DAY),
    **dict.fromkeys(_NOT_READ, "It can only be written; take it out before, with SUBSTRING or REGEXP_REPLACE."),
}


def check(function: str, node: exp.Anonymous) -> None:
    """Refuse a pattern, given as a text, that Spark would refuse with the first row. Error: NotSupported."""
    if function not in (*_WRITES, *_READS) or len(node.expressions) != 2 or not node.expressions[1].is_string:
        return
    refused = _NEVER if function in _WRITES else _NEVER | _NOT_READ
    pattern = node.expressions[1]
    # Every other part is a text in quotes; '' is a quote, and the parts around it are told apart all the same.
    for part in str(pattern.this).split("'")[::2]:
        for letter in part:
            if letter in refused:
                what = f'the letter "{letter}" in a pattern of {function}'
                hint = _HINTS.get(letter, f"Letters that are no more than text stand in quotes: ''{letter}''.")
                raise NotSupported(what=what, at=at(pattern), hint=hint)
