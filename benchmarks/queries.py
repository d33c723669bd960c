"""Many queries on one worker: ``python -m benchmarks.queries [COUNT] [stateless|windowed] [RATE]``.

COUNT views (25) over one topic of two partitions: ``windowed`` ones count and sum by key and window of ten seconds,
``stateless`` ones pass a sixteenth of the keys on. Told: seconds from the first CREATE until all run; processor time
a second of worker, server and PostgreSQL, with nothing to read and at RATE records a second (1,000), and the worker's
a batch; how fresh each view is (of probe records, from produce to visible): the worst and the median query's p50 and
p99; the worker's memory.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
from collections import defaultdict
from typing import Any

import psutil
import psycopg
from confluent_kafka import Producer

from benchmarks.stack import Stack, create_stream, show, stack
from benchmarks.usage import Usage, tree
from tests.server import within

KINDS = {
    "windowed": """CREATE MATERIALIZED VIEW q{n} AS SELECT window_start, k1, count(*) AS c, sum(v) AS s
        FROM TUMBLE(events, SIZE 10 SECONDS) WITH ('starting.position' = 'latest')
        GROUP BY window_start, window_end, k1""",
    "stateless": """CREATE MATERIALIZED VIEW q{n} WITH ('retention.millis' = '60000') AS SELECT n, k1, v
        FROM events WITH ('starting.position' = 'latest') WHERE k1 < 0 OR k1 % 16 = 1""",
}
PROBES = {
    "windowed": "SELECT k1 FROM q{n} WHERE k1 < {last}",
    "stateless": "SELECT k1 FROM q{n} WHERE k1 < {last}",
}
REST_S, RUN_S, WARM_S = 15, 40, 15
PROBE_S = 0.5


class Load(threading.Thread):
    """``rate`` records a second of 1,000 keys, and two probes a second, whose keys -1, -2 … are theirs alone."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        self.topic, self.rate = topic, rate
        self.probes: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        begin, sent = time.time(), 0
        while not self.over.wait(0.01):
            now = time.time()
            while sent < (now - begin) * self.rate:
                self.send(sent * 7919 % 1000, sent, now)
                sent += 1
            if now - begin > len(self.probes) * PROBE_S:
                self.probes.append(now)
                self.send(-len(self.probes), sent, now)
            self.producer.poll(0)
        self.producer.flush(10)

    def send(self, k: int, n: int, at: float) -> None:
        value = b'{"n": %d, "ts": %d, "k1": %d, "k2": %d, "v": 1}' % (n, int(at * 1000), k, k)
        self.producer.produce(self.topic, value, b"%d" % k, partition=n % 2)


def watch(s: Stack, kind: str, count: int, load: Load, seconds: float) -> dict[int, dict[int, float]]:
    """By view and probe when it was seen; each view is asked as often as one session can."""
    seen: dict[int, dict[int, float]] = defaultdict(dict)
    with psycopg.connect(s.direct, autocommit=True) as c:
        end = time.time() + seconds
        while time.time() < end:
            for n in range(count):
                last = -max(seen[n], default=0)
                rows = c.execute(PROBES[kind].format(n=n, last=last).encode()).fetchall()
                now = time.time()
                for (k,) in rows:
                    seen[n].setdefault(-k, now)
            time.sleep(0.05)
    return seen


def named(processes: list[psutil.Process], name: str) -> list[psutil.Process]:
    """Those of a name that begins so; PostgreSQL's come and go."""
    found = []
    for p in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if p.name().startswith(name):
                found.append(p)
    return found


def spent(s: Stack, seconds: float, work: Any) -> dict[str, float]:
    """Processor seconds a second while ``work`` goes on: of the worker, of the server, of PostgreSQL."""
    top = psutil.Process(s.server.process.pid)
    every = top.children(recursive=True)
    parts = {
        "worker": named(every, "java"),
        "server": [top, *named(every, "python")],
    }
    usages = {name: Usage(lambda found=found: found) for name, found in parts.items()}  # type: ignore[misc]
    usages["postgres"] = Usage(lambda: named(tree(top.pid), "postgres"))
    began = time.time()
    work()
    took = time.time() - began
    return {name: round(usage.seconds() / took, 2) for name, usage in usages.items()}


