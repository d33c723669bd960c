"""Privileges through the front door: what roles see, may do, and cannot get round."""

from __future__ import annotations

import psycopg
import pytest

from tests.pg.access.conftest import Ask, House

pytestmark = pytest.mark.pg
SEES_MAIN = ("GRANT USAGE ON DATABASE main TO ROLE {}", "GRANT USAGE ON SCHEMA main.public TO ROLE {}")


@pytest.fixture(scope="module")
def analyst(house: House) -> str:
    """A role of a user ``ann``, who has no other."""
    with house.connect() as conn:
        conn.execute("USE ROLE useradmin")
        conn.execute("CREATE ROLE analyst")
        conn.execute("GRANT ROLE analyst TO ROLE sysadmin")
    house.user("ann", "analyst")
    return "analyst"


def refused(ask: Ask, text: str, **who: str) -> str:
    with pytest.raises(psycopg.Error) as e:
        ask(text, **who)
    return f"{e.value.diag.sqlstate} {e.value.diag.message_primary}"


def test_a_database_without_usage_does_not_exist(house: House, ask: Ask, analyst: str) -> None:
    with pytest.raises(psycopg.OperationalError, match='database "main" does not exist'):
        house.connect("ann")
    ask("GRANT USAGE ON DATABASE main TO ROLE analyst")
    assert ask("LIST DATABASES", user="ann")[0][0] == "main"
    assert ask("SELECT current_user, session_user", user="ann") == [("analyst", "ann")]
    assert refused(ask, "LIST RELATIONS", user="ann") == '3F000 schema "public" does not exist'
    assert refused(ask, "USE SCHEMA public", user="ann") == '3F000 schema "public" does not exist'
    assert refused(ask, "CREATE SCHEMA s", user="ann") == "42501 permission denied for database main"
    assert refused(ask, "DROP DATABASE main", user="ann") == "42501 permission denied for database main"


def test_streams_are_read_with_select_only(house: House, ask: Ask, analyst: str) -> None:
    ask(*(g.format(analyst) for g in SEES_MAIN))
    house.relation("clicks")
    for text in ("SELECT * FROM clicks", "DESCRIBE RELATION clicks", "DROP STREAM clicks",
                 "CREATE STREAM mine AS SELECT * FROM clicks", "DESCRIBE SELECT id FROM main.public.clicks",
                 "GRANT SELECT ON STREAM clicks TO ROLE analyst", "ALTER STREAM clicks OWNER TO analyst"):  # fmt: skip
        said = refused(ask, text, user="ann")
        assert said.startswith("42P01") or said.startswith("42501 permission denied for organization"), text
    assert ask("LIST RELATIONS", user="ann") == []
    ask("GRANT INSERT ON RELATION clicks TO ROLE analyst")
    for text in ("SELECT * FROM clicks", "SELECT id FROM TUMBLE(clicks, SIZE 1 MINUTE)",
                 "SELECT (SELECT max(id) FROM clicks)", "WITH c AS (SELECT * FROM clicks) SELECT * FROM c",
                 'SELECT * FROM (SELECT * FROM "main"."public"."clicks") x'):  # fmt: skip
        assert refused(ask, text, user="ann") == "42501 permission denied for relation clicks", text
    ask("GRANT SELECT ON RELATION clicks TO ROLE analyst")
    assert [r[0] for r in ask("LIST RELATIONS", user="ann")] == ["clicks"]
    # PostgreSQL's own view of it follows.
    assert refused(ask, "COPY clicks TO STDOUT", user="ann").startswith("42809")
    assert refused(ask, "DROP STREAM clicks", user="ann") == "42501 permission denied for relation clicks"
    ask("REVOKE ALL ON RELATION clicks FROM ROLE analyst")
    assert ask("LIST RELATIONS", user="ann") == []


