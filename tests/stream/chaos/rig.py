"""The worker's queries under a steady load, with a broker and a PostgreSQL of their own, all of which may be killed.

Owns: the statements, the load, the reader that looks all the time, the part of the engine (who ends is started again
with the next attempt), the final comparison. Must not know: what is killed when. Start reading at ``Rig``.
"""

from __future__ import annotations

import asyncio
import calendar
import json
import os
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import IO, Any

import psycopg
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord, Snapshot, StoreRecord
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from pgstream.engine import channel as ch
from pgstream.names import FullName
from pgstream.planner import plan as p
from pgstream.planner.select import plan_select
from pgstream.sql.cursor import Cursor
from tests.server import Kafka, within
from tests.stream.test_outage import Broker
from tests.stream.worker.driver import Environment, Gone, WorkerProcess

KEYS = 20
PARTITIONS = 2
PACE = 300
EVENTS = "id BIGINT, k BIGINT, v BIGINT"

# What runs: name → statement, and of a view its columns and key, of a topic the key.
VIEWS = {
    "every": ("SELECT id, k FROM events", "id bigint, k bigint", []),
    "per_key": ("SELECT k, count(*) AS n, sum(v) AS total FROM events GROUP BY k",
                "k bigint, n bigint, total numeric", ["k"]),
    "tens": ("SELECT v % 10 AS ten, count(*) AS n, sum(id) AS ids, max(k) AS high FROM latest GROUP BY v % 10",
             "ten bigint, n bigint, ids numeric, high bigint", ["ten"]),
    "bank": ("SELECT k, sum(v) AS balance FROM (SELECT k, v FROM events UNION ALL "
             "SELECT k + 1 AS k, - v AS v FROM events) x GROUP BY k", "k bigint, balance numeric", ["k"]),
}  # fmt: skip
TOPICS = {
    "copied": ("stream", "SELECT id, v FROM events", []),
    "counted": ("changelog", "SELECT k, count(*) AS n FROM events GROUP BY k", ["k"]),
    "windows": ("changelog", "SELECT window_start, k, count(*) AS n FROM TUMBLE(events, SIZE 1 SECOND) "
                "WITH ('source.allow.latency.millis' = 20000) GROUP BY window_start, k", ["window_start", "k"]),
}  # fmt: skip


def relation(kind: str, key: tuple[str, ...] = ()) -> RelationRecord:
    columns = tuple(ColumnRecord(n, types.parse(t)) for n, t in (c.split() for c in EVENTS.split(", ")))
    name = "latest" if key else "events"
    given = {"value.format": "json", "starting.position": "earliest", "kafka.consumer.max.poll.records": "500"}
    if key:
        given |= {"key.format": "json", "key.type": "STRUCT<k BIGINT>"}
    return RelationRecord(name, FullName("main", "public", name), kind, columns, "o", primary_key=key, store="k",
                          entity="events", properties=given)  # fmt: skip


def plans() -> dict[str, p.Plan]:
    """The statements planned as the server does it."""
    made = [relation("stream"), relation("changelog", ("k",))]
    snapshot = Snapshot(
        stores={"k": StoreRecord("k", "k", "KAFKA", {}, "o")},
        relations={("main", "public", r.full.name): r for r in made},
    )
    out = {}
    for name, (sql, _, _) in VIEWS.items():
        planned = plan_select(Cursor(sql).select(), snapshot, "main", "public", "view")
        table = f"v_{name}"
        sink = p.ViewSink(f"main.public.{table}", "main", table, planned.mode, list(planned.key))
        out[name] = p.Plan(planned.root, sink)
    for name, (want, sql, key) in TOPICS.items():
        planned = plan_select(Cursor(sql).select(), snapshot, "main", "public", want)
        mode = planned.mode if want == "changelog" else "append"
        topic = p.KafkaSink(f"main.public.{name}", "k", name, mode, "json", list(planned.columns),
                            "json" if key else None, key)  # fmt: skip
        out[name] = p.Plan(planned.root, topic)
    return out


