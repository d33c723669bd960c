"""The system tables through the front door: every way of reading them, and that a role sees its own rows only."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.pg.access.conftest import PASSWORD, Ask, House

pytestmark = pytest.mark.pg
RELATIONS = 'SELECT name FROM deltastream.sys."relations" ORDER BY 1'


@pytest.fixture(scope="module")
def reader(house: House) -> str:
    with house.connect() as conn:
        conn.execute("USE ROLE useradmin")
        conn.execute("CREATE ROLE reader")
        conn.execute("GRANT ROLE reader TO ROLE sysadmin")
        conn.execute("USE ROLE sysadmin")
        conn.execute("GRANT USAGE ON DATABASE main TO ROLE reader")
        conn.execute("GRANT USAGE ON SCHEMA main.public TO ROLE reader")
    house.relation("sys_seen")
    house.relation("sys_hidden")
    house.relation("sys_view", "materialized_view")
    house.user("ray", "reader")
    return "reader"


def test_ways_to_read(house: House, ask: Ask, reader: str) -> None:
    """Each is PostgreSQL's own; a change shows at once, also to what was prepared before it."""
    with house.connect() as conn, house.connect() as other:
        other.execute("USE ROLE sysadmin")
        conn.execute("USE ROLE sysadmin")
        prepared = "SELECT name, relation_type FROM DeltaStream.SYS.relations WHERE database_name = %s AND name = %s"
        assert conn.execute(prepared, ["main", "sys_seen"], prepare=True).fetchall() == [("sys_seen", "stream")]
        assert conn.execute(prepared, ["main", "sys_later"], prepare=True).fetchall() == []
        house.relation("sys_later")
        assert conn.execute(prepared, ["main", "sys_later"], prepare=True).fetchall() == [("sys_later", "stream")]
        other.execute("DROP STREAM sys_later")
        assert conn.execute(prepared, ["main", "sys_later"], prepare=True).fetchall() == []
        joined = """SELECT r.fqn, q.current_state FROM deltastream.sys."relations" r
            JOIN deltastream . sys . "queries" q ON q.id = r.query_id WHERE r.name = 'sys_view'"""
        assert conn.execute(joined).fetchall() == [("main.public.sys_view", "starting")]
        assert conn.execute('SELECT deltastream.sys."databases".name FROM deltastream.sys."databases"').fetchall()
        with conn.transaction(), conn.cursor("c") as cursor:
            assert cursor.execute(RELATIONS).fetchone() is not None
        with conn.cursor() as cursor, cursor.copy("COPY (SELECT name FROM deltastream.sys.stores) TO STDOUT") as copy:
            assert b"".join(copy) == b""
        conn.execute("CREATE TEMP TABLE kept AS SELECT count(*) AS n FROM deltastream.sys.schemas; SELECT n FROM kept")
        conn.execute("CREATE VIEW sys_names AS SELECT name FROM deltastream.sys.relations")
        house.relation("sys_later")
        assert ("sys_later",) in conn.execute("SELECT name FROM sys_names").fetchall()
        conn.execute("DROP VIEW sys_names")
        # Words in a string are words in a string.
        assert conn.execute("SELECT 'deltastream.sys.\"relations\"'").fetchone() == ('deltastream.sys."relations"',)


def test_queries_follow_their_state(house: House, ask: Ask, reader: str) -> None:
    state = "SELECT current_state, message FROM deltastream.sys.queries WHERE sink = 'main.public.sys_view'"
    ask(state, role="sysadmin")
    (query,) = [q for q in house.run(house.catalog.queries()) if q.sinks == ("main.public.sys_view",)]
    house.run(house.catalog.set_query(query.id, actual="errored", message="no broker"))
    assert ask(state) == [("errored", "no broker")]
    sources = {"main.public.s": {"offset": {"0": 7}, "latest": {"0": 9, "1": 4}, "lag": 6, "rows_in": 7}}
    progress = {"batch": 3, "rows_in": 7, "watermark": "2024-01-02T03:04:05.000Z", "sources": sources}
    house.run(house.catalog.record_progress({query.id: progress}))
    lag = "SELECT partition, read_offset, end_offset, lag FROM deltastream.sys.query_lag ORDER BY 1"
    assert ask(lag) == [("0", 7, 9, 2), ("1", 0, 4, 4)]
    health = "SELECT healthy, batch, lag, watermark::text FROM deltastream.sys.query_health WHERE query_id = '{}'"
    assert ask(health.format(query.id)) == [(False, 3, 6, "2024-01-02 03:04:05+00")]
    house.run(house.catalog.record_progress({query.id: {"batch": 4}}))
    assert ask(lag) == []


