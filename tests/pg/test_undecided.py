"""CREATE and DROP SCHEMA inside a transaction: kept by COMMIT, gone with everything else that ends one."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import psycopg
import pytest

from tests.server import Server, within

pytestmark = pytest.mark.pg
SEEN = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s"


def listed(conn: psycopg.Connection[Any], name: str) -> bool:
    """Whether a schema is in the catalogue; PostgreSQL and it agree, and nothing is left of the mark."""
    found = name in [row[0] for row in conn.execute("LIST SCHEMAS").fetchall()]
    assert conn.execute(SEEN, (name,)).fetchall() == ([(None,)] if found else [])
    return found


@pytest.fixture
def conn(server: Server) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as conn:
        yield conn


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize(("end", "stays"), [("COMMIT", True), ("ROLLBACK", False)])
def test_the_transaction_decides(conn: psycopg.Connection[Any], end: str, stays: bool, prepare: bool) -> None:
    notices: list[str | None] = []
    conn.add_notice_handler(lambda n: notices.append(n.message_primary))
    name = f"undecided_{end.lower()}_{prepare}".lower()
    conn.execute("BEGIN", prepare=prepare)
    conn.execute(f"CREATE SCHEMA {name}".encode(), prepare=prepare)
    conn.execute(f"CREATE TYPE {name}.point AS (x int, y int)".encode(), prepare=prepare)
    conn.execute(f"CREATE TABLE {name}.t (p {name}.point)".encode(), prepare=prepare)
    with pytest.raises(psycopg.errors.DuplicateSchema), conn.transaction():
        conn.execute(f"CREATE SCHEMA {name}".encode(), prepare=prepare)
    conn.execute(end.encode(), prepare=prepare)
    assert listed(conn, name) is stays and notices == []
    if stays:
        conn.execute(f"DROP SCHEMA {name} CASCADE".encode())


def test_again_and_again_in_new_sessions(server: Server) -> None:
    for _ in range(10):
        with server.connect() as conn:
            conn.execute("BEGIN")
            conn.execute("CREATE SCHEMA undecided_again")
            conn.execute("CREATE TYPE undecided_again.point AS (x int)")
            conn.execute("ROLLBACK")


def test_savepoints(conn: psycopg.Connection[Any]) -> None:
    conn.execute("BEGIN")
    conn.execute("CREATE SCHEMA undecided_a")
    conn.execute("SAVEPOINT one")
    conn.execute("CREATE SCHEMA undecided_b")
    conn.execute("SAVEPOINT two")
    conn.execute("CREATE TABLE undecided_b.t (a int)")
    conn.execute("RELEASE SAVEPOINT two")
    conn.execute("CREATE SCHEMA undecided_c")
    conn.execute("ROLLBACK TO SAVEPOINT one")
    assert conn.execute("SELECT nspname FROM pg_namespace WHERE nspname ~ '^undecided_' ORDER BY 1").fetchall() == [
        ("undecided_a",)
    ]
    conn.execute("CREATE SCHEMA undecided_b")
    conn.execute("SAVEPOINT three")
    conn.execute("CREATE SCHEMA undecided_d")
    conn.execute("RELEASE SAVEPOINT three")
    conn.execute("COMMIT")
    assert [listed(conn, f"undecided_{x}") for x in "abcd"] == [True, True, False, True]
    conn.execute("DROP SCHEMA undecided_a, undecided_b, undecided_d")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_failed_block(conn: psycopg.Connection[Any], end: str) -> None:
    conn.execute("BEGIN")
    conn.execute("CREATE SCHEMA undecided_failed")
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("SELECT 1/0")
    assert conn.execute(end.encode()).statusmessage == "ROLLBACK"
    assert not listed(conn, "undecided_failed")


@pytest.mark.parametrize("first", [True, False])
def test_a_pipeline_that_fails(server: Server, conn: psycopg.Connection[Any], first: bool) -> None:
    """Whether PostgreSQL's statements or ours begin it."""
    for failing in (True, False):
        with contextlib.suppress(psycopg.Error), server.connect() as other, other.pipeline():
            if not first:
                other.execute("SELECT 1")
            other.execute("CREATE SCHEMA undecided_pipeline")
            other.execute("CREATE TABLE undecided_pipeline.t AS SELECT 1 AS n")
            if failing:
                other.execute("SELECT 1/0")
        within(20, lambda: listed(conn, "undecided_pipeline") is not failing)  # noqa: B023
    assert conn.execute("SELECT n FROM undecided_pipeline.t").fetchone() == (1,)
    conn.execute("DROP TABLE undecided_pipeline.t")
    conn.execute("DROP SCHEMA undecided_pipeline")


