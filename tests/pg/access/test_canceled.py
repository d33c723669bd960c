"""A statement of ours that is cancelled when it has done its work already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.pg.access.conftest import House
from tests.server import within

pytestmark = pytest.mark.pg


class Told:
    """Stands where other processes are told of a change: whoever makes one is kept there until it is let go."""

    def __init__(self, house: House) -> None:
        self._house, self._spread = house, house.catalog.spread
        self.is_asked, self._let_go = threading.Event(), asyncio.Event()
        house.catalog.spread = self._wait

    async def _wait(self, delta: Any) -> None:
        self.is_asked.set()
        await self._let_go.wait()
        await self._spread(delta)

    def let_go(self) -> None:
        async def go() -> None:
            self._house.catalog.spread = self._spread
            self._let_go.set()

        self._house.run(go())


@pytest.fixture
def told(house: House) -> Iterator[Told]:
    told = Told(house)
    yield told
    told.let_go()


@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_a_schema_goes_with_the_transaction_that_made_it(house: House, told: Told, end: str) -> None:
    """The cancelled statement failed that transaction: PostgreSQL rolls it back either way."""
    with house.connect() as conn, house.connect() as other, ThreadPoolExecutor() as pool:
        conn.execute("BEGIN")
        making = pool.submit(conn.execute, "CREATE SCHEMA doubtful")
        assert told.is_asked.wait(20)
        session = next(s for s in house.listener.admitted if s.pid == conn.info.backend_pid)
        house.run(session.cancel())
        told.let_go()
        with pytest.raises(psycopg.errors.QueryCanceled):
            making.result()
        conn.execute(end.encode())
        left = "SELECT 1 FROM pg_namespace WHERE nspname = 'doubtful'"
        within(10, lambda: not other.execute(left).fetchall())
        assert "doubtful" not in [row[0] for row in other.execute("LIST SCHEMAS").fetchall()]
