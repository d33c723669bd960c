"""Hearing that another server on the same PostgreSQL changed the catalogue.

Owns: one LISTEN connection and its return after a break. Must not know: what changed; it asks for a fresh snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import structlog

from pgstream.catalog.postgres import ALIVE
from pgstream.errors import PgStreamError

CHANNEL = "pgstream_catalog"
log = structlog.get_logger(__name__)


async def watch(url: str, own: str, refresh: Callable[[], Awaitable[None]]) -> None:
    """Call ``refresh`` for each change that is not ``own``, for ever; and once it listens, for those before that."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True, **ALIVE) as conn:
                await conn.execute(f"LISTEN {CHANNEL}".encode())
                await refresh()
                async for notice in conn.notifies():
                    if notice.payload != own:
                        await refresh()
        except (psycopg.Error, PgStreamError, OSError) as e:
            log.warning("catalogue watch broken", error=str(e).strip())
        await asyncio.sleep(1)
