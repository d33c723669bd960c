"""``pgstream check --repair`` on a data directory in which PostgreSQL is not what the catalogue says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from tests.pg.catalogues.conftest import _furnish
from tests.server import PASSWORD

pytestmark = pytest.mark.pg


async def _break(config: Config) -> None:
    postgres = await open_postgres(config)
    try:
        with psycopg.connect(postgres.url("main"), autocommit=True) as conn:
            conn.execute("DROP VIEW public.pageviews; COMMENT ON VIEW public.users IS 'old'")
            conn.execute("CREATE TABLE pg_pgstream.s_7_1 (i int)")
    finally:
        await postgres.stop()


def repair(data_dir: Path) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "pgstream",
        "check",
        "--repair",
        "--data-dir",
        str(data_dir),
        "--log-level",
        "error",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


def test_repair(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data", admin_password=PASSWORD)
    asyncio.run(_furnish(config))
    repair(config.data_dir)
    asyncio.run(_break(config))
    assert sorted(repair(config.data_dir)) == [
        "ok        the catalogue and PostgreSQL agree",
        "repaired  comment on main.public.users made again",
        "repaired  left-over staging table s_7_1 in main dropped",
        "repaired  stream main.public.pageviews made again",
    ]
    assert repair(config.data_dir) == ["ok        the catalogue and PostgreSQL agree"]
