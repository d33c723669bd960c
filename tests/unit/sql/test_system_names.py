"""Names of system tables in texts for PostgreSQL."""

from __future__ import annotations

import pytest

from pgstream.sql.system_names import of_letters, renamed

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


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("SJIS", b"SELECT E'\x83\x5c', 'deltastream.sys.queries'"),
        ("SHIFT_JIS_2004", b"SELECT E'\x83\x5c', 'deltastream.sys.queries'"),
        ("GBK", b"SELECT E'\x83\x5c', 'deltastream.sys.queries'"),
        ("BIG5", b"SELECT E'\xa4\x5c', 'deltastream.sys.queries'"),
        ("GB18030", b"SELECT E'\x83\x5c\x81\x30\x81\x30', 'deltastream.sys.queries'"),
        ("SJIS", b"SELECT 1 AS \x83deltastream.sys.queries"),
    ],
)
def test_letters_with_a_byte_of_ascii(encoding: str, text: bytes) -> None:
    def rename(text: bytes) -> bytes:
        return renamed(text, TABLES)

    assert of_letters(text, encoding, rename) == text
    source = b" FROM deltastream.sys.queries"
    assert of_letters(text + source, encoding, rename) == text + b" FROM pg_deltastream .queries"
    assert of_letters(b"SELECT '\xb1' FROM deltastream.sys.queries", "SJIS", rename)[-9:] == b" .queries"
    assert of_letters(b"SELECT E'\\'' FROM deltastream.sys.queries", encoding, rename)[-9:] == b" .queries"
