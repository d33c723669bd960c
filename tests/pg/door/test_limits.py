"""Time limits and slow readers: PostgreSQL's settings hold for statements of ours, and waiting for us is not idling."""

from __future__ import annotations

import select
import threading

import psycopg
import pytest

from tests.pg.door import double
from tests.pg.door.raw import SYNC, Wire, bind, execute, parse, query
from tests.server import within


def _timed_out(conn: psycopg.Connection, text: str) -> None:
    with pytest.raises(psycopg.errors.QueryCanceled, match="canceling statement due to statement timeout"):
        conn.execute(text)
    within(5, lambda: not double.LIVE, every=0.01)


@pytest.mark.parametrize("prepare", [False, True])
def test_statement_timeout(conn, prepare):
    conn.execute("SET statement_timeout = '50ms'")
    with pytest.raises(psycopg.errors.QueryCanceled, match="canceling statement due to statement timeout"):
        conn.execute("COUNT FOREVER", prepare=prepare)
    within(5, lambda: not double.LIVE, every=0.01)
    _timed_out(conn, "SELECT 1; COUNT FOREVER")
    assert conn.execute("LIST DOORS", prepare=prepare).rowcount == 2
    conn.execute("RESET statement_timeout")
    assert len(conn.execute("COUNT TO 100").fetchall()) == 100


def test_statement_timeout_in_a_block(conn):
    conn.execute("BEGIN")
    conn.execute("DECLARE c CURSOR FOR COUNT FOREVER")
    conn.execute("SET LOCAL statement_timeout = '50ms'")
    assert conn.execute("FETCH 3 FROM c").rowcount == 3
    _timed_out_in_block(conn)
    conn.execute("ROLLBACK")
    assert conn.execute("SHOW statement_timeout").fetchone() == ("0",)
    within(5, lambda: not double.LIVE, every=0.01)


def _timed_out_in_block(conn):
    with pytest.raises(psycopg.errors.QueryCanceled, match="canceling statement due to statement timeout"):
        conn.execute("FETCH ALL FROM c")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        conn.execute("FETCH 1 FROM c")
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INERROR


@pytest.mark.parametrize(
    ("setting", "begin", "text", "code"),
    [
        ("idle_in_transaction_session_timeout", "BEGIN", "FETCH 400 FROM c", "25P03"),
        ("idle_session_timeout", "SELECT 1", "FETCH 400 FROM c", "57P05"),
    ],
)
def test_who_waits_for_us_is_not_idle(door, setting, begin, text, code):
    with psycopg.connect(door.url, autocommit=True) as conn:
        conn.execute("DECLARE c CURSOR WITH HOLD FOR COUNT FOREVER")
        conn.execute(f"SET {setting} = '200ms'")
        conn.execute(begin)
        assert conn.execute(text).rowcount == 400  # a row in a millisecond, at least
        select.select([conn.fileno()], [], [], 20)  # until the session is ended as idle
        with pytest.raises(psycopg.Error) as caught:
            conn.execute("SELECT 1")
        assert caught.value.sqlstate == code
    within(5, lambda: not double.LIVE, every=0.01)


@pytest.mark.parametrize("batch", [query("COUNT TO 500000"), parse("COUNT TO 500000") + bind() + execute() + SYNC])
def test_a_client_that_never_reads(door, batch):
    listener, port = door.second(slow_reader_timeout_s=1)
    try:
        with Wire(port, door.USER, door.PASSWORD) as slow:
            slow.send(batch)
            within(10, lambda: bool(double.LIVE), every=0.01)
            within(20, lambda: not double.LIVE, every=0.05)
            *_, error, ready = slow.until_ready()
            assert error[0] == "E" and b"C53400\0" in error[1] and b"has taken no rows for 1 s" in error[1]
            assert ready == ("Z", b"I")
            slow.send(query("LIST DOORS"))
            assert "".join(kind for kind, _ in slow.until_ready()) == "TDDCZ"
    finally:
        door.run(listener.close())


def test_a_canceled_statement_waits_for_what_it_asked(conn):
    """Its answer is still to come, and is not the client's."""
    for _ in range(3):
        canceler = threading.Thread(target=_cancel_nap, args=(conn,))
        canceler.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("NAP")
        canceler.join()
        assert conn.execute("SELECT 1").fetchone() == (1,)
        assert conn.execute("LIST DOORS").rowcount == 2


def _cancel_nap(conn):
    within(5, lambda: "napping" in double.LIVE, every=0.01)
    conn.cancel_safe()
