"""What we ask PostgreSQL ourselves over a session's connection, in its transaction, unseen by the client.

Owns: running a text and keeping or passing its answer, one statement whose answer is a value, and failing the
transaction that is open there. Only while the backend has caught up; one at a time.
Must not know: the client's messages, statements of ours. Start reading at ``ask``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgstream.errors import RelayedError
from pgstream.server.backend import DATA_ROW, ERROR, READY, Backend, Taker, lost
from pgstream.server.flight import QUERY, SYNC
from pgstream.tasks import outlast
from pgstream.wire import backend as messages
from pgstream.wire import frontend

OWN = b"pg_pgstream"
"""Name of the statement and portal of what we ask."""
PARSED, CLOSED = b"13"
NULL = b"\xff\xff\xff\xff"
_FATAL = b"\0VFATAL\0"
CANCEL_S = 5
"""How long a cancel request that PostgreSQL does not take in keeps us from asking."""
FAILING = "DO $$BEGIN RAISE 'a statement of this transaction failed in pgstream' USING ERRCODE = '25P02'; END$$"
"""What makes a transaction fail, and says so in PostgreSQL's log."""


@contextlib.asynccontextmanager
async def _alone(backend: Backend) -> AsyncIterator[None]:
    """One at a time, and not while a cancel request is on its way that was meant for what ran before."""
    async with backend.asking:
        if backend.canceling:
            await asyncio.wait(backend.canceling, timeout=CANCEL_S)
        yield


async def query(backend: Backend, text: str, each: Taker) -> RelayedError | None:
    """Run ``text`` in the simple protocol; ``each`` gets all messages but ReadyForQuery. Gives its error."""
    errors: list[RelayedError] = []

    def taker(kind: int, message: bytes) -> bool:
        if kind == READY:
            return True
        if kind == ERROR:
            errors.append(messages.decode_error(message[5:]))
        each(kind, message)
        return False

    async with _alone(backend):
        backend.flight.sent(QUERY)
        await _exchange(backend, messages.message(b"Q", text.encode(backend.codec) + b"\0"), taker, seen=True)
    return errors[0] if errors else None


@dataclass(slots=True)
class _Answer:
    """The messages that answer one ``ask``. ``closes``: CloseComplete messages still to come in a pipeline."""

    closes: int
    codec: str
    values: list[str | None] = field(default_factory=list)
    errors: list[RelayedError] = field(default_factory=list)

    def take(self, kind: int, message: bytes) -> bool:
        if kind == DATA_ROW and not self.values:
            size = int.from_bytes(message[7:11], "big")
            self.values.append(None if message[7:11] == NULL else message[11 : 11 + size].decode(self.codec, "replace"))
        elif kind == ERROR:
            self.errors.append(messages.decode_error(message[5:]))
        self.closes -= kind == CLOSED
        return kind == READY or self.closes == 0 or (self.closes > 0 and bool(self.errors))


async def ask(
    backend: Backend, text: str, oids: Sequence[int] = (), given: Sequence[str | None] = (), *, piped: bool = False
) -> str | None:
    """Run one statement and keep its answer; gives the first value of its first row. Errors: RelayedError.

    ``oids``, ``given``: the types and values of its parameters.

    In the extended protocol under a name of its own: the client's unnamed statement stays, and so does the implicit
    transaction of a pipeline, which a Query or a Sync would end. ``piped`` begins that, for the client's Sync to end.
    """
    flight = backend.flight
    async with _alone(backend):
        bound = [v if v is None else v.encode(backend.codec) for v in given]
        data = frontend.encode_run(text.encode(backend.codec), OWN, oids, bound)
        if flight.open or piped:
            answer = _Answer(4, backend.codec)
            flight.open += 7
            data += frontend.FLUSH
        else:
            answer = _Answer(-1, backend.codec)
            flight.sent(SYNC)
            data += frontend.SYNC
        await _exchange(backend, data, answer.take)
    if answer.errors:
        raise answer.errors[0]
    return answer.values[0] if answer.values else None


async def ask_json(backend: Backend, expression: str) -> Any:
    """The value of an expression of type json. Its names may be such as the client's encoding does not have."""
    text = f"pg_catalog.convert_to(({expression})::pg_catalog.text, 'UTF8')"
    return json.loads(bytes.fromhex(await ask(backend, f"SELECT pg_catalog.encode({text}, 'hex')") or ""))


async def claim(backend: Backend, name: str) -> None:
    """Take the name of a prepared statement: PostgreSQL holds an empty one under it, which DEALLOCATE and DISCARD end,
    and with which another Parse of the name collides. Errors: RelayedError 42P05.
    """
    await _step(backend, frontend.encode_parse(b"", name.encode(backend.codec)), PARSED)


async def release(backend: Backend, name: str) -> None:
    """Give the name of a prepared statement back."""
    await _step(backend, frontend.encode_close(b"S", name.encode(backend.codec)), CLOSED)


async def _step(backend: Backend, message: bytes, answer: int) -> None:
    """One message of the extended protocol, whose answer is kept from the client. Errors: RelayedError."""
    errors: list[RelayedError] = []
    piped = bool(backend.flight.open)

    def ends(kind: int, message: bytes) -> bool:
        if kind == ERROR:
            errors.append(messages.decode_error(message[5:]))
        return kind in (answer, ERROR) if piped else kind == READY

    async with _alone(backend):
        if piped:
            backend.flight.open += 1
        else:
            backend.flight.sent(SYNC)
        await _exchange(backend, message + (frontend.FLUSH if piped else frontend.SYNC), ends)
    if errors:
        raise errors[0]


async def fail(backend: Backend, *, extended: bool) -> None:
    """Fail the transaction that is open here as a statement of PostgreSQL's would.

    In the extended protocol PostgreSQL then skips to the Sync that the client will send.
    """
    if not extended:
        await query(backend, FAILING, lambda kind, message: None)
        return
    async with _alone(backend):
        backend.flight.open += 7
        data = frontend.encode_run(FAILING.encode(), OWN) + frontend.FLUSH
        await _exchange(backend, data, lambda kind, message: kind == ERROR)


async def sync(backend: Backend) -> RelayedError | None:
    """End a pipeline that has had no Sync, and its transaction; also one that failed. Gives the error of its commit."""
    errors: list[RelayedError] = []

    def ends(kind: int, message: bytes) -> bool:
        if kind == ERROR:
            errors.append(messages.decode_error(message[5:]))
        return kind == READY

    async with _alone(backend):
        backend.flight.sent(SYNC)
        await _exchange(backend, frontend.SYNC, ends)
    return errors[0] if errors else None


async def _exchange(backend: Backend, data: bytes, ends: Callable[[int, bytes], bool], *, seen: bool = False) -> None:
    """Send and take messages until ``ends`` says that one was the last. Errors: that the connection was lost.

    ``seen``: the client gets the messages. Of others it gets PostgreSQL's last word, which answers no question of ours.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def taker(kind: int, message: bytes) -> None:
        if not seen and kind == ERROR and _FATAL in message and backend.client is not None:
            backend.client.write(message)
        if ends(kind, message) and not done.done():
            done.set_result(None)

    before = backend.take(taker)
    try:
        backend.write(data)
        await outlast(done, backend.closed)  # what was asked will be answered, and the client must not see it
        if not done.done():
            raise lost()
    finally:
        backend.take(before)
