"""client_encoding: texts, values, names, messages and COPY of ours in the client's encoding."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import pq

from tests.pg.door.test_cursors import copied


@pytest.fixture
def latin(door):
    with psycopg.connect(door.url, autocommit=True, client_encoding="LATIN1") as conn:
        yield conn


def test_values(latin):
    for prepare in (False, True):
        assert latin.execute("ECHO %s", ("für",), prepare=prepare).fetchone() == ("für",)
    result = latin.pgconn.exec_params(b"ECHO $1", [b"f\xfcr"])
    assert result.get_value(0, 0) == b"f\xfcr"
    latin.execute("SET client_encoding TO 'UTF8'")
    result = latin.pgconn.exec_params(b"ECHO $1", ["für".encode()])
    assert result.get_value(0, 0) == "für".encode()


def test_a_character_that_the_encoding_has_not(latin):
    for text in ("ECHO", "LIST DOORS; ECHO"):
        with pytest.raises(psycopg.errors.UntranslatableCharacter, match="0xe2 0x9c 0x93 in encoding"):
            latin.execute(text)
    assert latin.execute("LIST DOORS").rowcount == 2


def test_errors_and_positions(latin):
    result = latin.pgconn.exec_(b"LIST \xfc\xfc !")
    assert result.error_field(pq.DiagnosticField.STATEMENT_POSITION) == b"9"
    result = latin.pgconn.exec_("ECHO $1 !ü".encode("latin1"))
    assert result.error_field(pq.DiagnosticField.STATEMENT_POSITION) == b"9"


def test_cursor_and_copy(latin):
    with latin.transaction():
        latin.execute('DECLARE "ü" CURSOR FOR COUNT TO 3')
        assert latin.execute("SELECT name FROM pg_cursors").fetchone() == ("ü",)
        assert latin.execute('FETCH ALL FROM "ü"').rowcount == 3
    assert copied(latin, "COPY (LIST DOORS) TO STDOUT (NULL 'ü')").count(b"\xfc") == 4
    assert copied(latin, "COPY (LIST DOORS) TO STDOUT (NULL 'ü', ENCODING 'UTF8')").count("ü".encode()) == 4


@pytest.mark.parametrize(("name", "codec"), [("SJIS", "cp932"), ("WIN1251", "cp1251"), ("EUC_JP", "euc_jp")])
def test_others(door, name, codec):
    with psycopg.connect(door.url, autocommit=True) as conn:
        conn.execute(f"SET client_encoding TO '{name}'")
        text = "Дверь".encode(codec)
        result = conn.pgconn.exec_params(b"ECHO $1", [text])
        assert result.get_value(0, 0) == text


def test_unicode(door):
    """The old name of UTF8, which Qt's driver asks for and PostgreSQL reports as it was written."""
    with psycopg.connect(door.url, autocommit=True) as conn:
        conn.pgconn.exec_(b"SET client_encoding TO 'UNICODE'")
        assert conn.pgconn.parameter_status(b"client_encoding") == b"UNICODE"
        assert conn.pgconn.exec_params(b"ECHO $1", ["für".encode()]).get_value(0, 0) == "für".encode()
        assert conn.pgconn.exec_(b"ECHO").get_value(0, 0) == "✓".encode()
        for refused in (conn.pgconn.exec_(b"ECHO '\xff'"), conn.pgconn.exec_(b"SELECT '\xff'")):
            assert b'invalid byte sequence for encoding "UTF8"' in refused.error_message
    with psycopg.connect(door.url, autocommit=True, options="-c client_encoding=UNICODE") as conn:
        assert conn.execute("ECHO %s", ("für",)).fetchone() == ("für",)


def test_refused(conn):
    conn.pgconn.exec_(b"SET client_encoding TO 'EUC_TW'")
    result = conn.pgconn.exec_(b"LIST DOORS")
    assert result.error_field(pq.DiagnosticField.SQLSTATE) == b"0A000"
    assert conn.pgconn.exec_(b"SELECT 1").get_value(0, 0) == b"1"


def test_a_schema_in_the_search_path_has_any_name(conn: psycopg.Connection) -> None:
    """What PostgreSQL is asked between statements can be answered in every encoding."""
    conn.execute('CREATE SCHEMA "é"; CREATE SCHEMA "漢"')
    try:
        conn.execute("SET client_encoding TO 'LATIN1'")
        conn.execute('SET search_path TO "é"')
        assert conn.execute("WHERE AM I").fetchone() == ("é",)
        conn.execute("SET client_encoding TO 'UTF8'")
        conn.execute("SET search_path TO \"漢\"; SET client_encoding TO 'LATIN1'")
        assert conn.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.errors.UntranslatableCharacter):
            conn.execute("WHERE AM I")
        conn.execute("SET client_encoding TO 'UTF8'")
        assert conn.execute("WHERE AM I").fetchone() == ("漢",)
    finally:
        conn.execute('DROP SCHEMA "é"; DROP SCHEMA "漢"')


def test_letters_with_a_backslash_in_them(conn):
    """Nothing in them looks like the end of a string."""
    text = b"SELECT E'\x83\x5c', 'deltastream.sys.databases'"
    conn.execute("SET client_encoding TO 'SJIS'")
    for run in (conn.pgconn.exec_, lambda text: conn.pgconn.exec_params(text, [])):
        assert run(text).get_value(0, 1) == b"deltastream.sys.databases"
