"""Where a query begins to read, how much it takes at once, and what is said of how far behind it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.server import Kafka, Server, within

pytestmark = pytest.mark.stream


@pytest.fixture(scope="module")
def db(server: Server, kafka: Kafka) -> Iterator[psycopg.Connection[Any]]:
    """Topic ``rd_n``: numbers 0 to 99 in partition 0, 100 to 149 in partition 1; a number is its time in seconds."""
    kafka.topic("rd_n", 2)
    for n in range(150):
        kafka.produce("rd_n", [(None, f'{{"n": {n}}}')], timestamp=1_700_000_000_000 + n * 1000, partition=n // 100)
    with server.connect() as c:
        c.execute("CREATE DATABASE reading")
    with server.connect("reading") as c:
        c.execute(f"CREATE STORE rd WITH ('type' = KAFKA, 'uris' = '{kafka.bootstrap}', 'tls.disabled' = TRUE)")
        c.execute("CREATE STREAM numbers (n BIGINT) WITH ('store' = rd, 'topic' = 'rd_n', 'value.format' = 'json')")
        yield c


def rows(db: psycopg.Connection[Any], sql: str) -> list[Any]:
    return db.execute(sql).fetchall()  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("position", "count", "least"),
    [("earliest", 150, 0), ("offset:0:90", 60, 90), ("offset:1:49,0:99", 2, 99),
     ("timestamp:2023-11-14T22:14:50Z", 60, 90), ("timestamp:1700000140000", 10, 140)],
)  # fmt: skip
def test_a_query_begins_where_it_is_said(db: psycopg.Connection[Any], position: str, count: int, least: int) -> None:
    found = rows(db, f"SELECT n FROM numbers WITH ('starting.position' = '{position}') LIMIT {count}")
    assert min(found) == (least,) and len(set(found)) == count


def test_a_partition_that_is_not_there_is_named(db: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.Error) as e:
        rows(db, "SELECT n FROM numbers WITH ('starting.position' = 'offset:2:0') LIMIT 1")
    assert e.value.sqlstate == "22023" and 'topic "rd_n" has no partition 2' in str(e.value)


def test_what_comes_once_a_statement_is_answered_is_read(
    server: Server, db: psycopg.Connection[Any], kafka: Kafka
) -> None:
    """From ``latest``, the default: the end of each partition is that of the statement, not of the first batch."""
    kafka.topic("rd_new", 2)
    db.execute("CREATE STREAM new (n BIGINT) WITH ('store' = rd, 'topic' = 'rd_new', 'value.format' = 'json')")
    views = [f"new_{i}" for i in range(5)]
    for i, view in enumerate(views):
        kind = "OR REPLACE MATERIALIZED" if i == 4 else "MATERIALIZED"
        db.execute(f"CREATE {kind} VIEW {view} AS SELECT n FROM new")
        for partition in (0, 1):
            kafka.produce("rd_new", [(None, f'{{"n": {i}}}')] * 2, partition=partition)
    for i, view in enumerate(views):
        within(60, lambda v=view: rows(db, f"SELECT count(*) FROM {v} WHERE n = 4") == [(4,)])
        every = [(n, 4) for n in range(i, 5)]
        assert rows(db, f"SELECT n, count(*) FROM {view} GROUP BY n ORDER BY n") == every


def test_batches_take_no_more_than_is_said_and_lag_is_told(db: psycopg.Connection[Any]) -> None:
    db.execute(
        "CREATE MATERIALIZED VIEW slowly AS SELECT n FROM numbers WITH ('starting.position' = 'earliest', "
        "'source.max.records.per.trigger' = 10, 'kafka.consumer.group.id' = 'rd-group', "
        "'kafka.consumer.client.rack' = 'rack-1') QUERY WITH ('query.name' = 'slowly')"
    )
    most, lags = [0], set()

    def done() -> bool:
        told = rows(db, "DESCRIBE QUERY METRICS slowly")
        most[0] = max(most[0], *(int(r[3]) for r in told if r[0] == "rows_in" and r[1] is None), 0)
        lags.update((r[2], int(r[3])) for r in told if r[0] == "lag" and r[2] is not None)
        batches = [int(r[3]) for r in told if r[0] == "batch"]
        return bool(batches and batches[0] >= 14 and {("0", 0), ("1", 0)} <= lags)

    within(60, done, every=0.02)
    assert rows(db, "SELECT count(*) FROM slowly") == [(150,)]
    assert 0 < most[0] <= 10
    ends = {(r[2], int(r[3])) for r in rows(db, "DESCRIBE QUERY METRICS slowly") if r[0] == "end_offset"}
    assert ends == {("0", 100), ("1", 50)}
