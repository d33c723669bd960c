"""Events per second through a windowed view (backlog), pgstream against the same job in plain PySpark, one run.

``python -m benchmarks.windowed_view [RECORDS]``: 10 s windows, 10,000 keys, 2 partitions, JSON of five integers. Both
jobs read the same topic, one after the other, on the same broker and the same PostgreSQL; the clock runs from the start
of the stream to the last row, and the answers are compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from benchmarks.stack import VIEW, Stack, create_stream, load_events, show, stack
from pgstream import config
from pgstream.embedded.jars import fetch

N = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000


def finish(dsn: str, text: str, begin: float) -> float:
    """Seconds until the counts in the view sum up to N."""
    with psycopg.connect(dsn, autocommit=True) as c:
        while True:
            row = c.execute(text.encode()).fetchone()
            if row is not None and row[0] == N:
                return time.perf_counter() - begin
            time.sleep(0.1)


def ours(s: Stack) -> float:
    with s.server.connect() as c:
        begin = time.perf_counter()
        c.execute(VIEW.format(position="earliest").encode())
        seconds = finish(s.server.url, "SELECT sum(c) FROM per_window", begin)
        query = c.execute("LIST QUERIES").fetchall()[0][0]
        c.execute(f"TERMINATE QUERY {query}".encode())
    return seconds


def plain(s: Stack) -> float:
    with psycopg.connect(s.direct, autocommit=True) as c:
        c.execute("CREATE TABLE plain (w timestamptz, k bigint, c bigint, s bigint, PRIMARY KEY (w, k))")
    argument = {"kafka": s.kafka.bootstrap, "topic": "bench", "dsn": s.direct, "position": "earliest",
                "jars": [str(j) for j in fetch(config.load({}))]}  # fmt: skip
    script = str(Path(__file__).with_name("plain_pyspark.py"))
    job = subprocess.Popen(
        [sys.executable, script, json.dumps(argument)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == b"START\n"
        return finish(s.direct, "SELECT sum(c) FROM plain", time.perf_counter())
    finally:
        job.kill()
        job.wait()


def main() -> None:
    with stack() as s:
        s.kafka.topic("bench", 2)
        load_events(s.kafka.bootstrap, "bench", N)
        create_stream(s, "bench")
        a = ours(s)
        b = plain(s)
        with psycopg.connect(s.direct, autocommit=True) as c:
            same = c.execute(
                "SELECT count(*) FROM (SELECT window_start, k1, c, s FROM per_window EXCEPT "
                "SELECT w AT TIME ZONE 'UTC', k, c, s FROM plain) d"
            ).fetchone()
        show(bench="windowed_view", records=N, pgstream_per_s=round(N / a), plain_per_s=round(N / b),
             ratio=round(b / a, 2), different_rows=same[0] if same else None)  # fmt: skip


if __name__ == "__main__":
    main()
