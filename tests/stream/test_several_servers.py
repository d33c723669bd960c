"""Several servers on one PostgreSQL: each serves clients, one runs a pool's queries, another takes over from it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres import PASSWORD, USER, Postgres
from tests.server import Kafka, Server, within

pytestmark = pytest.mark.stream
SETUP = """
CREATE STORE common WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM common_in (id BIGINT) WITH ('store' = common, 'topic' = 'common_in', 'value.format' = 'json',
  'starting.position' = 'earliest')
"""
OF_A = "of_a AS SELECT id, count(*) AS n FROM common_in GROUP BY id"
APPLICATION = """
BEGIN APPLICATION common
CREATE VIRTUAL STREAM virtual.public.ones AS SELECT id FROM common_in WHERE id = 1;
CREATE MATERIALIZED VIEW of_ones AS SELECT id, count(*) AS n FROM virtual.public.ones GROUP BY id;
END APPLICATION
"""


class Several:
    """A PostgreSQL, a folder of checkpoints, and the servers that share them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.postgres = Postgres(folder / "postgres")
        self.running: dict[str, Server] = {}

    def start(self, name: str) -> Server:
        url = f"postgresql://{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.postgres.port}/postgres"
        self.running[name] = Server(
            self.folder / name, postgres_url=url, checkpoint_dir=str(self.folder / "checkpoints"), max_connections="20",
            secret_key="one-key-for-all", metrics_listen="127.0.0.1:0",
        )  # fmt: skip
        return self.running[name]

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def close(self) -> None:
        for server in self.running.values():
            server.stop()
        self.postgres.stop()


@pytest.fixture(scope="module")
def several(workspace: Path) -> Iterator[Several]:
    made = Several(workspace / "several")
    yield made
    made.close()


def pool_of(server: Server) -> str:
    status, body = server.ask("/ready")
    assert status == 200, body
    found = json.loads(body)
    return found["default_pool"] if found["worker"] == "running" else "starting"


def rows(connection: psycopg.Connection[Any], view: str) -> int:
    found = connection.execute(f"SELECT coalesce(sum(n), 0)::bigint FROM {view}".encode()).fetchone()
    assert found is not None
    return found[0]


def query(connection: psycopg.Connection[Any], view: str) -> dict[str, Any]:
    """The live query that keeps a view, as LIST QUERIES has it."""
    return next(iter(queries(connection, view)), {})


def queries(connection: psycopg.Connection[Any], view: str) -> list[dict[str, Any]]:
    listed = connection.execute("LIST QUERIES")
    assert listed.description is not None
    names = [column.name for column in listed.description]
    found = [dict(zip(names, row, strict=True)) for row in listed.fetchall()]
    return [q for q in found if view in q["Query"]]


def state(connection: psycopg.Connection[Any], view: str) -> str:
    return str(query(connection, view).get("Actual State", ""))


def identity(connection: psycopg.Connection[Any], view: str) -> str:
    return str(query(connection, view)["ID"])


def test_any_server_takes_any_statement_and_one_runs_the_queries(several: Several, kafka: Kafka) -> None:
    kafka.topic("common_in", 2)
    kafka.produce("common_in", [(None, json.dumps({"id": n % 3})) for n in range(9)])
    first = several.start("a")
    within(180, lambda: pool_of(first) == "this server")
    second = several.start("b")
    within(180, lambda: pool_of(second) == "another server")
    with first.connect() as a, second.connect() as b:
        for text in SETUP.format(bootstrap=kafka.bootstrap).split(";"):
            b.execute(text.encode())
        # What needs Spark only to answer is answered where it is asked.
        assert len(b.execute("SELECT id FROM common_in LIMIT 9").fetchall()) == 9
        assert len(b.execute("PRINT ENTITY common_in IN STORE common WITH ('from_beginning') LIMIT 2").fetchall()) == 2
        b.execute("CREATE MATERIALIZED VIEW of_b AS SELECT id, count(*) AS n FROM common_in GROUP BY id")
        a.execute(f"CREATE MATERIALIZED VIEW {OF_A}".encode())
        for connection in (a, b):
            for view in ("of_a", "of_b"):
                within(120, lambda v=view, c=connection: rows(c, v) == 9)
                assert state(connection, view) == "running"
        b.execute(APPLICATION.encode())
        within(120, lambda: rows(b, "of_ones") == 3)
        b.execute(f"TERMINATE QUERY {identity(b, 'of_ones')}".encode())
        assert state(a, "of_ones") == ""
        # Its figures are known where it does not run, too.
        id = identity(b, "of_b")
        within(30, lambda: ("lag", "main.public.common_in", None, 0, "records") in metrics(b, id))
        before = attempts(b, id)
        b.execute(f"RESTART QUERY {id}".encode())
        within(120, lambda: attempts(b, id) == before + 1 and state(b, "of_b") == "running")
        kafka.produce("common_in", [(None, json.dumps({"id": 1}))])
        within(120, lambda: rows(b, "of_b") == 10 and rows(a, "of_a") == 10)
        b.execute(f"TERMINATE QUERY {id}".encode())
        assert state(a, "of_b") == ""
        b.execute("DROP MATERIALIZED VIEW of_b")
        assert not (several.folder / "checkpoints" / id).exists()
        with pytest.raises(psycopg.errors.UndefinedTable):
            a.execute("SELECT * FROM of_b")


def metrics(connection: psycopg.Connection[Any], id: str) -> list[tuple[Any, ...]]:
    found = connection.execute(f"DESCRIBE QUERY METRICS {id}".encode()).fetchall()
    return [(*row[:3], int(row[3]) if str(row[3]).isdigit() else row[3], row[4]) for row in found]


def attempts(connection: psycopg.Connection[Any], id: str) -> int:
    found = dict(connection.execute(f"DESCRIBE QUERY {id}".encode()).fetchall())
    return int(found["attempts"])


def test_a_replacement_goes_on_when_its_server_dies(several: Several, kafka: Kafka) -> None:
    """Begun by a statement at a server that does not have the pool; the one that has it is killed before it is over."""
    second = several.running["b"]
    with second.connect() as b:
        before = identity(b, "of_a")
        b.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {OF_A.replace('count', '10 * count')}".encode())
        assert rows(b, "of_a") == 10
        assert "replaces the query" in query(b, "10 * count")["Message"]
        several.kill("a")
        within(120, lambda: rows(b, "of_a") == 100)
        within(60, lambda: [q["Actual State"] for q in queries(b, "of_a")] == ["running"])
        assert identity(b, "of_a") != before and not (several.folder / "checkpoints" / before).exists()
        assert pool_of(second) == "this server"


def test_another_server_takes_over_within_ten_seconds(several: Several, kafka: Kafka) -> None:
    # The one that came back has waited in its turn.
    first = several.start("a")
    within(180, lambda: pool_of(first) == "another server")
    with first.connect() as a:
        repaired = identity(a, "of_a")
        a.execute("REPAIR MATERIALIZED VIEW of_a")
        within(120, lambda: [q["ID"] == repaired for q in queries(a, "of_a")] == [False])
        within(60, lambda: state(a, "of_a") == "running")
        assert rows(a, "of_a") == 100
        several.kill("b")
        killed = time.monotonic()
        kafka.produce("common_in", [(None, json.dumps({"id": 2})) for _ in range(5)])
        within(120, lambda: rows(a, "of_a") == 150, every=0.05)
        took = time.monotonic() - killed
        print(f"taken over in {took:.1f} s")
        assert took <= 10 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # ten, where there is nothing else
        assert pool_of(first) == "this server"
