"""Random queries as a client has them run: topics of a real broker, statements through psycopg, views that are read.

What goes into a topic is read back from it by a view of its own, so that decoding and both kinds of sink are in.
Half of the queries are started again in the middle. ``PGSTREAM_SEED=7`` tries others.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from tests.server import Kafka, Server, within
from tests.stream.differential import data, queries
from tests.stream.differential.run import Row, difference
from tests.stream.differential.tree import Case

SEED = os.environ.get("PGSTREAM_SEED", "1")
CASES = int(os.environ.get("PGSTREAM_CLIENT_CASES", "4"))

SCALARS = {"int", "dbl", "dec", "big", "str", "bool", "ts", "tz"}


@dataclass(frozen=True)
class Wanted:
    """A view, the case behind it, and its rows in the end."""

    view: str
    case: Case
    rows: list[Row]


def cases() -> list[Case]:
    """The first of the seed; half of them into topics. Without lookups, whose view would change meanwhile, and without
    arrays, which a view does not have.
    """
    drawn = (queries.case(f"client {SEED} {i}") for i in itertools.count())
    fit = [
        c for c in itertools.islice(drawn, CASES * 6) if set(c.types) <= SCALARS and not re.search(r"\blook\b", c.ours)
    ]
    views = [c for c in fit if c.want == "view"][: CASES // 2]
    return views + [c for c in fit if c.want != "view"][: CASES - len(views)]


@pytest.fixture(scope="module")
def oracle(workspace: Path) -> Iterator[str]:
    postgres = asyncio.run(open_postgres(Config(data_dir=workspace / "oracle")))
    yield postgres.url("postgres", tcp=True)
    asyncio.run(postgres.stop())


def declare(c: psycopg.Connection[Any], made: list[data.Relation], bootstrap: str) -> None:
    c.execute(
        f"""CREATE STORE differential WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
              'kafka.sasl.hash_function' = NONE)""".encode()
    )
    for r in made:
        key = f", PRIMARY KEY ({', '.join(r.key)})" if r.key else ""
        columns = ", ".join(f"{n} {t}" for n, t in r.columns.items())
        given = r.properties | {"store": "differential", "topic": f"differential_{r.name}"}
        del given["source.allow.latency.millis"]  # it is a property of a query's source
        given["starting.position"] = "earliest"
        properties = ", ".join(f"'{n}' = '{v}'" for n, v in given.items())
        kind = "CHANGELOG" if r.key else "STREAM"
        c.execute(f"CREATE {kind} {r.name} ({columns}{key}) WITH ({properties})".encode())


def produce(kafka: Kafka, made: list[data.Relation], number: int) -> None:
    """A batch of all relations."""
    for relation in made:
        for r in relation.batches[number]:
            kafka.produce(f"differential_{relation.name}", [relation.message(r)], r.time, r.partition)


def create(c: psycopg.Connection[Any], name: str, case: Case) -> str:
    """Start a case; the name of the view that holds its rows."""
    if case.want == "view":
        c.execute(f"CREATE MATERIALIZED VIEW {name} AS {case.ours}".encode())
        return name
    topic = f"'store' = differential, 'topic' = 'differential_{name}', 'kafka.topic.retention.ms' = '-1'"
    c.execute(f"CREATE {case.want.upper()} {name} WITH ({topic}) AS {case.ours}".encode())
    back = f"SELECT * FROM {name} WITH ('starting.position' = 'earliest')"
    c.execute(f"CREATE MATERIALIZED VIEW {name}_back AS {back}".encode())
    return f"{name}_back"


def expected(oracle: str, made: list[data.Relation], case: Case) -> list[Row]:
    with psycopg.connect(oracle, autocommit=True) as c:
        c.execute("CREATE SCHEMA IF NOT EXISTS differential; SET search_path = differential, public")
        if c.execute("SELECT to_regclass('log_s')").fetchone() == (None,):
            data.load(c, "differential", made)
        if case.input and c.execute(case.input.encode()).fetchone() == (0,):
            return []
        return c.execute(case.pg.encode()).fetchall()


def differs(c: psycopg.Connection[Any], w: Wanted) -> str:
    return difference(c.execute(f"SELECT * FROM {w.view}".encode()).fetchall(), w.rows)


@pytest.mark.stream
def test_a_client_reads_the_results_of_the_whole(server: Server, kafka: Kafka, oracle: str) -> None:
    made = data.relations(f"client {SEED}", late=False)
    drawn = cases()
    for r in made:
        kafka.topic(f"differential_{r.name}", data.PARTITIONS, retention_ms="-1")
    with server.connect() as c:
        c.execute("CREATE DATABASE differential")
    with server.connect("differential") as c:
        declare(c, made, kafka.bootstrap)
        before = {row[0] for row in c.execute("LIST QUERIES").fetchall()}
        wanted = [
            Wanted(create(c, f"case_{i}", case), case, expected(oracle, made, case)) for i, case in enumerate(drawn)
        ]
        mine = sorted({row[0] for row in c.execute("LIST QUERIES").fetchall()} - before)
        try:
            for number in range(len(made[0].batches) - 1):
                produce(kafka, made, number)
                for query in random.Random(f"{SEED} {number}").sample(mine, len(mine) // 2):
                    c.execute(f"RESTART QUERY {query}".encode())
            produce(kafka, made, -1)
            wrong = [w for w in wanted if not settled(c, w)]
            shown = "\n".join(f"{w.case.want}: {differs(c, w)}\n  {w.case.ours}\n  {w.case.pg}" for w in wrong)
            assert not wrong, f"PGSTREAM_SEED={SEED}\n{shown}"
        finally:
            for query in mine:
                c.execute(f"TERMINATE QUERY {query}".encode())


def settled(c: psycopg.Connection[Any], w: Wanted) -> bool:
    try:
        return bool(within(90, lambda: not differs(c, w), every=0.3))
    except AssertionError:
        return False
