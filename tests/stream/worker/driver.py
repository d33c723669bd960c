"""Drives a worker process from outside, speaking the control channel over a socket pair; plans made short."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import psycopg

from pgstream.engine import channel as ch
from pgstream.planner import plan as p

T = TypeVar("T")


class Gone(AssertionError):
    """The worker's process has ended."""


class WorkerProcess:
    """A worker; ``events`` keeps everything it said. ``wait`` looks for an event, old ones first."""

    def __init__(self, settings: dict[str, Any], log: Any = None) -> None:
        ours, theirs = socket.socketpair()
        env = os.environ | {"PGSTREAM_CHANNEL": str(theirs.fileno()), "PGSTREAM_WORKER": json.dumps(settings)}
        command = [sys.executable, "-m", "pgstream.spark"]
        self.process = subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()], stderr=log)
        theirs.close()
        self.socket = ours
        self.events: list[Any] = []
        self.news = threading.Condition()
        self.closed = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with self.socket.makefile("rb") as stream, contextlib.suppress(OSError):
            while len(head := stream.read(4)) == 4:
                event = ch.decode_event(stream.read(struct.unpack(">I", head)[0]))
                with self.news:
                    self.events.append(event)
                    self.news.notify_all()
        self.socket.close()
        with self.news:
            self.closed = True
            self.news.notify_all()

    def send(self, request: Any) -> None:
        self.socket.sendall(ch.encode(request))

    def wait(self, kind: type[T], seconds: float = 60, **fields: Any) -> T:
        return self.until(lambda e: isinstance(e, kind) and all(getattr(e, k) == v for k, v in fields.items()), seconds)

    def until(self, wanted: Callable[[Any], bool], seconds: float = 60) -> Any:
        end = time.monotonic() + seconds
        seen = 0
        with self.news:
            while True:
                for e in self.events[seen:]:
                    if wanted(e):
                        return e
                seen = len(self.events)
                if self.closed:
                    raise Gone("the worker is gone")
                if not self.news.wait(end - time.monotonic()):
                    raise AssertionError(f"nothing within {seconds} s; last events: {self.events[-5:]}")

    def analyze(self, root: Any, sink: Any = None) -> Any:
        number = uuid.uuid4().int & 0xFFFFFF
        self.send(ch.Analyze(number, p.Plan(root, sink or p.ResultSink()).json()))
        return self.until(lambda e: isinstance(e, ch.Analyzed | ch.Failed) and e.id == number)

    def start(self, plan: p.Plan, env: Environment, query: str | None = None, attempt: int = 1, **kw: Any) -> str:
        query = query or str(uuid.uuid4())
        checkpoint = None if isinstance(plan.sink, p.ResultSink) else f"{env.folder}/checkpoints/{query}"
        databases = {"main": env.url} if env.url else {}
        self.send(ch.Start(query, attempt, plan.json(), {"k": env.store}, databases, checkpoint, **kw))
        return query

    def stop(self, query: str, forget: bool = False) -> Any:
        self.send(ch.Stop(query, forget))
        return self.wait(ch.Ended, query=query)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the channel, as a server that dies does."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class Environment(msgspec.Struct):
    """What a worker's queries touch: a broker, a database with the state schema, a folder."""

    bootstrap: str
    url: str
    folder: str

    @property
    def store(self) -> ch.StoreAccess:
        return ch.StoreAccess("k", "kafka", {"uris": self.bootstrap, "tls.disabled": "true"})

    def sql(self, text: str, *args: Any) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as c:
            cursor = c.execute(text, args or None)
            return cursor.fetchall() if cursor.description else []

    def prepare(self) -> None:
        """The hidden schema, as the catalogue makes it."""
        self.sql("""SET allow_system_table_mods = on;
            CREATE SCHEMA IF NOT EXISTS pg_pgstream;
            CREATE TABLE IF NOT EXISTS pg_pgstream.ledger (query uuid, sink text NOT NULL DEFAULT '', batch bigint,
                attempt int, consumed jsonb, PRIMARY KEY (query))""")

    def view(self, name: str, columns: str, key: list[str] | None = None) -> str:
        """A view's table; its name."""
        table = f"v_{name}"
        self.sql(f'CREATE TABLE "{table}" ({columns})')
        if key:
            self.sql(f'CREATE UNIQUE INDEX ON "{table}" ({", ".join(key)}) NULLS NOT DISTINCT')
        return table

    def rows(self, table: str, order: str = "1") -> list[Any]:
        return self.sql(f'SELECT * FROM "{table}" ORDER BY {order}')


def into(view: str, mode: str, key: list[str] | None = None) -> p.ViewSink:
    """The sink that writes what ``Environment.view`` made."""
    return p.ViewSink(f"main.public.{view}", "main", view, mode, key or [])


def source(entity: str, columns: str, **kw: Any) -> p.Source:
    """A source over JSON; ``columns``: ``name TYPE, …``; event time from ``ts`` when there is one."""
    parsed = [p.Column(*c.strip().split(" ", 1)) for c in columns.split(", ")]
    given: dict[str, Any] = {"alias": "s", "relation": f"main.public.{entity}", "kind": "stream", "store": "k",
                             "entity": entity, "columns": parsed, "value_format": "json",
                             "starting_position": "earliest"}  # fmt: skip
    if any(c.name == "ts" for c in parsed):
        given["timestamp"] = "ts"
    return p.Source(**(given | kw))


def project(node: Any, *items: str) -> p.Project:
    """``"name = sql"`` or a plain column name."""
    columns = []
    for item in items:
        name, _, sql = item.partition(" = ")
        columns.append(p.Expr(name, sql or f"`{name}`", at=len(name)))
    return p.Project(node, columns)
