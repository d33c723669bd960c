"""Rows of an outer join without a match, while a backlog of hours is read in many batches: a query over what the join
writes, which reads along in batches of its own, counts each of them, at its time.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import psycopg

from tests.server import Kafka, Server, within

MINUTE = 60_000
EVERY, HOURS, WITHIN = 10_000, 3, 2 * MINUTE
STORE = """CREATE STORE unmatched WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
'kafka.sasl.hash_function' = NONE)"""
SOURCE = """CREATE STREAM {name} (id BIGINT, at BIGINT) WITH ('topic' = 'unmatched_{name}', 'value.format' = 'json',
'timestamp' = 'at', 'starting.position' = 'earliest')"""
READ = "WITH ('source.max.records.per.trigger' = 180)"
JOIN = f"""SELECT o.id, p.id AS parcel FROM orders o {READ} LEFT JOIN parcels p {READ} WITHIN 2 MINUTES
ON o.id = p.id"""


def test_rows_without_a_match_are_not_late_for_the_next_query(server: Server, kafka: Kafka) -> None:
    orders, parcels, wanted = made()
    for name, rows in (("orders", orders), ("parcels", parcels)):
        kafka.topic(f"unmatched_{name}")
        kafka.produce(f"unmatched_{name}", [(None, json.dumps({"id": i, "at": t})) for i, t in rows])
    with server.connect() as c:
        c.execute("CREATE DATABASE unmatched")
    with server.connect("unmatched") as c:
        c.execute(STORE.format(bootstrap=kafka.bootstrap).encode())
        c.execute("USE STORE unmatched")
        for name in ("orders", "parcels"):
            c.execute(SOURCE.format(name=name).encode())
        c.execute(f"CREATE STREAM sent AS {JOIN}")
        c.execute(
            "CREATE MATERIALIZED VIEW counted AS SELECT window_start, count(*) AS orders, count(parcel) AS sent "
            "FROM TUMBLE(sent, SIZE 5 MINUTES) WITH ('starting.position' = 'earliest', "
            "'source.max.records.per.trigger' = 100) GROUP BY window_start, window_end"
        )
        within(120, lambda: sum(n for _, n, _ in rows_of(c)) >= len(orders), 0.5)
        assert {int(start.timestamp() * 1000): (n, sent) for start, n, sent in rows_of(c)} == wanted
        told: list[str | None] = []
        c.add_notice_handler(lambda d: told.append(d.message_primary))
        c.execute(f"DESCRIBE INSERT INTO sent {JOIN}")
        c.execute(f"DESCRIBE INSERT INTO orders SELECT id, parcel AS at FROM ({JOIN}) x")
        (notice,) = told
        assert str(notice).endswith("unless they read it WITH ('source.allow.latency.millis' = 250002)")


def made() -> tuple[list[tuple[int, int]], list[tuple[int, int]], dict[int, tuple[int, int]]]:
    """Orders, parcels, and how many orders with how many parcels there are in each five minutes of the result."""
    chance = random.Random(4)
    begin = 1_700_000_100_000
    orders = [(i, begin + i * EVERY) for i in range(HOURS * 60 * MINUTE // EVERY)]
    parcels = [(i, t + chance.randrange(WITHIN)) for i, t in orders if chance.random() < 0.7]
    every: Counter[int] = Counter()
    sent: Counter[int] = Counter()
    last = (len(orders), orders[-1][1] + 4 * 60 * MINUTE)  # a pair hours after them all
    orders, parcels = [*orders, last], [*sorted(parcels, key=lambda p: p[1]), last]
    known = dict(parcels)
    for i, t in orders:
        window = max(t, known.get(i, 0)) // (5 * MINUTE) * 5 * MINUTE
        every[window] += 1
        sent[window] += i in known
    return orders, parcels, {w: (n, sent[w]) for w, n in every.items()}


def rows_of(c: psycopg.Connection[Any]) -> list[Any]:
    return c.execute("SELECT window_start AT TIME ZONE 'UTC', orders, sent FROM counted").fetchall()