def test_a_role_sees_its_own_rows(house: House, ask: Ask, reader: str) -> None:
    assert ask(RELATIONS, user="ray") == []
    ask("GRANT SELECT ON RELATION sys_seen TO ROLE reader", role="sysadmin")
    assert ask(RELATIONS, user="ray") == [("sys_seen",)]
    columns = "SELECT name, type, nullable, ordinal_position, primary_key FROM deltastream.sys.relation_columns "
    columns += "WHERE database_name = 'main' AND schema_name = 'public' AND relation_name = '{}' ORDER BY 4"
    assert ask(columns.format("sys_hidden"), user="ray") == []
    described = [(name, type_, nullable) for name, type_, nullable, _ in ask("DESCRIBE RELATION COLUMNS sys_seen")]
    assert [row[:3] for row in ask(columns.format("sys_seen"), user="ray")] == described != []
    assert {"sys_hidden", "sys_seen"} <= {name for (name,) in ask(RELATIONS, role="sysadmin")}
    for table in ("queries", "query_health", "query_lag", "stores", "secrets", "schema_registries", "functions"):
        assert ask(f"SELECT * FROM deltastream.sys.{table}", user="ray") == [], table
    assert ask("SELECT name FROM deltastream.sys.databases", user="ray") == [("main",)]
    # A schema's relations go with the schema.
    ask("REVOKE USAGE ON SCHEMA main.public FROM ROLE reader", role="sysadmin")
    assert ask(RELATIONS, user="ray") == []
    ask("GRANT USAGE ON SCHEMA main.public TO ROLE reader", role="sysadmin")
    granted = (
        "SELECT role_priv_type, role_priv_target_name FROM deltastream.sys.role_privileges WHERE role_name = 'reader'"
    )
    assert ("select", "main.public.sys_seen") in ask(granted, user="ray")
    assert ask("SELECT role_name FROM deltastream.sys.role_privileges WHERE role_name = 'sysadmin'", user="ray") == []
    assert ("public",) in ask("SELECT name FROM deltastream.sys.roles", user="ray")
    assert ("orgadmin",) not in ask("SELECT name FROM deltastream.sys.roles", user="ray")


def test_nothing_gets_round_that(house: House, ask: Ask, reader: str) -> None:
    ask("SELECT 1 FROM deltastream.sys.relations LIMIT 1", role="sysadmin")
    for text in (
        "SELECT * FROM pg_pgstream.system",
        "INSERT INTO deltastream.sys.stores (name) VALUES ('x')",
        "DELETE FROM deltastream.sys.relations",
        "UPDATE deltastream.sys.relations SET name = 'x'",
        "CREATE TABLE pg_deltastream.x (a int)",
        "DROP VIEW deltastream.sys.relations",
        "CREATE OR REPLACE VIEW deltastream.sys.relations AS SELECT 1 AS name",
        "ALTER VIEW deltastream.sys.relations SET (security_barrier = false)",
    ):
        for who in ({"user": "ray"}, {"role": "sysadmin"}):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState)):
                ask(text, **who)
    # A function that is cheap and tells what it is shown.
    with house.connect("ray") as conn:
        heard: list[str] = []
        conn.add_notice_handler(lambda d: heard.append(d.message_primary or ""))
        conn.execute("""CREATE FUNCTION pg_temp.tell(name text) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS
            $$ BEGIN RAISE NOTICE '%', name; RETURN true; END $$""")
        conn.execute("SELECT name FROM deltastream.sys.relations WHERE pg_temp.tell(name)")
        assert heard == ["sys_seen"]
        conn.execute("RESET ROLE")
        assert conn.execute("SELECT name FROM deltastream.sys.stores").fetchall() == []


def test_from_every_database(house: House, ask: Ask, reader: str) -> None:
    ask("CREATE DATABASE sys_second", role="sysadmin")
    first = ask(RELATIONS)
    assert ask(RELATIONS, database="sys_second") == first
    ask("CREATE SCHEMA extra IN DATABASE sys_second")
    schemas = "SELECT name, is_default FROM deltastream.sys.schemas WHERE database_name = 'sys_second' ORDER BY 1"
    assert ask(schemas) == [("extra", False), ("public", True)]
    with house.connect(database="sys_second") as conn:
        assert conn.execute(schemas).fetchall() == ask(schemas)
    # The maintenance database is none of ours.
    here = pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be read here")
    with house.connect(database="postgres") as conn, here:
        conn.execute(RELATIONS)


