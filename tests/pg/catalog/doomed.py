"""A process that changes a catalogue at random until it kills itself, with SIGKILL, at a numbered point.

``python -m tests.pg.catalog.doomed DATA_DIR SEED POINT``. A point is a round trip to PostgreSQL, as in
``test_kill_points``; each change is named on standard output when it begins, and when it has ended.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import psycopg

from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from pgstream.errors import PgStreamError
from tests.pg.catalog.test_kill_points import CHANGES
from tests.server import PASSWORD


def arm(point: int) -> None:
    """Die before (even) or after (odd) a round trip from now on."""
    waiting = psycopg.AsyncConnection.wait
    trips = 0

    async def wait(conn: psycopg.AsyncConnection[Any], gen: Any, **more: Any) -> Any:
        nonlocal trips
        trip, trips = trips, trips + 1
        if 2 * trip == point:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await waiting(conn, gen, **more)
        if 2 * trip + 1 == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    psycopg.AsyncConnection.wait = wait  # type: ignore[method-assign]


async def main(data_dir: Path, seed: str, point: int) -> None:
    config = Config(data_dir=data_dir, admin_password=PASSWORD)
    postgres = await open_postgres(config)
    catalog = await Catalog.open(config, postgres.url, data_dir)
    choice = random.Random(seed)
    arm(point)
    while True:
        name = choice.choice(sorted(CHANGES))
        step = choice.choice([s for s in CHANGES[name] if s is not None])
        print("begun", name, flush=True)
        try:
            await step(catalog)
        except PgStreamError as e:  # it is there already, or what it needs is not
            print("refused", name, e.sqlstate, flush=True)
        else:
            print("done", name, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
