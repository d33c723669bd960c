"""psycopg 3: simple and extended protocol, text and binary, async, pipeline, server-side cursors."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server import Server

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("binary", [False, True])
def test_our_statement_prepared(db: psycopg.Connection[Any], binary: bool) -> None:
    for _ in range(3):
        rows = db.execute("LIST DATABASES", prepare=True, binary=binary).fetchall()
        assert "main" in [r[0] for r in rows]


def test_parameters_and_types_are_postgresqls(db: psycopg.Connection[Any]) -> None:
    row = db.execute("SELECT %s::int + 1, %s::text, %s::timestamptz", [41, "x", "2026-01-01 00:00:00+00"]).fetchone()
    assert row is not None
    assert row[:2] == (42, "x")


def test_server_side_cursor(server: Server) -> None:
    with psycopg.connect(server.url) as c, c.cursor("big") as cursor:
        cursor.itersize = 1000
        cursor.execute("SELECT g FROM generate_series(1, 10000) g")
        assert sum(r[0] for r in cursor) == 50005000


def test_pipeline_of_both_kinds_keeps_order(db: psycopg.Connection[Any]) -> None:
    with db.pipeline():
        first = db.execute("SELECT 1")
        second = db.execute("LIST DATABASES")
        third = db.execute("SELECT 3")
    assert first.fetchone() == (1,)
    assert "main" in [r[0] for r in second.fetchall()]
    assert third.fetchone() == (3,)


def test_an_error_in_a_pipeline_skips_to_sync(db: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject), db.pipeline():
        db.execute("SELECT 1")
        db.execute("DESCRIBE STORE nope")
        db.execute("SELECT 3")
    assert db.execute("SELECT 4").fetchone() == (4,)


def test_ddl_in_a_transaction_warns(server: Server) -> None:
    heard: list[str] = []
    with psycopg.connect(server.url) as c:
        c.add_notice_handler(lambda d: heard.append(f"{d.severity}: {d.message_primary}"))
        c.execute("SELECT 1")
        c.execute("CREATE SECRET in_transaction WITH ('type' = GENERIC_SECRET, 'secret_string' = 'x')")
        c.rollback()
        c.execute("DROP SECRET in_transaction")
    assert any(h.startswith("WARNING") for h in heard)


def test_a_schema_is_rolled_back(server: Server) -> None:
    with psycopg.connect(server.url) as c:
        c.execute("CREATE SCHEMA in_transaction")
        c.rollback()
        with pytest.raises(psycopg.errors.InvalidSchemaName):
            c.execute("DROP SCHEMA in_transaction")


def test_a_failed_transaction_refuses_ours(server: Server) -> None:
    with psycopg.connect(server.url) as c:
        with pytest.raises(psycopg.errors.DivisionByZero):
            c.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            c.execute("LIST DATABASES")
        c.rollback()
        assert c.execute("LIST DATABASES").fetchall()


async def test_async(server: Server) -> None:
    async with await psycopg.AsyncConnection.connect(server.url, autocommit=True) as c:
        cursor = await c.execute("LIST SCHEMAS")
        assert "public" in [r[0] for r in await cursor.fetchall()]


def test_copy_passes_through(db: psycopg.Connection[Any]) -> None:
    db.execute("CREATE TEMP TABLE copied (a int)")
    with db.cursor() as cursor:
        with cursor.copy("COPY copied FROM STDIN") as copy:
            for i in range(1000):
                copy.write_row([i])
        with cursor.copy("COPY copied TO STDOUT") as copy:
            assert sum(1 for _ in copy.rows()) == 1000


def test_wrong_password(server: Server) -> None:
    with pytest.raises(psycopg.OperationalError, match='password authentication failed for user "admin"'):
        psycopg.connect(server.url.replace(":test-password-1@", ":wrong@"))
