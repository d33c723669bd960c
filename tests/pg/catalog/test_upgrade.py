"""A database laid out by an earlier version is brought to this one's layout at the first start."""

from __future__ import annotations

import psycopg
import pytest

from pgstream.catalog.objects import staging_stem
from pgstream.catalog.store import Catalog
from pgstream.errors import ConfigurationError
from tests.pg.catalog.test_catalog import query, stream, view

pytestmark = pytest.mark.pg

# What the version before made for a stream and a materialized view, after what this one made is taken away.
_BEFORE = """
DROP TABLE counts; DROP VIEW pageviews; DROP FUNCTION pg_catalog.pgstream_unreadable;
REVOKE ALL ON SCHEMA public FROM pgstream_worker;
ALTER SCHEMA pg_pgstream RENAME TO pgstream_state;
CREATE FUNCTION pgstream_state.unreadable(kind text, name text) RETURNS SETOF boolean
    LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '0A000'; END $$;
CREATE VIEW pageviews AS SELECT NULL::bigint AS viewtime FROM pgstream_state.unreadable('stream', 'pageviews');
CREATE TABLE pgstream_state.{0} (userid varchar, n bigint);
CREATE UNIQUE INDEX {0}_key ON pgstream_state.{0} (userid) NULLS NOT DISTINCT;
ALTER TABLE pgstream_state.{0} OWNER TO pgstream_worker;
CREATE VIEW counts AS SELECT userid, n FROM pgstream_state.{0};
GRANT SELECT ON counts, pageviews TO sysadmin;
INSERT INTO pgstream_state.{0} VALUES ('u', 1);
"""


@pytest.fixture
async def before(catalog: Catalog, ask) -> None:
    await catalog.create_relation(stream())
    made = view()
    await catalog.create_query(query("counts"), made)
    ask(_BEFORE.format(staging_stem(made.id)), user=None)


async def test_rows_stay_and_the_worker_goes_on(before, catalog: Catalog, reopen, ask) -> None:
    again = await reopen()
    with psycopg.connect(again.worker_url("main"), autocommit=True) as worker:
        worker.execute("INSERT INTO public.counts VALUES ('u', 2) ON CONFLICT (userid) DO UPDATE SET n = excluded.n")
    assert ask("SELECT * FROM counts") == [["u", 2]]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot be read as a table"):
        ask("SELECT * FROM pageviews")
    assert ask("SELECT nspname FROM pg_namespace WHERE nspname LIKE '%stream%'") == [["pg_pgstream"]]
    assert ask("SELECT count(*) FROM pg_pgstream.ledger", user=None) == [[1]]
    await again.close()


async def test_a_users_view_over_it_is_not_dropped(before, catalog: Catalog, reopen, ask) -> None:
    ask("CREATE VIEW mine AS SELECT * FROM counts")
    with pytest.raises(ConfigurationError) as e:
        await reopen()
    assert e.value.detail == "view public.mine depends on view public.counts"
    assert ask("SELECT * FROM mine") == [["u", 1]]


# What the version before roles had: PostgreSQL's roles without our rows, and a user who inherits and owns.
_CATALOG_BEFORE_ROLES = """
DROP TABLE memberships, grants, policies, changes, system_copies, query_events, token_uses;
DROP FUNCTION log_change CASCADE;
DROP FUNCTION sign_change CASCADE;
ALTER TABLE databases
    DROP COLUMN created_by, DROP COLUMN created_by_role, DROP COLUMN updated_by, DROP COLUMN updated_by_role;
ALTER TABLE schemas
    DROP COLUMN created_by, DROP COLUMN created_by_role, DROP COLUMN updated_by, DROP COLUMN updated_by_role;
ALTER TABLE stores
    DROP COLUMN created_by, DROP COLUMN created_by_role, DROP COLUMN updated_by, DROP COLUMN updated_by_role;
ALTER TABLE relations
    DROP COLUMN created_by, DROP COLUMN created_by_role, DROP COLUMN updated_by, DROP COLUMN updated_by_role;
ALTER TABLE queries
    DROP COLUMN created_by, DROP COLUMN created_by_role, DROP COLUMN updated_by, DROP COLUMN updated_by_role;
ALTER TABLE objects DROP COLUMN created_by_role, DROP COLUMN updated_by, DROP COLUMN updated_by_role;
ALTER TABLE queries ADD COLUMN sink text;
UPDATE queries SET sink = sinks->>0;
ALTER TABLE queries ALTER COLUMN sink SET NOT NULL, DROP COLUMN sinks, DROP COLUMN tags;
ALTER TABLE relations DROP COLUMN row_security;
DELETE FROM meta WHERE key IN ('first_roles', 'first_user');
DELETE FROM objects WHERE kind = 'role';
UPDATE alembic_version SET version_num = '0002';
REVOKE orgadmin FROM admin;
ALTER ROLE admin INHERIT;
GRANT orgadmin TO admin;
REVOKE pgstream_public FROM sysadmin, useradmin, securityadmin, orgadmin, admin;
"""
_MAIN_BEFORE_ROLES = """
DROP ROLE pgstream_public;
REVOKE ALL ON DATABASE main FROM PUBLIC;
GRANT CONNECT, TEMPORARY ON DATABASE main TO sysadmin, pgstream_worker;
CREATE TABLE public.mine (i int); ALTER TABLE public.mine OWNER TO admin; INSERT INTO public.mine VALUES (1);
"""


@pytest.fixture
async def before_roles(catalog: Catalog, ask) -> None:
    await catalog.create_relation(stream())
    await catalog.create_query(query("counts"), view())
    ask("REVOKE USAGE ON SCHEMA public FROM pgstream_public", user=None)
    ask(_CATALOG_BEFORE_ROLES, user=None, database="pgstream_control")
    ask(_MAIN_BEFORE_ROLES, user=None)


async def test_the_user_before_roles_works_in_one(before_roles, catalog: Catalog, reopen, ask) -> None:
    again = await reopen()
    access = again.snapshot.access
    assert access.roles_of("admin") == ("orgadmin",) and again.snapshot.first_role("admin") == "sysadmin"
    assert access.manages("sysadmin", "create_store") and not access.manages("sysadmin", "manage_members")
    assert {o.name for o in again.snapshot.objects.values() if o.kind == "role"} == {
        "orgadmin", "public", "securityadmin", "sysadmin", "useradmin"
    }  # fmt: skip
    # Nothing is inherited, in PostgreSQL as little as here; what the user owned is the role's.
    assert ask("SELECT pg_has_role('admin', 'orgadmin', 'usage'), pg_has_role('admin', 'orgadmin', 'member')") == [
        [False, True]
    ]
    assert ask("SELECT * FROM mine") == [[1]] and ask("SELECT count(*) FROM counts") == [[0]]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask("SET ROLE NONE; SELECT * FROM public.mine")
    # Once: what is changed afterwards stays.
    third = await reopen()
    assert third.snapshot.access == access
    await third.close()
    await again.close()


async def test_an_upgrade_cut_short_is_finished_by_the_next_start(
    before_roles, catalog: Catalog, reopen, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(*_: object) -> None:
        raise ConfigurationError(what="cut")

    with monkeypatch.context() as m:
        m.setattr("pgstream.catalog.authority.users_before", cut)
        with pytest.raises(ConfigurationError, match="cut"):
            await reopen()
    again = await reopen()
    assert again.snapshot.access.roles_of("admin") == ("orgadmin",)
    assert ask("SELECT pg_has_role('admin', 'orgadmin', 'usage')") == [[False]]
    await again.close()
