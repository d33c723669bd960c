"""CHECK MATERIALIZED VIEW while records come: of rows that wait for the watermark, computed anew up to the watermark of
the batch that is compared (what is early, or late, would differ), and of views over views, as those were then."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server import Kafka, Server, within
from tests.stream.test_outage import run, superuser

pytestmark = [pytest.mark.stream, pytest.mark.timeout(600)]
BEGIN_MS = 1_700_000_000_000
SETUP = """
CREATE STORE ck WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE, 'kafka.sasl.hash_function' = NONE);
CREATE STREAM ck_a (id BIGINT, k VARCHAR, v BIGINT, "at" BIGINT) WITH ('store' = ck, 'value.format' = 'json',
  'timestamp' = 'at', 'starting.position' = 'earliest', 'source.allow.latency.millis' = 60000);
CREATE STREAM ck_b (id BIGINT, k VARCHAR, v BIGINT, "at" BIGINT) WITH ('store' = ck, 'value.format' = 'json',
  'timestamp' = 'at', 'starting.position' = 'earliest', 'source.allow.latency.millis' = 60000);
CREATE CHANGELOG ck_names (k VARCHAR, name VARCHAR, "at" BIGINT, PRIMARY KEY (k)) WITH ('store' = ck,
  'value.format' = 'json', 'timestamp' = 'at', 'starting.position' = 'earliest', 'source.allow.latency.millis' = 60000)