class Load(threading.Thread):
    """Keyed events at a steady pace, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True,
                                  "message.timeout.ms": 300_000, "log_level": 0})  # fmt: skip
        self.sent = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            for _ in range(PACE // 50):
                k = self.sent * 7919 % KEYS
                value = {"id": self.sent, "k": k, "v": self.sent * 104_729 % 1000}
                self.producer.produce("events", json.dumps(value), json.dumps({"k": k}))
                self.sent += 1
            self.producer.poll(0)

    def end(self) -> None:
        self.over.set()
        self.join()
        assert self.producer.flush(60) == 0


class Reader(threading.Thread):
    """Reads the views all the time. Any error is a failure, but for a connection that PostgreSQL's own death breaks."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(daemon=True)
        self.rig = rig
        self.over = threading.Event()
        self.looks = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        seen = 0
        while not self.over.is_set():
            try:
                with psycopg.connect(self.rig.env.url, autocommit=True) as c:
                    while not self.over.wait(0.02):
                        seen = self.look(c, seen)
            except psycopg.OperationalError as e:
                if not self.rig.postgres_away.is_set():
                    self.wrong.append(f"a read failed: {e}")
                time.sleep(0.05)
            except psycopg.Error as e:
                self.wrong.append(f"a read failed: {e}")

    def look(self, c: psycopg.Connection[Any], seen: int) -> int:
        """One moment: no row twice, none that was there gone, money neither made nor lost."""
        row = c.execute("""SELECT count(*), count(DISTINCT id), (SELECT coalesce(sum(balance), 0) FROM v_bank),
            (SELECT coalesce(max(n), 0) FROM v_per_key) FROM v_every""").fetchone()
        assert row
        n, distinct, total, _ = row
        self.looks += 1
        if n != distinct:
            self.wrong.append(f"{n} rows, {distinct} of them different")
        if n < seen:
            self.wrong.append(f"{n} rows after {seen}")
        if total != 0:
            self.wrong.append(f"impossible total {total}")
        return int(n)


