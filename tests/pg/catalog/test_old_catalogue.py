"""What the version before roles left (``revision_0001.sql``) is opened by this one, and everything in it is usable."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from pgstream.catalog import migrations
from pgstream.catalog.privileges import ADMIN
from pgstream.catalog.records import ObjectRecord
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.cluster import binaries
from pgstream.embedded.postgres import Postgres
from pgstream.names import FullName
from tests.pg.catalog.conftest import wipe
from tests.pg.catalog.test_catalog import query, stream, view

pytestmark = pytest.mark.pg
COUNTS = FullName("main", "public", "counts")


@pytest.fixture
async def old(postgres: Postgres, config: Config) -> AsyncIterator[Catalog]:
    wipe(postgres)
    dump = Path(__file__).with_name("revision_0001.sql")
    command = [binaries() / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", postgres.url("postgres"), "-f", dump]
    restored = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert restored.returncode == 0, restored.stderr
    settings = dataclasses.replace(config, secret_key="of the fixture")
    catalog = await Catalog.open(settings, postgres.url, config.data_dir)
    yield catalog
    await catalog.close()


async def test_everything_is_there_and_usable(old: Catalog, ask) -> None:
    snapshot = old.snapshot
    assert ask("SELECT version_num FROM alembic_version", None, "pgstream_control") == [[migrations.HEAD]]
    assert set(snapshot.databases) == {"main", "Sales"}
    assert {s.full_name for s in snapshot.schemas.values()} == {
        'main.public', 'main."Odd ""schema"""', '"Sales".public'
    }  # fmt: skip
    assert sorted((r.full.name, r.kind) for r in snapshot.relations.values()) == [
        ("counts", "materialized_view"), ("gone_by", "materialized_view"), ("in sales", "changelog"),
        ("pageviews", "stream"),
    ]  # fmt: skip
    assert (await old.store_options("k"))["kafka.sasl.password"] == "hush-1"
    # The first user may do everything, with the password that it had.
    assert snapshot.access.administrators == {"admin"} and ADMIN in snapshot.access.usable("admin")
    assert ask("SELECT * FROM counts ORDER BY 1") == [["ann", 7], ["bob", 1]]
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot be read as a table"):
        ask('SELECT * FROM "in sales"', database="Sales")
    # What PostgreSQL itself keeps for a client is its own still.
    assert ask("SELECT * FROM mine") == [[1]]
    ask("INSERT INTO mine VALUES (2)")


async def test_queries_go_on_where_they_were(old: Catalog, ask) -> None:
    running, ended = sorted(await old.queries(include_ended=True), key=lambda q: q.actual)
    assert (running.actual, running.intended, running.attempt, running.pool) == ("running", "running", 2, "default")
    assert ended.actual == "terminated"
    assert ask(f"SELECT batch, attempt FROM pg_pgstream.ledger WHERE query = '{running.id}'", None) == [[41, 2]]
    with psycopg.connect(old.worker_url("main"), autocommit=True) as worker:
        worker.execute("INSERT INTO public.counts VALUES ('ann', 8) ON CONFLICT (userid) DO UPDATE SET n = excluded.n")
    assert ask("SELECT n FROM counts WHERE userid = 'ann'") == [[8]]


async def test_everything_can_be_changed_and_dropped(old: Catalog, reopen_old) -> None:
    await old.authority.create_role(ObjectRecord("role", "r", owner="useradmin"), inherits=(), members=("orgadmin",))
    await old.create_relation(stream("new"))
    made = await old.create_query(query("more"), view("more"))
    await old.set_query(made.id, intended="terminated", actual="terminated")
    for q in await old.queries(include_ended=True):
        await old.set_query(q.id, intended="terminated", actual="terminated")
    await old.update_store("k", {"uris": "127.0.0.1:2"}, frozenset())
    for full in [FullName(*key) for key in old.snapshot.relations]:
        await old.drop_relation(full)
    await old.drop_store("k")
    await old.drop_schema("main", 'Odd "schema"')
    await old.drop_database("Sales")
    again = await reopen_old()
    assert again.repaired == []
    assert (set(again.snapshot.databases), again.snapshot.relations) == ({"main"}, {})
    await again.close()


@pytest.fixture
def reopen_old(postgres: Postgres, config: Config, old: Catalog):
    async def again() -> Catalog:
        await old.close()
        return await Catalog.open(
            dataclasses.replace(config, secret_key="of the fixture"), postgres.url, config.data_dir
        )

    return again
