"""Simple objects in the catalogue, and the upgrade of an older one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from pgstream.catalog import migrations
from pgstream.catalog.records import DEFAULT_ORGANIZATION, ObjectRecord
from pgstream.catalog.store import Catalog
from pgstream.errors import DependentsExist, DuplicateObject, UndefinedObject

pytestmark = pytest.mark.pg
SECRET = ObjectRecord("secret", "s", "GENERIC_SECRET", {"description": "d"}, "sysadmin")


async def test_every_catalogue_has_an_organization_and_a_pool(catalog: Catalog) -> None:
    assert ("", "organization", "default") in catalog.snapshot.objects
    assert (DEFAULT_ORGANIZATION, "compute_pool", "default") in catalog.snapshot.objects


async def test_secrets_are_apart_and_encrypted(catalog: Catalog, ask) -> None:
    made = await catalog.inventory.create(SECRET, {"secret_string": "hush"})
    assert catalog.snapshot.objects[SECRET.key] == made
    assert await catalog.inventory.secrets(made) == {"secret_string": "hush"}
    kept = ask("SELECT value FROM object_secrets", user=None, database="pgstream_control")
    assert kept and all(b"hush" not in bytes(v) for (v,) in kept)
    with pytest.raises(DuplicateObject, match='secret "s" already exists') as e:
        await catalog.inventory.create(SECRET, at=3)
    assert (e.value.ds_code, e.value.at) == ("42P014", 3)
    changed = await catalog.inventory.update(replace(made, options={}), {"other": "x"})
    assert (changed.options, await catalog.inventory.secrets(changed)) == ({}, {"other": "x"})
    await catalog.inventory.drop(SECRET.key)
    assert ask("SELECT * FROM object_secrets", user=None, database="pgstream_control") == []
    with pytest.raises(UndefinedObject, match='secret "s" does not exist') as gone:
        await catalog.inventory.drop(SECRET.key)
    assert gone.value.ds_code == "3D016"


async def test_what_others_name_stays(catalog: Catalog) -> None:
    source = ObjectRecord("function_source", "jar", owner="sysadmin")
    function = ObjectRecord("function", "f(VARCHAR)", options={"source.name": "jar"}, owner="sysadmin")
    await catalog.inventory.create(source)
    await catalog.inventory.create(function)
    with pytest.raises(DependentsExist) as e:
        await catalog.inventory.drop(source.key)
    assert e.value.detail == "Used by: function f(VARCHAR)."
    await catalog.inventory.drop(function.key)
    await catalog.inventory.drop(source.key)


async def test_defaults_of_users(catalog: Catalog) -> None:
    await catalog.inventory.set_default("admin", DEFAULT_ORGANIZATION, "schema", "a")
    await catalog.inventory.set_default("admin", DEFAULT_ORGANIZATION, "schema", "b")
    assert catalog.snapshot.defaults == {("admin", DEFAULT_ORGANIZATION): {"schema": "b"}}


async def test_a_catalogue_of_the_first_version_is_upgraded(postgres, catalog: Catalog, reopen, ask) -> None:
    """Brought back to the tables of revision 0001 with rows in them, then opened."""
    await catalog.create_store("k", "kafka", {"uris": "b:9092"}, frozenset(), "sysadmin")
    async with catalog._engine.begin() as connection:
        for table in ("object_secrets", "objects", "defaults", "memberships", "grants", "policies", "changes",
                      "system_copies", "query_events", "token_uses"):  # fmt: skip
            await connection.execute(text(f"DROP TABLE {table}"))
        await connection.execute(text("DROP FUNCTION log_change CASCADE"))
        await connection.execute(text("DROP FUNCTION sign_change CASCADE"))
        for table in ("databases", "schemas", "stores", "relations", "queries"):
            for column in ("created_by", "created_by_role", "updated_by", "updated_by_role"):
                await connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        await connection.execute(text("ALTER TABLE queries ADD COLUMN sink text NOT NULL"))
        await connection.execute(text("ALTER TABLE queries DROP COLUMN pool, DROP COLUMN sinks, DROP COLUMN tags"))
        await connection.execute(text("ALTER TABLE relations DROP COLUMN row_security"))
        await connection.execute(text("DELETE FROM meta WHERE key IN ('first_roles', 'first_user')"))
        await connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    again = await reopen()
    assert set(again.snapshot.stores) == {"k"}
    assert (DEFAULT_ORGANIZATION, "compute_pool", "default") in again.snapshot.objects
    assert ask("SELECT version_num FROM alembic_version", None, "pgstream_control") == [[migrations.HEAD]]
    await again.close()
