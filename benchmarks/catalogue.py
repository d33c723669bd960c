"""Statement latency with 10, 1,000 and 10,000 relations, and LIST RELATIONS of them beside psql's ``\\d``.

``python -m benchmarks.catalogue [COUNT …]``. The relations are streams whose rows are written beforehand; the server's
start makes PostgreSQL's objects. Each figure is the median of ``TIMES`` statements over one connection of libpq, as
psql has one; a change writes to disk twice and tells other servers. Wanted: flat within 1.5 from the smallest to the
largest, LIST ≤ 2 of ``\\d``.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.stack import show
from pgstream.catalog.store import Catalog
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from tests.server import PASSWORD, Server

COUNTS = [int(a) for a in sys.argv[1:]] or [10, 1_000, 10_000]
TIMES = 15
SECRET = "CREATE SECRET s WITH ('type' = GENERIC_SECRET, 'secret_string' = 'x')"
STATEMENTS = {
    "CREATE and DROP SECRET": (SECRET, "DROP SECRET s"),
    "ALTER RELATION": ("ALTER RELATION r1 SET description = 'x'",),
    "DESCRIBE RELATION": ("DESCRIBE RELATION r1",),
    "USE SCHEMA": ("USE SCHEMA public",),
    "LIST RELATIONS": ("LIST RELATIONS",),
}
_DONE = (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK)
MEMORY = "resident memory"
# What psql sends for \d.
PSQL_D = "psql's \\d"
D = """SELECT n.nspname as "Schema", c.relname as "Name",
CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' END as "Type",
pg_catalog.pg_get_userbyid(c.relowner) as "Owner" FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
WHERE c.relkind IN ('r','p','v','m','S','f','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast'
AND n.nspname <> 'information_schema' AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2"""
COLUMNS = json.dumps([["id", "BIGINT", True], ["name", "VARCHAR", True], ["at", "TIMESTAMP_LTZ(3)", True]])
ROWS = """INSERT INTO relations (id, database, schema, name, kind, columns, owner, primary_key, properties, state, mode)
SELECT gen_random_uuid()::text, 'main', 'public', 'r' || i, 'stream', %s::jsonb, 'sysadmin', '[]'::jsonb,
'{"value.format": "json"}'::jsonb, 'created', '' FROM generate_series(1, %s) i"""


async def furnish(data_dir: Path, count: int) -> None:
    config = Config(data_dir=data_dir, admin_password=PASSWORD)
    postgres = await open_postgres(config)
    try:
        await (await Catalog.open(config, postgres.url, data_dir)).close()
        with psycopg.connect(postgres.url("pgstream_control"), autocommit=True) as control:
            control.execute(ROWS.encode(), [COLUMNS, count])
        await (await Catalog.open(config, postgres.url, data_dir)).close()
    finally:
        await postgres.stop()


def median_ms(c: psycopg.Connection[Any], texts: tuple[str, ...]) -> float:
    took = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        for text in texts:
            found = c.pgconn.exec_(text.encode())  # as psql has it: libpq alone, no row becomes Python's
            assert found.status in _DONE, found.error_message
        took.append((time.perf_counter() - begin) * 1000)
    return statistics.median(took)


def resident_mb(pid: int) -> float:
    """Of the server process alone: its catalogue is in it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def measure(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        asyncio.run(furnish(data_dir, count))
        server = Server(data_dir)
        try:
            with psycopg.connect(server.url, autocommit=True) as c:
                out = {name: median_ms(c, texts) for name, texts in STATEMENTS.items()}
                out[PSQL_D] = median_ms(c, (D,))
            out[MEMORY] = resident_mb(server.process.pid)
        finally:
            server.stop()
    return out


def main() -> None:
    figures = {count: measure(count) for count in COUNTS}
    memory = {f"mb_at_{count}": round(figures[count].pop(MEMORY)) for count in COUNTS}
    show(of="the server's memory", **memory)
    for name in figures[COUNTS[0]]:
        each = {f"ms_at_{count}": round(figures[count][name], 2) for count in COUNTS}
        show(statement=name, **each, last_of_first=round(figures[COUNTS[-1]][name] / figures[COUNTS[0]][name], 2))
    last = figures[COUNTS[-1]]
    show(relations=COUNTS[-1], list_of_psql_d=round(last["LIST RELATIONS"] / last[PSQL_D], 2))


if __name__ == "__main__":
    main()