def freshness(seen: dict[int, dict[int, float]], load: Load, count: int) -> dict[str, Any]:
    """Of each view its p50 and p99 in milliseconds, then the median and the worst of the views."""
    counted = range(int(WARM_S / PROBE_S) + 1, len(load.probes) - int(5 / PROBE_S))
    p50, p99, missing = [], [], 0
    for n in range(count):
        delays = sorted(seen[n][i] - load.probes[i - 1] for i in counted if i in seen[n])
        missing += len(counted) - len(delays)
        if delays:
            p50.append(round(statistics.median(delays) * 1000))
            p99.append(round(delays[int(len(delays) * 0.99)] * 1000))
    if not p50:
        return {"missing": missing}
    return {
        "p50_ms": {"median": round(statistics.median(p50)), "worst": max(p50), "best": min(p50)},
        "p99_ms": {"median": round(statistics.median(p99)), "worst": max(p99)},
        "missing": missing,
    }


def batches(s: Stack) -> int:
    """How many all queries have written."""
    with psycopg.connect(s.direct, autocommit=True) as c:
        row = c.execute("SELECT coalesce(sum(batch), 0) FROM pg_pgstream.ledger").fetchone()
        return int(row[0]) if row is not None else 0


def memory(s: Stack) -> dict[str, int]:
    worker = named(psutil.Process(s.server.process.pid).children(recursive=True), "java")[0]
    return {"worker_mb": worker.memory_info().rss >> 20, "threads": worker.num_threads()}


def main() -> None:
    words = [w for w in sys.argv[1:] if not w.isdigit()]
    numbers = [int(w) for w in sys.argv[1:] if w.isdigit()]
    kind = words[0] if words else "windowed"
    count, rate = (*numbers, *(25, 1000)[len(numbers) :])
    with stack() as s, s.server.connect() as c:
        s.kafka.topic("many", 2)
        create_stream(s, "many")
        within(120, lambda: c.execute(b"SELECT 1 FROM pg_roles LIMIT 1").fetchone())
        warm = c.execute(KINDS[kind].format(n="_warm").encode()).fetchall()[-1][1]  # the worker is awake then
        within(60, lambda: "running" in str(c.execute("LIST QUERIES").fetchall()))
        c.execute(f'TERMINATE QUERY "{warm}"'.encode())
        began = time.time()
        for n in range(count):
            c.execute(KINDS[kind].format(n=n).encode())
        answered = time.time() - began
        state = [d.name for d in c.execute("LIST QUERIES").description or []].index("Actual State")
        within(600, lambda: all(r[state] == "running" for r in c.execute("LIST QUERIES").fetchall()), 0.2)
        about = {"bench": "queries", "kind": kind, "count": count}
        show(**about, all_answered_s=round(answered, 1), all_running_s=round(time.time() - began, 1))
        time.sleep(5)
        show(**about, at="rest", cpu=spent(s, REST_S, lambda: time.sleep(REST_S)), **memory(s))
        load = Load(s.kafka.bootstrap, "many", rate)
        load.start()
        seen: dict[int, dict[int, float]] = {}
        before, began = batches(s), time.time()
        cpu = spent(s, RUN_S, lambda: seen.update(watch(s, kind, count, load, WARM_S + RUN_S)))
        rate_of_batches = (batches(s) - before) / (time.time() - began)
        told = {
            "batches_a_second": round(rate_of_batches, 1),
            "cpu_ms_a_batch": round(cpu["worker"] * 1000 / rate_of_batches),
        }
        load.over.set()
        load.join()
        show(**about, at=f"{rate} records/s", cpu=cpu, **told, **memory(s), **freshness(seen, load, count))


if __name__ == "__main__":
    main()