@pytest.mark.parametrize("dropped", [False, True])
def test_what_another_transaction_holds(server: Server, conn: psycopg.Connection[Any], dropped: bool) -> None:
    """It is settled later, and fails no statement."""
    if dropped:
        conn.execute("CREATE SCHEMA undecided_held")
    conn.execute("BEGIN")
    conn.execute(f"{'DROP' if dropped else 'CREATE'} SCHEMA undecided_held".encode())
    with server.connect() as other:
        other.execute("BEGIN")
        other.execute("CREATE TABLE undecided_held.t (a int)")
        conn.execute("COMMIT" if dropped else "ROLLBACK")
        conn.execute("CREATE SECRET undecided_secret WITH ('type' = GENERIC_SECRET, 'secret_string' = 'x')")
        other.execute("ROLLBACK")
    conn.execute("DROP SECRET undecided_secret")
    assert not listed(conn, "undecided_held")


def test_a_client_that_leaves_what_another_holds(server: Server, conn: psycopg.Connection[Any]) -> None:
    with server.connect() as holds:
        other = server.connect()
        other.execute("BEGIN")
        other.execute("CREATE SCHEMA undecided_held_on")
        holds.execute("BEGIN")
        holds.execute("CREATE TABLE undecided_held_on.t (a int)")
        other.close()
        conn.execute("CREATE SECRET undecided_secret WITH ('type' = GENERIC_SECRET, 'secret_string' = 'x')")
        conn.execute("DROP SECRET undecided_secret")
        holds.execute("ROLLBACK")
    within(20, lambda: not listed(conn, "undecided_held_on"))


