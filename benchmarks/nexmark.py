"""Nexmark: each query as a materialized view over a backlog; rows a second, processor time, and how many agree.

``python -m benchmarks.nexmark [EVENTS] [QUERY…]``. The clock runs from CREATE MATERIALIZED VIEW until all records of
the sources are accounted for, in a worker that has run a query before; then the view is compared with what PostgreSQL
answers over the same rows, once its last windows are there. ``of_first`` is the rate as a part of the first query's in
the same run, the pass-through's: it says what the query itself costs. Processor time is that of pgstream's server and
worker, without the broker's and PostgreSQL's.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import psycopg

from benchmarks.stack import show, stack
from benchmarks.usage import Usage, tree
from tests.nexmark import suite
from tests.nexmark.events import events

GIVE_UP_S = 900
LEFT = """SELECT coalesce(sum(lag::bigint), 1), count(*) FROM deltastream.sys.query_lag WHERE query_id = %s"""


def caught_up(c: psycopg.Connection[Any], number: str) -> None:
    end = time.monotonic() + GIVE_UP_S
    while time.monotonic() < end:
        if c.execute(LEFT, [number]).fetchone() in {(0, n) for n in (2, 4, 6, 8)}:
            return
        time.sleep(0.1)
    raise SystemExit(f"still behind after {GIVE_UP_S} s")


def settled(c: psycopg.Connection[Any], query: suite.Query) -> bool:
    """Does the view come to what PostgreSQL answers, within a minute?"""
    wanted, end = suite.answer(c, query, "batch"), time.monotonic() + 60
    while suite.view(c, query) != wanted:
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def main(count: int, names: list[str]) -> None:
    made = list(events(count))
    with stack() as s, s.server.connect() as c:
        suite.to_kafka(s.kafka, made)
        suite.streams(c, s.kafka.bootstrap)
        suite.to_postgresql(c, made, "batch")
        first = 0.0
        for turn, name in enumerate([names[0], *names]):
            query = suite.queries()[name]
            begin = time.perf_counter()
            usage = Usage(lambda: tree(s.server.process.pid, without="postgres"))
            number = suite.start(c, query)
            caught_up(c, number)
            took, spent = time.perf_counter() - begin, usage.seconds()
            right = settled(c, query)
            c.execute(f'TERMINATE QUERY "{number}"'.encode())
            c.execute(f"DROP MATERIALIZED VIEW {name}".encode())
            if not turn:
                continue
            first = first or count / took
            figures = {"per_s": round(count / took), "cpu_s_per_million": round(spent / count * 1e6, 1)}
            show(
                query=name, asks=query.asks, events=count, **figures, of_q0=round(count / took / first, 2), right=right
            )


if __name__ == "__main__":
    words = sys.argv[1:]
    numbers = [int(w) for w in words if w.isdigit()]
    main((numbers or [1_000_000])[0], [w for w in words if w.startswith("q")] or list(suite.queries()))
