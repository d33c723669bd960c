"""An index of a materialized view is read in the superuser's session: a client's code runs neither there nor then."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.pg.access.conftest import House

pytestmark = pytest.mark.pg
THREE, SNOW = "\u0663", "\u2603"
"""A digit and a sign of other scripts, which to PostgreSQL are letters."""
CODE = (
    "CREATE FUNCTION public.tell(t text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
    " RAISE EXCEPTION 'told by %', session_user USING ERRCODE = 'MINE0'; END $$",
    "CREATE DOMAIN public.d AS text CHECK (public.tell(VALUE))",
    f"CREATE FUNCTION public.{THREE}f(a public.d[]) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
    f"CREATE FUNCTION {SNOW}pg_catalog.f(a public.d[]) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
    f"CREATE DOMAIN public.{THREE}d AS public.d",
)  # fmt: skip


@pytest.fixture(scope="module")
def mal(house: House) -> Iterator[psycopg.Connection]:
    """Who owns a view and may make functions."""
    with house.connect() as admin:
        admin.execute("USE ROLE useradmin")
        admin.execute("CREATE ROLE low WITH (ROLE (sysadmin))")
        admin.execute("USE ROLE sysadmin")
        admin.execute(f'CREATE SCHEMA "{SNOW}pg_catalog"'.encode())
        admin.execute("GRANT USAGE ON DATABASE main TO ROLE low")
        for schema in ("public", f'"{SNOW}pg_catalog"'):
            admin.execute(f"GRANT USAGE, CREATE ON SCHEMA main.{schema} TO ROLE low".encode())
    house.user("mal", "low")
    house.relation("lows_rows", "materialized_view", owner="low")
    house.superuser("INSERT INTO lows_rows VALUES (1, 'x')", "main")
    with house.connect("mal") as mal:
        for text in CODE:
            mal.execute(text.encode())
        yield mal


@pytest.mark.parametrize(
    "definition",
    [
        f"((public .{THREE}f('{{x}}')))", f"(id) WHERE {SNOW}pg_catalog.f('{{x}}') = 1",
        f"(('{{x}}'::public .{THREE}d[]))", "((pg_catalog.public.tell('x')))", "((pg_catalog\u00a0.f('x')))",
    ],
)  # fmt: skip
def test_an_index_runs_no_clients_code(mal: psycopg.Connection, definition: str) -> None:
    with pytest.raises(psycopg.Error) as e:
        mal.execute(f"CREATE INDEX ON lows_rows {definition}".encode())
    assert e.value.sqlstate == "0A000", e.value


def test_numbers_and_names_of_postgresqls_own(mal: psycopg.Connection) -> None:
    for definition in (
        "((id * 1.5)) WHERE id > .5 AND secret <> 'a.b;'", "((pg_catalog .abs(id)), secret pg_catalog.text_ops)",
        '((id::numeric)) WHERE "pg_catalog".length(secret) > 1.' ,
    ):  # fmt: skip
        try:
            mal.execute(f"CREATE INDEX numbered ON lows_rows {definition}".encode())
        except psycopg.errors.FeatureNotSupported:
            assert '"pg_catalog"' in definition  # in quotes it is taken for any name
        else:
            mal.execute("DROP INDEX numbered")
