"""From CREATE MATERIALIZED VIEW to a query that runs, in a pool that is awake: ``python -m benchmarks.create [TIMES]``.

``created``: the statement is answered; ``running``: LIST QUERIES says so; ``visible``: a record that was in the topic
before can be read in the view. The first is not counted.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import psycopg
from confluent_kafka import Producer

from benchmarks.stack import create_stream, show, stack
from tests.server import within

TIMES = int(sys.argv[1]) if len(sys.argv) > 1 else 6


def one(c: psycopg.Connection[Any], name: str) -> tuple[float, float, float]:
    """Seconds until it is created, running, visible."""

    def running() -> bool:
        cursor = c.execute("LIST QUERIES")
        state = [d.name for d in cursor.description or []].index("Actual State")
        return any(str(row[state]).lower() == "running" for row in cursor.fetchall())

    begin = time.perf_counter()
    c.execute(
        f"CREATE MATERIALIZED VIEW {name} AS SELECT k1, count(*) AS c FROM events "
        "WITH ('starting.position' = 'earliest') GROUP BY k1".encode()
    )
    created = time.perf_counter() - begin
    within(60, running, 0.02)
    runs = time.perf_counter() - begin
    within(60, lambda: c.execute(f"SELECT c FROM {name}".encode()).fetchone(), 0.02)
    visible = time.perf_counter() - begin
    for row in c.execute("LIST QUERIES").fetchall():
        c.execute(f"TERMINATE QUERY {row[0]}".encode())
    within(60, lambda: not running())
    return created, runs, visible


def main() -> None:
    with stack() as s:
        s.kafka.topic("fresh", 2)
        create_stream(s, "fresh")
        producer = Producer({"bootstrap.servers": s.kafka.bootstrap})
        producer.produce("fresh", b'{"n": 1, "ts": 1700000000000, "k1": 1, "k2": 1, "v": 1}', b"1")
        producer.flush()
        with s.server.connect() as c:
            found = [one(c, f"v{i}") for i in range(TIMES + 1)][1:]
    for name, seconds in zip(("created", "running", "visible"), zip(*found, strict=True), strict=True):
        show(bench="create", until=name, median_s=round(statistics.median(seconds), 2), worst_s=round(max(seconds), 2))


if __name__ == "__main__":
    main()
