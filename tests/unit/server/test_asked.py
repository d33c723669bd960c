"""What PostgreSQL is asked between statements of a client, when it goes wrong: a scripted PostgreSQL, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from pgstream.catalog.records import DatabaseRecord, Snapshot
from pgstream.errors import Canceled, RelayedError
from pgstream.server.ask import ask
from pgstream.server.backend import Backend
from pgstream.server.flight import BLOCK, FAILED, IDLE
from pgstream.server.implicit import Implicit
from pgstream.server.language import Language
from pgstream.server.limits import Limits
from pgstream.server.search_path import SearchPath
from pgstream.server.session import ClientSession
from pgstream.server.settled import Settled
from pgstream.sql import sniff
from pgstream.statements import glance
from pgstream.statements.base import Session
from pgstream.wire import backend as messages
from pgstream.wire import frontend

TIMEOUT = "canceling statement due to statement timeout"
USER_REQUEST = "canceling statement due to user request"
SET, SELECT = b"SET search_path TO x", b"SELECT 1"
SYNC, TERMINATE = frontend.SYNC, frontend.TERMINATE


def query(text: bytes) -> bytes:
    return messages.message(b"Q", text + b"\0")


def pipeline(text: bytes) -> bytes:
    """Parse, Bind, Execute."""
    run = messages.message(b"B", bytes(8)) + messages.message(b"E", bytes(5))
    return frontend.encode_parse(text, b"") + run


def ready(status: int) -> bytes:
    return messages.ready_for_query(status)


def error(text: str, severity: str = "ERROR") -> bytes:
    return messages.error(RelayedError(code="57014", text=text, severity=severity))


def kinds(data: bytes) -> str:
    out, pos = "", 0
    while pos < len(data):
        out += chr(data[pos])
        pos += 1 + int.from_bytes(data[pos + 1 : pos + 5], "big")
    return out


def row(value: str) -> bytes:
    return messages.data_row([value.encode()])


def json_row(value: str) -> bytes:
    return row(value.encode().hex())


IN_FORCE = json_row('["x", "_alice", "x"]')
QUESTION = "CCPBECC"
"""The messages of one thing asked, without their end."""


class World:
    """A session whose PostgreSQL and client are the test. ``asked``: what the one got, ``told``: what the other got,
    since it was last looked at.
    """

    def __init__(self) -> None:
        self._asked = self._told = b""
        self.cancels: list[asyncio.Future[None]] = []
        snapshot = Snapshot(databases={"main": DatabaseRecord("main", "alice")})
        listener: Any = SimpleNamespace(
            address=SimpleNamespace(cancel=self._cancel),
            backends=SimpleNamespace(leave=lambda backend, given: None),
            catalog=SimpleNamespace(snapshot=snapshot),
            config=SimpleNamespace(slow_reader_timeout_s=1),
            gone=lambda client: None,
            keys=SimpleNamespace(forget=lambda client, pid: None),
            language=Language(lambda *a: None, sniff.split, _parse, sniff.head, glance.is_postgres),
            settled=Settled(),
            snapshot=snapshot,
        )
        self.backend = Backend()
        self.client = client = ClientSession(listener)
        client._framer = None
        client._transport = SimpleNamespace(close=self._close, get_write_buffer_size=lambda: 0)  # type: ignore[assignment]
        client.write = self._tell
        client.context = Session("main", "public", "alice", "alice")
        client.path = SearchPath({})
        client._attach(self.backend)
        self.backend.write = self._ask
        self.closed = False
        self.was_asked = asyncio.Event()

    def _close(self) -> None:
        self.closed = True

    def _ask(self, data: bytes | bytearray | memoryview) -> None:
        self._asked += bytes(data)
        self.was_asked.set()

    def _tell(self, data: bytes | bytearray | memoryview) -> None:
        self._told += bytes(data)

    async def _cancel(self, pid: int, key: bytes) -> None:
        self.cancels.append(asyncio.get_running_loop().create_future())
        await self.cancels[-1]

    @property
    def asked(self) -> str:
        asked, self._asked = self._asked, b""
        return kinds(asked)

    @property
    def told(self) -> bytes:
        told, self._told = self._told, b""
        return told

    async def client_sends(self, data: bytes) -> None:
        self.client.data_received(data)
        await self.turn()

    async def postgres_says(self, data: bytes) -> None:
        self.backend.data_received(data)
        await self.turn()

    async def turn(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def stale(self, status: int = IDLE) -> None:
        """The client has set its search path: what follows is asked about first."""
        await self.client_sends(query(SET))
        await self.postgres_says(messages.command_complete("SET") + ready(status))
        assert self.asked == "Q" and kinds(self.told) == "CZ"

    async def held(self, data: bytes, status: int = IDLE) -> None:
        """A statement waits for the answer to a question."""
        await self.stale(status)
        await self.client_sends(data)
        assert self.asked == QUESTION + "S"

    async def relayed(self) -> None:
        """All is well: the next statement is asked about, and passes."""
        assert not self.closed
        await self.client_sends(query(SELECT))
        if (asked := self.asked) == QUESTION + "S":
            await self.postgres_says(IN_FORCE + ready(IDLE))
            asked = self.asked
        assert asked == "Q" and self.told == b""
        await self.postgres_says(messages.command_complete("SELECT 1") + ready(IDLE))
        assert kinds(self.told) == "CZ" and self.client.flight.caught_up and self.client._task is None


def _parse(text: str, kind: Any) -> Any:
    raise AssertionError("nothing of ours")


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test on a loop, with a world of its own."""

    def runs() -> None:
        async def whole() -> None:
            await test(World())

        asyncio.run(asyncio.wait_for(whole(), 20))

    runs.__name__, runs.__doc__ = test.__name__, test.__doc__
    return runs


