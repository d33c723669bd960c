"""A process that really dies (SIGKILL) in the middle of a change: ``check --repair`` makes good what it left.

``PGSTREAM_TEST_SEED`` chooses other changes and points, ``PGSTREAM_TEST_POINTS`` how many.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from tests.pg.catalog.test_kill_points import SEED, in_postgres, logs_agree
from tests.server import PASSWORD

pytestmark = pytest.mark.pg
POINTS = int(os.environ.get("PGSTREAM_TEST_POINTS", "3"))
LAST = 900
"""Some fifty changes."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a catalogue in it, to be copied."""
    folder = tmp_path_factory.mktemp("made") / "data"
    asyncio.run(_look(folder))
    return folder


async def _look(folder: Path) -> list[str]:
    """Open it as a start does; what that repaired, once PostgreSQL was seen to have what the catalogue has."""
    config = Config(data_dir=folder, admin_password=PASSWORD)
    postgres = await open_postgres(config)
    try:
        catalog = await Catalog.open(config, postgres.url, folder)
        snapshot, live = catalog.snapshot, [q.id for q in await catalog.queries()]
        await catalog.close()
        for database in snapshot.databases:
            in_postgres(postgres, database, [r for r in snapshot.relations.values() if r.full.database == database])
            logs_agree(postgres, database, live)
        with psycopg.connect(postgres.url("postgres")) as conn:
            found = {name for (name,) in conn.execute("SELECT rolname FROM pg_roles WHERE rolcanlogin").fetchall()}
            databases = {name for (name,) in conn.execute("SELECT datname FROM pg_database").fetchall()}
        invited = {o.name for o in snapshot.objects.values() if o.kind == "user"}
        ours = {"pgstream", "pgstream_worker"}
        assert found - ours == snapshot.access.users | invited | set(snapshot.access.tokens)
        assert databases - {"postgres", "template0", "template1", "pgstream_control"} == set(snapshot.databases)
        return catalog.repaired
    finally:
        await postgres.stop()


@pytest.mark.parametrize("number", range(POINTS))
def test_what_a_killed_process_leaves_is_repaired(number: int, made: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    for path in data_dir.joinpath("postgres").rglob("*"):  # as root the copies would be root's
        shutil.chown(path, made.joinpath("postgres").stat().st_uid, made.joinpath("postgres").stat().st_gid)
    choice = random.Random(f"{SEED} {number}")
    seed, point = f"{SEED} {number}", choice.randrange(LAST)
    command = [sys.executable, "-m", "tests.pg.catalog.doomed", str(data_dir), seed, str(point)]
    died = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    where = f"point {point} of seed {seed!r}, {died.stdout.splitlines()[-3:]}"
    assert died.returncode == -signal.SIGKILL, died.stderr
    check = [sys.executable, "-m", "pgstream", "check", "--repair", "--data-dir", str(data_dir), "--log-level", "error"]
    answer = subprocess.run(check, capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode == 0, f"{where}: {answer.stderr}"
    assert answer.stdout.endswith("ok        the catalogue and PostgreSQL agree\n"), where
    assert asyncio.run(_look(data_dir)) == [], where
