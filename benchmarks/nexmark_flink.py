"""A query of Nexmark in Flink SQL, over the same topics and into a table of the same PostgreSQL.

Owns: its tables, one run. Must not know: pgstream's queries. It runs twice in one process, the first time into nothing
to warm up. It reads to the end of the topics as they are and ends: all its windows then close, so its answer may have
more of them than one that goes on.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import flink
from benchmarks.stack import Stack
from benchmarks.usage import Usage, tree
from tests.nexmark import suite
from tests.nexmark.events import TABLES

SCHEMA = "flink"
_TYPES = {"character varying": "STRING", "text": "STRING", "timestamp without time zone": "TIMESTAMP(3)"}
_COLUMNS = """SELECT attname, format_type(atttypid, NULL), format_type(atttypid, atttypmod)
FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_KEY = """SELECT attname FROM pg_index, pg_attribute
WHERE indrelid = %s::regclass AND attrelid = indrelid AND attnum = ANY (indkey) AND indisunique"""


def table_like(c: psycopg.Connection[Any], view: str) -> str:
    """Make a table with the columns and the key of a view; these in Flink's words."""
    key = [str(name) for (name,) in c.execute(_KEY, [view]).fetchall()]
    c.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
    c.execute(f"CREATE TABLE {SCHEMA}.{view} AS TABLE {view} WITH NO DATA".encode())
    if key:
        c.execute(f"ALTER TABLE {SCHEMA}.{view} ADD PRIMARY KEY ({', '.join(key)})".encode())
    columns = [
        f"`{name}` {_TYPES.get(plain, whole.replace('numeric', 'DECIMAL').upper())}"
        for name, plain, whole in c.execute(_COLUMNS, [view]).fetchall()
    ]
    return ", ".join([*columns, *([f"PRIMARY KEY ({', '.join(key)}) NOT ENFORCED"] if key else [])])


def script(s: Stack, query: suite.Query, columns: str) -> str:
    """The statements: sources, the side input, the sink, the query."""
    sources = []
    for table, own in TABLES.items():
        fields = own.replace("VARCHAR", "STRING").replace("TIMESTAMP", "TIMESTAMP(3)")
        read = flink.kafka(s.kafka.bootstrap, f"nexmark_{table}", query.name, "earliest")
        options = f"{read}, 'scan.bounded.mode' = 'latest-offset', 'json.timestamp-format.standard' = 'SQL'"
        for name, time_column in ((table, "date_time"), (f"{table}_arrival", "arrived")):
            sources.append(
                f"CREATE TABLE {name} ({fields}, arrived TIMESTAMP(3) METADATA FROM 'timestamp', "
                f"now_time AS PROCTIME(), WATERMARK FOR {time_column} AS {time_column} - INTERVAL '10' SECOND) "
                f"WITH ({options})"
            )
    cached = "'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '1000'"
    side = f"{flink.jdbc(s.port, s.password, 'side_input')}, {cached}"
    sources.append(f"CREATE TABLE side_input (number BIGINT, label STRING) WITH ({side})")
    sink = f"{flink.jdbc(s.port, s.password, f'{SCHEMA}.{query.name}')}, {flink.BATCHES}"
    sinks = [f"CREATE TABLE {o} ({columns}) WITH ({of})" for o, of in (("w", "'connector' = 'blackhole'"), ("o", sink))]
    return ";\n".join([*sources, *sinks, *(f"INSERT INTO {o} {query.flink}" for o in "wo")])


def run(s: Stack, query: suite.Query, columns: str) -> tuple[float, float]:
    """Seconds from the second INSERT to its end, and of processor time."""
    with tempfile.TemporaryDirectory(prefix="pgsn") as name:
        folder = Path(name)
        with (folder / "errors").open("w") as errors:
            command = flink.program(folder, script(s, query, columns))
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder) as process:
                assert process.stdout is not None
                starts = (line for line in process.stdout if line.startswith("START"))
                for _ in range(2):
                    next(starts, None)
                begin, usage = time.perf_counter(), Usage(lambda: tree(process.pid))
                code = process.wait()
                took, spent = time.perf_counter() - begin, usage.seconds()
        if code:
            raise SystemExit(f"Flink {query.name}: {_said(folder)}")
    return took, spent


def _said(folder: Path) -> str:
    """Why it ended: what is no place in code."""
    lines = (folder / "errors").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("\tat "))[-3000:]


def is_right(c: psycopg.Connection[Any], query: suite.Query, wanted: Counter[str]) -> bool:
    """Whether all of PostgreSQL's rows are there, and no others but of windows that the topics' end has closed."""
    got = suite.rows(c, f"{SCHEMA}.{query.name}")
    more = got - wanted
    return not wanted - got and (not more or "MAX(date_time)" in query.theirs)