@run
async def test_asked_once_more(w: World) -> None:
    """What ended the question was not meant for the statement, which runs."""
    await w.held(query(SELECT))
    await w.postgres_says(error(TIMEOUT) + ready(IDLE))
    assert (w.asked, w.told) == (QUESTION + "S", b"")
    await w.postgres_says(IN_FORCE + ready(IDLE))
    assert (w.asked, w.told, w.client.context.schema) == ("Q", b"", "x")
    await w.postgres_says(messages.command_complete("SELECT 1") + ready(IDLE))
    assert kinds(w.told) == "CZ"
    await w.relayed()


@run
async def test_the_statement_fails_in_its_place(w: World) -> None:
    await w.held(query(SELECT))
    await w.postgres_says(error(TIMEOUT) + ready(IDLE))
    await w.postgres_says(error(TIMEOUT) + ready(IDLE))
    assert w.asked == QUESTION + "S"
    assert w.told == error(TIMEOUT) + ready(IDLE)
    await w.relayed()
    assert w.client.context.schema == "x", "asked before the next"


@run
async def test_other_errors_are_not_tried_again(w: World) -> None:
    await w.held(query(SELECT))
    full = messages.error(RelayedError(code="53200", text="out of memory"))
    await w.postgres_says(full + ready(IDLE))
    assert (w.asked, w.told) == ("", full + ready(IDLE))
    await w.relayed()


@run
async def test_a_block_fails(w: World) -> None:
    """In a transaction nothing can be asked again."""
    await w.held(query(SELECT), BLOCK)
    await w.postgres_says(error(TIMEOUT) + ready(FAILED))
    assert (w.asked, w.told) == ("", error(TIMEOUT) + ready(FAILED))
    await w.client_sends(query(b"ROLLBACK"))
    assert w.asked == "Q", "in a failed block nothing is asked"
    await w.postgres_says(messages.command_complete("ROLLBACK") + ready(IDLE))
    assert (w.asked, kinds(w.told)) == (QUESTION + "S", "CZ"), "what is left of cursors"
    await w.postgres_says(NOTHING_LEFT + ready(IDLE))
    assert w.asked == QUESTION + "S"
    await w.postgres_says(IN_FORCE + ready(IDLE))
    await w.relayed()


@run
async def test_a_pipeline_skips_to_sync(w: World) -> None:
    await w.held(pipeline(SELECT) + SYNC + query(b"SELECT 2"), BLOCK)
    await w.postgres_says(error(TIMEOUT) + ready(FAILED))
    assert w.told == error(TIMEOUT)
    assert w.asked == "SQ", "the messages up to Sync are skipped, and no more"
    await w.postgres_says(ready(FAILED))
    assert w.told == ready(FAILED)


@run
async def test_in_the_middle_of_a_pipeline(w: World) -> None:
    """The implicit transaction fails, and PostgreSQL skips to the client's own Sync."""
    await w.client_sends(pipeline(b"SET search_path TO x") + pipeline(SELECT))
    assert w.asked == "PBEH"
    await w.postgres_says(b"".join(messages.message(k) for k in (b"1", b"2")) + messages.command_complete("SET"))
    assert kinds(w.told) == "12C"
    assert w.asked == QUESTION + "H"
    await w.postgres_says(error(TIMEOUT))
    assert (w.asked, w.told) == ("", error(TIMEOUT))
    await w.client_sends(pipeline(SELECT) + SYNC)
    assert w.asked == "S"
    await w.postgres_says(ready(IDLE))
    assert w.told == ready(IDLE)
    await w.relayed()


