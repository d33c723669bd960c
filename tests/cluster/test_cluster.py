"""A pool on a Spark standalone cluster: its executors read, keep state and write, and are killed in the middle."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from tests.cluster.standalone import Cluster, running
from tests.server import PASSWORD, Kafka, Server, within
from tests.stream.test_outage import facts, run

pytestmark = [pytest.mark.stream, pytest.mark.timeout(1200)]
KEYS = 40
NAMES = {k: f"name-{k}" for k in range(0, KEYS, 2)}
SETUP = """
CREATE STORE far WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
USE STORE far;
CREATE STREAM far_in (id BIGINT, k BIGINT, v BIGINT)
  WITH ('topic' = 'far_in', 'value.format' = 'json', 'starting.position' = 'earliest');
CREATE CHANGELOG far_latest (id BIGINT, k BIGINT, v BIGINT, PRIMARY KEY (k))
  WITH ('topic' = 'far_in', 'value.format' = 'json', 'starting.position' = 'earliest');
CREATE CHANGELOG far_names (k BIGINT, name VARCHAR, PRIMARY KEY (k))
  WITH ('topic' = 'far_names', 'value.format' = 'json', 'starting.position' = 'earliest');
CREATE STREAM far_odd WITH ('topic.partitions' = 2, 'topic.replicas' = 1) AS SELECT id, v FROM far_in WHERE v % 2 = 1;
CREATE MATERIALIZED VIEW far_windows AS
  SELECT window_start, k, count(*) AS n, sum(v) AS total FROM TUMBLE(far_in, SIZE 5 SECONDS)
  GROUP BY window_start, window_end, k;
CREATE MATERIALIZED VIEW far_named AS SELECT l.k, l.id, n.name FROM far_latest l JOIN far_names n ON l.k = n.k
"""

APART = """
CREATE STORE apart WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM apart_in (id BIGINT)
  WITH ('store' = apart, 'topic' = 'apart_in', 'value.format' = 'json', 'starting.position' = 'earliest')
"""


class Load(threading.Thread):
    """Writes 300 events a second until it is told that it is enough; what they are is known."""

    def __init__(self, kafka: Kafka) -> None:
        super().__init__(daemon=True)
        self.bootstrap = kafka.bootstrap
        self.rng = random.Random(11)
        self.events: list[tuple[int, int]] = []
        self.enough = threading.Event()

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "enable.idempotence": True})
        while not self.enough.is_set():
            for _ in range(30):
                k, v = self.rng.randrange(KEYS), self.rng.randrange(1000)
                producer.produce("far_in", json.dumps({"id": len(self.events), "k": k, "v": v}), str(k))
                self.events.append((k, v))
            producer.poll(0)
            self.enough.wait(0.1)
        assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def cluster(workspace: Path) -> Iterator[Cluster]:
    with running(workspace / "cluster") as made:
        yield made


@pytest.fixture(scope="module")
def far(workspace: Path, cluster: Cluster) -> Iterator[Server]:
    server = Server(workspace / "far", environ=cluster.environ)
    yield server
    assert server.stop() == 0


@pytest.fixture
def db(far: Server) -> Iterator[psycopg.Connection[Any]]:
    with far.connect() as connection:
        yield connection


def ready(db: psycopg.Connection[Any]) -> None:
    """Wait for the pool's worker, whose application the master must take first."""
    within(
        300, lambda: [r for r in db.execute("LIST COMPUTE_POOLS").fetchall() if r[0] == "default" and r[2] == "running"]
    )


def counted(db: psycopg.Connection[Any]) -> int:
    """How many events are in the windows."""
    row = db.execute("SELECT coalesce(sum(n), 0) FROM far_windows").fetchone()
    assert row is not None
    return int(row[0])


def further(db: psycopg.Connection[Any], events: int) -> None:
    """Wait until so many more events are in."""
    mark = counted(db)
    within(300, lambda: counted(db) >= mark + events, every=0.5)


