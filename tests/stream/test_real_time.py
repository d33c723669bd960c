"""Queries in real time ('execution.mode' = 'realtime'): rows flow, a death loses none, the end is clean."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer

from tests.server import Kafka, Server, in_one_process, within
from tests.stream.test_kill import killed
from tests.stream.test_life import begin, produce
from tests.stream.test_outage import facts, run

SETUP = """
CREATE STORE live WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM live_in (id BIGINT, kind VARCHAR)
  WITH ('store' = live, 'topic' = 'live', 'value.format' = 'json', 'starting.position' = 'earliest')
"""
QUERY = """CREATE STREAM live_out WITH ('store' = live) AS SELECT id, upper(kind) AS kind FROM live_in WHERE id % 2 = 0
QUERY WITH ('execution.mode' = 'realtime', 'query.name' = live_q)"""
REAL_TIME = "QUERY WITH ('execution.mode' = 'realtime')"


class Reader(threading.Thread):
    """Collects a topic's values, and when each came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"reader-{topic}",
                                  "auto.offset.reset": "earliest", "fetch.wait.max.ms": 5})  # fmt: skip
        self.consumer.subscribe([topic])
        self.seen: list[dict[str, Any]] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen.append(json.loads(message.value() or b""))
        self.consumer.close()

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in self.seen]


def metrics(db: psycopg.Connection[Any], query: str) -> dict[str, Any]:
    """Those that are of the whole query or a relation."""
    rows = db.execute(f"DESCRIBE QUERY METRICS {query}".encode()).fetchall()
    return {name: value for name, _, partition, value, _ in rows if partition is None}


def over(db: psycopg.Connection[Any], query: str) -> None:
    """End the query also where the test fails: it would keep one of the worker's tasks."""
    if facts(db, query)["state"] != "terminated":
        db.execute(f"TERMINATE QUERY {query}".encode())


@in_one_process
@pytest.mark.stream
def test_rows_flow_and_a_death_loses_none(server: Server, db: psycopg.Connection[Any], kafka: Kafka) -> None:
    kafka.topic("live")
    told: list[str] = []
    db.add_notice_handler(lambda d: told.append(str(d.message_primary)))
    run(db, SETUP.format(bootstrap=kafka.bootstrap))
    (query,) = run(db, QUERY)
    assert [t for t in told if "at least once" in t], told
    reader = Reader(kafka.bootstrap, "live_out")
    reader.start()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})

    def send(ids: range) -> None:
        for i in ids:
            producer.produce("live", json.dumps({"id": i, "kind": "a"}))
        producer.flush()

    try:
        within(90, lambda: facts(db, query)["state"] == "running")
        send(range(100))
        within(90, lambda: set(reader.ids) == set(range(0, 100, 2)))
        assert reader.seen[0]["kind"] == "A"
        # Figures come while the batch is under way, which lasts half a minute.
        within(60, lambda: metrics(db, query).get("rows_in") == "100")
        within(60, lambda: (metrics(db, query).get("rows_out"), metrics(db, query).get("lag")) == ("50", "0"))
        attempts = int(facts(db, query)["attempts"])
        assert killed(server)
        send(range(100, 200))
        within(90, lambda: set(reader.ids) == set(range(0, 200, 2)))
        within(90, lambda: facts(db, query)["state"] == "running")
        within(90, lambda: int(facts(db, query)["attempts"]) > attempts)
        # What had been written of the batch that was under way came again: nothing else, and not more often.
        assert max(reader.ids.count(i) for i in range(0, 200, 2)) <= 2
        began = time.monotonic()
        db.execute("TERMINATE QUERY live_q")
        assert time.monotonic() - began < 10
        within(20, lambda: facts(db, query)["state"] == "terminated")
        # It ended at a record, and all that it read is known.
        ((_, _, info),) = db.execute(f"DESCRIBE QUERY STATE {query}".encode()).fetchall()
        assert json.loads(info)["offsets"] == {"0": 200}
    finally:
        reader.over.set()
        reader.join()
        over(db, query)


@in_one_process
@pytest.mark.stream
def test_bad_records_and_places(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    """A bad record ends a query behind what came before it, or is left out; too many partitions are refused."""
    begin(db, kafka, "live_bad")
    (query,) = run(
        db, f"CREATE STREAM live_bad_out WITH ('store' = live_bad) AS SELECT id FROM live_bad_in\n{REAL_TIME}"
    )
    within(90, lambda: facts(db, query)["state"] == "running")
    produce(kafka, "live_bad", 1, 2, '{"id": "three"}', 4)
    within(60, lambda: facts(db, query)["state"] == "errored")
    assert facts(db, query)["error"].startswith(
        'record at partition 0, offset 2 of topic "live_bad" could not be decoded'
    )
    assert [json.loads(v or "")["id"] for _, v, _ in kafka.consume("live_bad_out", 2)] == [1, 2]
    db.execute(f"TERMINATE QUERY {query}".encode())
    (other,) = run(db, f"""INSERT INTO live_bad_out SELECT id FROM live_bad_in
        WITH ('source.deserialization.error.handling' = IGNORE) {REAL_TIME}""")  # fmt: skip
    assert [json.loads(v or "")["id"] for _, v, _ in kafka.consume("live_bad_out", 5)] == [1, 2, 1, 2, 4]
    within(60, lambda: facts(db, other).get("bad records") == "1")
    db.execute(f"TERMINATE QUERY {other}".encode())
    kafka.topic("live_wide", 64)
    run(
        db,
        "CREATE STREAM live_wide (id BIGINT) WITH ('store' = live_bad, 'topic' = 'live_wide', 'value.format' = 'json')",
    )
    with pytest.raises(psycopg.Error) as e:
        run(db, f"CREATE STREAM live_no WITH ('store' = live_bad) AS SELECT id FROM live_wide {REAL_TIME}")
    assert e.value.sqlstate == "53400" and "64 partitions" in str(e.value) and e.value.diag.message_hint
    assert "live_no" not in str(db.execute("LIST STREAMS").fetchall())


@in_one_process
@pytest.mark.stream
def test_bad_records_are_logged_once(server: Server, db: psycopg.Connection[Any], kafka: Kafka) -> None:
    """The batch in which one came is under way when its worker dies, and comes again."""
    begin(db, kafka, "live_log")
    kafka.topic("live_log_bad")
    (query,) = run(db, f"""CREATE STREAM live_log_out WITH ('store' = live_log) AS SELECT id FROM live_log_in
        WITH ('source.deserialization.error.handling' = IGNORE_AND_LOG,
        'source.deserialization.error.log.topic' = 'live_log_bad') {REAL_TIME}""")  # fmt: skip
    try:
        within(90, lambda: facts(db, query)["state"] == "running")
        produce(kafka, "live_log", 1, "rubbish", 2)
        assert [json.loads(v or "")["id"] for _, v, _ in kafka.consume("live_log_out", 2)] == [1, 2]
        attempts = int(facts(db, query)["attempts"])
        assert killed(server)
        produce(kafka, "live_log", "worse", 3)
        within(90, lambda: facts(db, query)["state"] == "running" and int(facts(db, query)["attempts"]) > attempts)
        assert {json.loads(v or "")["id"] for _, v, _ in kafka.consume("live_log_out", 5)} == {1, 2, 3}
    finally:
        over(db, query)  # at a record: what it has met so far is in the log
    assert [v for _, v, _ in kafka.consume("live_log_bad", 2)] == ["rubbish", "worse"]
