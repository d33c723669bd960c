"""The worker's queries under a steady load, with a broker and a PostgreSQL of their own, all of which may be killed.

Owns: the part of the engine (who ends is started again with the next attempt), the load, the reader that looks all the
time, the final comparison. Must not know: what is killed when; the statements (``queries``). Start reading at ``Rig``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import psutil
import psycopg
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from pgstream.catalog import view_logs
from pgstream.config import Config
from pgstream.embedded.postgres import Postgres, open_postgres
from pgstream.engine import channel as ch
from tests.server import Kafka, within
from tests.stream.chaos import queries
from tests.stream.test_outage import Broker
from tests.stream.worker.driver import Environment, Gone, WorkerProcess

KEYS = 20
PARTITIONS = 2
PACE = 200
"""Events a second."""
TRIGGER_MS = 1000
"""What a death costs is the next worker; queries that run batches all the time would cost as much again."""


class Load(threading.Thread):
    """Keyed events at a steady pace, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True,
                                  "message.timeout.ms": 300_000, "log_level": 0})  # fmt: skip
        self.sent = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.1):
            for _ in range(PACE // 10):
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
        self.looks = self.connections = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        seen = 0
        while not self.over.is_set():
            try:
                with psycopg.connect(self.rig.env.url, autocommit=True) as c:
                    self.connections += 1
                    pause = 0.02
                    while not self.over.wait(pause):
                        began = time.monotonic()
                        seen = self.look(c, seen)
                        pause = max(0.02, 12 * (time.monotonic() - began))  # views grow: it takes little of a core
            except psycopg.OperationalError as e:
                if not self.rig.postgres_away.is_set():
                    self.wrong.append(f"a read failed: {e}")
                self.over.wait(0.05)
            except psycopg.Error as e:
                self.wrong.append(f"a read failed: {e}")

    def look(self, c: psycopg.Connection[Any], seen: int) -> int:
        """One moment: no row twice, none that was there gone, money neither made nor lost."""
        row = c.execute("""SELECT count(*), count(DISTINCT id), (SELECT coalesce(sum(balance), 0) FROM v_bank)
            + (SELECT coalesce(sum(abs(total)), 0) FROM v_summed),
            (SELECT count(*) - count(DISTINCT id) FROM v_joined) FROM v_every""").fetchone()
        assert row
        n, distinct, total, twice = row
        self.looks += 1
        if n != distinct or twice:
            self.wrong.append(f"{n} rows, {distinct} of them different; {twice} joined twice")
        if n < seen:
            self.wrong.append(f"{n} rows after {seen}")
        if total != 0:
            self.wrong.append(f"impossible total {total}")
        return int(n)


class Database:
    """A PostgreSQL as a server has it: on a loop that lives, where it is started again when it is killed."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.postgres: Postgres = self._do(open_postgres(Config(data_dir=folder)))
        self.url = self.postgres.url("postgres", tcp=True)

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        self._do(self.postgres.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Rig:
    """Everything under test. ``attempts`` counts the starts of a query over all workers."""

    def __init__(self, settings: dict[str, Any], folder: Path, names: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.order, self.names = folder, folder / "order", names
        self.settings = {**settings, "trigger_ms": TRIGGER_MS}
        self.postgres_away = threading.Event()
        self.attempts: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            self._open(undo)
            self.undo = undo.pop_all()

    def _open(self, undo: contextlib.ExitStack) -> None:
        os.environ["PGSTREAM_KILL_POINTS"] = str(self.order)
        undo.callback(os.environ.pop, "PGSTREAM_KILL_POINTS", None)
        self.log: IO[bytes] = undo.enter_context((self.folder / "worker.log").open("ab"))
        self.broker = Broker(self.folder / "kafka")
        undo.callback(self.broker.kill)
        self.database = Database(self.folder / "pg")
        undo.callback(self.database.close)
        self.env = Environment(self.broker.bootstrap, self.database.url, str(self.folder))
        self.env.prepare()
        for name, (_, columns, key) in queries.VIEWS.items():
            self.env.view(name, columns, key or None)
        self.kafka = Kafka(self.broker.bootstrap)
        for topic in ("events", *queries.TOPICS):
            self.kafka.topic(topic, PARTITIONS, message_timestamp_after_max_ms="9223372036854775807")
        self.plans = queries.plans(self.names)
        self.ids = {name: str(uuid.uuid4()) for name in self.plans}
        self.env.sql("CREATE ROLE pgstream_worker")
        if "summed" in self.names:
            asyncio.run(self.log_bank())
        self.worker = WorkerProcess(self.settings, self.log)
        undo.callback(lambda: self.worker.kill())
        self.run_all()
        self.load, self.reader = Load(self.broker.bootstrap), Reader(self)
        undo.callback(self.load.over.set)
        undo.callback(self.reader.over.set)
        self.load.start()
        self.reader.start()

    async def log_bank(self) -> None:
        """As the catalogue does it for a query that reads a view."""
        async with await psycopg.AsyncConnection.connect(self.env.url) as conn:
            await view_logs.create(conn, self.ids["summed"], queries.bank_view(self.ids["bank"]))

    # The engine's part

    def next_worker(self) -> None:
        """The next worker takes over."""
        self.worker = WorkerProcess(self.settings, self.log)
        self.run_all()

    def run_all(self) -> None:
        """All queries run in the worker."""
        worker = self.worker
        worker.wait(ch.Ready, 240)
        for name in self.plans:
            self.start(worker, name)
        threading.Thread(target=self.keep, args=(worker,), daemon=True).start()

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
                        return
                    try:
                        self.start(worker, names[e.query])
                    except OSError:
                        return

    # What there is

    def rows(self) -> int:
        return int(self.env.sql("SELECT count(*) FROM v_every")[0][0])

    def goes_on(self, beyond: int, seconds: float = 120) -> None:
        """Rows flow again."""
        try:
            within(seconds, lambda: self.reader.wrong or self.rows() > beyond, every=0.2)
        except AssertionError:
            self.log.write(stacks(self.worker).encode())
            self.log.flush()
            raise
        assert not self.reader.wrong, self.reader.wrong[:10]

    def replace_worker(self, seconds: float = 60) -> bool:
        """The worker dies, or is dead; the next one takes over. One that does not die is killed: then False."""
        by_itself = True
        try:
            self.worker.until(lambda _: False, seconds)
        except Gone:
            pass
        except AssertionError:
            by_itself = False
            self.order.unlink(missing_ok=True)
            self.worker.process.kill()
        self.worker.process.wait(30)
        self.worker.hang_up()
        self.next_worker()
        return by_itself

    def finish(self) -> None:
        """No more load: everything catches up, and each result is compared with the records of the topic."""
        self.load.end()
        events = self.whole("events")
        assert queries.every(events) == list(range(self.load.sent)), "the load itself"
        within(120, lambda: self.rows() >= len(events))
        for name in self.names:
            within(120, lambda name=name: self.is_right(name, events))
        if "windows" in self.names:
            queries.check_windows([row for row, _ in self.whole("windows")], events)
        self.reader.over.set()
        self.reader.join(10)
        assert not self.reader.wrong, self.reader.wrong[:10]

    def is_right(self, name: str, events: queries.Events) -> bool:
        """Whether a result is what it should be; one that can only grow and has grown too far never is."""
        match name:
            case "windows":
                return True
            case "copied":
                copied = sorted(row["id"] for row, _ in self.whole(name))
                assert len(copied) == len(set(copied)), "copied: doubled"
                return copied == queries.every(events)
            case "counted":
                right = {k: n for k, (n, _) in queries.per_key(events).items()}
                return queries.counted([row for row, _ in self.whole(name)]) == right
        found = self.env.rows(f"v_{name}")
        right = getattr(queries, name)(events)
        if name == "every":
            return sorted(r[0] for r in found) == right
        if isinstance(right, list):
            return sorted(found) == right
        values = {r[0]: tuple(map(int, r[1:])) for r in found}
        return values == {k: v if isinstance(v, tuple) else (v,) for k, v in right.items()}

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
        self.undo.close()


def stacks(worker: WorkerProcess) -> str:
    """What the threads of a worker's JVM that run queries do, where there is a jstack."""
    program = shutil.which("jstack")
    found = [p.pid for p in psutil.Process(worker.process.pid).children(recursive=True) if p.name() == "java"]
    if program is None or not found:
        return "no stacks\n"
    told = subprocess.run([program, str(found[0])], capture_output=True, text=True, check=False).stdout
    return "\n\n".join(t for t in told.split("\n\n") if t.startswith(('"stream execution', '"Executor task')))