"""
VIEWS = {
    "left": "SELECT a.id, b.id AS other FROM ck_a a LEFT JOIN ck_b b WITHIN 3 SECONDS ON a.k = b.k",
    "full": "SELECT a.id, b.id AS other FROM ck_a a FULL JOIN ck_b b WITHIN 3 SECONDS ON a.k = b.k",
    "joined": "SELECT a.id, n.name FROM ck_a a LEFT JOIN ck_names n ON a.k = n.k",
    "over": "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY \"at\" RANGE BETWEEN INTERVAL '30' SECOND PRECEDING"
    " AND CURRENT ROW) AS s FROM ck_a",
    "matched": 'SELECT k, f, l, n FROM ck_a MATCH_RECOGNIZE (PARTITION BY k ORDER BY "at" '
    "MEASURES FIRST(u.id) AS f, LAST(u.id) AS l, COUNT(u.id) AS n AFTER MATCH SKIP PAST LAST ROW PATTERN (u+ d)"
    " DEFINE u AS u.v > 5,"
    " d AS d.v <= 5) m",
    "sums": "SELECT k, count(*) AS n, sum(v) AS s FROM ck_a GROUP BY k",
    "over_sums": "SELECT n % 3 AS m, count(*) AS n, sum(s) AS s FROM ck_sums GROUP BY n % 3",
    "named_sums": "SELECT s.k, s.n, c.name FROM ck_sums s JOIN ck_names c ON s.k = c.k",
    "twice": "SELECT a.k AS k, b.k AS other, a.s + b.s AS s FROM ck_sums a JOIN ck_sums b ON a.n % 5 = b.n % 5",
    "windowed": "SELECT k, window_start, sum(v) AS s FROM TUMBLE(ck_a, SIZE 20 SECONDS)"
    " GROUP BY k, window_start, window_end",
}


class Writer(threading.Thread):
    """A second of event time in each tenth of one, in no order within that; names change with each."""

    def __init__(self, kafka: Kafka) -> None:
        super().__init__(daemon=True)
        self.kafka, self.over, self.turn = kafka, threading.Event(), 0
        self.any = random.Random(7)

    def record(self, at: int) -> tuple[str, str]:
        k = f"k{self.any.randrange(6)}"
        return k, json.dumps({"id": self.any.getrandbits(50), "k": k, "v": self.any.randrange(12), "at": at})

    def write(self) -> None:
        self.turn += 1
        for topic in ("ck_a", "ck_b"):
            times = [BEGIN_MS + self.turn * 1000 + self.any.randrange(1000) for _ in range(8)]
            self.kafka.produce(topic, [self.record(at) for at in times])
        at = BEGIN_MS + self.turn * 1000
        name = {"k": f"k{self.turn % 6}", "name": f"n{self.turn}", "at": at}
        self.kafka.produce("ck_names", [(json.dumps({"k": name["k"]}), json.dumps(name))])

    def run(self) -> None:
        while not self.over.wait(0.1):
            self.write()


@pytest.fixture(scope="module")
def writer(server: Server, kafka: Kafka) -> Iterator[Writer]:
    for topic in ("ck_a", "ck_b", "ck_names"):
        kafka.topic(topic, 2)
    writer = Writer(kafka)
    for _ in range(150):
        writer.write()
    with server.connect() as db:
        run(db, SETUP.format(bootstrap=kafka.bootstrap))
        made = [
            db.execute(f"CREATE MATERIALIZED VIEW ck_{name} AS {query}".encode()).fetchall()[-1][1]
            for name, query in VIEWS.items()
        ]
        for name in VIEWS:
            within(120, lambda n=name: db.execute(f"SELECT 1 FROM ck_{n} LIMIT 1".encode()).fetchone())
        writer.start()
        yield writer
        writer.over.set()
        writer.join(30)
        for query in made:
            db.execute(f'TERMINATE QUERY "{query}"'.encode())


@pytest.mark.parametrize("view", VIEWS)
def test_right_while_records_come(view: str, writer: Writer, server: Server, db: psycopg.Connection[Any]) -> None:
    notices: list[str] = []
    db.add_notice_handler(lambda d: notices.append(f"{d.message_primary} {d.message_hint}"))
    assert db.execute(f"CHECK MATERIALIZED VIEW ck_{view}".encode()).fetchall() == [], notices
    assert " is right: its " in notices[-1]
    assert writer.is_alive()


def test_what_a_hand_and_late_rows_have_changed(
    writer: Writer, server: Server, kafka: Kafka, db: psycopg.Connection[Any]
) -> None:
    writer.over.set()
    writer.join(30)
    hints: list[str] = []
    db.add_notice_handler(lambda d: hints.append(d.message_hint or ""))
    with superuser(server) as su:
        gone = su.execute("DELETE FROM ck_over WHERE id IN (SELECT min(id) FROM ck_over) RETURNING id").fetchall()
    ((kind, _, has, computed),) = db.execute("CHECK MATERIALIZED VIEW ck_over").fetchall()
    assert (kind, has, json.loads(computed)["id"]) == ("missing", None, gone[0][0])
    assert hints[-1] == "REPAIR MATERIALIZED VIEW puts it right."
    kafka.produce("ck_a", [("k1", json.dumps({"id": 1, "k": "k1", "v": 1, "at": BEGIN_MS + 5000}))])

    def late() -> bool:
        db.execute("CHECK MATERIALIZED VIEW ck_over")
        return "1 rows came late since" in hints[-1]

    within(60, late)
    found = {json.loads(c)["id"] for *_, c in db.execute("CHECK MATERIALIZED VIEW ck_over LIMIT 1000").fetchall() if c}
    assert found >= {1, gone[0][0]}


def test_what_a_hand_has_changed_in_a_view_over_views(
    writer: Writer, server: Server, db: psycopg.Connection[Any]
) -> None:
    """The rows of the views beneath are not computed anew: what is wrong in them is right in what is made of them."""
    assert not writer.is_alive()
    logs = "SELECT count(*) FROM pg_class WHERE relname LIKE 'c\\_%' AND relkind = 'r'"
    with superuser(server) as su:
        su.execute("DELETE FROM ck_named_sums WHERE k = 'k3'")
        (before,) = su.execute(logs.encode()).fetchone() or ()
        ((kind, _, has, computed),) = db.execute("CHECK MATERIALIZED VIEW ck_named_sums").fetchall()
        assert (kind, has, json.loads(computed)["k"]) == ("missing", None, "k3")
        (after,) = su.execute(logs.encode()).fetchone() or ()
        assert after <= before  # those of other tests' queries may go meanwhile
