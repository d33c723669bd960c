"""Four jobs over a backlog: pgstream and hand-written PySpark in one run; with ``--peers`` Flink SQL and Pathway too.

``python -m benchmarks.jobs [RECORDS] [JOB…] [--peers] [--rounds=N]``. J1 filters and projects from topic to topic, J2
counts in 10 s windows by 10,000 keys into PostgreSQL, J3 groups by 100,000 keys into PostgreSQL, J4 joins two topics
within 10 s by 100,000 keys into a topic. All engines read the same JSON records from two partitions of the same broker
and write to the same PostgreSQL or broker, one after the other. The clock runs from the start of the query to the last
result; each answer is compared with one that this program computed. Processor time is the engine's own, without the
broker's and PostgreSQL's: a neighbour's load changes it less.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks.engines import ENGINES, PEERS, Engine
from benchmarks.events import Events, load
from benchmarks.stack import Stack, show, stack
from benchmarks.usage import Usage

GIVE_UP_S = 600


@dataclass(frozen=True)
class Job:
    """``topics`` it reads; ``expected``: its answer in short, which ``read`` gives once the engine is done."""

    name: str
    topics: tuple[str, ...]
    expected: Callable[[dict[str, Events]], tuple[int, int]]
    to_topic: bool


def _filtered(given: dict[str, Events]) -> tuple[int, int]:
    e = given["ev"]
    rows = [(n, k2, v) for n, k2, v in zip(range(len(e.v)), e.k2, e.v, strict=True) if v % 2 == 0]
    return len(rows), sum(n * (v * 2 + 1) + k2 for n, k2, v in rows)


def _counted(given: dict[str, Events]) -> tuple[int, int]:
    return len(given["ev"].v), sum(given["ev"].v)


def _joined(given: dict[str, Events]) -> tuple[int, int]:
    left, right = given["a"], given["b"]
    of: dict[int, list[int]] = {}
    for n, k2 in enumerate(right.k2):
        of.setdefault(k2, []).append(n)
    count = total = 0
    for n, k2 in enumerate(left.k2):
        for m in of.get(k2, ()):
            if abs(right.at(m) - left.at(n)) <= 10_000:
                count += 1
                total += m * (n % 1009 + 1) + k2
    return count, total


JOBS = {
    "J1": Job("J1", ("ev",), _filtered, True),
    "J2": Job("J2", ("ev",), _counted, False),
    "J3": Job("J3", ("ev",), _counted, False),
    "J4": Job("J4", ("a", "b"), _joined, True),
}


def read_topic(s: Stack, engine: Engine, job: Job, out: str, wanted: int) -> tuple[float, tuple[int, int]]:
    """When the last record was there, and the answer."""
    consumer = Consumer({"bootstrap.servers": s.kafka.bootstrap, "group.id": out, "enable.auto.commit": False,
                         "isolation.level": "read_committed"})  # fmt: skip
    consumer.assign([TopicPartition(out, p, 0) for p in (0, 1)])
    values: list[bytes] = []
    end, last = time.monotonic() + GIVE_UP_S, time.perf_counter()
    while len(values) < wanted and time.monotonic() < end:
        engine.check()
        for m in consumer.consume(50_000, 0.1):
            if m.error() is None:
                values.append(m.value())
                last = time.perf_counter()
    values += [m.value() for m in consumer.consume(50_000, 1.0) if m.error() is None]  # too many are a wrong answer
    consumer.close()
    rows = [json.loads(v) for v in values]
    if job.name == "J1":
        return last, (len(rows), sum(r["n"] * (r["w"] + 1) + r["k2"] for r in rows))
    return last, (len(rows), sum(r["b"] * (r["a"] % 1009 + 1) + r["k"] for r in rows))


def read_table(s: Stack, engine: Engine, job: Job, out: str, wanted: int) -> tuple[float, tuple[int, int]]:
    end = time.monotonic() + GIVE_UP_S
    with psycopg.connect(s.direct, autocommit=True) as c:
        while True:
            engine.check()
            row = c.execute(f"SELECT coalesce(sum(c), 0)::bigint, coalesce(sum(s), 0)::bigint FROM {out}").fetchone()
            if row is None or row[0] >= wanted or time.monotonic() > end:
                return time.perf_counter(), (int(row[0]), int(row[1])) if row else (0, 0)
            time.sleep(0.1)


def run(s: Stack, kind: type[Engine], job: Job, records: int, expected: tuple[int, int]) -> dict[str, float]:
    out = f"out_{job.name}_{kind.__name__}_{time.time_ns() // 1_000_000}".lower()
    with kind(s, job.name, job.topics, out) as engine:
        begin = engine.begin()
        usage = Usage(engine.processes)
        read = read_topic if job.to_topic else read_table
        last, found = read(s, engine, job, out, expected[0])
        spent = usage.seconds()
    figures = {"per_s": round(records / (last - begin)), "cpu_s_per_million": round(spent / records * 1e6, 1)}
    show(job=job.name, engine=kind.name, records=records, **figures, right=found == expected)
    if found != expected:
        raise SystemExit(f"{kind.name} {job.name}: {found} instead of {expected}")
    return figures


def main(records: int, names: list[str], rounds: int, engines: list[type[Engine]]) -> None:
    with stack() as s:
        given = {"ev": Events(records, 1, 10), "a": Events(records // 2, 11, 5), "b": Events(records // 2, 12, 5)}
        for topic in {t for name in names for t in JOBS[name].topics}:
            s.kafka.topic(topic, 2, retention_ms="-1")
            load(s.kafka.bootstrap, topic, given[topic])
        for name in names:
            job = JOBS[name]
            expected = job.expected(given)
            found: dict[str, list[dict[str, float]]] = {kind.name: [] for kind in engines}
            for turn in range(rounds):
                for kind in engines[:: 1 if turn % 2 else -1]:
                    found[kind.name].append(run(s, kind, job, records, expected))
            report(name, found)


def report(job: str, found: dict[str, list[dict[str, float]]]) -> None:
    """pgstream's rate as a part of each other's, and its processor time too (less is better)."""
    middle = {
        name: {of: statistics.median(f[of] for f in figures) for of in figures[0]} for name, figures in found.items()
    }
    ours = middle.pop("pgstream", None)
    if ours is None:
        return
    for name, theirs in middle.items():
        show(
            job=job,
            of=name,
            rate=round(ours["per_s"] / theirs["per_s"], 2),
            cpu=round(ours["cpu_s_per_million"] / theirs["cpu_s_per_million"], 2),
        )


if __name__ == "__main__":
    words = sys.argv[1:]
    numbers = [int(w) for w in words if w.isdigit()]
    wanted = [w for w in words if w in JOBS]
    times = [int(w.removeprefix("--rounds=")) for w in words if w.startswith("--rounds=")]
    chosen = ENGINES + (PEERS if "--peers" in words else [])
    main((numbers or [2_000_000])[0], wanted or list(JOBS), (times or [1])[0], chosen)
