"""Nothing of a query stays in the JVM when it is over: what Spark itself never takes away, most of all."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import psutil
import pytest

from pgstream.engine import channel as ch
from pgstream.planner import plan as p
from tests.jvm import Jvm
from tests.server import Kafka, within
from tests.stream.worker.driver import Environment, WorkerProcess, source

pytestmark = pytest.mark.stream
QUERIES = 6
_STREAMS, _OURS = "org.apache.spark.sql.execution.streaming.runtime", "org.apache.spark.sql.pgstream"
BUS = f"{_STREAMS}.StreamingQueryListenerBus"
KEPT = {BUS: 0, f"{_STREAMS}.MicroBatchExecution": 0,
        f"{_OURS}.Run": 0, f"{_OURS}.ResultSink": 0, f"{_OURS}.ResultClient": 0,
        "org.apache.spark.scheduler.Pool": QUERIES // 2,
        "org.apache.spark.status.SchedulerPool": QUERIES // 2}  # fmt: skip
"""How many more there may be of a class after the queries than before: a scheduler's pool is used again."""


def test_nothing_of_a_query_stays(worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str) -> None:
    """Three SELECTs that reach their LIMIT and three that cannot begin, all analyzed before, after some of either. They
    begin together: the last that several threads of the worker have done is to begin one.
    """
    kafka.produce(topic, [(None, json.dumps({"id": n})) for n in range(3)])
    java = next(c for c in psutil.Process(worker.process.pid).children(recursive=True) if "java" in c.name())
    jvm = Jvm(java.pid)

    def round() -> None:
        begun: dict[str, bool] = {}
        for n in range(QUERIES):
            bad = n % 2 == 1
            of = source(topic, "id BIGINT", starting_position="offset:9:0" if bad else "earliest")
            worker.analyze(of)
            counted = p.ChangeAggregate(p.Normalize(of, ["id"]), [p.Expr("id", "`id`")], [p.Call("n", "count", ["1"])])
            begun[worker.start(p.Plan(counted if n == 0 else of, p.ResultSink(3)), env)] = bad
        for query, bad in begun.items():
            if not bad:
                worker.wait(ch.Running, query=query)
                worker.send(ch.More(query, 3))
        for query, bad in begun.items():
            assert (worker.wait(ch.Ended, query=query).fault is not None) == bad

    def kept() -> dict[str, int]:
        live = jvm.live()
        return {name: live.get(name, (0, 0))[0] for name in KEPT}

    buses = kept()[BUS]
    round()
    before = kept() | {BUS: buses}

    def gone() -> bool:
        now = kept()
        assert {name: now[name] - before[name] for name in KEPT if now[name] > before[name] + KEPT[name]} == {}
        return True

    round()
    round()
    within(30, gone)
    own = f"pgstream-worker-{worker.process.pid}-*/interactive/*"
    within(10, lambda: not list(Path(tempfile.gettempdir()).glob(own)))
