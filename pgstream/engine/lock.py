"""One server a pool: an advisory lock in the control database, held while the pool runs.

Owns: waiting for the lock, noticing that it is lost with its connection. Two servers may share one PostgreSQL; the one
that waits takes over when the other ends. Must not know: what runs under the lock. Start reading at ``PoolLock.hold``.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import structlog

POLL_S = 1.0
log = structlog.get_logger(__name__)


class Holder(enum.Enum):
    """Who has a lock."""

    NOBODY = "nobody"
    HERE = "this server"
    ELSEWHERE = "another server"


class PoolLock:
    """The lock of one pool."""

    def __init__(self, url: str, pool: str) -> None:
        self._url = url
        self._pool = pool
        self.holder = Holder.NOBODY
        """As this server last saw it."""

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[asyncio.Task[None]]:
        """Wait until this server has the pool. Gives a task that ends when the lock is lost."""
        conn = await self._acquire()
        self.holder = Holder.HERE
        watching = asyncio.create_task(self._watch(conn))
        try:
            yield watching
        finally:
            self.holder = Holder.NOBODY
            watching.cancel()
            await asyncio.wait([watching])
            await conn.close()

    async def _acquire(self) -> psycopg.AsyncConnection[object]:
        told = False
        while True:
            try:
                conn = await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=10)
                try:
                    if await self._try(conn):
                        return conn
                except BaseException:
                    await conn.close()
                    raise
                await conn.close()
                self.holder = Holder.ELSEWHERE
                if not told:
                    log.info("pool is run by another server, waiting", pool=self._pool)
                    told = True
            except psycopg.Error as e:
                self.holder = Holder.NOBODY
                log.warning("pool lock could not be asked for", pool=self._pool, error=str(e).strip())
            await asyncio.sleep(POLL_S)

    async def _try(self, conn: psycopg.AsyncConnection[object]) -> bool:
        found = await conn.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [f"pool:{self._pool}"])
        row = await found.fetchone()
        return row == (True,)

    async def _watch(self, conn: psycopg.AsyncConnection[object]) -> None:
        """The lock goes with its connection; PostgreSQL tells us when it closes that."""
        try:
            async for _ in conn.notifies():
                pass
        except psycopg.Error as e:
            log.warning("pool lock lost", pool=self._pool, error=str(e).strip())
