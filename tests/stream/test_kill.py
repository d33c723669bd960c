"""kill -9 of the worker, then of the server, in the middle of 100k keyed events: nothing lost, nothing doubled.

``PGSTREAM_KILLS=20 pytest tests/stream/test_kill.py`` repeats it.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.server import Kafka, Server, within

EVENTS = int(os.environ.get("PGSTREAM_KILL_EVENTS", "100000"))
KEYS = 1000


class Load(threading.Thread):
    """Writes EVENTS keyed events at a steady pace and remembers the right answer."""

    def __init__(self, bootstrap: str, topic: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.topic, self.seconds = bootstrap, topic, seconds
        rng = random.Random(7)
        self.events = [(rng.randrange(KEYS), rng.randrange(1000)) for _ in range(EVENTS)]
        self.sent = 0

    def answer(self) -> dict[int, tuple[int, int]]:
        out: dict[int, tuple[int, int]] = {}
        for k, v in self.events:
            n, total = out.get(k, (0, 0))
            out[k] = (n + 1, total + v)
        return out

    def tens(self) -> dict[int, tuple[int, int, int, int]]:
        """Of the last value of each key, by its last digit: count, sum, distinct values, greatest."""
        groups: dict[int, list[int]] = {}
        for v in dict(self.events).values():
            groups.setdefault(v % 10, []).append(v)
        return {ten: (len(vs), sum(vs), len(set(vs)), max(vs)) for ten, vs in groups.items()}

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "enable.idempotence": True})
        begin = time.monotonic()
        for i, (k, v) in enumerate(self.events):
            producer.produce(self.topic, json.dumps({"id": i, "k": k, "v": v}), str(k))
            self.sent = i + 1
            if i % 500 == 0:
                producer.poll(0)
                time.sleep(max(0.0, begin + i / EVENTS * self.seconds - time.monotonic()))
        producer.flush()


def worker_of(server: Server) -> psutil.Process:
    """The server's worker process."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    return next(p for p in children if "pgstream.spark" in p.cmdline())


def killed(server: Server) -> bool:
    """Kill the worker with -9, if there is one: after a death the next one is on its way."""
    try:
        worker_of(server).kill()
    except (StopIteration, psutil.NoSuchProcess):
        return False
    return True


def family(server: Server) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


def gone(processes: list[psutil.Process]) -> bool:
    return not any(map(_runs, processes))


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


SETUP = """
CREATE STORE k WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE, 'kafka.sasl.hash_function' = NONE);
USE STORE k;
CREATE STREAM events (id BIGINT, k BIGINT, v BIGINT)
  WITH ('topic' = '{topic}', 'value.format' = 'json', 'starting.position' = 'earliest');
CREATE MATERIALIZED VIEW per_key AS SELECT k, count(*) AS n, sum(v) AS total FROM events GROUP BY k;
CREATE MATERIALIZED VIEW every_event AS SELECT id FROM events;
CREATE CHANGELOG latest (id BIGINT, k BIGINT, v BIGINT, PRIMARY KEY (k))
  WITH ('topic' = '{topic}', 'value.format' = 'json', 'starting.position' = 'earliest');
CREATE MATERIALIZED VIEW tens AS
  SELECT v % 10 AS ten, count(*) AS n, sum(v) AS total, count(DISTINCT v) AS vs, max(v) AS high FROM latest
  GROUP BY v % 10;
CREATE STREAM {topic}_copy AS SELECT id FROM events;
CREATE MATERIALIZED VIEW again AS SELECT id FROM every_event;
CREATE MATERIALIZED VIEW in_all AS SELECT count(*) AS keys, sum(n) AS n, sum(total) AS total FROM per_key;
"""


@pytest.mark.stream
@pytest.mark.timeout(420)
@pytest.mark.parametrize("turn", range(int(os.environ.get("PGSTREAM_KILLS", "1"))))
def test_kill_worker_then_server(turn: int, kafka: Kafka, workspace: Path) -> None:
    topic = f"kill_{turn}"
    kafka.topic(topic, 2)
    server = Server(workspace / f"kill{turn}")
    with server.connect() as c:
        for statement in SETUP.format(bootstrap=kafka.bootstrap, topic=topic).split(";\n"):
            if statement.strip():
                c.execute(statement.encode())
    load = Load(kafka.bootstrap, topic, 12)
    load.start()
    within(60, lambda: load.sent > EVENTS * 0.3)
    worker_of(server).kill()
    within(60, lambda: load.sent > EVENTS * 0.7)
    left = family(server)
    server.kill()
    within(10, lambda: gone(left))
    load.join(60)
    server = Server(workspace / f"kill{turn}")
    try:
        with server.connect() as c:
            answer = load.answer()
            within(120, lambda: c.execute("SELECT coalesce(sum(n), 0) FROM per_key").fetchone() == (EVENTS,))
            within(120, lambda: c.execute("SELECT count(*) >= %s FROM every_event", [EVENTS]).fetchone() == (True,))
            rows = c.execute("SELECT k, n, total FROM per_key").fetchall()
            assert {k: (n, int(total)) for k, n, total in rows} == answer
            tens = "SELECT ten, n, total, vs, high FROM tens"
            within(120, lambda: {r[0]: tuple(map(int, r[1:])) for r in c.execute(tens).fetchall()} == load.tens())
            row = c.execute("SELECT count(*), count(DISTINCT id) FROM every_event").fetchone()
            assert row == (EVENTS, EVENTS)
            all_of_it = "SELECT keys, n, total FROM in_all"
            within(120, lambda: c.execute(all_of_it).fetchone() == (KEYS, EVENTS, sum(t for _, t in answer.values())))
            within(120, lambda: c.execute("SELECT count(*) >= %s FROM again", [EVENTS]).fetchone() == (True,))
            row = c.execute("SELECT count(*), count(DISTINCT id) FROM again").fetchone()
            assert row == (EVENTS, EVENTS)
            copied = [json.loads(v or "")["id"] for _, v, _ in kafka.consume(f"{topic}_copy", EVENTS, 120)]
            assert len(copied) == EVENTS
            assert len(set(copied)) == EVENTS
    finally:
        assert server.stop() == 0
