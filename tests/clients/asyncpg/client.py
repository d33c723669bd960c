"""asyncpg: binary only, prepares everything, reads the catalogue for types it does not know, COPY, cursors, a pool."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import os
import sys
import uuid
from collections.abc import Awaitable
from decimal import Decimal

import asyncpg
from asyncpg import Connection

VALUES = (
    7, 2**63 - 1, 1.5, Decimal("12.340"), "zö\U0001f40d '\"\\", True, dt.date(2024, 2, 29),
    dt.datetime(2024, 1, 2, 3, 4, 5, 678000, dt.UTC), dt.timedelta(days=1, seconds=2), b"\0\xff\\",
    uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"), '{"a": [1, null]}', [1, None, 3], None,
)  # fmt: skip
CASTS = "int2 int8 float8 numeric text bool date timestamptz interval bytea uuid jsonb int[] text"


def say(name: str, *values: object) -> None:
    sys.stdout.write(f"{name}: {' | '.join(str(v) for v in values)}\n")


async def failing(do: Awaitable[object]) -> tuple[object, ...]:
    try:
        await do
    except asyncpg.PostgresError as e:
        return type(e).__name__, e.sqlstate, e.message, e.position
    raise AssertionError("no error")


async def types(c: Connection) -> None:
    text = "SELECT " + ", ".join(f"${n}::{cast}" for n, cast in enumerate(CASTS.split(), 1))
    for _ in range(2):
        say("types", *(await c.fetchrow(text, *VALUES)).values())
    prepared = await c.prepare("SELECT $1::int + 1 AS n, $2::varchar(3) AS s")
    say(
        "parameters",
        [p.name for p in prepared.get_parameters()],
        [(a.name, a.type.name) for a in prepared.get_attributes()],
    )
    say("status", await prepared.fetchrow(41, "abc"), prepared.get_statusmsg())
    await c.execute(
        "CREATE TYPE of_asyncpg AS ENUM ('a', 'b'); CREATE TYPE of_asyncpg_pair AS (n int, kind of_asyncpg)"
    )
    try:
        say("own types", await c.fetchval("SELECT ARRAY[ROW(1, 'a')::of_asyncpg_pair]"))
    finally:
        await c.execute("DROP TYPE of_asyncpg_pair; DROP TYPE of_asyncpg")


async def transactions(c: Connection) -> None:
    await c.execute("CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)")
    async with c.transaction(isolation="serializable"):
        await c.execute("INSERT INTO t VALUES (1, 'one')")
        try:
            async with c.transaction():
                await c.execute("SELECT 1 / 0")
        except asyncpg.DivisionByZeroError as e:
            say("error", e.sqlstate, c.is_in_transaction())
    say("violation", *await failing(c.execute("INSERT INTO t VALUES ($1)", 1)))
    say("syntax", *await failing(c.fetch("SELECT * FORM t")))
    await c.executemany("INSERT INTO t VALUES ($1, $2)", [(n, "x") for n in range(2, 300)])
    say("many", await c.fetchval("SELECT count(*) FROM t"))
    say("several", await c.execute("SELECT 1; SELECT 2; DELETE FROM t WHERE id < 10"))


async def copies(c: Connection) -> None:
    say("records", await c.copy_records_to_table("t", records=[(n, "zö") for n in range(1000, 2000)]))
    out = io.BytesIO()
    say(
        "copied",
        await c.copy_from_query("SELECT * FROM t WHERE id >= $1", 1998, output=out, format="csv"),
        out.getvalue(),
    )
    say("read", await c.copy_to_table("t", source=io.BytesIO(b"1\tone\n2\t\\N\n")))
    say("bad copy", *await failing(c.copy_to_table("t", source=io.BytesIO(b"x\ty\n"))))


async def cursors(c: Connection) -> None:
    async with c.transaction():
        rows = [r["n"] async for r in c.cursor("SELECT n FROM generate_series(1, $1) n", 1000, prefetch=100)]
        cursor = await c.cursor("SELECT n FROM generate_series(1, 100) n")
        say("cursor", sum(rows), await cursor.forward(10), await cursor.fetchrow(), len(await cursor.fetch(200)))


async def messages(c: Connection) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    c.add_log_listener(lambda _c, m: heard.put_nowait((m.severity, m.message)))
    await c.execute("DO $$ BEGIN RAISE NOTICE 'hear this'; END $$")
    say("notice", await heard.get())
    await c.add_listener("news", lambda _c, _pid, channel, payload: heard.put_nowait((channel, payload)))
    other = await asyncpg.connect()
    await other.execute("SELECT pg_notify('news', 'hello')")
    say("notification", await heard.get())
    sleep = asyncio.ensure_future(c.fetch("SELECT pg_sleep(60)"))
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
    while not await other.fetchval(asleep):
        pass
    sleep.cancel()
    say("cancelled", type((await asyncio.gather(sleep, return_exceptions=True))[0]).__name__)
    say("after it", await c.fetchval("SELECT 1"), c.get_settings().TimeZone, c.get_server_version().major)
    await other.close()


async def pooled() -> None:
    async with asyncpg.create_pool(min_size=2, max_size=4) as pool:
        sums = await asyncio.gather(*[pool.fetchval("SELECT $1::int * 2", n) for n in range(20)])
    say("pool", sums)


async def ours(c: Connection) -> None:
    for _ in range(2):
        say("stores", [(r["Name"], r["Type"]) for r in await c.fetch("LIST STORES") if r["Name"] == "of_languages"])
    stream = (
        "CREATE STREAM of_asyncpg (n BIGINT, userid VARCHAR) WITH ('store' = of_languages, 'topic' = 'of_languages', "
    )
    say("created", await c.execute(stream + "'value.format' = 'json')"))
    text = "SELECT n, userid FROM of_asyncpg WITH ('starting.position' = 'earliest') WHERE n > $1 LIMIT $2"
    say("rows", *[tuple(r) for r in await c.fetch(text, 0, 2)])
    async with c.transaction():
        say("cursor", *[tuple(r) async for r in c.cursor(text, 1, 2, prefetch=1)])
    say("dropped", await c.execute("DROP STREAM of_asyncpg"))
    say("view", *[tuple(r) for r in await c.fetch("SELECT * FROM of_languages_counts WHERE n > $1 ORDER BY userid", 0)])
    say("missing", *await failing(c.execute("DROP STORE nope")))


async def main() -> None:
    c = await asyncpg.connect()
    say("session", *await c.fetchrow("SELECT current_user::text, current_database()::text"))
    for part in (types, transactions, copies, cursors, messages):
        await part(c)
    await pooled()
    say("wrong password", *await failing(asyncpg.connect(password="wrong")))
    if os.environ["TARGET"] == "pgstream":
        sys.stdout.write("== pgstream\n")
        await ours(c)
    await c.close()


if __name__ == "__main__":
    asyncio.run(main())
