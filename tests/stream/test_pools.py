"""A second compute pool as a client sees it: a query moves into it and back, waits while it is stopped, goes on."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.server import Kafka, within
from tests.stream.test_life import begin, count, produce
from tests.stream.test_outage import facts, run


def states(db: psycopg.Connection[Any], pool: str) -> tuple[str, str]:
    """Intended and actual state of a pool."""
    return next((r[1], r[2]) for r in db.execute("LIST COMPUTE_POOLS").fetchall() if r[0] == pool)


@pytest.mark.stream
def test_a_query_moves_between_pools(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "moved")
    db.execute("CREATE COMPUTE_POOL aside WITH ('compute_pool.memory_mb' = 512, 'compute_pool.cores' = 1)")
    assert states(db, "aside") == ("running", "stopped")
    (query,) = run(db, "CREATE MATERIALIZED VIEW moved_view AS SELECT count(*) AS n, sum(id) AS s FROM moved_in")
    assert facts(db, query)["compute pool"] == "default"
    produce(kafka, "moved", 1, 2)
    within(30, lambda: db.execute("SELECT n, s FROM moved_view").fetchall() == [(2, 3)])

    db.execute(f"RESTART QUERY {query} IN COMPUTE_POOL aside".encode())
    produce(kafka, "moved", 3)
    # Its state came with it: the sum goes on where it stood.
    within(90, lambda: db.execute("SELECT n, s FROM moved_view").fetchall() == [(3, 6)])
    assert facts(db, query)["compute pool"] == "aside" and states(db, "aside") == ("running", "running")

    db.execute("STOP COMPUTE_POOL aside")
    within(30, lambda: facts(db, query)["message"] == "waiting: the compute pool is stopped")
    assert states(db, "aside") == ("stopped", "stopped")
    db.execute("USE COMPUTE_POOL aside")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match='compute pool "aside" is stopped'):
        db.execute("SELECT id FROM moved_in")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        db.execute("DROP COMPUTE_POOL aside")
    produce(kafka, "moved", 4)
    db.execute("START COMPUTE_POOL aside")
    within(90, lambda: db.execute("SELECT n, s FROM moved_view").fetchall() == [(4, 10)])

    db.execute(f"RESTART QUERY {query} IN COMPUTE_POOL default".encode())
    produce(kafka, "moved", 5)
    within(60, lambda: db.execute("SELECT n, s FROM moved_view").fetchall() == [(5, 15)])
    db.execute("DROP COMPUTE_POOL aside")
    assert count(db, "moved_view") == 1


@pytest.mark.stream
def test_the_sandbox_runs_selects(db: psycopg.Connection[Any], kafka: Kafka) -> None:
    begin(db, kafka, "tried")
    produce(kafka, "tried", 1)
    id = db.execute("START SANDBOX").fetchall()[0][1]
    with pytest.raises(psycopg.errors.DuplicateObject):
        db.execute("START SANDBOX")
    db.execute("USE COMPUTE_POOL sandbox")
    assert db.execute("SELECT id FROM tried_in LIMIT 1").fetchall() == [(1,)]
    described = db.execute("DESCRIBE SANDBOX").fetchall()[0]
    assert described[:5] == ("RUNNING", id, "local", "[]", "[]")
    db.execute("STOP SANDBOX")
    with pytest.raises(psycopg.errors.UndefinedObject):
        db.execute("DESCRIBE SANDBOX")
