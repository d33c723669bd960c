"""Sixteen sessions change the catalogue at random at the same time: none hangs, none sees an internal error or a
deadlock, and at the end the catalogue and PostgreSQL agree."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from pathlib import Path

import psycopg
import pytest

from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from tests.pg.catalogues.conftest import _furnish
from tests.server import PASSWORD, Server

pytestmark = pytest.mark.pg
SEED = int(os.environ.get("PGSTREAM_TEST_SEED", "16"))
SESSIONS, EACH = 16, 25
STATEMENTS = (
    "CREATE SCHEMA {n}", "CREATE SCHEMA IF NOT EXISTS {n}", "DROP SCHEMA {n}", "DROP SCHEMA IF EXISTS {n}",
    "CREATE SECRET {n} WITH ('type' = GENERIC_SECRET, 'secret_string' = 'x')", "DROP SECRET {n}",
    "UPDATE SECRET {n} WITH ('description' = 'd')", "CREATE COMPUTE_POOL {n}", "DROP COMPUTE_POOL {n}",
    "CREATE INDEX {n} ON views_per_user (n)", "DROP INDEX {n}", "ALTER RELATION pageviews SET description = '{n}'",
    "ALTER RELATION views_per_user SET description = '{n}'", "TRUNCATE RELATION views_per_user",
    "SET DEFAULT COMPUTE_POOL {n}", "LIST RELATIONS", "LIST SECRETS", "LIST SCHEMAS", "DESCRIBE SECRET {n}",
    "CREATE DATABASE {n}", "DROP DATABASE {n}", "SELECT count(*) FROM views_per_user", "USE SCHEMA {n}",
)  # fmt: skip
# Somebody else was quicker: it is there already, it is gone, it is in use.
MAY_FAIL = {"42710", "42P04", "42P06", "42P07", "42704", "3D000", "3F000", "42P01", "2BP01", "55006"}


async def _repaired(data_dir: Path) -> list[str]:
    config = Config(data_dir=data_dir, admin_password=PASSWORD)
    postgres = await open_postgres(config)
    try:
        catalog = await Catalog.open(config, postgres.url, config.data_dir)
        await catalog.close()
        return catalog.repaired
    finally:
        await postgres.stop()


def test_sessions_change_the_catalogue_at_random(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    asyncio.run(_furnish(Config(data_dir=data_dir, admin_password=PASSWORD)))
    server = Server(data_dir)
    wrong: list[str] = []
    done: list[str] = []

    def session(number: int) -> None:
        choice = random.Random(f"{SEED} {number}")
        with psycopg.connect(server.url, autocommit=True) as c:
            for _ in range(EACH):
                text = choice.choice(STATEMENTS).format(n=f"n{choice.randrange(5)}")
                try:
                    c.execute(text.encode())
                except psycopg.Error as e:
                    if e.sqlstate not in MAY_FAIL:
                        wrong.append(f"{text}: {e.sqlstate} {e}")
                else:
                    done.append(text)

    threads = [threading.Thread(target=session, args=(n,), daemon=True) for n in range(SESSIONS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    assert not [t for t in threads if t.is_alive()], "a session hangs"
    assert wrong == [], f"seed {SEED}"
    assert len(done) > SESSIONS * EACH / 4
    assert server.stop() == 0
    assert asyncio.run(_repaired(data_dir)) == []
