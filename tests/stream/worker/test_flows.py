"""Plans run by a real worker: what goes into a topic comes out of the sink, once."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from pgstream.engine import channel as ch
from pgstream.planner import plan as p
from tests.server import Kafka, within
from tests.stream.worker.driver import Environment, WorkerProcess, into, project, source

pytestmark = pytest.mark.stream
BASE = 1_700_000_000_000


def records(rows: list[dict[str, Any]], key: str | None = None) -> list[tuple[str | None, str | None]]:
    return [(str(r[key]) if key else None, json.dumps(r)) for r in rows]


def together(rows: list[dict[str, Any]]) -> list[tuple[str | None, str | None]]:
    """In one partition: what each gives comes by itself, and records without a key may lie in any."""
    return [("one", text) for _, text in records(rows)]


def ended(worker: WorkerProcess, query: str) -> None:
    assert worker.stop(query, forget=True).fault is None


def test_filter_and_project_into_a_topic(worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str) -> None:
    kafka.produce(topic, records([{"id": i, "name": f"n{i}", "ts": BASE + i} for i in range(100)], "id"))
    out = topic + "_out"
    kafka.topic(out, 2, message_timestamp_after_max_ms="9223372036854775807")
    src = source(topic, "id BIGINT, name VARCHAR, ts BIGINT")
    root = project(p.Filter(src, p.Expr("", "`id` % 2 = 0")), "id", "up = upper(`name`)")
    sink = p.RecordSink("r", "k", out, "append", "json", ["up", "id"], "primitive", ["up"])
    query = worker.start(p.Plan(root, sink), env)
    got = kafka.consume(out, 50)
    assert sorted(int(json.loads(v)["id"]) for _, v, _ in got) == list(range(0, 100, 2))
    assert ("N4", '{"up":"N4","id":4}', BASE + 4) in got, "the key is text, the event time is the record's timestamp"
    ended(worker, query)


def test_no_part_of_a_batch_is_seen_before_the_others(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str
) -> None:
    """A reader by event time would take what comes after the first part for late."""
    for partition in range(2):
        made = [{"id": partition * 100 + i, "ts": BASE + i} for i in range(4)]
        kafka.produce(topic, records(made), partition=partition)
    out = topic + "_out"
    kafka.topic(out, 1, message_timestamp_after_max_ms="9223372036854775807")
    slow = "if(`id` >= 100, aggregate(sequence(1, 4000000 + `id`), 0L, (a, x) -> a + x), 0L)"
    root = project(source(topic, "id BIGINT, ts BIGINT"), "id", f"sum = {slow}")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": out, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(out, 0, 0)])
    sink = p.RecordSink("r", "k", out, "append", "json", ["id", "sum"], together=True)
    query = worker.start(p.Plan(root, sink), env)
    within(60, lambda: [m for m in consumer.consume(1, 0.05) if m.error() is None])
    consumer.close()
    place, latest = TopicPartition(out, 0), OffsetSpec.latest()
    committed = kafka.admin.list_offsets({place: latest}, isolation_level=IsolationLevel.READ_COMMITTED)
    assert committed[place].result(60).offset == 8 + 1  # the end of the one transaction is a record, too
    ended(worker, query)


def test_tumbling_view_counts_each_window_once(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str
) -> None:
    kafka.produce(topic, records([{"k": "a", "ts": BASE + i * 1000} for i in range(40)]), partition=0)
    view = env.view(
        uuid.uuid4().hex, "k text, n bigint, window_start timestamp, window_end timestamp", ["k", "window_start"]
    )
    src = source(topic, "k VARCHAR, ts BIGINT", watermark=True)
    window = p.Aggregate(src, [p.Expr("k", "`k`")], [p.Expr("n", "count(1)")], p.Window("tumble", 10_000, 10_000))
    query = worker.start(p.Plan(window, into(view, "upsert", ["k", "window_start"])), env)
    within(60, lambda: sum(r[1] for r in env.rows(view)) == 40)
    assert [r[1] for r in env.rows(view, "window_start")] == [10, 10, 10, 10], "windows are aligned to the epoch"
    # Later than the watermark allows: dropped and counted.
    kafka.produce(topic, records([{"k": "a", "ts": BASE}]), partition=0)
    late = worker.until(lambda e: isinstance(e, ch.Progress) and e.query == query and e.late_rows > 0)
    assert late.watermark == "2023-11-14T22:13:49.000Z"
    assert sum(r[1] for r in env.rows(view)) == 40
    ended(worker, query)


def test_final_windows_come_once_and_in_order(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str
) -> None:
    out = topic + "_out"
    kafka.topic(out, 1)
    kafka.produce(topic, records([{"k": "a", "ts": BASE + i * 5000} for i in range(22)]))
    src = source(topic, "k VARCHAR, ts BIGINT", watermark=True, lateness_ms=1)
    window = p.Aggregate(src, [p.Expr("k", "`k`")], [p.Expr("n", "count(1)")], p.Window("tumble", 20_000, 20_000), True)
    root = project(window, "k", "n", "window_end")
    sink = p.RecordSink("r", "k", out, "append", "json", ["k", "n", "window_end"], "json", ["k"])
    query = worker.start(p.Plan(root, sink), env)
    got = kafka.consume(out, 5)  # the watermark of the last event is past the fifth window
    ends = [json.loads(v)["window_end"] for _, v, _ in got]
    assert ends == sorted(ends) and len(set(ends)) == 5
    assert [json.loads(v)["n"] for _, v, _ in got] == [4] * 5
    assert got[0][2] == BASE + 20_000 - 1, "the event time of a window's row is its last millisecond"
    ended(worker, query)


def test_group_by_with_having_removes_keys(worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str) -> None:
    # A key that stops to satisfy the condition is deleted from the view, not kept with its old value.
    view = env.view(uuid.uuid4().hex, "k text, s bigint", ["k"])
    src = source(topic, "k VARCHAR, v BIGINT")
    groups = p.Aggregate(src, [p.Expr("k", "`k`")], [p.Expr("s", "sum(`v`)")])
    plan = p.Plan(p.Filter(groups, p.Expr("", "`s` > 0")), into(view, "upsert", ["k"]))
    kafka.produce(topic, records([{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": None, "v": 7}]))
    query = worker.start(plan, env)
    within(60, lambda: sorted(env.rows(view), key=str) == [("a", 1), ("b", 2), (None, 7)])
    kafka.produce(topic, records([{"k": "a", "v": -1}, {"k": None, "v": -7}]))
    within(60, lambda: env.rows(view) == [("b", 2)])
    ended(worker, query)


def test_changelog_keeps_the_last_row_of_a_key(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str
) -> None:
    view = env.view(uuid.uuid4().hex, "id bigint, name text", ["id"])
    src = source(topic, "id BIGINT, name VARCHAR", kind="changelog", primary_key=["id"], key_format="json",
                 key_type="STRUCT<id BIGINT>")  # fmt: skip
    plan = p.Plan(
        p.Filter(src, p.Expr("", "`name` <> 'hidden'")),
        into(view, "upsert", ["id"]),
    )
    key = '{"id": %d}'
    rows = [(key % i, json.dumps({"id": i, "name": f"old{i}"})) for i in range(4)]
    rows += [(key % i, json.dumps({"id": i, "name": f"new{i}"})) for i in range(4)]
    kafka.produce(topic, [*rows, (key % 1, None), (key % 2, '{"id": 2, "name": "hidden"}'), (None, None)])
    query = worker.start(plan, env)
    within(60, lambda: env.rows(view) == [(0, "new0"), (3, "new3")])
    skipped = worker.until(lambda e: isinstance(e, ch.Progress) and e.query == query and e.bad_records > 0)
    assert skipped.bad_records == 1, "the delete without a key"
    ended(worker, query)


@pytest.mark.parametrize(("how", "expected"), [("inner", 2), ("left", 4), ("full", 6)])
def test_interval_join(  # noqa: PLR0917
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str, how: str, expected: int
) -> None:
    right = topic + "_r"
    kafka.topic(right, 1)
    left_rows = [{"id": 1, "ts": BASE}, {"id": 2, "ts": BASE}, {"id": 3, "ts": BASE}, {"id": 4, "ts": BASE}]
    right_rows = [{"id": 1, "ts": BASE + 5000}, {"id": 2, "ts": BASE - 5000}, {"id": 3, "ts": BASE + 60_000},
                  {"id": 9, "ts": BASE}]  # fmt: skip
    end = [{"id": -1, "ts": BASE + 3_600_000}]
    a = source(topic, "id BIGINT, ts BIGINT", watermark=True)
    b = source(right, "id BIGINT, ts BIGINT", watermark=True)
    joined = p.IntervalJoin(a, b, how, 10_000, p.Expr("", "`id`"), p.Expr("", "`id`"), "a", "b")
    view = env.view(uuid.uuid4().hex, "a bigint, b bigint")
    plan = p.Plan(project(joined, "a = `a.id`", "b = `b.id`"), into(view, "append"))
    query = worker.start(plan, env)
    kafka.produce(topic, records(left_rows))
    kafka.produce(right, records(right_rows))
    within(60, lambda: {(1, 1), (2, 2)} <= set(env.rows(view)))
    kafka.produce(topic, records(end))
    kafka.produce(right, records(end))
    matched = [r for r in within(60, lambda: env.rows(view)) if r != (-1, -1)]
    within(60, lambda: len([r for r in env.rows(view) if r != (-1, -1)]) == expected)
    assert {(1, 1), (2, 2)} <= set(matched)
    ended(worker, query)


def test_interactive_rows_are_postgresql_text(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str
) -> None:
    columns = ("b BOOLEAN, d DOUBLE, n DECIMAL(6,2), bin VARBINARY, ts TIMESTAMP_LTZ, t TIMESTAMP, day DATE, "
               "tags ARRAY<VARCHAR>, o STRUCT<x BIGINT>, m MAP<VARCHAR,BIGINT>")  # fmt: skip
    row = {"b": True, "d": 1e20, "n": 12.5, "bin": "3q2+7w==", "ts": "2026-01-01 00:00:00.120Z",
           "t": "2026-01-01 10:00:00", "day": "2026-02-03", "tags": ["a", "b c", None, ""], "o": {"x": 1},
           "m": {"k": 2}}  # fmt: skip
    kafka.produce(topic, together([row, {}]))
    src = source(topic, columns)
    query = worker.start(p.Plan(src, p.ResultSink(limit=2)), env)
    worker.send(ch.More(query, 100))
    rows = worker.wait(ch.Rows, query=query).rows
    assert worker.wait(ch.Ended, query=query).fault is None
    full = next(r for r in rows if r[0])
    assert full == ["t", "1e+20", "12.50", "\\xdeadbeef", "2026-01-01 00:00:00.12+00", "2026-01-01 10:00:00",
                    "2026-02-03", '{a,"b c",NULL,""}', '{"x":1}', '{"k":2}']  # fmt: skip


def test_rows_wait_for_credit(worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str) -> None:
    kafka.produce(topic, together([{"id": i} for i in range(2000)]))
    query = worker.start(p.Plan(source(topic, "id BIGINT"), p.ResultSink()), env)

    def count() -> int:
        return sum(len(e.rows) for e in worker.events if isinstance(e, ch.Rows) and e.query == query)

    worker.send(ch.More(query, 600))
    within(60, lambda: count() >= 500)
    assert count() <= 600
    worker.send(ch.More(query, 5000))
    within(60, lambda: count() == 2000)
    ended(worker, query)


def test_an_end_is_whole_where_its_run_has_told_a_batch(
    worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str
) -> None:
    """One that had nothing to do has told no place: what was told before it may be older than what is written."""
    kafka.produce(topic, [("k", json.dumps({"id": i})) for i in range(3)])
    view = env.view(uuid.uuid4().hex, "id bigint")
    plan = p.Plan(project(source(topic, "id BIGINT"), "id"), into(view, "append"))
    query = worker.start(plan, env)
    worker.until(lambda e: isinstance(e, ch.Progress) and e.query == query and e.rows_in == 3)
    assert worker.stop(query).whole
    worker.start(plan, env, query, attempt=2)
    worker.until(lambda e: isinstance(e, ch.Alive) and e.query == query and e.attempt == 2)
    worker.send(ch.Stop(query))
    assert not worker.until(lambda e: isinstance(e, ch.Ended) and e.query == query and e.attempt == 2).whole


def test_long_rows_wait_for_their_bytes(worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str) -> None:
    """400 rows of 100 kB: a client's credit is not that of 400."""
    kafka.produce(topic, records([{"id": i} for i in range(400)]))
    rows = p.Project(source(topic, "id BIGINT"), [p.Expr("x", "repeat(cast(id % 10 as string), 100000)")])
    query = worker.start(p.Plan(rows, p.ResultSink()), env)

    def sent() -> list[ch.Rows]:
        return [e for e in worker.events if isinstance(e, ch.Rows) and e.query == query]

    worker.send(ch.More(query, 2000))
    within(60, lambda: sum(e.cost for e in sent()) > 1500)
    assert sum(len(e.rows) for e in sent()) * 100_000 < 10 << 20
    worker.send(ch.More(query, 20_000))
    within(60, lambda: sum(len(e.rows) for e in sent()) == 400)
    assert {r[0] for e in sent() for r in e.rows} == {str(d) * 100_000 for d in range(10)}
    assert all(e.cost <= 1500 for e in sent())
    ended(worker, query)


@pytest.mark.parametrize(
    "value", ["repeat('x', 18000000)", "cast(transform(sequence(1, 30000), n -> uuid()) as string)"]
)
def test_rows_that_are_too_long(worker: WorkerProcess, env: Environment, kafka: Kafka, topic: str, value: str) -> None:
    """Each by itself, and 400 of a megabyte together, which hardly pack; the worker lives on."""
    kafka.produce(topic, records([{"id": i} for i in range(400)]))
    rows = p.Project(source(topic, "id BIGINT"), [p.Expr("x", value)])
    query = worker.start(p.Plan(rows, p.ResultSink()), env)
    worker.send(ch.More(query, 2000))
    fault = worker.wait(ch.Ended, query=query).fault
    assert fault is not None
    assert (fault.sqlstate, fault.message) == ("54000", "the rows of this query are too long")
    again = worker.start(p.Plan(source(topic, "id BIGINT"), p.ResultSink(limit=1)), env)
    worker.send(ch.More(again, 1))
    assert worker.wait(ch.Ended, query=again).fault is None
