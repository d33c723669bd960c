"""A connection to a PostgreSQL that may flood or say nothing: psycopg's, bounded in time and in bytes.

``statement_timeout`` is the server's to keep, and libpq keeps all that comes until an answer is whole. So what comes
is counted where Linux counts it, beneath TLS (elsewhere time alone bounds), and a connection whose answer is too large
or too late is closed. Owns: these bounds, and logging in. Must not know: what is asked, stores.
Start reading at ``Bounded`` and ``log_in``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Generator
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

import psycopg
from psycopg import generators, waiting
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn

T = TypeVar("T")
PATIENCE_S, WHOLE_S = 8.5, 9.0
"""For one answer, or to log in; for all that a statement asks."""
ADDRESS_S = 5.0
"""Of the patience, for one address of several."""
LARGEST = 64 << 20
"""Bytes of one answer, and of all that comes while one logs in."""
THREAD = "postgresql log-in"
"""What its threads are called. One may hash on when nobody waits for it any more (``cli`` ends the process over it)."""
LATE = "its server did not answer in time"
_AT_ONCE = 2
_INTERVAL_S = 0.1
_TCP_INFO_SIZE, _BYTES_RECEIVED = 136, slice(128, 136)


class TooMuch(psycopg.OperationalError):
    """An answer is larger than a bound."""


class TooLate(psycopg.OperationalError):
    """There is no answer."""


class Bounded(psycopg.AsyncConnection[tuple[Any, ...]]):
    """psycopg's connection; what takes too long, is too large or is cancelled ends it at once."""

    def __init__(self, pgconn: PGconn, *more: Any) -> None:
        super().__init__(pgconn, *more)
        pgconn.notify_handler = _drop  # psycopg keeps all of them for who may ask

    async def wait(self, gen: Any, interval: float = _INTERVAL_S, timeout: float | None = None) -> Any:
        """psycopg's own asks the server to cancel, and then waits for it."""
        fd = self.pgconn.socket
        try:
            async with asyncio.timeout(PATIENCE_S if timeout is None else timeout):
                return await waiting.wait_async(_counted(gen, fd, _received(fd)), fd, interval=interval)
        except TimeoutError:
            self.pgconn.finish()
            raise TooLate(LATE) from None
        except (TooMuch, asyncio.CancelledError):
            self.pgconn.finish()
            raise

    @classmethod
    async def log_in(cls, settings: str, place: str) -> Self:
        """On a thread: the server says how often SCRAM hashes, up to 2^31 times, which nothing ends. ``place``: of the
        server, which a few such threads at once may be busy with.
        """
        turn = _TURNS.setdefault(place, asyncio.Semaphore(_AT_ONCE))
        loop = asyncio.get_running_loop()
        made: asyncio.Future[PGconn] = loop.create_future()
        told = (settings, loop, made, turn)
        thread = threading.Thread(target=_connect, args=told, name=THREAD, daemon=True)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await turn.acquire()
                thread.start()
                found = cls(await made)
        except TimeoutError:
            _give_way(thread)
            raise TooLate(LATE) from None
        await found.set_autocommit(True)
        return found


def _give_way(thread: threading.Thread) -> None:
    """What nobody waits for hashes on when nothing else has to be done."""
    if sys.platform == "linux" and thread.native_id is not None and thread.is_alive():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread.native_id, 19)


_TURNS: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()


def _connect(
    settings: str, loop: asyncio.AbstractEventLoop, made: asyncio.Future[PGconn], turn: asyncio.Semaphore
) -> None:
    def tell(found: PGconn | None, e: Exception | None) -> None:
        turn.release()
        if not made.done() and found is not None:
            made.set_result(found)
        elif not made.done() and e is not None:
            made.set_exception(e)
        elif found is not None:  # nobody waits any more
            found.finish()

    found, why = None, None
    end = time.monotonic() + PATIENCE_S
    attempts = _attempts(settings)
    each = ADDRESS_S if len(attempts) > 1 else PATIENCE_S
    for attempt in attempts:
        try:
            steps = _counted(generators.connect(attempt), None, 0, min(end, time.monotonic() + each))
            found, why = waiting.wait_conn(steps, interval=_INTERVAL_S), None
            break
        except Exception as e:
            why = e
        if time.monotonic() > end:
            break
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(tell, found, why)


def _attempts(settings: str) -> list[str]:
    """One for each address that the host's name has; libpq stays with one that does not answer."""
    told = conninfo_to_dict(settings)
    try:
        found = socket.getaddrinfo(str(told["host"]), None, type=socket.SOCK_STREAM)
    except (KeyError, OSError, UnicodeError):
        return [settings]  # libpq says why
    return [make_conninfo(settings, hostaddr=a) for a in dict.fromkeys(str(address[0]) for *_, address in found)]


def _counted(
    gen: Generator[Any, Any, T], fd: int | None, begun: int, end: float = float("inf")
) -> Generator[Any, Any, T]:
    """A generator of psycopg's, looked at whenever something has come. One that logs in says where it waits."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if _received(wanted[0] if fd is None else fd) - begun > LARGEST:
                raise TooMuch(f"its server answers with more than {LARGEST >> 20} MB")
            if time.monotonic() > end:
                raise TooLate(LATE)
            wanted = gen.send(ready)
    except StopIteration as e:
        found: T = e.value
        return found


def _received(fd: int) -> int:
    """The bytes that have come on a TCP connection; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    s = socket.socket(fileno=fd)
    try:
        told = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    finally:
        s.detach()
    return int.from_bytes(told[_BYTES_RECEIVED], sys.byteorder)


def _drop(_: object) -> None:
    pass
