"""Names of system tables in texts for PostgreSQL."""

from __future__ import annotations

import pytest

from pgstream.sql.system_names import renamed

TABLES = {"relations", "queries"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('SELECT * FROM deltastream.sys."relations" r', 'SELECT * FROM pg_deltastream ."relations" r'),
        ("TABLE DeltaStream.SYS.Queries", "TABLE pg_deltastream .Queries"),
        ('FROM "deltastream" . "sys" . "queries"', 'FROM pg_deltastream        . "queries"'),
        ("FROM deltastream.sys.`queries`", 'FROM pg_deltastream ."queries"'),
        ("SELECT deltastream.sys.queries.id FROM deltastream.sys.queries",
         "SELECT pg_deltastream .queries.id FROM pg_deltastream .queries"),
        ("/* it's */ FROM deltastream.sys.queries", "/* it's */ FROM pg_deltastream .queries"),
        ("SELECT E'\\'' FROM deltastream.sys.queries", "SELECT E'\\'' FROM pg_deltastream .queries"),
        ("SELECT 'ü', n$a$ FROM deltastream.sys.queries", "SELECT 'ü', n$a$ FROM pg_deltastream .queries"),
    ],
)  # fmt: skip
def test_renamed(text: str, expected: str) -> None:
    found = renamed(text.encode(), TABLES)
    assert (found.decode(), len(found)) == (expected, len(text.encode()))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'deltastream.sys.queries'", "SELECT $$deltastream.sys.queries$$",
        "SELECT $a$deltastream.sys.queries$a$",
        "-- deltastream.sys.queries\nSELECT 1", "/* deltastream.sys.queries */", 'SELECT "deltastream.sys.queries"',
        "SELECT E'\\' FROM deltastream.sys.queries'", "FROM deltastream.sys.other", 'FROM deltastream.sys."Queries"',
        "FROM x.deltastream.sys.queries", "FROM deltastreams.sys.queries", 'FROM "DeltaStream".sys.queries',
        "FROM deltastream.system.queries", "SELECT deltastream.sys", "SELECT 'deltastream.sys.queries",
    ],
)  # fmt: skip
def test_left_as_it_is(text: str) -> None:
    assert renamed(text.encode(), TABLES) == text.encode()
