"""What is wrong is refused before it runs, or ends its own query with a fault that names the place."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pgstream.engine import channel as ch
from pgstream.planner import plan as p
from tests.server import Kafka, within
from tests.stream.worker.driver import Environment, WorkerProcess, into, project, source

pytestmark = pytest.mark.stream
FIVE = (
    "not JSON: Unrecognized token 'five': was expecting (JSON String, Number, Array, Object or token 'null', "
    "'true' or 'false')"
)
COLUMNS = "id BIGINT, o STRUCT<x INTEGER>"


def test_analyze_answers_columns_and_positions(worker: WorkerProcess) -> None:
    src = source("none", "id BIGINT, k VARCHAR, ts BIGINT", watermark=True)
    good = worker.analyze(project(src, "id", "s = named_struct('Some Field', `k`)"))
    assert good.columns == [("id", "bigint", True), ("s", "struct<`Some Field`:string>", False)]
    bad = worker.analyze(p.Project(src, [p.Expr("a", "`id`", 7), p.Expr("b", "`id` + array(1)", 21)]))
    assert (bad.fault.kind, bad.fault.sqlstate, bad.fault.at) == ("user", "42804", 21)
    gone = worker.analyze(p.Filter(src, p.Expr("", "`nix` = 1", 33)))
    assert (gone.fault.sqlstate, gone.fault.at) == ("42703", 33)


def test_what_cannot_run_as_a_stream_is_refused(worker: WorkerProcess) -> None:
    src = source("none", "id BIGINT, k VARCHAR, ts BIGINT", watermark=True)
    distinct = p.Aggregate(src, [p.Expr("k", "`k`")], [p.Expr("n", "count(DISTINCT `id`)", 9)])
    refused = worker.analyze(distinct).fault
    assert (refused.kind, refused.sqlstate) == ("user", "0A000")
    assert "istinct aggregations" in refused.detail


def bad_records(kafka: Kafka, topic: str) -> None:
    values = [json.dumps({"id": i}) for i in range(3)]
    kafka.produce(topic, [("k", v) for v in [*values, '{"id": 3, "o": {"x": "text"}}', '{"id": 4}']])


def test_bad_record_ends_the_query_after_what_came_before(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str
) -> None:
    bad_records(kafka, topic)
    view = env.view(uuid.uuid4().hex, "id bigint")
    plan = p.Plan(project(source(topic, COLUMNS), "id"), into(view, "append"))
    query = worker.start(plan, env)
    fault = worker.wait(ch.Ended, query=query).fault
    assert fault is not None
    assert (fault.kind, fault.sqlstate) == ("data", "22000")
    assert fault.message.endswith('could not be decoded: field "o.x" must be INTEGER, found a string text')
    assert f'offset 3 of topic "{topic}"' in fault.message
    assert env.rows(view) == [(0,), (1,), (2,)]
    again = worker.start(plan, env, query, attempt=2)
    assert again == query
    second = worker.until(lambda e: isinstance(e, ch.Ended) and e.query == query and e.attempt == 2)
    assert second.fault == fault
    assert env.rows(view) == [(0,), (1,), (2,)], "a restart fails at the same record and writes nothing twice"


def sums(columns: str, topic: str) -> p.Node:
    """All rows in one group."""
    return p.ChangeAggregate(
        source(topic, columns), [p.Expr("g", "1")], [p.Call("n", "count", ["1"]), p.Call("s", "sum", ["`id`"])]
    )


@pytest.mark.parametrize("sink", ["view", "several"])
def test_what_can_be_read_after_all_comes_once(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str, sink: str
) -> None:
    """What stood before a bad record in its batch has been written, what stands behind it is not lost."""
    bad_records(kafka, topic)
    out = topic + "_copy"
    kafka.topic(out)
    every, summed = (
        env.view(uuid.uuid4().hex, "id bigint"),
        env.view(uuid.uuid4().hex, "g int, n bigint, s bigint", ["g"]),
    )
    record = p.RecordSink("r", "k", out, "append", "json", ["id"], together=True)

    def plan(columns: str) -> p.Plan:
        rows = project(source(topic, columns), "id")
        if sink == "view":
            return p.Plan(rows, into(every, "append"))
        sinks = p.Sinks([into(every, "append"), record, into(summed, "upsert", ["g"])])
        return p.Plan(p.Outputs([rows, rows, sums(columns, topic)]), sinks)

    def found() -> list[Any]:
        got: list[Any] = [[id for (id,) in env.rows(every)]]
        if sink == "several":
            got.append(sorted(json.loads(m.value())["id"] for m in committed(kafka, out, len(rows))))
            got += env.rows(summed)
        return got

    def wanted() -> list[Any]:
        return [rows] if sink == "view" else [rows, rows, (1, len(rows), sum(rows))]

    rows = [0, 1, 2]
    query = worker.start(plan(COLUMNS), env)
    for attempt in (1, 2):
        ended = worker.until(lambda e, n=attempt: isinstance(e, ch.Ended) and e.query == query and e.attempt == n)
        assert ended.fault is not None and "offset 3" in ended.fault.message
        assert found() == wanted()
        if attempt == 1:
            worker.start(plan(COLUMNS), env, query, attempt=2)
    rows = [0, 1, 2, 3, 4]
    worker.start(plan("id BIGINT"), env, query, attempt=3)
    within(60, lambda: found() == wanted())
    kafka.produce(topic, [("k", '{"id": 5}')])
    rows = [0, 1, 2, 3, 4, 5]
    within(60, lambda: found() == wanted())
    worker.send(ch.Stop(query))
    assert worker.until(lambda e: isinstance(e, ch.Ended) and e.query == query and e.attempt == 3).fault is None


@pytest.mark.parametrize("mode", ["ignore", "log"])
def test_bad_record_is_skipped_and_counted(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str, mode: str
) -> None:
    bad_records(kafka, topic)
    kafka.topic(topic + "_bad")
    view = env.view(uuid.uuid4().hex, "id bigint")
    src = source(topic, COLUMNS, on_bad_record=mode, bad_record_topic=topic + "_bad")
    query = worker.start(p.Plan(project(src, "id"), into(view, "append")), env)
    within(60, lambda: env.rows(view) == [(0,), (1,), (2,), (4,)])
    assert worker.until(lambda e: isinstance(e, ch.Progress) and e.query == query).bad_records == 1
    if mode == "log":
        assert [(k, v) for k, v, _ in kafka.consume(topic + "_bad", 1)] == [("k", '{"id": 3, "o": {"x": "text"}}')]
    assert worker.stop(query, forget=True).fault is None


def test_bad_records_are_logged_once_and_as_they_were(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str
) -> None:
    """Also when a batch is repeated, by a second reader of the topic, and by one that takes other records. A record
    without a value is none of them."""
    kafka.topic(topic + "_bad")
    value, header = b'{"id": "x"}', [("trace", b"\x00\xff"), ("none", None)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value, b"\xfe", headers=header, timestamp=1700000000000, partition=0)
    for v in (b'{"id": 1, "n": "text"}', None, b'{"id": 2, "n": 2}'):
        producer.produce(topic, v, b"k", partition=0)
    assert producer.flush(10) == 0
    how = {"on_bad_record": "log", "bad_record_topic": topic + "_bad"}
    one, wide = source(topic, "id BIGINT", **how), source(topic, "id BIGINT, n BIGINT", **how)
    view = env.view(uuid.uuid4().hex, "id bigint")
    plan = p.Plan(p.Union([project(one, "id"), project(one, "id"), project(wide, "id")]), into(view, "append"))
    query = worker.start(plan, env)
    within(60, lambda: env.rows(view) == [(1,), (1,), (2,), (2,), (2,)])
    assert worker.stop(query).fault is None
    # As if it had died when the records were written and the batch was not yet done.
    for file in Path(env.folder, "checkpoints", query, "commits").glob("[0-9]*"):
        file.unlink()
    kafka.produce(topic, [(None, '{"id": 3, "n": 3}'), (None, "five")], partition=0)
    worker.start(plan, env, query, attempt=2)
    within(60, lambda: env.rows(view)[-3:] == [(3,), (3,), (3,)])
    logged = committed(kafka, topic + "_bad", 5)
    said = [(m.value(), dict(m.headers()[-6:])["pgstream.offset"], m.headers()[-6][1].decode()) for m in logged]
    assert sorted(said, key=str) == sorted([
        (value, b"0", 'field "id" must be BIGINT, found a string x'),
        (value, b"0", 'field "id" must be BIGINT, found a string x'),
        (b'{"id": 1, "n": "text"}', b"1", 'field "n" must be BIGINT, found a string text'),
        (b"five", b"5", FIVE), (b"five", b"5", FIVE),
    ], key=str)  # fmt: skip
    (first, *_) = [m for m in logged if m.value() == value]
    assert (first.key(), first.headers()[:2]) == (b"\xfe", header)
    told = {n: v.decode() for n, v in first.headers()[2:]}
    assert (told["pgstream.topic"], told["pgstream.partition"], told["pgstream.query"]) == (topic, "0", query)
    assert told["pgstream.timestamp"] == "1700000000000"


def committed(kafka: Kafka, topic: str, wanted: int) -> list[Any]:
    """The committed records of a topic's only partition, with what comes in the second after the wanted ones."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    out: list[Any] = []
    while found := consumer.consume(100, 1 if len(out) >= wanted else 5):
        out += [m for m in found if m.error() is None]
    consumer.close()
    return out


