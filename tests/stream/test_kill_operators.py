"""kill -9 of the worker while operators of the kernel hold state: Top-N, deduplication, OVER, a join of changelogs and
patterns of rows go on from their checkpoints as if nothing had been.
"""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from tests.server import Kafka, Server, within
from tests.stream.test_kill import worker_of

EVENTS = 6_000
SETUP = """
CREATE STORE k WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE, 'kafka.sasl.hash_function' = NONE);
USE STORE k;
CREATE STREAM events (id BIGINT, k BIGINT, v BIGINT)
  WITH ('topic' = 'kill_operators', 'value.format' = 'json', 'starting.position' = 'earliest');
CREATE CHANGELOG latest (id BIGINT, k BIGINT, v BIGINT, PRIMARY KEY (k))
  WITH ('topic' = 'kill_operators', 'value.format' = 'json', 'starting.position' = 'earliest');
CREATE MATERIALIZED VIEW best AS
  SELECT ten, id, rn FROM (SELECT *, row_number() OVER (PARTITION BY ten ORDER BY v DESC, id) AS rn
  FROM (SELECT k % 10 AS ten, v, id FROM events) e) WHERE rn <= 3;
CREATE MATERIALIZED VIEW newest AS
  SELECT k, id FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY id DESC) AS rn FROM events) WHERE rn = 1;
CREATE MATERIALIZED VIEW counted AS
  SELECT id, k, count(*) OVER (PARTITION BY k ORDER BY rowtime() ROWS UNBOUNDED PRECEDING) AS n FROM events;
CREATE MATERIALIZED VIEW paired AS SELECT a.k, a.v, b.id FROM latest a JOIN latest b ON a.k = b.k;
CREATE MATERIALIZED VIEW peaks AS SELECT k, first_id, last_id FROM events MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rowtime(), id MEASURES A.id AS first_id, C.id AS last_id
  AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) DEFINE B AS v > PREV(v), C AS v < PREV(v)) AS m;
"""


class Answer:
    """What the views must hold at the end."""

    def __init__(self, events: list[tuple[int, int]]) -> None:
        rows = [(k, v, i) for i, (k, v) in enumerate(events)]
        tens: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for k, v, i in rows:
            tens[k % 10].append((-v, i))
        self.best = {(ten, i, n) for ten, of in tens.items() for n, (_, i) in enumerate(sorted(of)[:3], 1)}
        self.newest = {(k, i) for k, i in {k: i for k, _, i in rows}.items()}
        self.paired = {(k, *last) for k, last in {k: (v, i) for k, v, i in rows}.items()}
        # The last event is far ahead: nothing comes that would let it out.
        self.counted = set()
        seen: dict[int, int] = defaultdict(int)
        for k, _, i in rows[:-1]:
            seen[k] += 1
            self.counted.add((i, k, seen[k]))
        of_key: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for k, v, i in rows[:-1]:
            of_key[k].append((v, i))
        self.peaks = {(k, *peak) for k, of in of_key.items() for peak in peaks(of)}


def peaks(rows: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Of values and ids of one key: the ids of the row before each rise, and of the row after it, which falls."""
    at = 0
    while at < len(rows):
        top = at
        while top + 1 < len(rows) and rows[top + 1][0] > rows[top][0]:
            top += 1
        if at < top < len(rows) - 1 and rows[top + 1][0] < rows[top][0]:
            yield rows[at][1], rows[top + 1][1]
            at = top + 1
        at += 1


def held(c: psycopg.Connection, table: str, columns: str) -> set[tuple[int, ...]]:
    rows = c.execute(f"SELECT {columns} FROM {table}".encode()).fetchall()
    assert len(rows) == len(set(rows)), f"{table} holds a row twice"
    return {tuple(map(int, r)) for r in rows}


def newest(c: psycopg.Connection) -> int:
    row = c.execute("SELECT coalesce(max(id), -1) FROM newest").fetchone()
    assert row is not None
    return int(row[0])


def send(kafka: Kafka, events: list[tuple[int, int]], first: int) -> None:
    """Events with their numbers; the last of all is far ahead, so that event time passes the others."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for i, (k, v) in enumerate(events, first):
        at = int(time.time() * 1000)
        if i == EVENTS - 1:
            producer.flush()
            at += 3_000_000
        producer.produce("kill_operators", json.dumps({"id": i, "k": k, "v": v}), str(k), timestamp=at)
    producer.flush()


@pytest.mark.stream
@pytest.mark.timeout(600)
def test_operators_go_on_after_a_kill(kafka: Kafka, workspace: Path) -> None:
    kafka.topic("kill_operators", 2)
    rng = random.Random(7)
    events = [(rng.randrange(500), rng.randrange(1000)) for _ in range(EVENTS)]
    answer = Answer(events)
    server = Server(workspace / "kill_operators")
    try:
        with server.connect() as c:
            for statement in SETUP.format(bootstrap=kafka.bootstrap).split(";\n"):
                if statement.strip():
                    c.execute(statement.encode())
            third = EVENTS // 3
            for part in (0, third):
                send(kafka, events[part : part + third], part)
                # What has been written since the last kill comes out of state that was read again.
                within(240, lambda last=part + third - 1: newest(c) == last)
                worker_of(server).kill()
            send(kafka, events[2 * third :], 2 * third)
            within(240, lambda: held(c, "newest", "k, id") == answer.newest)
            within(120, lambda: held(c, "best", "ten, id, rn") == answer.best)
            within(120, lambda: held(c, "paired", "k, v, id") == answer.paired)
            within(120, lambda: held(c, "counted", "id, k, n") == answer.counted)
            within(120, lambda: held(c, "peaks", "k, first_id, last_id") == answer.peaks)
    finally:
        assert server.stop() == 0
