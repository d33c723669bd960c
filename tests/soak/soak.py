"""Does things at random and looks whether all views are right all the time.

Owns: the load, the looking, the actions, the judgement at the end. Must not know: what a view must show (``views``).
Start reading at ``Soak``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
from confluent_kafka import Producer

from tests.server import Kafka, Server, within
from tests.soak.views import OVER_SUMS, PARTITIONS, Impossible, Read, Shape, event, shapes
from tests.stream.test_kill import worker_of
from tests.stream.test_outage import superuser

PACE = 200
MOST_VIEWS = 4
SETUP = """CREATE STORE soak WITH ('type' = KAFKA, 'uris' = '{}', 'tls.disabled' = TRUE,
  'kafka.sasl.hash_function' = NONE);
CREATE STREAM events (id BIGINT, p BIGINT, k BIGINT, v BIGINT, t BIGINT) WITH ('store' = soak, 'topic' = 'soak',
  'value.format' = 'json', 'timestamp' = 't', 'starting.position' = 'earliest');
CREATE CHANGELOG latest (id BIGINT, p BIGINT, k BIGINT, v BIGINT, t BIGINT, PRIMARY KEY (k)) WITH ('store' = soak,
  'topic' = 'soak', 'value.format' = 'json', 'timestamp' = 't', 'starting.position' = 'earliest')"""


class Load(threading.Thread):
    """Numbered events at a steady pace, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True,
                                  "message.timeout.ms": 300_000, "log_level": 0})  # fmt: skip
        self.sent = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            for _ in range(PACE // 50):
                e = event(self.sent)
                self.producer.produce("soak", json.dumps(e), json.dumps({"k": e["k"]}), partition=e["p"])
                self.sent += 1
            self.producer.poll(0)

    def end(self) -> None:
        self.over.set()
        self.join()
        assert self.producer.flush(60) == 0

    @property
    def all(self) -> Read:
        return tuple((self.sent - p + PARTITIONS - 1) // PARTITIONS for p in range(PARTITIONS))


@dataclass
class View:
    """A view that is there. ``read``: how far it has been seen to have read; that never goes back. ``next``: the shape
    and the query that are to take it over; ``before``: the queries that it had; ``base``: the view that it reads.
    """

    shape: Shape
    query: str
    base: str | None = None
    times: int = 1
    next: tuple[Shape, str] | None = None
    before: list[str] = field(default_factory=list)
    read: Read = (0,) * PARTITIONS
    lock: threading.Lock = field(default_factory=threading.Lock)


class Looker(threading.Thread):
    """Reads a view after the other. A server that was killed may refuse; nothing else may fail."""

    def __init__(self, soak: Soak) -> None:
        super().__init__(daemon=True)
        self.soak = soak
        self.over = threading.Event()
        self.looks = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self.over.is_set():
            server = self.soak.server
            try:
                with server.connect() as c:
                    while not self.over.wait(0.05):
                        for name, view in list(self.soak.views.items()):
                            self.look(c, name, view)
            except psycopg.OperationalError as e:
                if not self.soak.away.is_set() and server is self.soak.server:  # it was not killed
                    self.wrong.append(f"{dt.datetime.now():%H:%M:%S.%f}: a read failed: {e}")
                self.over.wait(0.1)
            except (psycopg.Error, Impossible) as e:
                self.wrong.append(str(e))

    def look(self, c: psycopg.Connection[Any], name: str, view: View) -> None:
        """Errors: Impossible, psycopg.Error."""
        with view.lock:
            if self.soak.views.get(name) is not view:
                return  # dropped or replaced by now
            rows = c.execute(f"SELECT * FROM {name}".encode()).fetchall()
            read = self.check(view, rows)
            if any(now < before for now, before in zip(read, view.read, strict=True)):
                raise Impossible(f"{name}, {view.shape.name}: {read} after {view.read}")
            view.read = read
            self.looks += 1

    @staticmethod
    def check(view: View, rows: list[tuple[Any, ...]]) -> Read:
        """How far it has read; it is what it was until it is what it is to be."""
        try:
            return view.shape.check(rows)
        except Impossible:
            if view.next is None:
                raise
            read = view.next[0].check(rows)
            view.before.append(view.query)
            (view.shape, view.query), view.next = view.next, None
            return read


class Soak:
    """Everything under test. ``away``: set while the server may be dead; ``kills``: whether something is killed."""

    def __init__(self, folder: Path, kafka: Kafka, seed: str, *, kills: bool = True) -> None:
        self.draw, self.kills = random.Random(seed), kills
        self.kafka, self.folder = kafka, folder
        self.away = threading.Event()
        self.views: dict[str, View] = {}
        self.done: Counter[str] = Counter()
        self.made = 0
        self.server = Server(folder / "server", log_level="info")
        kafka.topic("soak", PARTITIONS, message_timestamp_before_max_ms="9223372036854775807")
        with self.server.connect() as c:
            for statement in SETUP.format(kafka.bootstrap).split(";\n"):
                c.execute(statement.encode())
        self.load, self.looker = Load(kafka.bootstrap), Looker(self)
        self.load.start()
        self.looker.start()

    def actions(self) -> list[tuple[int, Callable[[], None]]]:
        """Weights, and what is done."""
        return [
            (6, self.create), (4, self.drop), (4, self.restart), (4, self.ask), (self.kills * 2, self.kill_worker),
            (self.kills, self.kill_server), (3, self.interrupt), (4, self.replace), (4, self.compare),
        ]  # fmt: skip

    def step(self) -> None:
        """One action, then some time for its consequences."""
        weights, does = zip(*self.actions(), strict=True)
        action = self.draw.choices(does, weights)[0]
        action()
        self.done[action.__name__] += 1
        time.sleep(self.draw.random() * 3)
        if self.looker.wrong:
            raise AssertionError("\n".join(self.looker.wrong[:5]))

    # Actions

    def create(self) -> None:
        if len(self.views) >= MOST_VIEWS:
            return self.drop()
        self.made += 1
        name, shape, base = f"v{self.made}", self.draw.choice([*shapes().values(), OVER_SUMS]), None
        if shape is OVER_SUMS:
            bases = [n for n, v in self.views.items() if v.shape.name == "sums" and v.times == 1 and v.next is None]
            if not bases:
                return None
            base = self.draw.choice(bases)
        with self.server.connect() as c:
            text = f"CREATE MATERIALIZED VIEW {name} AS {shape.sql.format(view=base)}"
            made = c.execute(text.encode()).fetchall()
        self.views[name] = View(shape, made[-1][1], base)
        return None

    def free(self) -> list[str]:
        """Views that nothing reads, and that are not being replaced."""
        read = {v.base for v in self.views.values()}
        return [name for name, view in self.views.items() if name not in read and view.next is None]

    def drop(self) -> None:
        if not (free := self.free()):
            return
        name = self.draw.choice(free)
        view = self.views[name]
        with view.lock, self.server.connect() as c:
            del self.views[name]
            c.execute(f'TERMINATE QUERY "{view.query}"'.encode())
            # A query whose place another has taken may be ending still.
            within(60, lambda: c.execute(f"DROP MATERIALIZED VIEW {name}".encode()))

    def restart(self) -> None:
        if not self.views:
            return
        view = self.draw.choice(list(self.views.values()))
        query, replaced = view.query, view.next is not None
        with self.server.connect() as c:
            try:
                c.execute(f'RESTART QUERY "{query}"'.encode())
            except psycopg.errors.ObjectNotInPrerequisiteState:
                if not replaced:  # else the next query may have taken its place by now
                    raise

    def ask(self) -> None:
        """What somebody with psql does meanwhile."""
        with self.server.connect() as c:
            c.execute("SET statement_timeout = '60s'")
            views = list(self.views.values())
            running = {v.query if v.next is None else v.next[1] for v in views}
            listed = {row[0] for row in c.execute("LIST QUERIES").fetchall()}
            assert running <= listed, listed
            assert listed <= {id for v in views for id in (v.query, *v.before, *(v.next or ())[1:])}, listed
            for text in ("LIST RELATIONS", "SELECT count(*) FROM pg_class", "SELECT id FROM events LIMIT 3"):
                assert c.execute(text.encode()).fetchall(), text

    def replace(self) -> None:
        """Another query is to keep a view."""
        if not (free := [name for name in self.free() if self.views[name].base is None]):
            return
        name = self.draw.choice(free)
        view = self.views[name]
        view.times += 1
        shape = shapes(view.times)[view.shape.name]
        with view.lock, self.server.connect() as c:
            made = c.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {shape.sql}".encode()).fetchall()
            view.next = shape, made[-1][1]

    def compare(self) -> None:
        """A view is what its query makes of what it has consumed; of one that does not run that cannot be said."""
        if not self.views:
            return
        name = self.draw.choice(list(self.views))
        with self.server.connect() as c, contextlib.suppress(psycopg.errors.ObjectNotInPrerequisiteState):
            c.execute("SET statement_timeout = '120s'")
            wrong = c.execute(f"CHECK MATERIALIZED VIEW {name}".encode()).fetchall()
            assert not wrong, (name, self.views[name].shape.name, wrong[:3])

    def interrupt(self) -> None:
        """A streaming SELECT that is cancelled in the middle."""
        with self.server.connect() as c:
            stopper = threading.Timer(self.draw.random() * 2, c.cancel_safe)
            stopper.start()
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                c.execute("SELECT id FROM events WHERE id < 0")
            stopper.cancel()

    def kill_worker(self) -> None:
        with contextlib.suppress(StopIteration, psutil.NoSuchProcess):
            worker_of(self.server).kill()

    def kill_server(self) -> None:
        self.away.set()
        self.server.kill()
        self.server = Server(self.folder / "server", log_level="info")
        self.away.clear()

    # Judgement

    def end(self) -> None:
        """All that was sent has arrived in every view, once."""
        self.load.end()
        for name, view in self.views.items():
            within(180, lambda view=view: view.read == self.load.all or self.looker.wrong)  # type: ignore[misc]
            assert view.read == self.load.all, (name, view.shape.name, self.looker.wrong[:3])
            within(60, lambda view=view: view.next is None or self.looker.wrong)  # type: ignore[misc]
        self.looker.over.set()
        self.looker.join()
        assert not self.looker.wrong, self.looker.wrong[:5]
        while self.views:
            self.drop()
        with self.server.connect() as c:
            assert c.execute("LIST QUERIES").fetchall() is not None
        self.left_over()

    def left_over(self) -> None:
        """Nothing of a view that is gone stays: no table, no checkpoint."""

        tables = """SELECT relname FROM pg_class WHERE relnamespace = 'pg_pgstream'::regnamespace
            AND relname ~ '^(r_|s_)' AND relkind = 'r'"""

        def nothing() -> bool:
            folders = [p for p in (self.folder / "server/checkpoints").glob("**/*") if p.is_file()]
            with superuser(self.server) as su:
                return not folders and not su.execute(tables).fetchall()

        within(180, nothing)  # a state store may write a snapshot late, which is then removed, too

    def close(self) -> None:
        self.load.over.set()
        self.looker.over.set()
        self.server.stop()

    def memory(self) -> dict[str, int]:
        """Resident megabytes of the server and of all its workers."""
        root, workers = psutil.Process(self.server.process.pid), 0
        for process in root.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == "java":
                    workers += process.memory_info().rss
        return {"server": root.memory_info().rss >> 20, "workers": workers >> 20}