@pytest.mark.parametrize("gone", ["checkpoint", "view's batches", "topic's checkpoint"])
def test_what_was_put_back_is_told(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str, gone: str
) -> None:
    """A checkpoint from another day than the data: rows would be missing, or twice."""
    view, out = env.view(uuid.uuid4().hex, "id bigint"), topic + "_out"
    kafka.topic(out)
    record = p.RecordSink("r", "k", out, "append", "json", ["id"], together=True)
    plan = p.Plan(
        project(source(topic, "id BIGINT"), "id"), record if gone.startswith("topic") else into(view, "append")
    )

    def ids() -> list[int]:
        if plan.sink is record:
            return sorted(json.loads(m.value())["id"] for m in committed(kafka, out, 0))
        return [id for (id,) in env.rows(view)]

    query = worker.start(plan, env)
    for n in range(4):
        kafka.produce(topic, [("k", json.dumps({"id": n}))])
        within(60, lambda n=n: ids() == list(range(n + 1)))
    assert worker.stop(query).fault is None
    if gone == "view's batches":
        env.sql("UPDATE pg_pgstream.ledger SET batch = batch - 2 WHERE query = %s::uuid", query)
    else:
        shutil.rmtree(f"{env.folder}/checkpoints/{query}")
    kafka.produce(topic, [("k", json.dumps({"id": 4}))])
    worker.start(plan, env, query, attempt=2)
    fault = worker.until(lambda e: isinstance(e, ch.Ended) and e.query == query and e.attempt == 2).fault
    assert fault is not None
    # More than the checkpoint says may be of another start, whose worker has not ended yet.
    assert (fault.kind, fault.sqlstate, fault.message) == (
        "user" if gone == "view's batches" else "overtaken", "55000",
        "the query's checkpoint and what it has written are of different days")  # fmt: skip
    assert ids() == [0, 1, 2, 3]