@run
async def test_a_query_behind_a_pipeline_without_sync(w: World) -> None:
    """Its error ends with ReadyForQuery, as PostgreSQL's does."""
    await w.client_sends(pipeline(b"SET search_path TO x") + query(SELECT))
    assert w.asked == "PBEH"
    await w.postgres_says(b"".join(messages.message(k) for k in (b"1", b"2")) + messages.command_complete("SET"))
    assert (w.asked, kinds(w.told)) == (QUESTION + "H", "12C")
    await w.postgres_says(error(TIMEOUT))
    assert (w.asked, w.told) == ("S", error(TIMEOUT))
    await w.postgres_says(ready(IDLE))
    assert w.told == ready(IDLE)
    await w.relayed()


@run
async def test_a_cancel_request_is_for_the_statement(w: World) -> None:
    """Not for the question, which goes on."""
    await w.held(query(SELECT) + query(b"SELECT 2"))
    await w.client.cancel()
    assert not w.cancels
    await w.postgres_says(IN_FORCE + ready(IDLE))
    assert w.told == messages.error(Canceled()) + ready(IDLE)
    assert w.asked == "Q", "the second one runs"
    await w.postgres_says(messages.command_complete("SELECT 1") + ready(IDLE))
    assert kinds(w.told) == "CZ"
    await w.relayed()


@run
async def test_a_cancel_request_in_a_block(w: World) -> None:
    await w.held(query(SELECT), BLOCK)
    await w.client.cancel()
    await w.postgres_says(IN_FORCE + ready(BLOCK))
    assert w.asked == "Q", "the block is failed"
    await w.postgres_says(error("a statement of this transaction failed in pgstream") + ready(FAILED))
    assert w.told == messages.error(Canceled()) + ready(FAILED)


@run
async def test_a_cancel_request_in_a_pipeline(w: World) -> None:
    await w.held(pipeline(SELECT) + SYNC)
    await w.client.cancel()
    await w.postgres_says(IN_FORCE + ready(IDLE))
    assert (w.asked, w.told) == ("S", messages.error(Canceled()))
    await w.postgres_says(ready(IDLE))
    assert w.told == ready(IDLE)
    await w.relayed()


async def left_in_doubt(w: World) -> None:
    """A COMMIT may have closed cursors: PostgreSQL is asked at once, while no statement waits."""
    w.client.alert = True
    await w.client_sends(query(b"COMMIT"))
    await w.postgres_says(messages.command_complete("COMMIT") + ready(IDLE))
    assert (w.asked, kinds(w.told)) == ("Q" + QUESTION + "S", "CZ")


NOTHING_LEFT = json_row("[null, null]")


@run
async def test_between_two_statements_a_cancel_request_does_nothing(w: World) -> None:
    await left_in_doubt(w)
    await w.client.cancel()
    assert not w.cancels
    await w.client_sends(query(SELECT))
    await w.postgres_says(NOTHING_LEFT + ready(IDLE))
    assert (w.asked, w.told) == ("Q", b"")
    await w.postgres_says(messages.command_complete("SELECT 1") + ready(IDLE))
    assert kinds(w.told) == "CZ"
    await w.client.cancel()
    assert not w.cancels
    await w.relayed()


@run
async def test_a_cancel_request_behind_a_statement_that_waits(w: World) -> None:
    """It came while something was asked that is not about it."""
    await left_in_doubt(w)
    await w.client_sends(query(SELECT))
    await w.client.cancel()
    assert not w.cancels
    await w.postgres_says(NOTHING_LEFT + ready(IDLE))
    assert w.told == messages.error(Canceled()) + ready(IDLE)
    await w.relayed()


@run
async def test_nobody_waits(w: World) -> None:
    """Then nobody is told, and PostgreSQL is asked again before the next statement."""
    await left_in_doubt(w)
    await w.postgres_says(error(TIMEOUT) + ready(IDLE))
    await w.postgres_says(error(TIMEOUT) + ready(IDLE))
    assert w.asked == QUESTION + "S"
    assert w.told == b"" and w.client.cursors.doubtful and w.client._task is None
    await w.client_sends(query(SELECT))
    assert w.asked == QUESTION + "S"
    await w.postgres_says(NOTHING_LEFT + ready(IDLE))
    assert w.asked == "Q"


