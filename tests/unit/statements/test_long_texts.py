"""Texts of megabytes: what takes them apart keeps little beside them, and one that is too long is refused.

Who may log in may send one, so its cost must be its length. Python's ``re`` keeps some 280 bytes for each turn of a
group that it might have to undo: a string of a hundred megabytes took more memory than there was.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from pgstream import names, statements, types
from pgstream.errors import InvalidStatement, PgStreamError, StatementTooLong, TypeTooLong
from pgstream.server.language import parameter_count
from pgstream.sql import sniff
from pgstream.sql.system_names import renamed
from pgstream.statements import shared
from tests.unit.statements.snapshots import SNAPSHOT, session

LONG = 300_000
STRINGS = ["a" * LONG, "''" * (LONG // 2), "a''" * (LONG // 3), '"`' * (LONG // 2), "\\\\" * (LONG // 2)]


def peak(work: Callable[[], Any]) -> int:
    """Bytes that are held at most while something runs."""
    work()  # what is kept for good
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("inside", STRINGS, ids=range(len(STRINGS)))
@pytest.mark.parametrize(
    "work",
    [
        sniff.split, sniff.unclosed, shared.code, parameter_count,
        lambda text: renamed(text.encode(), ["x"]),
        lambda text: statements.parse(text.split(";")[0], statements.ListEntities),
    ],
    ids=["split", "unclosed", "code", "parameters", "renamed", "parse"],
)  # fmt: skip
def test_a_long_string_is_one_piece(inside: str, work: Callable[[str], Any]) -> None:
    for text in (f"LIST ENTITIES IN STORE s LIKE '{inside}'", f'DESCRIBE STREAM "{inside.replace(chr(34), "")}"'):
        assert peak(lambda t=text: _tried(work, t + "; SELECT deltastream.sys.x")) < 8 * LONG  # type: ignore[misc]
        assert peak(lambda t=text: _tried(work, t[:-1])) < 8 * LONG  # type: ignore[misc]


def _tried(work: Callable[[str], Any], text: str) -> None:
    try:
        work(text)
    except PgStreamError:
        pass


def test_a_lexeme_and_a_type_with_a_long_name() -> None:
    assert peak(lambda: names.lexemes("x = '" + "a''" * LONG + "'")) < 8 * LONG
    assert peak(lambda: _tried(types.parse, 'STRUCT<"' + "a" * LONG + '" INTEGER>')) < 8 * LONG


def test_a_type_has_an_end() -> None:
    fields = ", ".join(f"f{i} INTEGER" for i in range(50_000))
    assert len(types.parse(f"STRUCT<{fields}>").fields) == 50_000
    with pytest.raises(TypeTooLong, match="1048576"):
        types.parse(f"STRUCT<{fields} >" + " " * types.LONGEST)
    with pytest.raises(InvalidStatement) as e:
        types.parse("INTEGER " * 10_000)
    with pytest.raises(InvalidStatement):
        types.parse(f"DECIMAL({'1' * 5000})")
    assert len(str(e.value)) < 300


def test_a_text_is_as_long_as_it_may_be() -> None:
    sources = statements.CreateFunctionSource
    file = "QUJD" * statements.LONGEST_WHOLE
    statements.parse(f"CREATE FUNCTION_SOURCE f WITH ('file' = 'base64:{file}')", sources)
    for beside in ("/* */ " * (statements.LONGEST_WHOLE // 5), "--x\n" * (statements.LONGEST_WHOLE // 3)):
        with pytest.raises(StatementTooLong, match=r"2097152 characters beside long strings without quotes in them"):
            statements.parse(f"CREATE FUNCTION_SOURCE f {beside} WITH ('file' = 'base64:{file}')", sources)
    with pytest.raises(StatementTooLong):
        statements.parse(
            "LIST ENTITIES IN STORE s LIKE '" + "''" * statements.LONGEST_WHOLE + "'", statements.ListEntities
        )
    with pytest.raises(StatementTooLong, match="262144 characters beside its strings and comments"):
        statements.parse("LIST ENTITIES IN STORE s " + "x " * statements.LONGEST, statements.ListEntities)


def test_a_statement_is_recognized_by_its_begin() -> None:
    """Before anybody has said no to its length."""
    assert sniff.begin("a  'b''c' /* d */(e1;f", 4) == "a  'b''c' /* d */("
    assert sniff.begin("a b", 3) == "a b"
    many = "a, " * 1_000_000
    for text, kind in (
        ("SELECT * FROM pageviews, ", "SelectStream"), ("DROP VIEW pageviews, ", "DropView"),
        ("INSERT INTO pageviews VALUES ", "InsertInto"), ("GRANT SELECT ON pageviews, ", "GrantPrivileges"),
        ("DECLARE c CURSOR FOR SELECT * FROM pageviews, ", "DeclareCursor"),
    ):  # fmt: skip
        found = [statements.recognize(text + more, SNAPSHOT, session()) for more in (many, "")]
        assert str(found[0] and found[0].__name__) in (kind, kind + "Values"), text
        assert peak(lambda t=text + many: statements.recognize(t, SNAPSHOT, session())) < 100 * LONG  # type: ignore[misc]
    assert statements.recognize("INSERT INTO t VALUES " + many, SNAPSHOT, session()) is None


def test_first_words_behind_long_comments() -> None:
    assert sniff.head("/* */ " * 40_000 + "LIST STORES") == ("LIST", "STORES")
    assert sniff.head("--" + "x" * 10_000_000 + "\nLIST STORES") == ()  # PostgreSQL's, whoever's it is
    assert sniff.head("LIST STORES" + " " * 10_000_000 + "x") == ("LIST", "STORES")
