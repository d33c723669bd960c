"""Event time of a topic with several partitions: they wait for each other, but not for one that is silent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server import Kafka, within
from tests.stream.test_outage import run

BASE = 1_700_000_000_000
MINUTE = 60_000
SETUP = """
CREATE STORE {name} WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM {name}_in (id BIGINT, at BIGINT) WITH ('store' = {name}, 'topic' = '{name}', 'value.format' = 'json',
  'timestamp' = 'at', 'starting.position' = 'earliest');
CREATE MATERIALIZED VIEW {name}_seen AS SELECT id FROM {name}_in QUERY WITH ('query.name' = {name}_rows);
CREATE MATERIALIZED VIEW {name}_view AS SELECT min(at) AS at, count(*) AS n FROM TUMBLE({name}_in, SIZE 1 MINUTE)
  GROUP BY window_start, window_end QUERY WITH ('query.name' = {name}_windows)
"""


class Topic:
    """A topic of three partitions, the last always empty; a view of its ids, and one of its final windows."""

    def __init__(self, db: psycopg.Connection[Any], kafka: Kafka, name: str) -> None:
        self.db, self.kafka, self.name, self.sent = db, kafka, name, 0
        kafka.topic(name, 3)
        run(db, SETUP.format(name=name, bootstrap=kafka.bootstrap))

    def send(self, partition: int, minute: float) -> None:
        """One record, which has come in when this returns."""
        record = {"id": self.sent, "at": BASE + int(minute * MINUTE)}
        self.kafka.produce(self.name, [(None, json.dumps(record))], partition=partition)
        self.sent += 1
        within(60, lambda: len(self.rows(f"SELECT id FROM {self.name}_seen")) == self.sent, 0.02)

    def rows(self, sql: str) -> list[Any]:
        return self.db.execute(sql.encode()).fetchall()

    @property
    def windows(self) -> dict[int, int]:
        """How many records each window has, by its minute."""
        return {(at - BASE) // MINUTE: n for at, n in self.rows(f"SELECT at, n FROM {self.name}_view")}

    @property
    def late(self) -> int:
        told = self.rows(f"DESCRIBE QUERY METRICS {self.name}_windows")
        return int(next(r[3] for r in told if r[0] == "late_rows"))


@pytest.fixture
def patient(db: psycopg.Connection[Any]) -> Iterator[None]:
    """The session's pool, in which nothing is silent for ten minutes: this machine may be as slow as it likes."""
    # On this machine, also where the default pool has all of a cluster.
    db.execute("CREATE COMPUTE_POOL patient WITH ('compute_pool.memory_mb' = 512, 'compute_pool.master' = 'local[2]', "
               "'compute_pool.silent_partition_ms' = 600000)")  # fmt: skip
    db.execute("USE COMPUTE_POOL patient")
    yield
    for what in ("rows", "windows"):
        db.execute(f"TERMINATE QUERY slower_{what}".encode())
    within(30, lambda: db.execute("DROP COMPUTE_POOL patient"))


@pytest.mark.stream
@pytest.mark.usefixtures("patient")
def test_the_slower_partition_is_waited_for(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    topic = Topic(db, kafka, "slower")
    topic.send(0, 0)
    topic.send(1, 0)
    for minute in range(1, 20):  # the minutes of one partition are there before the next one of the other
        topic.send(0, minute)
    for minute in range(1, 20):
        topic.send(1, minute)
    within(60, lambda: topic.windows == dict.fromkeys(range(19), 2))
    assert topic.late == 0


@pytest.mark.stream
def test_a_silent_partition_is_not_waited_for(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    topic = Topic(db, kafka, "silent")
    topic.send(0, 0)
    topic.send(1, 0)
    topic.send(0, 5)
    within(60, lambda: topic.windows == {0: 2})
    topic.send(1, 0)  # it comes back behind the window's end
    within(60, lambda: topic.late == 1)
    topic.send(0, 10)
    within(60, lambda: topic.windows == {0: 2, 5: 1})
