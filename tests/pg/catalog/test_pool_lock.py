"""Two servers on one PostgreSQL: one runs the pool, the other takes over."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from pgstream.catalog.store import Catalog
from pgstream.engine import lock
from pgstream.engine.lock import PoolLock

pytestmark = pytest.mark.pg


async def test_second_server_waits_and_takes_over(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "POLL_S", 0.02)
    order = []
    asked = asyncio.Event()
    held = asyncio.Event()

    async def second() -> None:
        asked.set()
        async with PoolLock(catalog.control_url, "default").hold():
            order.append("second")
            held.set()

    async with PoolLock(catalog.control_url, "default").hold() as lost:
        waiting = asyncio.create_task(second())
        await asked.wait()
        async with PoolLock(catalog.control_url, "other pool").hold():
            order.append("other")
        assert not lost.done() and not held.is_set()
        order.append("first ends")
    async with asyncio.timeout(10):
        await waiting
    assert order == ["other", "first ends", "second"]


async def test_lost_connection_is_noticed(catalog: Catalog, postgres) -> None:
    async with PoolLock(catalog.control_url, "default").hold() as lost:
        async with await psycopg.AsyncConnection.connect(postgres.url("postgres"), autocommit=True) as admin:
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
            )
        async with asyncio.timeout(10):
            await lost


async def test_who_has_it_is_known_elsewhere(catalog: Catalog) -> None:
    here, there = (PoolLock(catalog.control_url, "default") for _ in range(2))
    assert not await there.is_elsewhere()
    async with here.hold():
        assert await there.is_elsewhere() and not await here.is_elsewhere()
        assert await there.is_elsewhere()  # asking takes nothing
    assert not await there.is_elsewhere()
