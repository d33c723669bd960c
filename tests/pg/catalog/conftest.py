"""One embedded PostgreSQL for the module's tests, and a fresh catalogue in it for each test."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import Postgres, open_postgres


async def eventually(probe: Any) -> None:
    async with asyncio.timeout(30):
        while not probe():  # noqa: ASYNC110 - any condition at all
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    config = Config(data_dir=tmp_path_factory.mktemp("data"))
    runner = asyncio.Runner()
    try:
        running = runner.run(open_postgres(config))
        yield running
        runner.run(running.stop())
    finally:
        runner.close()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, admin_password="first's password")


def wipe(postgres: Postgres) -> None:
    """Drop every database and role that a catalogue made."""
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as conn:
        names = conn.execute(
            "SELECT datname FROM pg_database WHERE datname NOT IN ('postgres', 'template0', 'template1')"
        )
        for (name,) in names.fetchall():
            conn.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        roles = conn.execute("SELECT rolname FROM pg_roles WHERE NOT rolsuper AND oid >= 16384")
        for (name,) in roles.fetchall():
            conn.execute(f'DROP ROLE IF EXISTS "{name}"')


@pytest.fixture
async def catalog(postgres: Postgres, config: Config) -> AsyncIterator[Catalog]:
    wipe(postgres)
    opened = await Catalog.open(config, postgres.url, config.data_dir)
    yield opened
    await opened.close()


@pytest.fixture
def reopen(postgres: Postgres, config: Config, catalog: Catalog):
    """Close the catalogue and open it again, as the next start of the server would."""

    async def again(**settings: object) -> Catalog:
        await catalog.close()
        return await Catalog.open(dataclasses.replace(config, **settings), postgres.url, config.data_dir)

    return again


@pytest.fixture
def ask(postgres: Postgres):
    """Run SQL as the first user (or another) in a database; rows as lists."""

    def run(sql: str, user: str | None = "admin", database: str = "main", password: str = "first's password") -> list:
        url = postgres.url(database, user, password) if user else postgres.url(database)
        # A user inherits nothing: it works in the role that it takes.
        with psycopg.connect(url, autocommit=True, options="-c role=sysadmin" if user == "admin" else "") as conn:
            found = conn.execute(sql)
            return [list(r) for r in found.fetchall()] if found.description else []

    return run


@pytest.fixture
def write(catalog: Catalog):
    """Run statements as the worker does, in one transaction."""

    def run(*statements: str) -> None:
        with psycopg.connect(catalog.worker_url("main")) as worker:
            for statement in statements:
                worker.execute(statement.encode())

    return run
