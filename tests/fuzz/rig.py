"""A real door under fuzz, and what must hold whatever clients send it.

After each session: it has answered or ended, what the server said is whole messages, another session works, no line
"internal error" was logged, one line at most says why the client was refused. After some sessions (``settle``): none is
left, nor its backends, tasks, cancel keys or descriptors. Start reading at ``Rig.run``.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import select
import socket
import struct
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import psycopg
import structlog
from structlog.testing import capture_logs

from pgstream.wire import frontend
from tests.fuzz.mutate import CancelIt, Leave, Plan, Read, Send, Step, frame
from tests.pg.door import double
from tests.pg.door.raw import Wire

PATIENCE_S = 30
LATE = 1
"""The shape of the door with backends opened late and kept."""
ANSWERS = frozenset(b"123ACDEGHIKNRSTVWZcdnstv")
MARK = b"the last answer"
PROBE = (
    frame("f", b"enough\0") + frame("S", b"") + frame("Q", b"ROLLBACK\0") + frame("Q", b"RESET ALL\0")
    + frame("Q", b"SELECT '" + MARK + b"'\0")
)  # fmt: skip
PRISTINE = """
SELECT session_user, current_user, current_database(), current_setting('search_path'), current_setting('TimeZone'),
    current_setting('client_encoding'), current_setting('statement_timeout'), current_setting('application_name'),
    (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors),
    (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_class WHERE relpersistence = 't'
        AND relnamespace = pg_my_temp_schema()),
    (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')"""


class Broken(AssertionError):
    """Something does not hold."""


class Client(Wire):
    """A session whose every message is kept, with the key to cancel it."""

    key: tuple[int, bytes] = (0, b"")

    def read(self) -> tuple[str, bytes]:
        kind, payload = super().read()
        if kind == "K":
            self.key = int.from_bytes(payload[:4], "big"), payload[4:]
        return kind, payload


class Rig:
    """One door in three shapes: plain, with backends opened late and kept, with TLS."""

    def __init__(self, folder: Path) -> None:
        self.faults: list[str] = []
        self._logs = capture_logs()
        self.log = self._logs.__enter__()
        self.door = double.start(folder)
        self.door.loop.call_soon_threadsafe(self.door.loop.set_exception_handler, self._unhandled)
        self.shapes = [
            (self.door.listener, self.door.port),
            self.door.second(lazy_backends=True, keep_backends_s=3),
            self.door.second(tls="auto", max_starting=20),
        ]
        for listener, _ in self.shapes:
            listener.refusals.say = self._refused
        self.refusals: list[str] = []
        self.witnesses = [self._connect(port) for _, port in self.shapes]
        self.direct = psycopg.connect(self.door.direct, autocommit=True)
        self.superuser = psycopg.connect(self.door.postgres.url("postgres"), autocommit=True)
        self.pristine = [w.execute(PRISTINE).fetchone() for w in self.witnesses]
        self.settle()
        self.descriptors, self.tasks = self._descriptors(), self._tasks()

    def close(self) -> None:
        for conn in (*self.witnesses, self.direct, self.superuser):
            conn.close()
        for listener, _ in self.shapes[1:]:
            self.door.run(listener.close())
        self.door.stop()
        self._logs.__exit__(None, None, None)
        structlog.reset_defaults()

    def _connect(self, port: int, **more: object) -> psycopg.Connection:
        return psycopg.connect(self.door.url, port=port, autocommit=True, **more)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        e = context.get("exception")
        shown = "".join(traceback.format_exception(e)) if isinstance(e, BaseException) else ""
        self.faults.append(f"unhandled: {context.get('message')}\n{shown}")

    def _refused(self, why: str, address: str, code: str | None = None, detail: str | None = None) -> None:
        self.refusals.append(why)

    # One session

    def run(self, plan: Plan, seed: str) -> None:
        """Errors: Broken."""
        chance = random.Random(seed)
        shape = chance.choice((0, 0, LATE, 2))
        _, port = self.shapes[shape]
        self.refusals.clear()
        if isinstance(plan.start, bytes):
            with Client(port) as client:
                self._end(client, port, [Send(plan.start), *plan.steps])
        else:
            self._session(plan, plan.start, port)
        self._look(chance, shape, sum(isinstance(step, CancelIt) for step in plan.steps) + 1)

    def _session(self, plan: Plan, start: dict[str, str], port: int) -> None:
        given = {"password": self.door.PASSWORD, **start}
        try:
            client = Client(port, **given)
        except (ConnectionError, EOFError):
            return  # what start-up made of its parameters
        with client:
            if plan.framed:
                self._answered(client, port, plan.steps)
            else:
                self._end(client, port, plan.steps)

    def _end(self, client: Client, port: int, steps: list[Step]) -> None:
        """Say all, and see the server end the connection."""
        stream = Stream(client, port)
        leaves = [step for step in steps if isinstance(step, Leave)]
        for step in steps:
            if not isinstance(step, Leave):
                stream.do(step)
        if leaves and leaves[0].reset:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        stream.say_all()
        stream.until(lambda: stream.ended, "the client has left, and its session does not end")

    def _answered(self, client: Client, port: int, steps: list[Step]) -> None:
        """Say all, and see the last question answered, or the session ended with a reason."""
        stream = Stream(client, port)
        for step in steps:
            stream.do(step)
        vain = before = 0
        while not self._probed(stream):
            vain, before = 0 if len(stream.received) > before else vain + 1, len(stream.received)
            if vain > PATIENCE_S * 2:
                raise Broken(f"no answer; the last that came: {bytes(stream.received[-200:])!r}")
            stream.do(CancelIt(None))  # one of many that sleep
        kinds, last = stream.messages()
        if stream.ended and not stream.reset and (kinds[-1:] != "E" or b"SFATAL\0" not in last):
            raise Broken(f"ended without a word, after {kinds[-20:]} {last[:200]!r}")

    @staticmethod
    def _probed(stream: Stream) -> bool:
        stream.do(Send(PROBE))
        return stream.wait(lambda: stream.ended or MARK in stream.received, 0.5)

    def _look(self, chance: random.Random, shape: int, refusals: int) -> None:
        for line in self.log:
            if line["event"] == "internal error":
                raise Broken(f"internal error: {line.get('exc_info')!r}") from line.get("exc_info")
        self.log.clear()
        if self.faults:
            raise Broken(self.faults.pop())
        if len(self.refusals) > refusals:
            raise Broken(f"refused more than once: {self.refusals}")
        for witness in (self.witnesses[shape], self.direct):
            if witness.execute("SELECT 'well'").fetchone() != ("well",):
                raise Broken("another session got a wrong answer")
        if self.witnesses[shape].execute("LIST DOORS").fetchall()[0][0] != "front":
            raise Broken("another session got a wrong answer of ours")
        if shape != LATE and chance.random() < 0.9:
            return  # only there a connection is taken over
        with self._connect(self.shapes[shape][1]) as conn:
            found = conn.execute(PRISTINE).fetchone()
            if found != self.pristine[shape]:
                raise Broken(f"a new session begins with {found}, not {self.pristine[shape]}")

    # After sessions

    def settle(self) -> None:
        """Errors: Broken, when anything of a session is left."""
        for (listener, _), witness in zip(self.shapes, self.witnesses, strict=True):
            own = {witness.info.backend_pid}
            self._until(lambda it=listener: len(it.sessions) == len(it.admitted) == len(it.keys) == 1, "sessions")
            self._until(lambda it=listener: not it.starting, "connections that are starting")
            assert set(listener.keys._by_pid) == own
            self.door.loop.call_soon_threadsafe(listener.backends.drop_kept)
        self._until(lambda: not double.LIVE, "streaming results")
        asked = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
        self._until(
            lambda: self.superuser.execute(asked, (self.door.USER,)).fetchone() == (len(self.shapes) + 1,),
            "backends",
            self._backends_shown,
        )
        if hasattr(self, "tasks"):
            self._until(lambda: self._tasks() <= self.tasks, "tasks", self._tasks_shown)
            self._until(lambda: self._descriptors() <= self.descriptors, "descriptors")

    def _backends_shown(self) -> object:
        asked = "SELECT pid, state, wait_event, query FROM pg_stat_activity WHERE usename = %s"
        return self.superuser.execute(asked, (self.door.USER,)).fetchall()

    def _until(self, holds: Callable[[], bool], what: str, shown: Callable[[], object] = lambda: "") -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > end:
                raise Broken(f"left behind: {what} {shown()}")
            time.sleep(0.01)

    @staticmethod
    def _descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def _tasks(self) -> int:
        return len(asyncio.all_tasks(self.door.loop))

    def _tasks_shown(self) -> object:
        return [repr(task) for task in asyncio.all_tasks(self.door.loop)]

    @staticmethod
    def memory() -> int:
        """Bytes that this process holds."""
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Stream:
    """Both directions of a client's connection at once: neither side waits for the other to read."""

    def __init__(self, client: Client, port: int) -> None:
        self.client, self._port = client, port
        self.received = bytearray(client._buffer)
        self.ended = False
        self.reset = False  # what the server said last may be lost: it closed before it had read all
        client.socket.setblocking(False)

    def do(self, step: Step) -> None:
        match step:
            case Send(data):
                self._send(data)
            case Read():
                self.wait(lambda: self.ended, 0.01)
            case CancelIt(key):
                pid, own = self.client.key
                with socket.create_connection(("127.0.0.1", self._port), PATIENCE_S) as s:
                    s.sendall(frontend.encode_cancel(pid, own if key is None else key))
                    s.recv(1)

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        end = time.monotonic() + PATIENCE_S
        while rest and not self.ended:
            self._turn(0.1, writing=True)
            try:
                rest = rest[self.client.socket.send(rest) :]
            except BlockingIOError:
                pass
            except OSError:
                self.ended = self.reset = True
            if time.monotonic() > end:
                raise Broken("the server does not read")

    def say_all(self) -> None:
        try:
            self.client.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.ended = True

    def _turn(self, seconds: float, *, writing: bool = False) -> None:
        s = self.client.socket
        readable, _, _ = select.select([s], [s] if writing else [], [], seconds)
        if not readable:
            return
        try:
            data = s.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data, self.reset = b"", True
        self.received += data
        self.ended = self.ended or not data
        if len(self.received) > 1 << 24:
            del self.received[: -(1 << 16)]

    def wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not holds() and time.monotonic() < end:
            self._turn(min(0.05, seconds))
        return holds()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        if not self.wait(holds, PATIENCE_S):
            raise Broken(f"{what}; the last that came: {bytes(self.received[-200:])!r}")

    def messages(self) -> tuple[str, bytes]:
        """The types of all messages that came, and the last one's payload. Errors: Broken when they are none."""
        data, kinds, last, at = bytes(self.received), "", b"", 0
        while at < len(data):
            length = int.from_bytes(data[at + 1 : at + 5], "big")
            if data[at] not in ANSWERS or at + 1 + length > len(data):
                if at + 1 + length > len(data) and not self.ended and data[at] in ANSWERS:
                    break  # the rest of it is on its way
                raise Broken(f"no message: {data[max(0, at - 100) : at + 40]!r}")
            kinds, last, at = kinds + chr(data[at]), data[at + 5 : at + 1 + length], at + 1 + length
        return kinds, last