def test_a_client_that_leaves(server: Server, conn: psycopg.Connection[Any]) -> None:
    def cut(other: psycopg.Connection[Any]) -> None:
        with socket.socket(fileno=os.dup(other.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    for leave in (psycopg.Connection.close, cut):
        with contextlib.suppress(psycopg.OperationalError), server.connect() as other:
            other.execute("BEGIN")
            other.execute("CREATE SCHEMA undecided_left")
            assert conn.execute(SEEN, ("undecided_left",)).fetchone() != (None,)
            leave(other)
        within(20, lambda: not listed(conn, "undecided_left"))


def test_a_commit_whose_answer_nobody_hears(server: Server, conn: psycopg.Connection[Any]) -> None:
    other = server.connect()
    other.execute("BEGIN")
    other.execute("CREATE SCHEMA undecided_unheard")
    other.pgconn.send_query(b"COMMIT")
    while other.pgconn.flush():
        pass
    other.pgconn.finish()
    within(20, lambda: conn.execute(SEEN, ("undecided_unheard",)).fetchall() == [(None,)])
    assert listed(conn, "undecided_unheard")
    conn.execute("DROP SCHEMA undecided_unheard")


def test_texts_of_several_statements(conn: psycopg.Connection[Any]) -> None:
    conn.execute("BEGIN; CREATE SCHEMA undecided_text; CREATE TABLE undecided_text.t (a int); ROLLBACK")
    assert not listed(conn, "undecided_text")
    conn.execute("BEGIN; CREATE SCHEMA undecided_text; COMMIT; DROP SCHEMA undecided_text")
    assert not listed(conn, "undecided_text")


def test_what_others_put_into_it_keeps_it(server: Server, conn: psycopg.Connection[Any]) -> None:
    conn.execute("BEGIN")
    conn.execute("CREATE SCHEMA undecided_used")
    with server.connect() as other:
        other.execute("CREATE TABLE undecided_used.t (a int)")
    conn.execute("ROLLBACK")
    assert listed(conn, "undecided_used")
    conn.execute("DROP SCHEMA undecided_used CASCADE")


def test_a_read_only_transaction(conn: psycopg.Connection[Any]) -> None:
    conn.execute("BEGIN READ ONLY")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="cannot execute CREATE SCHEMA in a read-only"):
        conn.execute("CREATE SCHEMA undecided_read_only")
    conn.execute("ROLLBACK")
    assert not listed(conn, "undecided_read_only")


async def test_asyncpg(server: Server, conn: psycopg.Connection[Any]) -> None:
    other = await asyncpg.connect(server.url)
    try:
        with pytest.raises(ZeroDivisionError):
            async with other.transaction():
                await other.execute("CREATE SCHEMA undecided_asyncpg")
                1 / 0  # noqa: B018
        assert not await other.fetch("SELECT 1 FROM pg_namespace WHERE nspname = 'undecided_asyncpg'")
    finally:
        await other.close()


def test_a_server_that_is_killed(workspace: Path) -> None:
    server = Server(workspace / "undecided")
    try:
        with server.connect() as conn:
            conn.execute("CREATE SCHEMA stays")
            other = server.connect()
            other.execute("BEGIN")
            other.execute("CREATE SCHEMA goes")
            server.kill()
            other.close()
        server = Server(workspace / "undecided")
        with server.connect() as conn:
            assert listed(conn, "stays") and not listed(conn, "goes")
    finally:
        server.stop()


def test_a_listener_process_that_is_killed(workspace: Path) -> None:
    """Whoever was connected to it is gone; the server goes on."""
    server = Server(workspace / "undecided_listeners", workers="2")

    def rolled_back() -> bool:
        with server.connect() as conn:
            return listed(conn, "stays") and not listed(conn, "goes")

    try:
        with server.connect() as conn:
            conn.execute("BEGIN")
            conn.execute("CREATE SCHEMA stays")
            conn.execute("COMMIT")
            other = server.connect()
            other.execute("BEGIN")
            other.execute("CREATE SCHEMA goes")
            for process in psutil.Process(server.process.pid).children():
                if "pgstream.server.worker" in process.cmdline():
                    process.kill()
            within(20, rolled_back)
            other.close()
    finally:
        server.stop()


OBJECTS = """
CREATE TABLE {0}.t (id serial PRIMARY KEY, name text);
CREATE VIEW {0}.v AS SELECT id FROM {0}.t;
CREATE TYPE {0}.pair AS (x int, y int);
CREATE DOMAIN {0}.small AS int CHECK (value < 10);
CREATE FUNCTION {0}.twice(int) RETURNS int LANGUAGE sql AS 'SELECT 2 * $1';
CREATE AGGREGATE {0}.total(int) (sfunc = int4pl, stype = int);
CREATE STATISTICS {0}.s ON id, name FROM {0}.t;
CREATE SEQUENCE {0}."Odd one"
"""


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize(("end", "stays"), [("COMMIT", False), ("ROLLBACK", True)])
def test_the_transaction_decides_what_is_dropped(
    conn: psycopg.Connection[Any], end: str, stays: bool, prepare: bool
) -> None:
    """The transaction has locked what is dropped: no other connection could drop it."""
    notices: list[str | None] = []
    conn.add_notice_handler(lambda n: notices.append(n.severity))
    name = f"dropped_{end.lower()}_{prepare}".lower()
    conn.execute(f"CREATE SCHEMA {name}".encode())
    conn.execute(OBJECTS.format(name).encode())
    conn.execute("BEGIN")
    conn.execute(f"INSERT INTO {name}.t (name) VALUES ('a')".encode())
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="cannot drop schema"), conn.transaction():
        conn.execute(f"DROP SCHEMA {name}".encode(), prepare=prepare)
    conn.execute(f"DROP SCHEMA {name} CASCADE".encode(), prepare=prepare)
    with pytest.raises(psycopg.errors.InvalidSchemaName), conn.transaction():
        conn.execute(f"DROP SCHEMA {name}".encode(), prepare=prepare)
    conn.execute(end.encode())
    assert listed(conn, name) is stays and "WARNING" not in notices
    if stays:
        assert conn.execute(f"SELECT count(*) FROM {name}.t".encode()).fetchall() == [(0,)]
        conn.execute(f"DROP SCHEMA {name} CASCADE".encode())


def test_dropped_and_made_again(conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE SCHEMA dropped_again")
    with conn.transaction():
        conn.execute("DROP SCHEMA dropped_again")
        conn.execute("CREATE SCHEMA dropped_again")
        conn.execute("CREATE TABLE dropped_again.t (a int)")
    assert conn.execute("TABLE dropped_again.t").fetchall() == []
    with conn.transaction():
        conn.execute("DROP TABLE dropped_again.t")
        conn.execute("DROP SCHEMA dropped_again")
    assert not listed(conn, "dropped_again")


def test_made_and_dropped_in_one_transaction(conn: psycopg.Connection[Any]) -> None:
    with conn.transaction():
        conn.execute("CREATE SCHEMA dropped_once")
        conn.execute("CREATE TABLE dropped_once.t (a int)")
        conn.execute("DROP SCHEMA dropped_once CASCADE")
    assert not listed(conn, "dropped_once")


def test_a_savepoint_takes_the_drop_back(conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE SCHEMA dropped_not")
    conn.execute("BEGIN")
    conn.execute("SAVEPOINT one")
    conn.execute("DROP SCHEMA dropped_not")
    conn.execute("ROLLBACK TO SAVEPOINT one")
    conn.execute("CREATE TABLE dropped_not.t (a int)")
    conn.execute("COMMIT")
    assert listed(conn, "dropped_not")
    conn.execute("DROP SCHEMA dropped_not CASCADE")
