"""Statements of ours go by PostgreSQL's search path and role, however those came about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from pgstream.catalog.privileges import Membership
from pgstream.names import FullName
from tests.pg.door.raw import FLUSH, SYNC, Wire, bind, execute, parse, query, run, told
from tests.pg.door.whole import Whole, relation
from tests.pg.door.whole import start as start_whole

WHERE = "WHERE AM I"
STAGING = b"\0\1\0\0\0\7staging"
FUNCTION = (
    "CREATE FUNCTION public.go() RETURNS text LANGUAGE sql AS $$SELECT set_config('search_path', 'staging', false)$$"
)


@pytest.fixture(scope="module", autouse=True)
def _there(door) -> None:
    with psycopg.connect(door.direct, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA staging")
        conn.execute(FUNCTION.encode())


CHANGES = (
    "SET search_path = staging",
    "SET  SCHEMA 'staging'",
    "SET/**/schema 'staging'",
    'SET "search_path" = staging',
    'SET U&"search\\005fpath" = staging',
    "/* " + "licence " * 40 + "*/ SET search_path = staging",
    "SELECT set_config('search' || '_path', 'staging', false) IS NULL",
    "DO $$BEGIN EXECUTE 'SET search' || '_path = staging'; END$$",
    "SELECT public.go() IS NULL",
    "UPDATE pg_catalog.pg_settings SET setting = 'staging' WHERE name = 'search' || '_path'",
)


@pytest.mark.parametrize("text", CHANGES)
def test_after_a_change_of_the_search_path(wire: Wire, text: str) -> None:
    assert told(wire, query(WHERE)) == [b"\0\1\0\0\0\6public"]
    assert told(wire, query(text) + query(WHERE), 2)[-1] == STAGING


@pytest.mark.parametrize("text", CHANGES)
def test_in_the_same_text(wire: Wire, text: str) -> None:
    assert told(wire, query(f"{text}; {WHERE}"))[-1] == STAGING
    assert told(wire, query(WHERE)) == [STAGING]


@pytest.mark.parametrize("text", CHANGES)
def test_in_the_same_pipeline(wire: Wire, text: str) -> None:
    before = parse(WHERE, "w") + bind("p", "w")
    assert told(wire, before + run(text) + execute("p") + SYNC)[-1] == STAGING
    assert told(wire, run(text) + FLUSH + bind("", "w") + execute() + SYNC)[-1] == STAGING


def test_a_change_that_ends_with_its_transaction(wire: Wire) -> None:
    local = "SELECT set_config('search' || '_path', 'staging', true) IS NULL"
    assert told(wire, query(f"BEGIN; {local}; {WHERE}"))[-1] == STAGING
    assert told(wire, query("COMMIT") + query(WHERE), 2) == [b"\0\1\0\0\0\6public"]
    assert told(wire, query(f"{local}; {WHERE}"))[-1] == STAGING
    assert told(wire, query(WHERE)) == [b"\0\1\0\0\0\6public"]


def test_execute_of_a_statement_that_changes_it(wire: Wire) -> None:
    prepared = "PREPARE p AS SELECT set_config('search_path', 'staging', false) IS NULL"
    assert told(wire, query(prepared) + query(WHERE), 2) == [b"\0\1\0\0\0\6public"]
    assert told(wire, query("EXECUTE p") + query(WHERE), 2)[-1] == STAGING


@pytest.mark.parametrize("given", [{"search_path": "staging"}, {"Search_Path": "staging"},
                                   {"options": "-c search_path=staging"}])  # fmt: skip
def test_as_the_client_began(door, given: dict[str, str]) -> None:
    with Wire(door.port, door.USER, door.PASSWORD, **given) as wire:
        assert told(wire, query(WHERE)) == [STAGING]


@pytest.mark.parametrize("of", ["ROLE alice", "DATABASE other", "ROLE alice IN DATABASE other"])
def test_as_user_or_database_have_it(door, of: str) -> None:
    with psycopg.connect(door.postgres.url("other"), autocommit=True) as conn:
        conn.execute("CREATE SCHEMA IF NOT EXISTS staging AUTHORIZATION alice")
        conn.execute(f"ALTER {of} SET search_path = staging".encode())
        try:
            with Wire(door.port, door.USER, door.PASSWORD, "other") as wire:
                assert told(wire, query(WHERE)) == [STAGING]
            with Wire(door.port, door.USER, door.PASSWORD) as wire:
                assert told(wire, query("USE DATABASE other") + query(WHERE), 2)[-1] == STAGING
        finally:
            conn.execute(f"ALTER {of} RESET search_path".encode())


def test_in_a_failed_block_nothing_is_asked(wire: Wire) -> None:
    assert told(wire, query("BEGIN; SET LOCAL search_path = staging; SELECT 1/0") + query(WHERE), 2) == []
    assert told(wire, query("ROLLBACK") + query(WHERE), 2) == [b"\0\1\0\0\0\6public"]


# The role


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    house = start_whole(tmp_path_factory.mktemp("house"))
    house.run(house.catalog.authority.grant_roles([Membership("guests", "admin", is_user=True)]))
    yield house
    house.stop()


DESCRIBE = "DESCRIBE STREAM public.clicks"
ROLES = (
    "SET ROLE guests",
    "SET  ROLE guests",
    "SET\tROLE guests",
    'SET "role" = guests',
    "SELECT set_config('ro' || 'le', 'guests', false)",
    "DO $$BEGIN SET ROLE guests; END$$",
    "BEGIN; SET LOCAL  ROLE guests",
)


@pytest.mark.parametrize("text", ROLES)
def test_after_a_change_of_the_role(house: Whole, text: str) -> None:
    for data in (query(text) + query(DESCRIBE), query(f"{text}; {DESCRIBE}")):
        with Wire(house.port, "admin", house.PASSWORD) as wire:
            assert len(told(wire, query(DESCRIBE))) == 1
            wire.send(data)
            answers = wire.until_ready(1 + (b"\0Q" in data))
            assert any(kind == "E" and b"C42P01\0" in payload for kind, payload in answers)


def test_back_to_a_savepoint(house: Whole) -> None:
    texts = ("SET ROLE guests", "BEGIN", "SAVEPOINT s", "SET ROLE sysadmin", DESCRIBE, "/* x */ ROLLBACK TO s")
    with Wire(house.port, "admin", house.PASSWORD) as wire:
        assert len(told(wire, b"".join(map(query, texts)), 6)) == 1
        assert told(wire, query(DESCRIBE)) == []


@pytest.mark.parametrize("given", [{"role": "guests"}, {"Role": "guests"}, {"options": "-c role=guests"},
                                   {"options": "-c role=sysadmin", "ROLE": "guests"}])  # fmt: skip
def test_the_role_that_a_client_begins_in(house: Whole, given: dict[str, str]) -> None:
    with Wire(house.port, "admin", house.PASSWORD, **given) as wire:
        assert told(wire, query(DESCRIBE) + query("SELECT current_user"), 2) == [b"\0\1\0\0\0\6guests"]
        assert told(wire, query("RESET ROLE") + query("SELECT current_user"), 2) == [b"\0\1\0\0\0\6guests"]


def test_other_options_leave_the_first_role(house: Whole) -> None:
    with Wire(house.port, "admin", house.PASSWORD, options="-c DateStyle=German") as wire:
        assert told(wire, query("SELECT current_user")) == [b"\0\1\0\0\0\x08sysadmin"]
        assert told(wire, query("SHOW DateStyle")) == [b"\0\1\0\0\0\x0bGerman, DMY"]


def test_a_stream_in_the_schema_that_the_user_has_by_default(house: Whole) -> None:
    """A text that names a stream is looked at by a search path that PostgreSQL has told."""
    with house.connect("admin") as conn:
        conn.execute("CREATE SCHEMA staging")
    house.run(
        house.catalog.create_relation(replace(relation("staged", "stream"), full=FullName("main", "staging", "staged")))
    )
    with house.superuser() as conn:
        conn.execute("ALTER ROLE admin SET search_path = staging")
        try:
            with Wire(house.port, "admin", house.PASSWORD) as wire:
                wire.send(query("SELECT sum(n) OVER () FROM staged"))
                assert b"Rnot_supported\0" in dict(wire.until_ready())["E"]
        finally:
            conn.execute("ALTER ROLE admin RESET search_path")


ISOLATION = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"


@pytest.mark.parametrize(
    "texts",
    [
        ["BEGIN", "SET search_path = staging", ISOLATION],
        ["BEGIN", "SET LOCAL search_path = staging", "SET LOCAL work_mem = '1MB'", f"/* - */ {ISOLATION}"],
        [f"BEGIN; SET search_path = staging; {ISOLATION}"],
        ["BEGIN; SET search_path = staging", "SET LOCAL transaction_isolation = 'serializable'"],
    ],
)
@pytest.mark.parametrize("prepare", [False, True])
def test_the_isolation_level_may_follow(wire: Wire, texts: list[str], prepare: bool) -> None:
    """PostgreSQL takes it before the first query only, and ours would be one."""
    for text in texts:
        wire.send(run(text) + SYNC if prepare and ";" not in text else query(text))
        assert "E" not in dict(wire.until_ready())
    assert told(wire, query("SHOW transaction_isolation")) == [b"\0\1\0\0\0\x0cserializable"]
    assert told(wire, query(WHERE)) == [STAGING]
    wire.send(query("ROLLBACK"))
    wire.until_ready()
