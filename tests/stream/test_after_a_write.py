"""A client that wrote to a topic reads what it wrote; and is told when a view changes."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from tests.server import Kafka, Server, within
from tests.stream.test_outage import run

pytestmark = pytest.mark.stream


@pytest.fixture(scope="module")
def made(server: Server, kafka: Kafka) -> None:
    kafka.topic("rw", 2)
    with server.connect() as db:
        run(db, f"""
            CREATE STORE rw WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE,
              'kafka.sasl.hash_function' = NONE);
            CREATE STREAM rw_in (id BIGINT, k BIGINT)
              WITH ('store' = rw, 'topic' = 'rw', 'value.format' = 'json', 'starting.position' = 'earliest');
            CREATE MATERIALIZED VIEW rw_sums WITH ('notify' = 'rw_changed') AS
              SELECT k, count(*) AS n, sum(id) AS total FROM rw_in GROUP BY k;
            CREATE MATERIALIZED VIEW rw_again AS SELECT count(*) AS n FROM rw_sums;
            """)  # fmt: skip


def write(kafka: Kafka, *records: dict[str, int]) -> str:
    """Where the records went, as ``pgstream_wait_for`` takes it."""
    at: list[str] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for r in records:
        producer.produce("rw", json.dumps(r), partition=r["k"] % 2, on_delivery=lambda _, m: at.append(
            f"{m.topic()}:{m.partition()}:{m.offset()}"))  # fmt: skip
    assert producer.flush(30) == 0
    return ",".join(at)


def total(db: psycopg.Connection[Any], k: int) -> Any:
    return db.execute("SELECT n, total FROM rw_sums WHERE k = %s", [k]).fetchone()


def test_reads_its_writes(made: None, kafka: Kafka, server: Server, db: psycopg.Connection[Any]) -> None:
    for turn in range(5):
        at = write(kafka, {"id": turn, "k": 1}, {"id": 10 * turn, "k": 2})
        db.execute("SELECT pgstream_wait_for('rw_sums', %s, '60 s')", [at])
        assert total(db, 1) == (turn + 1, sum(range(turn + 1)))
        assert total(db, 2) == (turn + 1, 10 * sum(range(turn + 1)))
    # Text alone, as psql sends it.
    assert db.execute(f"SELECT pgstream_wait_for('public.rw_sums', '{at}')".encode()).fetchone() == ("",)
    # A view of views has places of its own; the topic is not one of them.
    with pytest.raises(psycopg.Error) as e:
        within(30, lambda: db.execute("SELECT n = 2 FROM rw_again").fetchone() == (True,))
        db.execute("SELECT pgstream_wait_for('rw_again', %s)", [at])
    assert (e.value.sqlstate, e.value.diag.message_hint) == ("22023", "It reads: no topic.")


def test_a_hundred_wait(made: None, kafka: Kafka, server: Server, db: psycopg.Connection[Any]) -> None:
    before = write(kafka, {"id": 0, "k": 4})
    ahead = ":".join([*before.split(":")[:2], str(int(before.split(":")[2]) + 1)])
    seen: list[Any] = []

    def one() -> None:
        with server.connect() as conn:
            conn.execute("SELECT pgstream_wait_for('rw_sums', %s, '60 s')", [ahead])
            seen.append(total(conn, 4))

    waiting = [threading.Thread(target=one) for _ in range(100)]
    for t in waiting:
        t.start()
    time.sleep(1)
    assert seen == []
    assert write(kafka, {"id": 7, "k": 4}) == ahead
    for t in waiting:
        t.join(60)
    assert seen == [(2, 7)] * 100


def test_is_told_of_a_change(made: None, kafka: Kafka, server: Server, db: psycopg.Connection[Any]) -> None:
    write(kafka, {"id": 1, "k": 6})
    db.execute("LISTEN rw_changed")
    at = write(kafka, *({"id": 1, "k": 8} for _ in range(200)))
    told = next(db.notifies(timeout=60))
    said = json.loads(told.payload)
    assert said["view"] == "main.public.rw_sums" and said["batch"] >= 0
    db.execute("SELECT pgstream_wait_for('rw_sums', %s, '60 s')", [at])
    # A word a batch, not a row; and none of one that changes nothing.
    assert len(list(db.notifies(timeout=1))) < 20
    db.execute("UNLISTEN *")
    with pytest.raises(psycopg.Error) as e:
        db.execute("CREATE MATERIALIZED VIEW rw_no WITH ('notify' = '') AS SELECT id FROM rw_in")
    assert e.value.sqlstate == "22023"


def test_with_ordinary_tables_in_one_transaction(made: None, kafka: Kafka, db: psycopg.Connection[Any]) -> None:
    """Tables of PostgreSQL's own and views are read, and what was read is kept, in one transaction's snapshot."""
    at = write(kafka, {"id": 5, "k": 10})
    db.execute("SELECT pgstream_wait_for('rw_sums', %s, '60 s')", [at])
    db.execute("CREATE TABLE rw_names (k bigint PRIMARY KEY, name text)")
    db.execute("CREATE TABLE rw_kept (name text, total numeric)")
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("INSERT INTO rw_names VALUES (10, 'ten')")
        join = "SELECT name, total FROM rw_names JOIN rw_sums USING (k)"
        assert db.execute(join).fetchall() == [("ten", 5)]
        later = write(kafka, {"id": 6, "k": 10})
        with psycopg.connect(db.info.dsn, password=db.info.password, autocommit=True) as other:
            other.execute("SELECT pgstream_wait_for('rw_sums', %s, '60 s')", [later])
            assert total(other, 10) == (2, 11)
            assert other.execute("SELECT count(*) FROM rw_names").fetchone() == (0,)
        # Still as it was when the transaction began, whatever has been committed meanwhile.
        db.execute(f"INSERT INTO rw_kept {join}".encode())
        with pytest.raises(psycopg.Error) as e, db.transaction():
            db.execute("SELECT pgstream_wait_for('rw_sums', %s)", [later])
        assert e.value.sqlstate == "25001"
    assert db.execute("TABLE rw_kept").fetchall() == [("ten", 5)]
    assert db.execute(join).fetchall() == [("ten", 11)]
