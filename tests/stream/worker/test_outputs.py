"""Several results of one query: each row goes to its sink, and the views change in one transaction."""

from __future__ import annotations

import contextlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from pgstream.engine import channel as ch
from pgstream.planner import plan as p
from tests.server import Kafka, within
from tests.stream.worker.driver import Environment, WorkerProcess, into, project, source

pytestmark = pytest.mark.stream


def test_killed_outputs_are_exact_and_views_change_together(
    worker_settings: dict[str, Any], workspace: Path, env: Environment, kafka: Kafka, topic: str
) -> None:
    """kill -9 twice: two views, one of them of an operator with state, and two topics hold each event once."""
    total, keys = 20_000, 50
    outs = [topic + "_even", topic + "_all"]
    for out in outs:
        kafka.topic(out, 2)
    counts = env.view(uuid.uuid4().hex, "k bigint, n bigint, s bigint", ["k"])
    every = env.view(uuid.uuid4().hex, "id bigint")
    src = source(topic, "id BIGINT, k BIGINT", options={"source.max.records.per.trigger": "700"})
    calls = [p.Call("n", "count", ["1"]), p.Call("s", "sum", ["`id`"])]
    even = p.Filter(src, p.Expr("", "`id` % 2 = 0"))
    sinks = [p.RecordSink("r", "k", out, "append", "json", ["id", "k"], "json", ["k"]) for out in outs]
    plan = p.Plan(
        p.Outputs([p.ChangeAggregate(src, [p.Expr("k", "`k`")], calls), project(src, "id"), even, src]),
        p.Sinks([into(counts, "upsert", ["k"]), into(every, "append"), *sinks]),
    )
    kafka.produce(topic, [(str(i % keys), json.dumps({"id": i, "k": i % keys})) for i in range(total)])
    query = str(uuid.uuid4())
    both = f'SELECT (SELECT coalesce(sum(n), 0) FROM "{counts}"), (SELECT count(*) FROM "{every}")'

    def done() -> int:
        n, m = env.sql(both)[0]
        assert n == m, "the views are of one moment"
        return int(n)

    with (workspace / "outputs.log").open("ab") as log, contextlib.ExitStack() as undo:
        for attempt in range(1, 4):
            w = WorkerProcess(worker_settings, log)
            undo.callback(w.kill)
            w.wait(ch.Ready, 120)
            before = done()
            w.start(plan, env, query, attempt)
            if attempt < 3:
                within(90, lambda b=before: done() > b)
                w.kill()
                continue
            within(120, lambda: done() == total)
            for out, step in zip(outs, (2, 1), strict=True):
                got = kafka.consume(out, total // step)
                assert sorted(json.loads(v)["id"] for _, v, _ in got) == list(range(0, total, step))
            assert len(env.rows(counts)) == keys
            assert sum(r[2] for r in env.rows(counts)) == total * (total - 1) // 2


def test_one_reading_and_one_end_for_all(worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str) -> None:
    """A topic is read once for two outputs; an error in one leaves the batch out of both views, and ends them."""
    one, two = (env.view(uuid.uuid4().hex, "id bigint") for _ in range(2))
    src = source(topic, "id BIGINT")
    plan = p.Plan(p.Outputs([project(src, "id"), project(src, "id = if(`id` = 3, raise_error('three'), -`id`)")]),
                  p.Sinks([into(one, "append"), into(two, "append")]))  # fmt: skip
    kafka.produce(topic, [("k", '{"id": 1}')])
    query = worker.start(plan, env)
    within(60, lambda: env.rows(one) == [(1,)] and env.rows(two) == [(-1,)])
    told = worker.wait(ch.Progress, query=query)
    assert (told.rows_in, told.rows_out) == (1, 2), "the record is read once, for both"
    kafka.produce(topic, [("k", '{"id": 2}'), ("k", '{"id": 3}')])
    fault = worker.wait(ch.Ended, query=query).fault
    assert fault is not None and fault.kind == "data"
    assert env.rows(one) == [(1,)] and env.rows(two) == [(-1,)]
