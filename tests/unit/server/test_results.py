"""Rows on their way to a client: what an Execute with a limit waits for, and what it leaves for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pgstream import types
from pgstream.errors import Canceled
from pgstream.server.results import Sending, formats
from pgstream.statements.base import Column, KeptRow, Result, TextRow
from pgstream.wire import backend

COLUMNS = (Column("n", types.BIGINT),)


class Stream:
    """Rows put in from outside; ``None`` ends it, an error is raised."""

    def __init__(self) -> None:
        self.rows: asyncio.Queue[TextRow | BaseException | None] = asyncio.Queue()
        self.closed = False

    def put(self, *numbers: int) -> None:
        for n in numbers:
            self.rows.put_nowait([str(n)])

    async def read(self) -> AsyncIterator[TextRow]:
        try:
            while (row := await self.rows.get()) is not None:
                if isinstance(row, BaseException):
                    raise row
                yield row
        finally:
            self.closed = True


class Client:
    def __init__(self) -> None:
        self.heard = b""

    def write(self, data: bytes) -> None:
        self.heard += data

    async def drained(self) -> None:
        pass

    def rows(self) -> list[int]:
        """Those since it was asked last."""
        out, data = [], self.heard
        while data:
            length = int.from_bytes(data[1:5], "big")
            out.append(int(data[11 : length + 1]))
            data = data[length + 1 :]
        self.heard = b""
        return out


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def client() -> Client:
    return Client()


def sending(stream: Stream) -> Sending:
    return Sending(Result("SELECT {rows}", COLUMNS, stream.read()), formats(COLUMNS, ()))


async def test_a_part_is_enough(stream: Stream, client: Client) -> None:
    out = sending(stream)
    stream.put(1, 2, 3)
    assert await out.send(client, 100, part=True) == backend.PORTAL_SUSPENDED
    assert client.rows() == [1, 2, 3]
    stream.put(4)
    assert await out.send(client, 100, part=True) == backend.PORTAL_SUSPENDED
    assert client.rows() == [4]
    stream.put(5, 6, 7)
    assert await out.send(client, 2, part=True) == backend.PORTAL_SUSPENDED
    assert client.rows() == [5, 6]
    stream.put(8)
    stream.rows.put_nowait(None)
    assert await out.send(client, 100, part=True) == backend.command_complete("SELECT 2")
    assert client.rows() == [7, 8] and stream.closed
    assert await out.send(client, 100, part=True) == backend.command_complete("SELECT 0")


async def test_never_none(stream: Stream, client: Client) -> None:
    out = sending(stream)
    waiting = asyncio.ensure_future(out.send(client, 100, part=True))
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done and client.rows() == []
    stream.put(1)
    assert await waiting == backend.PORTAL_SUSPENDED and client.rows() == [1]
    await out.close()


async def test_all_that_was_asked_for(stream: Stream, client: Client) -> None:
    """Without ``part``: the limit is what the client wants in all."""
    out = sending(stream)
    stream.put(1)
    waiting = asyncio.ensure_future(out.send(client, 2))
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done and client.rows() == [1]
    stream.put(2)
    assert await waiting == backend.PORTAL_SUSPENDED and client.rows() == [2]
    await out.close()


async def test_an_error_that_comes_later(stream: Stream, client: Client) -> None:
    out = sending(stream)
    stream.put(1)
    assert await out.send(client, 100, part=True) == backend.PORTAL_SUSPENDED
    stream.rows.put_nowait(Canceled())
    with pytest.raises(Canceled):
        await out.send(client, 100, part=True)


async def test_closed_while_a_row_is_awaited(stream: Stream, client: Client) -> None:
    out = sending(stream)
    stream.put(1)
    assert await out.send(client, 100, part=True) == backend.PORTAL_SUSPENDED
    await out.close()
    await out.close()
    assert stream.closed and await out.send(client) == backend.command_complete("SELECT 0")


async def test_canceled_while_a_row_is_awaited(stream: Stream, client: Client) -> None:
    out = sending(stream)
    stream.put(1)
    assert await out.send(client, 100, part=True) == backend.PORTAL_SUSPENDED
    waiting = asyncio.ensure_future(out.send(client, 100, part=True))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await out.close()
    assert waiting.cancelled() and stream.closed


async def test_a_row_that_is_kept_is_made_once(client: Client) -> None:
    """For those who want text in UTF-8; for others it is made as they want it."""
    kept = KeptRow(["7"])
    for forms, codec in (((0,), "utf-8"), ((0,), "utf-8"), ((1,), "utf-8"), ((0,), "latin-1")):
        await Sending(Result("SELECT {rows}", COLUMNS, [kept]), forms, codec).send(client)
    text, binary = backend.data_row([b"7"]), backend.data_row([(7).to_bytes(8)])
    assert client.heard == text + text + binary + text
    assert kept.sent == text
    assert kept == ["7"]
