"""Runs the queries: loads the same events into Kafka and PostgreSQL, makes a view of a query, and compares.

Owns: how ``queries.sql`` is read, what is equal. Must not know: where broker and servers come from.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Producer

from tests.nexmark.events import TABLES, Row, text
from tests.server import Kafka

_OTHER = re.compile(r"^-- (PostgreSQL|Flink)\n", re.M)
_HEAD = re.compile(r"^-- (q\d+) (.+)$", re.M)
TTL = "QUERY WITH ('state.ttl.millis' = 86400000)"
PARTITIONS = 2
ARRIVAL_MS = 3700
"""So much later than its event time a record reaches the broker, as its timestamp says."""


@dataclass(frozen=True)
class Query:
    """``ours``: the SELECT for pgstream; ``theirs``: for PostgreSQL; ``flink``: for Flink SQL."""

    name: str
    asks: str
    ours: str
    theirs: str
    flink: str


def queries() -> dict[str, Query]:
    """All queries by name, in order."""
    whole = (Path(__file__).parent / "queries.sql").read_text()
    whole = whole.replace("{arrival}", f"INTERVAL '{ARRIVAL_MS} ms'")
    parts = _HEAD.split(whole)[1:]
    made = {}
    for name, asks, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        ours, *others = _OTHER.split(body)
        of = dict(zip(others[::2], others[1::2], strict=True))
        theirs, flink = (of.get(who, ours.replace("{ttl}", "")).strip() for who in ("PostgreSQL", "Flink"))
        made[name] = Query(name, asks, ours.replace("{ttl}", TTL).strip(), theirs, flink)
    return made


def to_kafka(kafka: Kafka, made: Iterable[tuple[str, Row]]) -> None:
    """The events in a topic ``nexmark_TABLE`` each; keys are ids, so each partition has its share in order."""
    for table in TABLES:
        kafka.topic(f"nexmark_{table}", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "log_level": 0})
    for table, row in made:
        arrival = int(row["date_time"].replace(tzinfo=dt.UTC).timestamp() * 1000) + ARRIVAL_MS
        key = str(row["auction" if table == "bid" else "id"])
        producer.produce(f"nexmark_{table}", json.dumps(text(row)), key, timestamp=arrival)
        producer.poll(0)
    assert producer.flush(60) == 0


def to_postgresql(c: psycopg.Connection[Any], made: Iterable[tuple[str, Row]], schema: str) -> None:
    """The same rows in tables of a schema that this makes."""
    c.execute(f"CREATE SCHEMA {schema}".encode())
    for table, columns in TABLES.items():
        c.execute(f"CREATE TABLE {schema}.{table} ({columns})".encode())
    rows: dict[str, list[Row]] = {table: [] for table in TABLES}
    for table, row in made:
        rows[table].append(row)
    for table, some in rows.items():
        with c.cursor().copy(f"COPY {schema}.{table} FROM STDIN".encode()) as copy:
            for row in some:
                copy.write_row(tuple(row.values()))


def streams(c: psycopg.Connection[Any], bootstrap: str, position: str = "earliest") -> None:
    """A store, the three streams by event time and by arrival, and the side input."""
    c.execute(
        f"CREATE STORE nexmark WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE, "
        "'kafka.sasl.hash_function' = NONE)".encode()
    )
    form = f"'value.format' = 'json', 'timestamp.format' = 'SQL', 'starting.position' = '{position}'"
    for table, columns in TABLES.items():
        own = f"'store' = nexmark, 'topic' = 'nexmark_{table}', {form}"
        c.execute(f"CREATE STREAM {table} ({columns}) WITH ({own}, 'timestamp' = 'date_time')".encode())
        c.execute(f"CREATE STREAM {table}_arrival ({columns}) WITH ({own})".encode())
    c.execute(
        "CREATE TABLE side_input AS SELECT n::bigint AS number, 'value ' || n AS label FROM generate_series(0, 99) n"
    )


def start(c: psycopg.Connection[Any], query: Query) -> str:
    """Make a view of a query, of its name; the id of what keeps it."""
    made = c.execute(f"CREATE MATERIALIZED VIEW {query.name} AS {query.ours}".encode()).fetchall()
    return str(made[-1][1])


def answer(c: psycopg.Connection[Any], query: Query, schema: str) -> Counter[str]:
    """What PostgreSQL answers, as a bag of rows."""
    with c.transaction():
        c.execute(f"SET LOCAL search_path = {schema}, public".encode())
        return _bag(c.execute(query.theirs.encode()).fetchall())


def view(c: psycopg.Connection[Any], query: Query) -> Counter[str]:
    """What the view of a query holds now."""
    return rows(c, query.name)


def rows(c: psycopg.Connection[Any], table: str) -> Counter[str]:
    """What a table holds, as a bag of rows."""
    return _bag(c.execute(f"SELECT * FROM {table}".encode()).fetchall())


def _bag(rows: Iterable[tuple[Any, ...]]) -> Counter[str]:
    return Counter(" | ".join(map(str, row)) for row in rows)