@run
async def test_nothing_is_asked_while_a_cancel_request_is_on_its_way(w: World) -> None:
    """It was for the statement before, and would meet the question."""
    await w.client_sends(query(SET))
    canceling = asyncio.ensure_future(w.client.cancel())
    await w.turn()
    assert len(w.cancels) == 1
    canceling.cancel()  # the client that sent it hangs up
    await w.postgres_says(messages.command_complete("SET") + ready(IDLE))
    assert w.asked == "Q"
    await w.client_sends(query(SELECT))
    assert w.asked == ""
    await w.client.cancel()  # another one, for the statement that waits
    w.cancels[0].set_result(None)
    await w.turn()
    assert w.asked == QUESTION + "S"
    await w.postgres_says(IN_FORCE + ready(IDLE))
    assert (w.asked, len(w.cancels)) == ("", 1)
    assert w.told.endswith(messages.error(Canceled()) + ready(IDLE))


@run
async def test_a_cancel_request_for_what_came_before(w: World) -> None:
    """The question waits for a statement of the client's in the same pipeline: that one is meant."""
    await w.client_sends(pipeline(b"SET search_path TO x") + pipeline(SELECT))
    canceling = asyncio.ensure_future(w.client.cancel())
    await w.turn()
    assert len(w.cancels) == 1
    w.cancels[0].set_result(None)
    await canceling


@run
async def test_the_last_word_is_the_clients(w: World) -> None:
    await w.held(query(SELECT))
    await w.postgres_says(error("terminating connection due to administrator command", "FATAL"))
    assert b"terminating connection due to administrator command" in w.told
    w.backend.connection_lost(None)
    await w.turn()
    assert w.closed and w.told == b""


@run
async def test_a_rollback_of_ours_is_tried_again(w: World) -> None:
    """The client has been told of its error, and did not begin the block."""
    w.client.flight.status = FAILED
    implicit = Implicit(w.client, several=True)
    implicit._open = True
    ending = asyncio.ensure_future(implicit.end(failed=True))
    await w.turn()
    await w.postgres_says(error(USER_REQUEST) + ready(FAILED))
    await w.postgres_says(ready(IDLE))
    await ending
    assert (w.asked, w.told) == ((QUESTION + "S") * 2, b"")


@run
async def test_who_is_kept_awake(w: World) -> None:
    """Another session's cancel request is over; one that failed the block is an error of the statement."""
    awake = asyncio.ensure_future(Limits(idle_s=0.001, in_block_s=0.001).keep_awake(w.backend))
    for status in (IDLE, IDLE, FAILED):
        await w.was_asked.wait()
        w.was_asked.clear()
        await w.postgres_says(error(USER_REQUEST) + ready(status))
    with pytest.raises(RelayedError, match=USER_REQUEST):
        await awake


@run
async def test_questions_wait_for_each_other(w: World) -> None:
    first, second = asyncio.ensure_future(ask(w.backend, "SELECT 1")), asyncio.ensure_future(ask(w.backend, "SELECT 2"))
    await w.turn()
    assert w.asked == QUESTION + "S"
    await w.postgres_says(row("1") + ready(IDLE))
    await w.postgres_says(row("2") + ready(IDLE))
    assert (await first, await second) == ("1", "2")


@run
async def test_canceled_more_than_once(w: World) -> None:
    """The client sees nothing of the answer, whoever stops waiting for it."""
    asking = asyncio.ensure_future(ask(w.backend, "SELECT 1"))
    for _ in range(3):
        await w.turn()
        asking.cancel()
    assert w.asked == QUESTION + "S"
    await w.postgres_says(row("1"))
    assert not asking.done()
    await w.postgres_says(ready(IDLE))
    assert asking.cancelled() and w.told == b""
    await w.relayed()


NAMES = b"SELECT * FROM deltastream.sys.queries"


@run
async def test_canceled_while_system_tables_are_copied(w: World) -> None:
    """It is the statement's that waits for them; the next one has them copied anew."""
    copying = 0

    async def execute(*_: Any) -> None:
        nonlocal copying
        copying += 1
        if copying == 1:
            raise Canceled()
        w.client.listener.snapshot.system_copies["main"] = "1"  # type: ignore[index]

    w.client.context.database = "main"
    w.client.runner = SimpleNamespace(execute=execute, is_running=False)  # type: ignore[assignment]
    await w.client_sends(query(NAMES))
    told, asked = w.told, w.asked
    assert (kinds(told), copying, asked) == ("EZ", 1, "")
    await w.relayed()
    await w.client_sends(frontend.encode_parse(NAMES, b"") + SYNC)
    assert (copying, w.asked) == (2, "PS")