def test_views_are_enforced_by_postgresql(house: House, ask: Ask, analyst: str) -> None:
    ask(*(g.format(analyst) for g in SEES_MAIN))
    house.relation("counts", "materialized_view")
    house.superuser("INSERT INTO public.counts VALUES (1, 'a'), (2, 'b')", "main")
    assert ask("SELECT count(*) FROM counts", role="sysadmin") == [(2,)]
    assert refused(ask, "SELECT id FROM counts", user="ann") == "42501 permission denied for table counts"
    ask("GRANT SELECT (id) ON counts TO analyst")
    assert ask("SELECT id FROM counts ORDER BY 1", user="ann") == [(1,), (2,)]
    assert refused(ask, "SELECT secret FROM counts", user="ann").startswith("42501")
    assert refused(ask, "SELECT * FROM counts", user="ann").startswith("42501")
    ask("GRANT SELECT ON MATERIALIZED VIEW counts TO ROLE analyst")
    assert ask("SELECT secret FROM counts ORDER BY 1", user="ann") == [("a",), ("b",)]
    ask("REVOKE SELECT ON counts FROM analyst")
    assert refused(ask, "SELECT id FROM counts", user="ann").startswith("42501")
    trigger = "CREATE TRIGGER t AFTER INSERT ON counts EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    for text in ("INSERT INTO counts VALUES (3)", "TRUNCATE counts", "DELETE FROM counts"):
        assert refused(ask, text, user="ann") == "42501 permission denied for table counts"
        assert refused(ask, text) == '42809 cannot change materialized view "counts"'
    for text in (trigger, "CREATE RULE r AS ON INSERT TO counts DO ALSO NOTHING"):
        assert (refused(ask, text)[:5], refused(ask, text, user="ann")[:5]) == ("42501", "42501"), text
    for text in ("ALTER TABLE counts ADD x int", "REFRESH MATERIALIZED VIEW counts"):
        assert (refused(ask, text)[:5], refused(ask, text, user="ann")[:5]) == ("0A000", "42P01"), text


def test_grant_options_and_ownership(house: House, ask: Ask, analyst: str) -> None:
    house.relation("orders")
    ask(*(g.format(analyst) for g in SEES_MAIN))
    ask("GRANT SELECT ON STREAM orders TO ROLE analyst")
    grant = "GRANT SELECT ON STREAM orders TO ROLE public"
    assert refused(ask, grant, user="ann") == "42501 permission denied for relation orders"
    ask("GRANT SELECT ON STREAM orders TO ROLE analyst WITH GRANT OPTION")
    ask(grant, user="ann")
    ask("REVOKE GRANT OPTION FOR SELECT ON STREAM orders FROM ROLE analyst")
    assert refused(ask, grant, user="ann").startswith("42501")
    # MANAGE_GRANTS may grant anything, to itself too.
    ask("GRANT SELECT ON STREAM orders TO ROLE securityadmin", role="securityadmin")
    assert refused(ask, "GRANT OWNERSHIP ON RELATION orders TO ROLE analyst", role="securityadmin").startswith("42P01")
    assert ask("GRANT OWNERSHIP ON RELATION orders TO ROLE analyst", role="sysadmin") == [
        ("ownership grant", "ALTER", 'Ownership of "main.public.orders" granted to role "analyst"')
    ]
    ask("DROP STREAM orders", user="ann")


def test_nothing_is_inherited_by_the_user(house: House, ask: Ask) -> None:
    ask("USE ROLE public")
    assert ask("SELECT current_user") == [("pgstream_public",)]
    assert refused(ask, "SELECT * FROM pg_catalog.pg_authid").startswith("42501")
    assert refused(ask, "CREATE TABLE public.t (i int)").startswith("42501")
    assert refused(ask, "CREATE DATABASE d", role="public").startswith("42501")
    ask("RESET ROLE")
    assert ask("SELECT current_user") == [("sysadmin",)]
    assert ask("CAN I CREATE_DATABASE") == [(True,)]
    # What poolers send between two sessions leaves no role; the session goes on in the one that it began in.
    ask("SET ROLE orgadmin", "DISCARD ALL")
    assert ask("SELECT current_user") == [("sysadmin",)]
    assert ask("CAN I MANAGE_GRANTS") == [(False,)]
    ask("SET ROLE orgadmin")
    assert ask("CAN I MANAGE_GRANTS") == [(True,)]
    ask("SET ROLE useradmin")
    assert ask("CAN I MANAGE_GRANTS") == [(False,)]


def test_users_stay_within_their_roles(house: House, ask: Ask, analyst: str) -> None:
    ask(*(g.format(analyst) for g in SEES_MAIN))
    assert refused(ask, "USE ROLE sysadmin", user="ann") == '42704 role "sysadmin" does not exist'
    for text in ("SET ROLE sysadmin", "SET ROLE pgstream_worker", "SET SESSION AUTHORIZATION admin",
                 "SELECT set_config('role', 'orgadmin', false)", "GRANT sysadmin TO ann", "ALTER ROLE ann CREATEROLE",
                 "ALTER ROLE ann INHERIT", "CREATE USER eve", "GRANT ROLE sysadmin TO USER 'ann'",
                 "GRANT ROLE orgadmin TO ROLE analyst", "CREATE ROLE mine", "DROP ROLE sysadmin",
                 "GRANT MANAGE_GRANTS ON ORGANIZATION TO ROLE analyst", "GRANT OWNERSHIP ON DATABASE main TO analyst",
                 "ALTER DATABASE main OWNER TO analyst", "ALTER SCHEMA public OWNER TO analyst",
                 "DROP SCHEMA public", "CREATE TABLE public.t (i int)",
                 "GRANT ALL ON SCHEMA public TO ROLE analyst", "COPY (SELECT 1) TO PROGRAM 'id'"):  # fmt: skip
        assert refused(ask, text, user="ann")[:5] in ("42501", "42704", "3F000"), text
    with pytest.raises(psycopg.OperationalError):
        house.connect("ann", options="-c role=sysadmin")
    assert refused(ask, "DESCRIBE USER 'admin'", user="ann").startswith("42501")
    assert refused(ask, "DESCRIBE ROLE sysadmin", user="ann").startswith("42704")