def test_names_that_are_none(house: House, ask: Ask, reader: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable) as e:
        ask("SELECT * FROM deltastream.sys.relation")
    d = e.value.diag
    assert (d.message_primary, d.statement_position, d.message_hint) == (
        'relation "deltastream.sys.relation" does not exist', "15", "Did you mean relations?")  # fmt: skip
    with pytest.raises(psycopg.errors.UndefinedColumn) as e:
        ask('SELECT nope FROM deltastream.sys."stores"')
    assert e.value.diag.statement_position == "8"
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="together with a system table"):
        ask("SELECT * FROM sys_seen s JOIN deltastream.sys.stores t ON t.name = s.secret", role="sysadmin")


def test_defaults_are_the_users_own(house: House, ask: Ask, reader: str) -> None:
    ask("SET DEFAULT DATABASE main", user="ray")
    mine = "SELECT key, value FROM deltastream.sys.userdatas"
    assert ask(mine, user="ray") == [("default.database", "main")]
    assert ask(mine) == []
    assert ("ray", "reader") in ask("SELECT user_name, role_name FROM deltastream.sys.user_grants", user="ray")


def test_a_second_session_while_the_first_one_begins(house: House, ask: Ask, reader: str) -> None:
    """Both are the first to ask, in one pipeline each; nobody sees a half-made copy."""
    ask("CREATE DATABASE sys_third", role="sysadmin")
    where = {"host": "127.0.0.1", "port": house.port, "user": "admin", "password": PASSWORD, "dbname": "sys_third"}
    with psycopg.connect(**where, autocommit=True) as a, psycopg.connect(**where, autocommit=True) as b:
        with a.pipeline(), b.pipeline():
            cursors = [c.execute(f"SELECT {n}, count(*) FROM deltastream.sys.relations") for n, c in enumerate((a, b))]
        assert len({c.fetchone()[1] for c in cursors}) == 1  # type: ignore[index]


def test_who_made_and_changed_an_object_is_kept(house: House, ask: Ask) -> None:
    """In each table that has the columns, by the statements that change; what the server made has no author."""
    audit = "created_by, created_by_role, created_by_role_deleted, updated_by, updated_by_role, updated_by_role_deleted"

    def told(table: str, name: str) -> tuple[Any, ...]:
        return ask(f"SELECT {audit} FROM deltastream.sys.\"{table}\" WHERE name = '{name}'", role="orgadmin")[0]

    ask("CREATE ROLE makers", "GRANT CREATE_DATABASE ON ORGANIZATION TO ROLE makers", role="orgadmin")
    ask("GRANT ROLE makers TO USER 'admin'", "GRANT ROLE makers TO ROLE orgadmin", role="orgadmin")
    ask("CREATE DATABASE made", "CREATE SCHEMA inner_one IN DATABASE made", role="makers")
    ask("CREATE SECRET made WITH ('type' = GENERIC_SECRET, 'secret_string' = 'x')", role="sysadmin")
    by_maker = ("admin", "makers", False)
    assert told("databases", "made") == (*by_maker, *by_maker)
    assert told("schemas", "inner_one") == (*by_maker, *by_maker)
    assert told("secrets", "made") == ("admin", "sysadmin", False) * 2
    house.user("second", "sysadmin")
    ask("UPDATE SECRET made WITH ('description' = 'd')", user="second", role="sysadmin")
    assert told("secrets", "made") == ("admin", "sysadmin", False, "second", "sysadmin", False)
    ask("GRANT OWNERSHIP ON DATABASE made TO sysadmin", role="orgadmin")
    assert told("databases", "made") == (*by_maker, "admin", "orgadmin", False)
    ask("GRANT OWNERSHIP ON SCHEMA made.inner_one TO sysadmin", "GRANT OWNERSHIP ON SCHEMA made.public TO sysadmin",
        "DROP ROLE makers", role="orgadmin")  # fmt: skip
    assert told("databases", "made")[:3] == ("admin", "makers", True)
    assert told("compute_pools", "default") == (None,) * 6
