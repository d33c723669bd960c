"""Functions that run with others' rights, and tables that the superuser writes into: neither runs a client's code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgstream.catalog.privileges import Grant
from pgstream.catalog.records import ObjectRecord
from tests.pg.access.conftest import House

TEMPORARY = """
CREATE FUNCTION pg_temp.planted() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN RAISE NOTICE 'runs as %', current_user; RETURN true; END $$;
CREATE TEMPORARY VIEW pg_class AS SELECT c.oid, relname, relnamespace FROM pg_catalog.pg_class c
    WHERE pg_temp.planted();
CREATE TEMPORARY VIEW pg_namespace AS SELECT n.oid, nspname FROM pg_catalog.pg_namespace n WHERE pg_temp.planted();
CREATE TEMPORARY VIEW pg_roles AS SELECT r.oid, session_user AS rolname FROM pg_catalog.pg_roles r
    WHERE r.rolname = 'admin' AND pg_temp.planted();
DO $$ BEGIN EXECUTE 'GRANT SELECT ON pg_temp.pg_class, pg_temp.pg_namespace, pg_temp.pg_roles TO PUBLIC'; END $$
"""


@pytest.fixture
def mal(house: House) -> Iterator[psycopg.Connection[Any]]:
    """May connect, and no more."""
    if not house.superuser("SELECT 1 FROM pg_roles WHERE rolname = 'mal'"):
        house.run(house.catalog.authority.create_role(ObjectRecord("role", "few", owner="useradmin"), (), ()))
        house.user("mal", "few")
        grants = [Grant("few", "usage", "database", "main"), Grant("few", "usage", "schema", "main.public")]
        house.run(house.catalog.authority.grant(grants))
        house.relation("counts", "materialized_view")
    with house.connect("mal") as conn:
        yield conn


def test_temporary_relations_are_not_taken_for_postgresqls(house: House, mal: psycopg.Connection[Any]) -> None:
    heard: list[str] = []
    mal.add_notice_handler(lambda d: heard.append(d.message_primary or ""))
    mal.execute(TEMPORARY)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        mal.execute("SELECT pgstream_wait_for('public.counts', 'a:0:0', '0 s')")
    with pytest.raises(psycopg.Error, match="is not a materialized view"):
        mal.execute("SELECT pgstream_wait_for('pg_catalog.pg_type', 'a:0:0', '0 s')")
    with house.connect("admin"):
        seen = mal.execute("SELECT DISTINCT usesysid::regrole::text FROM pgstream_own_activity(NULL)")
        assert seen.fetchall() == [("mal",)]
    assert heard == []
    assert mal.execute("SELECT count(*) > 0 FROM pg_temp.pg_roles").fetchone() == (True,)
    assert heard[0] == "runs as few"  # it would have told


def test_each_looks_at_temporary_objects_last(house: House, mal: psycopg.Connection[Any]) -> None:
    with house.connect("admin") as admin:
        admin.execute("SELECT 1 FROM deltastream.sys.relations LIMIT 1")
    for database in ("main", "postgres", "pgstream_control"):
        found = house.superuser("SELECT proname, proconfig FROM pg_proc WHERE prosecdef", database)
        assert len(found) == (2 if database == "main" else 0)
        for name, settings in found:
            paths = [s for s in settings or () if s.startswith("search_path=")]
            assert paths and paths[0].endswith(", pg_temp"), name


@pytest.mark.parametrize("table", ["ledger", "system"])
def test_what_the_superuser_writes_is_no_one_elses(house: House, mal: psycopg.Connection[Any], table: str) -> None:
    """Whoever becomes the worker, who keeps the views, does not become the superuser by a trigger of its own."""
    with house.connect("admin") as admin:
        admin.execute("SELECT 1 FROM deltastream.sys.relations LIMIT 1")
    with psycopg.connect(house.catalog.worker_url("main"), autocommit=True) as worker:
        assert worker.execute(f"SELECT count(*) FROM pg_pgstream.{table}".encode()).rowcount == 1
        worker.execute("CREATE FUNCTION pg_pgstream.t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        for text in (
            f"CREATE TRIGGER t AFTER INSERT ON pg_pgstream.{table} EXECUTE FUNCTION pg_pgstream.t()",
            f"CREATE RULE r AS ON INSERT TO pg_pgstream.{table} DO ALSO SELECT 1",
            f"DROP TABLE pg_pgstream.{table}",
            f"ALTER TABLE pg_pgstream.{table} RENAME TO x",
            "ALTER SCHEMA pg_pgstream RENAME TO x",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(text.encode())
        worker.execute("DROP FUNCTION pg_pgstream.t()")


@pytest.mark.parametrize("work", ["truncate", "expire"])
def test_the_rows_of_a_view_go_as_its_owner_takes_them(house: House, work: str) -> None:
    """Not as the superuser takes them, with a trigger of the owner's."""
    kept = house.relation(f"kept_{work}", "materialized_view", properties={"retention.millis": "1", "timestamp": "id"})
    with psycopg.connect(house.catalog.worker_url("main"), autocommit=True) as worker:
        worker.execute(
            f"""
            CREATE TABLE pg_pgstream.s_0_0 AS SELECT session_user AS who LIMIT 0;
            CREATE FUNCTION pg_pgstream.t() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN INSERT INTO pg_pgstream.s_0_0 VALUES (session_user); RETURN NULL; END';
            INSERT INTO public.kept_{work} VALUES (1, 'x');
            CREATE TRIGGER t AFTER DELETE ON public.kept_{work} EXECUTE FUNCTION pg_pgstream.t()""".encode()
        )
        if work == "truncate":
            house.run(house.catalog.truncate_relation(kept.full))
        else:
            assert house.run(house.catalog.expire_rows(kept)) == 1
        assert worker.execute("SELECT * FROM pg_pgstream.s_0_0").fetchall() == [("pgstream_worker",)]
        assert worker.execute(f"SELECT count(*) FROM public.kept_{work}".encode()).fetchone() == (0,)
        worker.execute("DROP TABLE pg_pgstream.s_0_0; DROP FUNCTION pg_pgstream.t() CASCADE")