def test_missing_topic_is_a_store_fault(worker: WorkerProcess, env: Environment) -> None:
    view = env.view(uuid.uuid4().hex, "id bigint")
    name = f"missing_{uuid.uuid4().hex[:6]}"
    query = worker.start(p.Plan(source(name, "id BIGINT"), into(view, "append")), env)
    fault = worker.wait(ch.Ended, query=query).fault
    assert fault is not None and (fault.kind, fault.sqlstate) == ("store", "42704")


def test_an_older_attempt_is_fenced(worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str) -> None:
    view = env.view(uuid.uuid4().hex, "id bigint")
    plan = p.Plan(source(topic, "id BIGINT"), into(view, "append"))
    kafka.produce(topic, [(None, '{"id": 1}')])
    query = worker.start(plan, env)
    within(60, lambda: env.rows(view) == [(1,)])
    env.sql("UPDATE pg_pgstream.ledger SET attempt = 2 WHERE query = %s", query)
    kafka.produce(topic, [(None, '{"id": 2}')])
    fault = worker.wait(ch.Ended, query=query).fault
    assert fault is not None and fault.sqlstate == "55000"
    assert env.rows(view) == [(1,)]


def test_killed_worker_resumes_exactly(
    worker_settings: dict[str, Any], workspace: Path, env: Environment, kafka: Kafka, topic: str
) -> None:
    """kill -9 in the middle of 20,000 keyed events, three times: the view and the topic hold each once."""
    total, keys = 20_000, 50
    out = topic + "_out"
    kafka.topic(out, 2)
    view = env.view(uuid.uuid4().hex, "k bigint, n bigint, s bigint", ["k"])
    src = source(topic, "id BIGINT, k BIGINT", options={"source.max.records.per.trigger": "700"})
    counts = p.Aggregate(src, [p.Expr("k", "`k`")], [p.Expr("n", "count(1)"), p.Expr("s", "sum(`id`)")])
    plans = [p.Plan(counts, into(view, "upsert", ["k"])),
             p.Plan(src, p.RecordSink("r", "k", out, "append", "json", ["id", "k"], "json", ["k"]))]  # fmt: skip
    rows = [(str(i % keys), json.dumps({"id": i, "k": i % keys})) for i in range(total)]
    kafka.produce(topic, rows)
    ids = [str(uuid.uuid4()) for _ in plans]
    done = 0
    with (workspace / "killed.log").open("ab") as log, contextlib.ExitStack() as undo:
        for attempt in range(1, 5):
            w = WorkerProcess(worker_settings, log)
            undo.callback(w.kill)
            w.wait(ch.Ready, 120)
            for query, plan in zip(ids, plans, strict=True):
                w.start(plan, env, query, attempt)
            if attempt < 4:
                before = done
                within(90, lambda b=before: progress(env, view) > b)
                done = progress(env, view)
                w.kill()
                continue
            within(120, lambda: reached(env, view, total))
            got = kafka.consume(out, total)
            assert sorted(json.loads(v)["id"] for _, v, _ in got) == list(range(total))
            assert len(env.rows(view)) == keys
            assert sum(r[2] for r in env.rows(view)) == total * (total - 1) // 2


def reached(env: Environment, view: str, total: int) -> bool:
    found = progress(env, view)
    assert found == total, f"{found} of {total}"
    return True


def progress(env: Environment, view: str) -> int:
    return int(env.sql(f'SELECT coalesce(sum(n), 0) FROM "{view}"')[0][0])


def test_worker_ends_with_its_server(worker_settings: dict[str, Any], workspace: Path) -> None:
    with (workspace / "orphan.log").open("ab") as log:
        w = WorkerProcess(worker_settings, log)
    w.wait(ch.Ready, 120)
    children = psutil.Process(w.process.pid).children(recursive=True)
    assert children
    w.hang_up()
    began = time.monotonic()
    w.process.wait(10)
    within(5, lambda: not any(c.is_running() and c.status() != psutil.STATUS_ZOMBIE for c in children))
    assert time.monotonic() - began < 8
    assert not [f for f in os.listdir("/tmp") if f.startswith(f"pgstream-worker-{w.process.pid}-")]
