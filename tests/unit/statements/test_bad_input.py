"""Bad input for every statement's grammar: cut short, with something more, with names that cannot be, very long, deep.

A fault of the reader is an error of the language, at a character of the text; never anything else.
"""

from __future__ import annotations

import re
import time

import pytest

from pgstream import statements
from pgstream.catalog.records import Snapshot
from pgstream.errors import PgStreamError
from pgstream.sql.cursor import Cursor
from pgstream.sql.select import names
from pgstream.statements import glance, shared, system_tables
from pgstream.statements.base import Session, Statement
from pgstream.stores.kafka.values import brokers
from tests.examples import EXAMPLES
from tests.unit.statements.snapshots import SNAPSHOT, session

CLASSES = {s.__name__: s for s in statements.STATEMENTS}
EVERY = pytest.mark.parametrize("name", sorted(CLASSES))
NAME = re.compile(r"\bnope\b")
NAMING = pytest.mark.parametrize("name", sorted(n for n, text in EXAMPLES.items() if NAME.search(text)))
LARGE = pytest.mark.parametrize(
    "name", ["AlterRelation", "CreateStream", "CreateStreamAs", "DropStore", "UpdateSecret"]
)


def read(name: str, text: str) -> Statement | PgStreamError:
    try:
        return CLASSES[name].parse(Cursor(text))
    except PgStreamError as e:
        assert e.at is None or 0 <= e.at <= len(text), (text[:200], e.at)
        assert e.sqlstate[:2] in ("0A", "22", "42", "54"), (text[:200], e.sqlstate, e.text)
        return e


def test_every_statement_has_an_example() -> None:
    assert sorted(CLASSES) == sorted(EXAMPLES)


@EVERY
def test_examples_are_read(name: str) -> None:
    found = read(name, EXAMPLES[name])
    assert isinstance(found, Statement) or found.sqlstate.startswith("22"), found


@EVERY
def test_cut_short(name: str) -> None:
    text = EXAMPLES[name]
    for at in range(0, len(text), 2):
        read(name, text[:at])


@EVERY
def test_with_something_more(name: str) -> None:
    for more in (" ;;", " ; SELECT 1", " /*", " \\", " $$", " WITH ("):
        read(name, EXAMPLES[name] + more)
    for more in (" nonsense more", " )", " '", ' "') if name != "CreateIndex" else ():  # PostgreSQL reads its end
        found = read(name, EXAMPLES[name] + more)
        assert isinstance(found, PgStreamError) and found.sqlstate in ("42601", "22023", "0A000"), (more, found)


@NAMING
def test_names_that_cannot_be(name: str) -> None:
    text = EXAMPLES[name]
    for long in ("x" * 10_000, '"' + "y" * 10_000 + '"', "ü" * 32, "`" + "z" * 64 + "`"):
        found = read(name, NAME.sub(lambda _, long=long: long, text, count=1))
        if name not in ("SelectStream",):  # a column: it is missed when it is looked for
            assert isinstance(found, PgStreamError), text
            assert (found.sqlstate, found.at) == ("42622", text.index("nope")), found
    for empty in ('""', "``", "''", "1", "*", "-", "$1", "nope.a.b.c", ".nope", "nope.", "nope..a"):
        read(name, NAME.sub(empty, text, count=1))


@EVERY
def test_odd_signs_anywhere(name: str) -> None:
    text = EXAMPLES[name]
    for i, sign in enumerate(("\0", "\x01", "\x1b", "\x7f", "\u200b", "\ufeff", "\U0001f600", "\r\n\t", "\x0c")):
        for at in range(i, len(text) + 1, 9):
            read(name, text[:at] + sign + text[at:])
        read(name, NAME.sub(f'"a{sign}b"', text))


@LARGE
def test_a_megabyte(name: str) -> None:
    text = EXAMPLES[name]
    read(name, text.replace("nope", "nope /*" + "x" * (1 << 20) + "*/", 1) + " '" + "y" * (1 << 20) + "'")


