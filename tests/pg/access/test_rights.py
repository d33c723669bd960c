"""What a query's owner role must still have when it starts again; GRANT in the forms that PostgreSQL's tools send."""

from __future__ import annotations

import psycopg
import pytest

from pgstream.catalog import rights
from pgstream.catalog.records import QueryRecord
from tests.pg.access.conftest import Ask, House

pytestmark = pytest.mark.pg


@pytest.fixture(scope="module")
def keepers(house: House) -> str:
    """A role that owns a query over a stream of another's, into a view of its own."""
    with house.connect() as conn:
        for text in ("USE ROLE useradmin", "CREATE ROLE keepers WITH (ROLE (sysadmin))", "USE ROLE sysadmin",
                     "GRANT USAGE ON DATABASE main TO ROLE keepers"):  # fmt: skip
            conn.execute(text.encode())
    return "keepers"


def refused(ask: Ask, text: str, **who: str) -> str:
    with pytest.raises(psycopg.Error) as e:
        ask(text, **who)
    return f"{e.value.diag.sqlstate} {e.value.diag.message_primary}"


def test_what_a_query_has_lost(house: House, ask: Ask, keepers: str) -> None:
    house.relation("rights_in")
    view = house.relation("rights_out", "materialized_view", owner="keepers")
    query = QueryRecord(
        id="q", name=None, version=1, kind="create_materialized_view_as", sql="", plan=b"", stores=(), owner="keepers",
        database="main", sources=("main.public.rights_in",), sinks=(str(view.full),),
    )  # fmt: skip

    def lost() -> str | None:
        return rights.lost(house.catalog.snapshot, query)

    assert lost() == 'role "keepers" does not have CREATE_QUERY on the organization'
    ask("GRANT CREATE_QUERY ON ORGANIZATION TO ROLE keepers", role="securityadmin")
    assert lost() == 'role "keepers" does not have USAGE on schema main.public'
    ask("GRANT USAGE ON SCHEMA public TO keepers", role="sysadmin")
    assert lost() == 'role "keepers" does not have SELECT on relation main.public.rights_in'
    ask("GRANT SELECT ON RELATION rights_in TO ROLE keepers")
    assert lost() is None
    ask("REVOKE USAGE ON COMPUTE_POOL default FROM ROLE public")
    assert lost() == 'role "keepers" does not have USAGE on compute pool default'
    ask("GRANT USAGE ON COMPUTE_POOL default TO ROLE public")
    house.run(house.catalog.authority.give("relation", "main.public.rights_out", "sysadmin"))
    assert lost() == 'role "keepers" does not have INSERT on relation main.public.rights_out'
    ask("GRANT INSERT ON RELATION rights_out TO ROLE keepers", role="sysadmin")
    assert lost() is None
    ask("REVOKE SELECT ON RELATION rights_in FROM ROLE keepers")
    assert lost() == 'role "keepers" does not have SELECT on relation main.public.rights_in'


def test_what_a_reader_has_lost(house: House, ask: Ask, keepers: str) -> None:
    for name in ("read_by_right", "read_otherwise"):
        house.relation(name)
    ask("GRANT USAGE ON SCHEMA public TO keepers", "GRANT SELECT ON RELATION read_by_right TO ROLE keepers",
        role="sysadmin")  # fmt: skip
    names = [f"main.public.{n}" for n in ("read_by_right", "read_otherwise", "there_is_none")]
    reading = rights.Reading.of(house.catalog.snapshot, "admin", "keepers", names)

    def lost(r: rights.Reading) -> str | None:
        found = r.lost(house.catalog.snapshot)
        return None if found is None else f"{found.text}: {found.detail}"

    assert lost(reading) is None
    ask("REVOKE SELECT ON RELATION read_by_right FROM ROLE keepers", role="sysadmin")
    assert lost(reading) == (
        'permission denied for relation main.public.read_by_right: Role "keepers" does not have SELECT on relation '
        "main.public.read_by_right, which it had when rows began to be read."
    )
    ask("GRANT SELECT ON RELATION read_by_right TO ROLE keepers", "REVOKE USAGE ON SCHEMA public FROM keepers",
        role="sysadmin")  # fmt: skip
    assert "does not have USAGE on schema main.public" in str(lost(reading))
    ask("GRANT USAGE ON SCHEMA public TO keepers", role="sysadmin")
    assert lost(reading) is None
    house.relation("read_and_gone")
    ask("GRANT SELECT ON RELATION read_and_gone TO ROLE keepers", role="sysadmin")
    gone = rights.Reading.of(house.catalog.snapshot, "admin", "keepers", ["main.public.read_and_gone"])
    ask("DROP RELATION read_and_gone", role="sysadmin")
    assert str(lost(gone)).startswith('relation "main.public.read_and_gone" does not exist')
    ask("CREATE ROLE passing", "GRANT ROLE passing TO USER 'admin'", role="useradmin")
    passing = rights.Reading.of(house.catalog.snapshot, "admin", "passing", [])
    assert lost(passing) is None
    ask("DROP ROLE passing", role="useradmin")
    assert str(lost(passing)).startswith("permission denied for role passing")


