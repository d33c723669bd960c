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

from pgstream.catalog.postgres import ALIVE
from pgstream.errors import EngineUnavailable

POLL_S = 1.0
_KEY = "hashtextextended(%s, 0)"
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

    @property
    def is_here(self) -> bool:
        return self.holder is Holder.HERE

    async def is_elsewhere(self) -> bool:
        """Whether another server has it at this moment. Errors: EngineUnavailable when that cannot be asked."""
        if self.is_here:
            return False
        try:
            async with await psycopg.AsyncConnection.connect(self._url, autocommit=True, **ALIVE) as conn:
                # Given back at the end of the statement.
                found = await conn.execute(f"SELECT pg_try_advisory_xact_lock_shared({_KEY})".encode(), [self._name])
                return not self.is_here and await found.fetchone() != (True,)
        except psycopg.Error as e:
            raise EngineUnavailable(why=f"the catalogue could not be asked: {str(e).strip()}") from None

    async def _acquire(self) -> psycopg.AsyncConnection[object]:
        told = False
        while True:
            try:
                conn = await psycopg.AsyncConnection.connect(self._url, autocommit=True, **ALIVE)
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

    @property
    def _name(self) -> str:
        return f"pool:{self._pool}"

    async def _try(self, conn: psycopg.AsyncConnection[object]) -> bool:
        # A machine that is gone gives its locks back when PostgreSQL finds that out, within these seconds.
        for setting in ("tcp_keepalives_idle = 3", "tcp_keepalives_interval = 1", "tcp_keepalives_count = 3"):
            await conn.execute(f"SET {setting}".encode())
        found = await conn.execute(f"SELECT pg_try_advisory_lock({_KEY})".encode(), [self._name])
        row = await found.fetchone()
        return row == (True,)

    async def _watch(self, conn: psycopg.AsyncConnection[object]) -> None:
        """The lock goes with its connection; PostgreSQL tells us when it closes that."""
        try:
            async for _ in conn.notifies():
                pass
        except psycopg.Error as e:
            log.warning("pool lock lost", pool=self._pool, error=str(e).strip())
