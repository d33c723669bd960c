"""What PostgreSQL is asked between a client's statements, unseen: time limits and cancel requests that meet it.

Step by step: ``tests/unit/server/test_asked.py``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from pgstream.server import search_path

SLOW = f"SELECT {search_path.QUESTION} FROM pg_catalog.pg_sleep(5)"
TIMEOUT = "canceling statement due to statement timeout"
SAID = {
    ("57014", TIMEOUT),
    ("57014", "canceling statement due to user request"),
    ("25P02", "current transaction is aborted, commands ignored until end of transaction block"),
}


@pytest.fixture
def slow(conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """What is asked takes longer than a statement may."""
    conn.execute("SET statement_timeout = '40ms'")
    monkeypatch.setattr(search_path, "QUESTION", SLOW)
    conn.execute("SET search_path TO pg_catalog")
    yield conn
    monkeypatch.undo()
    conn.execute("RESET statement_timeout; SET search_path TO public")
    assert conn.execute("WHERE AM I").fetchone() == ("public",)


@pytest.mark.parametrize("text", ["SELECT 1", "LIST DOORS", "SELECT 1; LIST DOORS"])
def test_a_question_that_takes_too_long(slow: psycopg.Connection, text: str) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.QueryCanceled, match=TIMEOUT) as caught:
            slow.execute(text)
        assert not (caught.value.diag.context or caught.value.diag.internal_query)
        assert slow.info.transaction_status == TransactionStatus.IDLE


def test_in_a_pipeline(slow: psycopg.Connection) -> None:
    with slow.pipeline() as pipeline:
        first, skipped = slow.cursor(), slow.cursor()
        first.execute("SELECT %s", (1,))
        skipped.execute("SELECT %s", (2,))
        with pytest.raises(psycopg.errors.QueryCanceled, match=TIMEOUT):
            pipeline.sync()
    assert slow.info.transaction_status == TransactionStatus.IDLE


def test_in_a_block(conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_path, "QUESTION", SLOW)
    conn.execute("BEGIN")
    conn.execute("SET LOCAL statement_timeout = '40ms'")
    conn.execute("SET LOCAL search_path TO pg_catalog")
    with pytest.raises(psycopg.errors.QueryCanceled, match=TIMEOUT):
        conn.execute("SELECT 1")
    assert conn.info.transaction_status == TransactionStatus.INERROR
    monkeypatch.undo()
    conn.execute("ROLLBACK")
    assert conn.execute("WHERE AM I").fetchone() == ("public",)


def test_a_cancel_request_meets_a_question(conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the statement's that waits, and PostgreSQL is not told: the question has its answer."""
    monkeypatch.setattr(search_path, "QUESTION", SLOW.replace("(5)", "(0.5)"))
    conn.execute("SET search_path TO pg_catalog")
    threading.Timer(0.2, conn.cancel_safe).start()
    with pytest.raises(psycopg.errors.QueryCanceled, match="canceling statement due to user request"):
        conn.execute("SELECT pg_sleep(30)")
    assert conn.execute("WHERE AM I").fetchone() == ("pg_catalog",)


def test_a_terminated_backend(door: object, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL's last word is the client's, whatever was asked."""
    monkeypatch.setattr(search_path, "QUESTION", SLOW)
    conn.execute("SET search_path TO pg_catalog")

    def terminate() -> None:
        with psycopg.connect(door.direct, autocommit=True) as direct:  # type: ignore[attr-defined]
            direct.execute("SELECT pg_terminate_backend(%s)", (conn.info.backend_pid,))

    threading.Timer(0.2, terminate).start()
    with pytest.raises(psycopg.errors.AdminShutdown, match="terminating connection due to administrator command"):
        conn.execute("SELECT 1")


ROUNDS = 40
TEXTS = (
    "SET search_path TO pg_catalog", "SELECT 1", "LIST DOORS", "BEGIN", "SET LOCAL search_path TO public",
    "DECLARE c CURSOR FOR COUNT FOREVER", "FETCH 2 FROM c", "SAVEPOINT s", "ROLLBACK TO s", "CLOSE c", "COMMIT",
    "ROLLBACK", "SELECT 1; LIST DOORS", "RESET search_path", "DISCARD ALL", "SET statement_timeout = '2ms'",
)  # fmt: skip


def test_whatever_is_met_the_session_goes_on(conn: psycopg.Connection) -> None:
    over, errors, conn.prepare_threshold = threading.Event(), [], None

    def cancel() -> None:
        for pause in itertools.cycle((0.0, 0.0007, 0.003, 0.0001, 0.002)):
            if over.wait(pause):
                return
            try:
                conn.cancel_safe()
            except Exception as e:
                errors.append(e)

    canceling = threading.Thread(target=cancel)
    canceling.start()
    met = 0
    try:
        for n in range(ROUNDS):
            for text in TEXTS:
                met += _execute(conn, text, extended=bool(n % 2))
    finally:
        over.set()
        canceling.join()
    assert not errors and met
    for text in ("ROLLBACK", "RESET statement_timeout", "SET search_path TO pg_catalog"):
        conn.execute(text)
    assert conn.execute("WHERE AM I").fetchone() == ("pg_catalog",)
    assert [row[0] for row in conn.execute("COUNT TO 3").fetchall()] == [1, 2, 3]


def _execute(conn: psycopg.Connection, text: str, *, extended: bool) -> int:
    """Whether it met one of them. Other errors are those that the texts have by themselves in another order."""
    try:
        conn.execute(text, binary=extended and ";" not in text)
    except psycopg.Error as e:
        said = (e.sqlstate, e.diag.message_primary)
        assert said in SAID or (e.sqlstate or "")[:2] in ("25", "34", "3B") or e.sqlstate == "42P03", (text, said)
        assert not conn.closed, (text, said)
        return said[0] == "57014"
    return 0
