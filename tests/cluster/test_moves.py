"""A pool that moves to a cluster, or from one, in the middle of a batch that is written into a topic."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.cluster.standalone import Cluster, running
from tests.server import Kafka, Server, within
from tests.stream.test_outage import run

pytestmark = [pytest.mark.stream, pytest.mark.timeout(1200)]
SETUP = """
CREATE STORE {name} WITH ('type' = KAFKA, 'uris' = '{bootstrap}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
USE STORE {name};
CREATE STREAM {name}_in (id BIGINT)
  WITH ('topic' = '{name}_in', 'value.format' = 'json', 'starting.position' = 'earliest');
{query}
"""
WITH = "WITH ('topic.partitions' = 1, 'topic.replicas' = 1)"
QUERIES = {
    "rows": "CREATE STREAM {name}_out " + WITH + " AS SELECT id FROM {name}_in",
    # Behind a shuffle, with state: each id is counted once, so each comes out once.
    "counts": "CREATE CHANGELOG {name}_out " + WITH + " AS SELECT id, count(*) AS n FROM {name}_in GROUP BY id",
}
EACH = 40


class Place:
    """A server whose pool is on ``cluster``, or in one process. ``order`` says when something is to die."""

    def __init__(self, folder: Path, order: Path, cluster: Cluster | None) -> None:
        master = cluster.environ if cluster else {"PGSTREAM_SPARK_MASTER": "local[2]"}
        self.order, self.on_cluster = order, cluster is not None
        self.server = Server(folder, environ={**master, "PGSTREAM_KILL_POINTS": str(order)})

    def driver(self) -> psutil.Process:
        below = psutil.Process(self.server.process.pid).children(recursive=True)
        [found] = [p for p in below if p.name() == "java" and "SparkSubmit" in " ".join(p.cmdline())]
        return found

    def cut(self, produce: Iterator[None]) -> None:
        """Let one batch take what ``produce`` gives, and all of us die once a transaction of it is in."""
        driver = self.driver()
        driver.suspend()
        next(produce)
        # Who would start a driver anew does not; a task of an executor sees to its driver's end.
        self.server.process.send_signal(signal.SIGSTOP)
        self.order.write_text("topic after commit=0" + (f"={driver.pid}" if self.on_cluster else ""))
        driver.resume()
        within(120, lambda: not self.order.exists() and not alive(driver))
        self.server.kill()


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def numbers(kafka: Kafka, topic: str) -> Iterator[None]:
    """Records into both partitions, as often as it is asked; their ids go on."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    at = 0
    while True:
        for id in range(at, at + EACH):
            producer.produce(topic, json.dumps({"id": id}), partition=id % 2)
        assert producer.flush(60) == 0
        at += EACH
        yield


@pytest.fixture(scope="module")
def order(workspace: Path) -> Path:
    return workspace / "order"


@pytest.fixture(scope="module")
def cluster(workspace: Path, order: Path) -> Iterator[Cluster]:
    """Of one core: a batch's tasks are one after another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGSTREAM_KILL_POINTS", str(order))
        with running(workspace / "moves") as made:
            made.kill_worker(0)
            yield made


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("to_cluster", [True, False], ids=["to", "from"])
def test_a_batch_that_is_repeated_elsewhere_is_in_once(
    order: Path, cluster: Cluster, kafka: Kafka, to_cluster: bool, query: str
) -> None:
    name = f"{query}_{'to' if to_cluster else 'from'}"
    kafka.topic(f"{name}_in", 2)
    produce = numbers(kafka, f"{name}_in")
    next(produce)
    places = [None, cluster] if to_cluster else [cluster, None]

    def seen(times: int) -> Counter[int]:
        records = kafka.consume(f"{name}_out", EACH * times, 240)
        rows = [json.loads(value or "") for _, value, _ in records]
        assert {r.get("n", 1) for r in rows} == {1}
        return Counter(r["id"] for r in rows)

    first = Place(order.parent / name, order, places[0])
    with first.server.connect() as db:
        run(db, SETUP.format(name=name, bootstrap=kafka.bootstrap, query=QUERIES[query].format(name=name)))
    assert seen(1) == Counter(range(EACH))
    first.cut(produce)
    part = sum(seen(1).values())
    assert part == EACH * 2 if to_cluster else EACH < part < EACH * 2  # a batch, or the first of its tasks
    order.write_text("checkpoint before file=0")  # it dies once more, before it has noted that the batch is in
    second = Place(order.parent / name, order, places[1])
    try:
        within(120, lambda: not order.exists())
        assert seen(2) == Counter(range(EACH * 2))
        next(produce)
        assert seen(3) == Counter(range(EACH * 3))
        # Back again, and whole.
        second.server.stop()
        second = Place(order.parent / name, order, places[0])
        next(produce)
        assert seen(4) == Counter(range(EACH * 4))
    finally:
        assert second.server.stop() == 0
