"""Nexmark: each query as a materialized view over a backlog; rows a second, processor time, and how many agree.

``python -m benchmarks.nexmark [EVENTS] [QUERY…] [--peers] [--fresh=SECONDS]``. The clock runs from CREATE MATERIALIZED
VIEW until all records of the sources are accounted for, in a worker that has run a query before; then the view is
compared with what PostgreSQL answers over the same rows, once its last windows are there. ``of_first`` is the rate as a
part of the first query's in the same run, the pass-through's: it says what the query itself costs. Processor time is
that of pgstream's server and worker, without the broker's and PostgreSQL's.

``--peers``: each query then in Flink SQL, from the same topics into a table like the view's, in a process of its own;
its clock runs from the second INSERT to the end of the job, which is that of the topics. ``--fresh``: each query for
so long over 2,000 events a second, and how fresh it says that it is; nothing else is measured.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from confluent_kafka import Producer

from benchmarks import nexmark_flink
from benchmarks.stack import Stack, show, stack
from benchmarks.usage import Usage, tree
from tests.nexmark import suite
from tests.nexmark.events import events, text

GIVE_UP_S = 900
LEFT = """SELECT coalesce(sum(lag::bigint), 1), count(*) FROM deltastream.sys.query_lag WHERE query_id = %s"""
PER_TICK, TICK_S = 20, 0.01
"""Of the events that come live."""
WARM_S = 8


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


def end(c: psycopg.Connection[Any], query: suite.Query, number: str) -> None:
    c.execute(f'TERMINATE QUERY "{number}"'.encode())
    c.execute(f"DROP MATERIALIZED VIEW {query.name}".encode())


def backlog(s: Stack, c: psycopg.Connection[Any], count: int, names: list[str], peers: bool) -> None:
    """Each query over ``count`` events that are there; the first one twice, the first time to warm up."""
    made = list(events(count))
    suite.to_kafka(s.kafka, made)
    suite.streams(c, s.kafka.bootstrap)
    suite.to_postgresql(c, made, "batch")
    with psycopg.connect(s.direct, autocommit=True) as direct:
        first = 0.0
        for turn, name in enumerate([names[0], *names]):
            query = suite.queries()[name]
            begin = time.perf_counter()
            usage = Usage(lambda: tree(s.server.process.pid, without="postgres"))
            number = suite.start(c, query)
            caught_up(c, number)
            took, spent = time.perf_counter() - begin, usage.seconds()
            right = settled(c, query)
            columns = nexmark_flink.table_like(direct, name) if peers and turn else ""
            end(c, query, number)
            if not turn:
                continue
            first = first or count / took
            figures = {"per_s": round(count / took), "cpu_s_per_million": round(spent / count * 1e6, 1)}
            show(
                query=name,
                asks=query.asks,
                events=count,
                **figures,
                of_first=round(count / took / first, 2),
                right=right,
            )
            if peers:
                theirs, used = nexmark_flink.run(s, query, columns)
                figures = {"per_s": round(count / theirs), "cpu_s_per_million": round(used / count * 1e6, 1)}
                agrees = nexmark_flink.is_right(direct, query, suite.answer(c, query, "batch"))
                show(query=name, engine="Flink SQL", **figures, right=agrees)
                show(query=name, of="Flink SQL", rate=round(theirs / took, 2), cpu=round(spent / used, 2))


def live(bootstrap: str, over: threading.Event) -> None:
    """Events as they happen, until it is over."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    coming: Iterator[Any] = events(1 << 40)
    begin, tick = time.time(), 0
    while not over.is_set():
        now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
        for _ in range(PER_TICK):
            table, row = next(coming)
            key = str(row["auction" if table == "bid" else "id"])
            if "expires" in row:
                row["expires"] = now + (row["expires"] - row["date_time"]) / (PER_TICK * 2)
            producer.produce(f"nexmark_{table}", json.dumps(text(row | {"date_time": now})), key)
        producer.poll(0)
        tick += 1
        time.sleep(max(0.0, begin + tick * TICK_S - time.time()))
    producer.flush()


def freshness(s: Stack, c: psycopg.Connection[Any], names: list[str], seconds: float) -> None:
    """Of each query in turn, by what its server tells about it."""
    suite.to_kafka(s.kafka, events(50))
    suite.streams(c, s.kafka.bootstrap, "latest")
    over = threading.Event()
    writer = threading.Thread(target=live, args=(s.kafka.bootstrap, over))
    writer.start()
    try:
        for name in names:
            query = suite.queries()[name]
            number = suite.start(c, query)
            told = re.compile(
                rf'^pgstream_query_freshness_seconds{{[^}}]*query="[^"]*{number}[^"]*"[^}}]*}} (.+)$', re.M
            )
            begin, found = time.monotonic(), list[float]()
            while time.monotonic() < begin + WARM_S + seconds:
                value = told.search(s.server.ask("/metrics")[1])
                if value and time.monotonic() > begin + WARM_S:
                    found.append(float(value[1]))
                time.sleep(0.1)
            end(c, query, number)
            if not found:
                raise SystemExit(f"{name} does not say how fresh it is")
            show(query=name, fresh_ms=round(statistics.median(found) * 1000), most_ms=round(max(found) * 1000))
    finally:
        over.set()
        writer.join()


def main(count: int, names: list[str], peers: bool, fresh: float) -> None:
    with stack(metrics_listen="127.0.0.1:0") as s, s.server.connect() as c:
        if fresh:
            freshness(s, c, names, fresh)
        else:
            backlog(s, c, count, names, peers)


if __name__ == "__main__":
    words = sys.argv[1:]
    numbers = [int(w) for w in words if w.isdigit()]
    long = [float(w.removeprefix("--fresh=")) for w in words if w.startswith("--fresh=")]
    asked = [w for w in words if w.startswith("q")] or list(suite.queries())
    main((numbers or [1_000_000])[0], asked, "--peers" in words, (long or [0.0])[0])
