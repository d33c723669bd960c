"""asyncpg: binary protocol only, prepares everything, asks the catalogue about types it does not know."""

from __future__ import annotations

import asyncpg
import pytest

from tests.server import Server

pytestmark = pytest.mark.clients


async def test_ours_and_postgresqls(server: Server) -> None:
    c = await asyncpg.connect(server.url)
    try:
        assert await c.fetchval("SELECT $1::int + 1", 41) == 42
        rows = await c.fetch("LIST DATABASES")
        assert "main" in [r["Name"] for r in rows]
        with pytest.raises(asyncpg.UndefinedObjectError, match='store "nope" does not exist'):
            await c.execute("DESCRIBE STORE nope")
        async with c.transaction():
            seen = [r["g"] async for r in c.cursor("SELECT g FROM generate_series(1, 500) g", prefetch=50)]
        assert len(seen) == 500
    finally:
        await c.close()