@EVERY
def test_deep_nesting(name: str) -> None:
    text = EXAMPLES[name]
    deep = [("SELECT a", "SELECT " + "(" * 5000 + "a" + ")" * 5000), ("SELECT a", "SELECT " + "NOT " * 5000 + "a"),
            ("SELECT nope", "SELECT " + "-(" * 3000 + "1" + ")" * 3000),
            ("FROM missing", "FROM " + "(SELECT * FROM " * 500 + "missing" + ")" * 500),
            ("BIGINT", "ARRAY<" * 3000 + "BIGINT" + ">" * 3000), ("BIGINT", "STRUCT<a " * 3000 + "BIGINT" + ">" * 3000),
            ("BIGINT", "DECIMAL" + "(" * 3000), ("(", "(" * 5000)]  # fmt: skip
    for said, nested in deep:
        if said in text:
            found = read(name, text.replace(said, nested, 1))
            if isinstance(found, PgStreamError):
                assert found.sqlstate in ("42601", "54001", "0A000"), (nested[:40], found.sqlstate, found.text[:200])


@pytest.mark.parametrize("head", ["GRANT", "ALTER TABLE x", "UPDATE STORE x", "CREATE TABLE x", "DROP TABLE", "COPY"])
def test_a_long_text_of_beginnings_is_looked_at_once(head: str) -> None:
    """Strings and comments that begin again and again and never end: minutes, if each were looked for to the end."""
    session = Session(user="admin", database="main")
    for nasty in ("".join(f"$a{n}$ " for n in range(40_000)), "/*+" * 80_000, "'" * 240_001, "--" * 100_000):
        statements.recognize(f"{head} {nasty}", Snapshot(), session)
        assert len(shared.code(f"{head} {nasty}")) <= len(head) + 6
        named = f"{head} deltastream.sys.stores {nasty}"
        assert len(system_tables.renamed(named.encode())) == len(named)
        assert system_tables.find(named) is not None


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE STORE", "UPDATE STORE a AS", "DESCRIBE QUERY a", "CREATE TABLE a WITH (", "CREATE TABLE a WITH ( x,",
        "CREATE TABLE a AS SELECT 1 WITH (", "CREATE MATERIALIZED VIEW a AS SELECT 1 FROM totals WITH DATA",
        "SELECT pg_terminate_backend(1)", "BEGIN",
    ],
)  # fmt: skip
def test_a_long_text_of_spaces_is_looked_at_once(text: str) -> None:
    """Two parts of a pattern that both take spaces would try each way to share them: every session waits meanwhile."""
    begun = time.process_time()
    statements.recognize(f"{text}{' ' * 30_000}!", SNAPSHOT, session())
    glance.is_postgres(f"{text}{' ' * 4000}!".encode(), SNAPSHOT)
    assert time.process_time() - begun < 1


def test_a_statement_has_a_length() -> None:
    kind = CLASSES["ListStores"]
    with pytest.raises(PgStreamError) as e:
        statements.parse("LIST STORES " + "a " * 200_000, kind)
    assert e.value.sqlstate == "54000"
    assert isinstance(statements.parse("LIST STORES /*" + "a " * 200_000 + "*/", kind), kind)


def test_what_a_statement_may_hold_many_of_is_bounded() -> None:
    """A second for each thousand, while every session waits."""
    many = ", ".join(f"c{n} INT" for n in range(20_000))
    found = read("CreateStream", f"CREATE STREAM s ({many}) WITH ('topic' = 't')")
    assert isinstance(found, PgStreamError)
    assert (found.sqlstate, found.at) == ("54011", len("CREATE STREAM s (") + many.index("c1664 "))
    with pytest.raises(ValueError, match="more than 1000 brokers"):
        brokers(",".join(f"b{n}:9092" for n in range(1001)))


@pytest.mark.parametrize("query", ["SELECT 1" + " + 1" * 10_000, "SELECT 1" + " UNION ALL SELECT 1" * 5_000])
def test_what_is_long_is_not_too_deep_for_us(query: str) -> None:
    """A sum or union is read as one within another: a fault of the query's, at its place."""
    text = f"{query} FROM totals"
    with pytest.raises(PgStreamError) as e:
        names(Cursor(text).select())
    assert e.value.sqlstate == "54001"
    statements.recognize(text, SNAPSHOT, session())
