"""SET DEFAULT: the session goes on as it is, later ones begin with what was chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.pg.catalogues.conftest import Both

pytestmark = pytest.mark.pg


@pytest.fixture
def db(both: Both) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(both.ours, autocommit=True) as c:
        yield c


def rows(c: psycopg.Connection[Any], text: str) -> list[tuple[Any, ...]]:
    return c.execute(text.encode()).fetchall()


def test_later_sessions_begin_with_the_defaults(both: Both, db: psycopg.Connection[Any]) -> None:
    assert rows(db, 'SET DEFAULT SCHEMA "Reports"') == [
        ("default", 'main."Reports"', "UPDATE", 'Default schema was successfully updated to main."Reports"')
    ]
    assert rows(db, "SET DEFAULT STORE k")[0][3] == "Default store was successfully updated to k"
    db.execute("CREATE COMPUTE_POOL mine")
    db.execute("SET DEFAULT COMPUTE_POOL mine")
    assert rows(db, "SELECT current_schema()") == [("public",)]
    with psycopg.connect(both.ours, autocommit=True) as later:
        assert rows(later, "SELECT current_schema()") == [("Reports",)]
        assert [r[0] for r in rows(later, "LIST RELATIONS")] == ["Odd 'stream'"]
        assert [r[0] for r in rows(later, "LIST STORES") if r[4]] == ["k"]
        # It is in force: what needs a store asks this one, which nobody serves.
        with pytest.raises(psycopg.errors.SystemError, match='store "k"'):
            later.execute("LIST ENTITIES")
        assert [r[0] for r in rows(later, "LIST COMPUTE_POOLS")] == ["default", "mine"]
    # What a client asks for itself wins, and a default that is gone is none.
    with psycopg.connect(both.ours, autocommit=True, options="-c search_path=public") as later:
        assert rows(later, "SELECT current_schema()") == [("public",)]
    db.execute("DROP COMPUTE_POOL mine")
    db.execute("SET DEFAULT SCHEMA main.public")
    db.execute("DROP STORE k")
    with psycopg.connect(both.ours, autocommit=True) as later, pytest.raises(psycopg.Error) as e:
        later.execute("LIST ENTITIES")
    assert e.value.sqlstate == "55000"


def test_the_default_database_is_for_who_names_none(both: Both, db: psycopg.Connection[Any]) -> None:
    db.execute("CREATE DATABASE other")
    db.execute("SET DEFAULT DATABASE other")
    assert {r[0]: r[1] for r in rows(db, "LIST DATABASES")} == {"main": False, "other": True}
    with psycopg.connect(both.ours, autocommit=True) as later:
        assert rows(later, "SELECT current_database()") == [("main",)]
    db.execute("SET DEFAULT DATABASE main")
    db.execute("DROP DATABASE other")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SET DEFAULT DATABASE nope", ("3D000", 22)),
        ("SET DEFAULT SCHEMA nope", ("3F000", 20)),
        ("SET DEFAULT SCHEMA nope.public", ("3D000", 20)),
        ("SET DEFAULT STORE nope", ("42704", 19)),
        ("SET DEFAULT COMPUTE_POOL nope", ("42704", 26)),
        ("SET DEFAULT ORGANIZATION nope", ("42704", 26)),
        ("SET DEFAULT ROLE nope", ("42704", 18)),
        ("SET DEFAULT TABLE t", ("42601", 13)),
        ("SET DEFAULT STORE", ("42601", 18)),
        ("USE ORGANIZATION nope", ("42704", 18)),
        ("DESCRIBE DATABASE nope", ("3D000", 19)),
        ("DESCRIBE SCHEMA nope", ("3F000", 17)),
        ("CREATE TABLE t (a BIGINT) WITH ('store' = nope)", ("42704", 43)),
    ],
)
def test_what_is_not_there(db: psycopg.Connection[Any], text: str, expected: tuple[str, int]) -> None:
    with pytest.raises(psycopg.Error) as e:
        db.execute(text.encode())
    assert (e.value.sqlstate, int(e.value.diag.statement_position or 0)) == expected


def test_organizations_databases_and_schemas(db: psycopg.Connection[Any]) -> None:
    (one,) = rows(db, "LIST ORGANIZATIONS")
    assert one[1:6] == ("default", True, True, None, None)
    assert rows(db, "USE ORGANIZATION default") == [("organization", "default", "USE", 'using organization "default"')]
    db.execute("SET DEFAULT ORGANIZATION default")
    assert rows(db, "DESCRIBE DATABASE main")[0][:3] == ("main", True, "sysadmin")
    assert rows(db, 'DESCRIBE SCHEMA "Reports"')[0][:3] == ("Reports", False, "sysadmin")
    assert rows(db, "LIST TABLES") == []