def test_grants_as_postgresql_has_them(house: House, ask: Ask, keepers: str) -> None:
    """Adopted, so that no start takes them back, or refused with what to do; PostgreSQL alone never gives half."""
    house.relation("direct", "materialized_view")
    ask("CREATE SCHEMA granted", role="sysadmin")
    ask("GRANT USAGE, CREATE ON SCHEMA granted TO keepers", "GRANT USAGE ON SCHEMA main.granted TO keepers",
        "GRANT ALL ON direct TO keepers", "GRANT ALL PRIVILEGES ON TABLE public.direct TO keepers",
        "REVOKE CREATE ON SCHEMA granted FROM keepers", "GRANT CREATE ON DATABASE main TO keepers")  # fmt: skip
    held = {(r[0], r[1], r[2]) for r in ask("DESCRIBE ROLE keepers", role="useradmin")}
    assert {("schema", "main.granted", "usage"), ("relation", "main.public.direct", "select"),
            ("relation", "main.public.direct", "insert"), ("database", "main", "create")} <= held  # fmt: skip
    assert ("schema", "main.granted", "create") not in held
    ask("SELECT 1", role="sysadmin")
    for text in (
        "GRANT SELECT ON other.direct, direct TO keepers", "GRANT UPDATE ON direct, direct TO keepers",
        "GRANT TEMPORARY ON DATABASE main TO keepers", "GRANT SELECT ON ALL TABLES IN SCHEMA nope TO keepers",
    ):  # fmt: skip
        assert refused(ask, text)[:5] in ("3F000", "0LP01"), text
    # What is PostgreSQL's own stays so.
    ask("CREATE TABLE granted.mine (i int)", "GRANT SELECT ON granted.mine TO keepers",
        "GRANT SELECT ON ALL TABLES IN SCHEMA granted TO keepers", "DROP TABLE granted.mine")  # fmt: skip


def test_what_every_manual_of_a_tool_says(house: House, ask: Ask) -> None:
    """CONNECT, USAGE and SELECT ON ALL TABLES: relations of ours and tables of PostgreSQL's in one statement."""
    ask("CREATE ROLE bi", role="useradmin")
    ask("CREATE SCHEMA shop", "USE SCHEMA shop", role="sysadmin")
    house.user("grafana", "bi")
    house.relation("shown", "materialized_view", "shop")
    house.relation("flows", "stream", "shop")
    ask("CREATE TABLE shop.own (a int)", 'CREATE VIEW shop."Own view" AS SELECT 1 AS a')
    ask("GRANT CONNECT ON DATABASE main TO bi", "GRANT USAGE ON SCHEMA main.shop, public TO bi")
    notices: list[str] = []
    with house.connect() as conn:
        conn.add_notice_handler(lambda d: notices.append(d.message_primary or ""))
        conn.execute("USE ROLE sysadmin")
        found = conn.execute("GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA shop TO bi").fetchall()
    assert [row[2] for row in found] == [
        'Privilege(s) SELECT on relation "main.shop.shown" granted to role(s) "bi"',
        'Privilege(s) SELECT on relation "main.shop.flows" granted to role(s) "bi"',
        'Privilege(s) SELECT, UPDATE on table(s) shop."Own view", shop.own granted to role(s) "bi"',
    ]
    with house.connect("grafana") as conn:
        for name in ("shown", "own", '"Own view"'):
            conn.execute(f"SELECT * FROM shop.{name}".encode())
        conn.execute("UPDATE shop.own SET a = 1")
        assert {row[0] for row in conn.execute("LIST RELATIONS IN SCHEMA shop").fetchall()} == {"shown", "flows"}
    with house.connect() as conn:
        conn.add_notice_handler(lambda d: notices.append(d.message_primary or ""))
        conn.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA shop FOR ROLE CURRENT_ROLE GRANT SELECT ON TABLES TO bi")
        with pytest.raises(psycopg.errors.UndefinedObject) as e:
            conn.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT SELECT ON TABLES TO nobody")
        assert e.value.diag.message_primary == 'role "nobody" does not exist'
    assert notices == ["relations of pgstream take no default privileges"]
    ask("CREATE TABLE shop.later (a int)")
    assert ask("SELECT * FROM shop.later", user="grafana") == []
    ask("REVOKE UPDATE ON ALL TABLES IN SCHEMA shop FROM bi", "REVOKE SELECT ON shop.own, shop.shown FROM bi")
    for text, code in (("UPDATE shop.own SET a = 1", "42501"), ("SELECT * FROM shop.own", "42501"),
                       ("SELECT * FROM shop.shown", "42501")):  # fmt: skip
        assert refused(ask, text, user="grafana")[:5] == code, text
    assert ask('SELECT a FROM shop."Own view"', user="grafana") == [(1,)]
    assert "shown" not in {row[0] for row in ask("LIST RELATIONS IN SCHEMA shop", user="grafana")}
    # Who manages grants need not see relations.
    ask("GRANT SELECT ON shop.shown, shop.flows TO ROLE bi", role="securityadmin")
    ask("REVOKE SELECT ON shop.shown, shop.flows FROM ROLE bi")
    # What PostgreSQL refuses, nobody has.
    ask("CREATE ROLE others", "GRANT ROLE others TO USER 'admin'", role="useradmin")
    ask("GRANT USAGE, CREATE ON SCHEMA shop TO others", role="sysadmin")
    ask("CREATE TABLE shop.foreign (a int)", role="others")
    text = "GRANT SELECT ON shop.shown, shop.foreign TO bi"
    ask("SELECT 1", role="sysadmin")
    assert refused(ask, text) == "42501 permission denied for table foreign"
    assert refused(ask, "SELECT * FROM shop.shown", user="grafana")[:5] == "42501"
