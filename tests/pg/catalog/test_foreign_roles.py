"""A PostgreSQL that is not pgstream's alone: roles of its names that its administrator has made, or made stronger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgstream.catalog.records import ObjectRecord
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import Postgres
from pgstream.errors import ConfigurationError
from tests.pg.catalog.conftest import wipe

ROLES = "SELECT rolname FROM pg_roles WHERE oid >= 16384 ORDER BY 1"


@pytest.fixture
def admin(postgres: Postgres) -> Iterator[psycopg.Connection[Any]]:
    wipe(postgres)
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as conn:
        yield conn


@pytest.mark.parametrize("name", ["sysadmin", "useradmin", "pgstream_public", "pgstream_worker"])
@pytest.mark.parametrize("kind", ["SUPERUSER LOGIN", "NOLOGIN"])
async def test_a_role_that_was_there_is_not_taken(
    postgres: Postgres, config: Config, admin: psycopg.Connection[Any], name: str, kind: str
) -> None:
    """And nothing is made; once it has gone, the start that was refused is no hindrance to the next."""
    admin.execute(f"CREATE ROLE {name} {kind}".encode())
    try:
        for _ in range(2):
            with pytest.raises(ConfigurationError) as e:
                await Catalog.open(config, postgres.url, config.data_dir)
            assert e.value.detail == f'They are: "{name}".'
            assert admin.execute(ROLES).fetchall() == [(name,)]
    finally:
        admin.execute(f"DROP ROLE {name}".encode())
    await (await Catalog.open(config, postgres.url, config.data_dir)).close()
    await (await Catalog.open(config, postgres.url, config.data_dir)).close()


@pytest.mark.parametrize(("name", "power"), [
    ("sysadmin", "SUPERUSER"), ("sysadmin", "LOGIN"), ("pgstream_public", "CREATEROLE"), ("mine", "BYPASSRLS"),
    ("pgstream_worker", "REPLICATION"),
])  # fmt: skip
async def test_one_that_has_become_stronger(catalog: Catalog, reopen, ask, name: str, power: str) -> None:
    await catalog.authority.create_role(ObjectRecord("role", "mine", owner="useradmin"), (), ())
    ask(f"ALTER ROLE {name} {power}", user=None)
    with pytest.raises(ConfigurationError) as e:
        await reopen()
    assert e.value.detail == f'"{name}" has {power}.'
    assert e.value.hint is not None
    ask(e.value.hint.removeprefix("Take them back: "), user=None)
    await (await reopen()).close()


async def test_the_first_user_inherits_nothing(postgres: Postgres, config: Config, admin, ask) -> None:
    admin.execute("CREATE ROLE admin LOGIN INHERIT PASSWORD 'x'")
    for _ in range(2):
        await (await Catalog.open(config, postgres.url, config.data_dir)).close()
        asked = "SELECT pg_has_role('admin', 'orgadmin', 'MEMBER'), pg_has_role('admin', 'orgadmin', 'USAGE')"
        assert admin.execute(asked).fetchone() == (True, False)
        admin.execute("ALTER ROLE admin INHERIT")