def test_exactly_once_though_an_executor_and_a_worker_are_killed(
    db: psycopg.Connection[Any], cluster: Cluster, kafka: Kafka
) -> None:
    kafka.topic("far_in", 2)
    kafka.topic("far_names", 1)
    kafka.produce("far_names", [(str(k), json.dumps({"k": k, "name": n})) for k, n in NAMES.items()])
    ready(db)
    queries = run(db, SETUP.format(bootstrap=kafka.bootstrap))
    load = Load(kafka)
    load.start()
    try:
        further(db, 300)
        before = {e.pid for e in cluster.executors()}
        assert len(before) == 2
        cluster.executors()[0].kill()
        further(db, 600)
        within(60, lambda: {e.pid for e in cluster.executors()} - before)
        cluster.kill_worker(0)
        further(db, 600)
        cluster.add_worker()
        further(db, 300)
    finally:
        load.enough.set()
        load.join()
    events = load.events
    # Each event once in each of: the windows, the topic, the last rows by key beside their names.
    within(300, lambda: counted(db) >= len(events), every=0.5)
    sums = db.execute("SELECT k, sum(n), sum(total) FROM far_windows GROUP BY k").fetchall()
    totals: Counter[int] = Counter()
    for k, v in events:
        totals[k] += v
    counts = Counter(k for k, _ in events)
    assert {int(k): (int(n), int(total)) for k, n, total in sums} == {k: (n, totals[k]) for k, n in counts.items()}
    odd = Counter({id: 1 for id, (_, v) in enumerate(events) if v % 2})
    copied = [json.loads(value or "") for _, value, _ in kafka.consume("far_odd", len(odd), 240)]
    assert Counter(r["id"] for r in copied) == odd
    last = {k: id for id, (k, _) in enumerate(events)}
    named = {(k, last[k], n) for k, n in NAMES.items()}
    within(240, lambda: set(db.execute("SELECT k, id, name FROM far_named").fetchall()) == named, every=0.5)
    # What executors die of no query fails of.
    assert len(queries) == 3
    assert [facts(db, q)["state"] for q in queries] == ["running"] * 3


def test_a_select_keeps_its_state_where_executors_reach_it(far: Server, db: psycopg.Connection[Any]) -> None:
    rows = db.execute("SELECT k, count(*) AS n FROM far_in GROUP BY k LIMIT 5").fetchall()
    assert len(rows) == 5
    within(60, lambda: not list(far.data_dir.glob("checkpoints/interactive/*/*")))


def test_no_secret_is_in_what_a_cluster_shows(far: Server, cluster: Cluster, kafka: Kafka) -> None:
    """Command lines, which every user of a machine sees, and the logs of the cluster's processes."""
    for executor in cluster.executors():
        line = " ".join(executor.cmdline())
        assert "CoarseGrainedExecutorBackend" in line
        assert PASSWORD not in line and "test-cluster-secret" not in line
    logs = [*cluster.folder.glob("*.log"), *cluster.folder.glob("worker*/*/*/std*"), far.log]
    assert any("worker" in str(f) and f.stat().st_size for f in logs)
    for file in logs:
        text = file.read_text(errors="replace")
        assert PASSWORD not in text and "test-cluster-secret" not in text, file


def test_a_folder_that_executors_do_not_have_is_refused(
    workspace: Path, cluster: Cluster, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process has a folder of its own by this name, as machines do that share nothing. Until there is an executor,
    nothing is known of that, and what is waited for is said.
    """
    kafka.topic("apart_in")
    kafka.produce("apart_in", [(None, '{"id": 1}')])
    aside = workspace / "apart_cwd"
    aside.mkdir()
    monkeypatch.chdir(aside)
    code = str(Path(__file__).parents[2])
    server = Server(
        workspace / "apart", environ={**cluster.environ, "PYTHONPATH": code}, checkpoint_dir="/proc/self/cwd/c"
    )
    try:
        with server.connect() as db:
            ready(db)
            run(db, APART.format(bootstrap=kafka.bootstrap))
            (query,) = run(
                db, "CREATE MATERIALIZED VIEW apart_view AS SELECT id, count(*) AS n FROM apart_in GROUP BY id"
            )
            why = "the cluster has given the pool no executor yet"  # the other server's pool has all cores
            within(300, lambda: why in (facts(db, query)["message"] or ""), every=0.5)
            assert [why in r[3] for r in db.execute("LIST COMPUTE_POOLS").fetchall() if r[0] == "default"] == [True]
            cluster.add_worker()
            why = "the checkpoint's folder is not that of all executors"
            within(300, lambda: why in (facts(db, query)["message"] or ""), every=0.5)
            assert db.execute("SELECT * FROM apart_view").fetchall() == []
            with pytest.raises(psycopg.Error) as e:
                db.execute("SELECT id, count(*) AS n FROM apart_in GROUP BY id LIMIT 1")
            assert (e.value.sqlstate, e.value.diag.message_primary) == ("58030", why)
            assert e.value.diag.message_detail == "127.0.0.1 does not see it."
            assert "checkpoint_dir" in str(e.value.diag.message_hint)
    finally:
        assert server.stop() == 0