def test_a_revoked_role_ends_at_the_next_statement(house: House, ask: Ask, analyst: str) -> None:
    ask(*(g.format(analyst) for g in SEES_MAIN))
    house.user("bob", "analyst")
    assert ask("LIST DATABASES", user="bob")
    ask("REVOKE ROLE analyst FROM USER 'bob'", role="useradmin")
    assert refused(ask, "LIST DATABASES", user="bob") == "42501 permission denied for role analyst"
    with pytest.raises(psycopg.OperationalError):
        house.connect("bob")


def test_drop_role(house: House, ask: Ask) -> None:
    ask("CREATE ROLE brief", role="useradmin")
    ask("GRANT USAGE ON SCHEMA public TO ROLE brief", "GRANT USAGE ON DATABASE main TO ROLE brief", role="sysadmin")
    ask("GRANT ROLE brief TO ROLE sysadmin", role="useradmin")
    house.relation("owned", owner="brief")
    with pytest.raises(psycopg.Error) as e:
        ask("DROP ROLE brief", role="useradmin")
    assert e.value.diag.sqlstate == "2BP01" and e.value.diag.message_detail == "It owns relation main.public.owned."
    ask("DROP RELATION owned", role="sysadmin")
    assert ask("DROP ROLE brief", role="useradmin")[0][3] == 'role "brief" was successfully dropped'
    assert house.superuser("SELECT count(*) FROM pg_roles WHERE rolname = 'brief'") == [(0,)]
    assert refused(ask, "DROP ROLE sysadmin", role="useradmin").startswith("42939")


def test_a_shadowing_function_is_never_called_by_the_administrator(house: House, ask: Ask) -> None:
    """What a user makes under a system function's name, with arguments that fit better, stays unused."""
    ask("CREATE FUNCTION public.starts_with(name, text) RETURNS boolean LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'called as %', current_user; END$$", role="sysadmin")  # fmt: skip
    house.relation("trap", "materialized_view")
    house.run(
        house.catalog.discard_query(
            next(q.id for q in house.run(house.catalog.queries()) if q.sinks[0].endswith("trap"))
        )
    )
    ask("DROP FUNCTION public.starts_with")


def test_grants_are_made_again_at_the_next_start(house: House, ask: Ask, analyst: str) -> None:
    from pgstream.catalog import open as opening

    house.relation("kept", "materialized_view")
    ask("GRANT SELECT ON kept TO analyst", role="sysadmin")
    house.superuser("REVOKE ALL ON public.kept FROM analyst, sysadmin; GRANT INSERT ON public.kept TO analyst", "main")
    house.run(opening.heal(house.catalog._administrator, house.catalog.snapshot, ()))
    found = house.superuser(
        "SELECT grantee, privilege_type FROM information_schema.role_table_grants"
        " WHERE table_name = 'kept' AND grantee <> 'pgstream_worker' ORDER BY 1, 2", "main",
    )  # fmt: skip
    assert found == [("analyst", "SELECT"), ("sysadmin", "SELECT")]


@pytest.mark.parametrize("objects", [1, 2])
@pytest.mark.parametrize("before", ["", "BEGIN; "])
def test_what_goes_with_a_schema_is_told_as_postgresql_tells_it(house: House, before: str, objects: int) -> None:
    tables = "; ".join(f"CREATE TABLE going.t{n} (i int)" for n in range(objects))

    def notices(conn: psycopg.Connection) -> list[tuple[str | None, ...]]:
        told: list[tuple[str | None, ...]] = []
        conn.execute("CREATE SCHEMA going")
        conn.execute(tables.encode())
        conn.add_notice_handler(lambda d: told.append((d.severity, d.sqlstate, d.message_primary, d.message_detail)))
        for text in (*before.split(";")[:-1], "DROP SCHEMA going CASCADE", *(["COMMIT"] if before else [])):
            conn.execute(text.encode())
        return told

    with psycopg.connect(house.postgres.url("postgres"), autocommit=True) as direct, house.connect() as ours:
        assert notices(ours) == notices(direct) != []
