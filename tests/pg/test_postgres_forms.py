"""CREATE and DROP of schemas and databases, which PostgreSQL has too, through the protocol that drivers use."""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import pytest

from tests.server import Server

pytestmark = pytest.mark.pg
STATEMENTS = (
    "CREATE SCHEMA forms_s",
    "CREATE SCHEMA IF NOT EXISTS forms_s",
    "DROP SCHEMA IF EXISTS forms_s, forms_none",
    "CREATE DATABASE forms_d",
    "DROP DATABASE forms_d",
    "DROP DATABASE IF EXISTS forms_d",
)


def tag(statement: str) -> str:
    return " ".join(statement.split()[:2])


def test_simple_answers_with_a_row(db: psycopg.Connection[Any]) -> None:
    for statement in STATEMENTS:
        cur = db.execute(statement.encode())
        assert [c.name for c in cur.description or ()] == ["Type", "Name", "Command", "Summary", "Path"], statement
        assert cur.fetchall() and cur.statusmessage == tag(statement)


def test_extended_answers_as_postgresql(db: psycopg.Connection[Any]) -> None:
    for statement in STATEMENTS:
        cur = db.execute(statement.encode(), prepare=True)
        assert cur.description is None and cur.statusmessage == tag(statement), statement


async def test_a_driver_that_describes_first(server: Server) -> None:
    conn = await asyncpg.connect(server.url)
    try:
        for statement in STATEMENTS:
            prepared = await conn.prepare(statement)
            assert prepared.get_attributes() == () and await prepared.fetch() == []
            assert prepared.get_statusmsg() == tag(statement)
    finally:
        await conn.close()


def test_force_ends_the_sessions_of_others(server: Server, db: psycopg.Connection[Any]) -> None:
    db.execute("CREATE DATABASE forms_f")
    with server.connect("forms_f") as other:
        with pytest.raises(psycopg.errors.ObjectInUse, match='"forms_f" is being used'):
            db.execute("DROP DATABASE forms_f")
        assert other.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.errors.ObjectInUse, match="is being used"):
            other.execute("DROP DATABASE forms_f WITH (FORCE)")
        assert db.execute("DROP DATABASE forms_f WITH (FORCE)").statusmessage == "DROP DATABASE"
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 1")
