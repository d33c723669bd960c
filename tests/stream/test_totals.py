"""Impossible totals: money moves between accounts, so all balances together are nothing, at any moment and for any
reader. Each view is what its query makes of one beginning of each partition, also where the query reads a topic twice.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from tests.server import Kafka, Server, within
from tests.stream.test_outage import run

TRANSFERS = 4000
SETUP = """
CREATE STORE bank WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM transfers (id BIGINT, source BIGINT, target BIGINT, amount BIGINT)
  WITH ('store' = bank, 'topic' = 'transfers', 'value.format' = 'json', 'starting.position' = 'earliest');
CREATE MATERIALIZED VIEW balances AS SELECT account, sum(amount) AS balance, count(*) AS moves FROM
  (SELECT source AS account, - amount AS amount FROM transfers UNION ALL SELECT target, amount FROM transfers) x
  GROUP BY account;
CREATE MATERIALIZED VIEW joined AS
  WITH credits AS (SELECT target AS account, sum(amount) AS total FROM transfers GROUP BY target),
       debits AS (SELECT source AS account, sum(amount) AS total FROM transfers GROUP BY source)
  SELECT c.account AS creditor, d.account AS debtor, coalesce(c.total, 0) - coalesce(d.total, 0) AS balance
  FROM credits c FULL JOIN debits d ON c.account = d.account;
CREATE MATERIALIZED VIEW grand_total AS SELECT sum(balance) AS total, count(*) AS accounts FROM
  (SELECT account, sum(amount) AS balance FROM
    (SELECT source AS account, - amount AS amount FROM transfers UNION ALL SELECT target, amount FROM transfers) x
   GROUP BY account) y
"""
LOOKS = {
    "balances": "SELECT coalesce(sum(balance), 0), coalesce(sum(moves), 0) % 2 FROM balances",
    "joined": "SELECT coalesce(sum(balance), 0), 0 FROM joined",
    "grand_total": "SELECT coalesce(sum(total), 0), 0 FROM grand_total",
}


class Auditor(threading.Thread):
    """Adds up all the time: each look twice in one transaction, which must not change, and once more in none."""

    def __init__(self, server: Server, view: str) -> None:
        super().__init__(daemon=True)
        self.server, self.view = server, view
        self.over = threading.Event()
        self.looks = 0
        self.wrong: list[Any] = []

    def run(self) -> None:
        try:
            with self.server.connect() as c:
                c.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                while not self.over.is_set():
                    with c.transaction():
                        seen = [c.execute(LOOKS[self.view].encode()).fetchone() for _ in range(2)]
                    seen.append(c.execute(LOOKS[self.view].encode()).fetchone())
                    self.wrong += [s for s in seen if s is None or tuple(map(int, s)) != (0, 0)]
                    self.looks += 3
        except psycopg.Error as e:
            self.wrong.append(e)


def produce(bootstrap: str) -> Counter[int]:
    """Transfers in bursts over all partitions; the balances that they make."""
    r = random.Random(5)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    balances: Counter[int] = Counter()
    for id in range(TRANSFERS):
        source, target, amount = r.randrange(10), r.randrange(10), r.randint(1, 100)
        balances[source] -= amount
        balances[target] += amount
        value = {"id": id, "source": source, "target": target, "amount": amount}
        producer.produce("transfers", json.dumps(value), str(id))
        if r.random() < 0.02:
            producer.flush()
    assert producer.flush(30) == 0
    return balances


@pytest.mark.stream
@pytest.mark.timeout(240)
def test_no_reader_sees_money_made_or_lost(server: Server, kafka: Kafka, db: psycopg.Connection[Any]) -> None:
    kafka.topic("transfers", 3)
    queries = run(db, SETUP.format(bootstrap=kafka.bootstrap))
    auditors = [Auditor(server, view) for view in LOOKS]
    for a in auditors:
        a.start()
    made: list[Counter[int]] = []
    loader = threading.Thread(target=lambda: made.append(produce(kafka.bootstrap)))
    loader.start()
    loader.join(120)
    within(90, lambda: db.execute("SELECT sum(moves) FROM balances").fetchone() == (2 * TRANSFERS,))
    rows = db.execute("SELECT account, balance FROM balances").fetchall()
    assert {a: int(b) for a, b in rows} == dict(made[0])
    joined = "SELECT creditor, balance FROM joined"
    within(60, lambda: {a: int(b) for a, b in db.execute(joined).fetchall()} == dict(made[0]))
    within(60, lambda: db.execute("SELECT accounts FROM grand_total").fetchone() == (10,))
    for a in auditors:
        a.over.set()
        a.join(20)
        assert not a.wrong, (a.view, a.wrong[:5])
        assert a.looks > 10
    for query in queries:
        db.execute(f"TERMINATE QUERY {query}".encode())
