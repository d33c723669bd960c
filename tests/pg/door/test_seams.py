"""Where statements of ours and PostgreSQL's meet in one session: names of prepared statements, moves, COPY."""

from __future__ import annotations

import pytest

from tests.pg.door.raw import SYNC, Wire, bind, execute, frame, parse, query, run, told

WHERE = "WHERE AM I"


@pytest.mark.parametrize("text", ["DEALLOCATE ALL", "/* app */ DEALLOCATE ALL", " " * 45 + "DEALLOCATE n",
                                  "-- x\nDISCARD ALL", "DO $$BEGIN EXECUTE 'DEALLOCATE ALL'; END$$"])  # fmt: skip
@pytest.mark.parametrize("by", ["parse", "sql"])
def test_a_name_that_postgresql_has_now(wire: Wire, text: str, by: str) -> None:
    assert told(wire, parse(WHERE, "n") + SYNC) == []
    new = parse("SELECT 'new'", "n") if by == "parse" else query("PREPARE n AS SELECT 'new'")
    times = 2 if by == "parse" else 3
    assert told(wire, query(text) + new + bind("", "n") + execute() + SYNC, times) == [b"\0\1\0\0\0\3new"]


def test_a_name_that_is_ours_still(wire: Wire) -> None:
    wire.send(parse(WHERE, "n") + SYNC + parse("SELECT 'new'", "n") + bind("", "n") + execute() + SYNC)
    assert b"C42P05\0" in dict(wire.until_ready(2))["E"]
    assert told(wire, query("SELECT 1") + bind("", "n") + execute() + SYNC, 2)[-1] == b"\0\1\0\0\0\6public"


@pytest.mark.parametrize("end", [run("USE DATABASE other") + SYNC, query("USE DATABASE other")])
def test_a_move_throws_nothing_away(door, wire: Wire, end: bytes) -> None:
    """In a pipeline that has written something it is refused, as in a transaction block."""
    assert told(wire, query("CREATE TABLE IF NOT EXISTS kept (a int)")) == []
    wire.send(run("INSERT INTO kept VALUES (1)") + end)
    answers = wire.until_ready()
    assert b"C25001\0" in dict(answers)["E"] and answers[-1] == ("Z", b"I")
    assert told(wire, query("SELECT current_database()")) == [b"\0\1\0\0\0\4main"]
    assert told(wire, run("SELECT 1") + run("USE DATABASE other") + SYNC + query("SELECT current_database()"), 2) == [
        b"\0\1\0\0\0\x011", b"\0\1\0\0\0\5other",
    ]  # fmt: skip


def copy(door, after: bytes, times: int) -> bytes:
    with Wire(door.port, door.USER, door.PASSWORD) as wire:
        told(wire, query("CREATE TEMP TABLE c (a text)"))
        wire.send(run("COPY c FROM STDIN") + SYNC + frame("d", b"1\n") + frame("c") + after)
        return "".join(kind for kind, _ in wire.until_ready(times)).encode()


def test_what_is_sent_behind_a_copy_waits_for_its_answer(door) -> None:
    assert copy(door, run(WHERE) + SYNC, 1) == b"12GC12DCZ"
    assert copy(door, SYNC + run(WHERE) + SYNC, 2) == b"12GCZ12DCZ"


def test_a_function_call_in_a_copy_ends_the_connection(wire: Wire) -> None:
    """As PostgreSQL does, in place of waiting for ever."""
    told(wire, query("CREATE TEMP TABLE c (a text)"))
    call = b"F\0\0\0\x0e\0\0\x07\xea\0\0\0\0\0\0"
    wire.send(run("COPY c FROM STDIN") + call + SYNC)
    assert b"C08P01\0" in wire.rest()