class Rig:
    """Everything under test. ``attempt`` counts the starts of a query over all workers."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.order = folder, folder / "order"
        os.environ["PGSTREAM_KILL_POINTS"] = str(self.order)
        self.settings = settings
        self.log: IO[bytes] = (folder / "worker.log").open("ab")
        self.broker = Broker(folder / "kafka")
        self.postgres_away = threading.Event()
        self.start_postgres()
        self.env = Environment(self.broker.bootstrap, self.postgres.url("postgres", tcp=True), str(folder))
        self.env.prepare()
        for name, (_, columns, key) in VIEWS.items():
            self.env.view(name, columns, key or None)
        self.kafka = Kafka(self.broker.bootstrap)
        for topic in ("events", *TOPICS):
            self.kafka.topic(topic, PARTITIONS, message_timestamp_after_max_ms="9223372036854775807")
        self.plans = plans()
        self.ids = {name: str(uuid.uuid4()) for name in self.plans}
        self.attempts: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.spare: WorkerProcess | None = None
        self.worker = self.next_worker()
        self.load, self.reader = Load(self.broker.bootstrap), Reader(self)
        self.load.start()
        self.reader.start()

    def start_postgres(self) -> None:
        self.postgres = asyncio.run(open_postgres(Config(data_dir=self.folder / "pg")))
        if hasattr(self, "env"):
            self.env.url = self.postgres.url("postgres", tcp=True)
        self.postgres_away.clear()

    # The engine's part

    def next_worker(self) -> WorkerProcess:
        """A worker in which all queries run."""
        worker = self.spare or WorkerProcess(self.settings, self.log)
        self.spare = None
        worker.wait(ch.Ready, 240)
        for name in self.plans:
            self.start(worker, name)
        threading.Thread(target=self.keep, args=(worker,), daemon=True).start()
        return worker

    def start(self, worker: WorkerProcess, name: str) -> None:
        with self.lock:
            self.attempts[name] += 1
            worker.start(self.plans[name], self.env, self.ids[name], self.attempts[name])

    def keep(self, worker: WorkerProcess) -> None:
        """Start again what ends by itself, as long as the worker lives."""
        seen = 0
        names = {id: name for name, id in self.ids.items()}
        while not worker.closed:
            with worker.news:
                worker.news.wait(0.5)
                news, seen = worker.events[seen:], len(worker.events)
            for e in news:
                if isinstance(e, ch.Ended) and e.attempt == self.attempts[names[e.query]] and not worker.closed:
                    if e.fault and e.fault.kind not in ("store", "engine"):
                        self.reader.wrong.append(f"{names[e.query]}: {e.fault}")
                    time.sleep(0.3)
                    try:
                        self.start(worker, names[e.query])
                    except OSError:
                        return

    # What there is

    def rows(self) -> int:
        return int(self.env.sql("SELECT count(*) FROM v_every")[0][0])

    def goes_on(self, beyond: int, seconds: float = 300) -> None:
        """Rows flow again; the next worker is then made ready, so that nobody waits for it."""
        within(seconds, lambda: self.rows() > beyond, every=0.05)
        if self.spare is None:
            self.spare = WorkerProcess(self.settings, self.log)

    def replace_worker(self, seconds: float = 60) -> None:
        """The worker dies, or is dead; the next one takes over. One that does not die is killed."""
        try:
            self.worker.until(lambda _: False, seconds)
        except Gone:
            pass
        except AssertionError:
            self.order.unlink(missing_ok=True)
            self.worker.process.kill()
        self.worker.process.wait(30)
        self.worker.hang_up()
        self.worker = self.next_worker()

    def finish(self) -> None:
        """No more load: everything catches up, and each result is compared with the records of the topic."""
        self.load.end()
        events = [row for row, _ in self.whole("events")]
        assert sorted(e["id"] for e in events) == list(range(self.load.sent)), "the load itself"
        within(120, lambda: self.rows() >= len(events))
        within(120, lambda: self.env.sql("SELECT coalesce(sum(n), 0) FROM v_per_key")[0][0] >= len(events))
        self.views(events)
        self.topics(events)
        self.reader.over.set()
        self.reader.join(10)
        assert not self.reader.wrong, self.reader.wrong[:10]

    def views(self, events: list[dict[str, int]]) -> None:
        assert sorted(r[0] for r in self.env.rows("v_every")) == list(range(len(events)))
        totals: dict[int, list[int]] = {}
        for e in events:
            totals.setdefault(e["k"], []).append(e["v"])
        assert {k: (n, int(t)) for k, n, t in self.env.rows("v_per_key")} == {
            k: (len(vs), sum(vs)) for k, vs in totals.items()
        }
        last = {e["k"]: e for e in sorted(events, key=lambda e: e["id"])}
        tens: dict[int, list[dict[str, int]]] = {}
        for e in last.values():
            tens.setdefault(e["v"] % 10, []).append(e)
        right = {t: (len(es), sum(e["id"] for e in es), max(e["k"] for e in es)) for t, es in tens.items()}
        within(60, lambda: {r[0]: tuple(map(int, r[1:])) for r in self.env.rows("v_tens")} == right)
        money: Counter[int] = Counter()
        for e in events:
            money[e["k"]] += e["v"]
            money[e["k"] + 1] -= e["v"]
        within(60, lambda: {k: int(b) for k, b in self.env.rows("v_bank")} == dict(money))

    def topics(self, events: list[dict[str, int]]) -> None:
        within(60, lambda: len(self.whole("copied")) >= len(events))
        copied = [row["id"] for row, _ in self.whole("copied")]
        assert sorted(copied) == list(range(len(events))), "copied: lost or doubled"
        counts: Counter[int] = Counter(e["k"] for e in events)
        within(60, lambda: self.counted() == dict(counts))
        told = [row for row, _ in self.whole("windows")]
        once = Counter((w["window_start"], w["k"]) for w in told)
        assert max(once.values()) == 1, f"windows told again: {once.most_common(3)}"
        right: Counter[tuple[int, int]] = Counter()
        for e, ms in self.whole("events"):
            right[ms // 1000, e["k"]] += 1
        end = max(_second(w["window_start"]) for w in told)
        shown = {(_second(w["window_start"]), w["k"]): w["n"] for w in told}
        # The tasks of a batch commit one by one: the last window may be on its way.
        done = {key: n for key, n in shown.items() if key[0] < end}
        assert done == {key: n for key, n in right.items() if key[0] < end}, "windows lost or wrong"

    def counted(self) -> dict[int, int]:
        """The last count of each key; it never falls nor stays within a topic that holds each change once."""
        last: dict[int, int] = {}
        for row, _ in self.whole("counted"):
            assert row["n"] > last.get(row["k"], 0), f"counted: {row} after {last.get(row['k'])}"
            last[row["k"]] = row["n"]
        return last

    def whole(self, topic: str) -> list[tuple[dict[str, Any], int]]:
        """The committed records of a topic from end to end, each partition in its order, and their timestamps."""
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": f"chaos-{uuid.uuid4()}",
                             "isolation.level": "read_committed", "enable.auto.commit": False,
                             "enable.partition.eof": True})  # fmt: skip
        out, ended = [], 0
        try:
            consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
            while ended < PARTITIONS:
                m = consumer.poll(30)
                assert m is not None, f"topic {topic} cannot be read"
                if (error := m.error()) is None:
                    out.append((json.loads(m.value()), m.timestamp()[1]))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
        finally:
            consumer.close()
        return out

    def close(self) -> None:
        os.environ.pop("PGSTREAM_KILL_POINTS", None)
        self.load.over.set()
        self.reader.over.set()
        for worker in (self.worker, self.spare):
            if worker is not None:
                worker.kill()
        self.broker.kill()
        asyncio.run(self.postgres.stop())
        self.log.close()


def _second(text: str) -> int:
    return calendar.timegm(time.strptime(text.split(".", maxsplit=1)[0], "%Y-%m-%d %H:%M:%S"))
