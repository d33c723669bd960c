"""A PostgreSQL store whose server floods, says nothing, or has a client compute for ever: every call ends, and soon."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from pgstream import cli
from pgstream.errors import PgStreamError, StoreUnreachable
from pgstream.stores.postgresql import admin as admins
from pgstream.stores.postgresql import bounded
from pgstream.stores.postgresql.admin import PostgresAdmin

READY = b"Z\0\0\0\x05T"
HELLO = b"R\0\0\0\x08\0\0\0\0" + b"K\0\0\0\x0c\0\0\0\1\0\0\0\2" + b"Z\0\0\0\x05I"


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def row(*values: bytes) -> bytes:
    return message(b"D", struct.pack("!h", len(values)) + b"".join(struct.pack("!i", len(v)) + v for v in values))


def head(*names: bytes) -> bytes:
    named = b"".join(n + b"\0" + struct.pack("!ihihih", 0, 0, 25, -1, -1, 0) for n in names)
    return message(b"T", struct.pack("!h", len(names)) + named)


@dataclass(slots=True)
class Hostile:
    """Does what ``manner`` says. ``sent``: bytes of floods."""

    manner: str = ""
    port: int = 0
    sent: int = 0
    logins: int = 0
    clients: list[asyncio.Task[Any]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told = asyncio.current_task()
        assert told is not None
        self.clients.append(told)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            try:
                await self._serve(reader, writer)
            finally:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.logins += 1
        size = struct.unpack("!i", await reader.readexactly(4))[0]
        await reader.readexactly(size - 4)
        if self.manner == "iterations":
            writer.write(message(b"R", struct.pack("!i", 10) + b"SCRAM-SHA-256\0\0"))
            _, first = await self._read(reader)
            told = b"r=" + first.partition(b"r=")[2] + b"x,s=" + base64.b64encode(bytes(16)) + b",i=10000000"
            writer.write(message(b"R", struct.pack("!i", 11) + told))
            await asyncio.Event().wait()
        if self.manner == "parameters first":
            writer.write(HELLO[:9])
            await self._flood(writer, self._parameters())
        writer.write(HELLO)
        while True:
            kind, text = await self._read(reader)
            if kind == b"X":
                return
            if kind in b"QS":
                await self._answer(text, writer, b"" if kind == b"Q" else b"1\0\0\0\x04" + b"2\0\0\0\x04")

    async def _read(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        kind = await reader.readexactly(1)
        size = struct.unpack("!i", await reader.readexactly(4))[0]
        return kind, await reader.readexactly(size - 4)

    async def _answer(self, text: bytes, writer: asyncio.StreamWriter, parsed: bytes) -> None:
        if any(word in text for word in (b"BEGIN", b"SET LOCAL", b"ROLLBACK", b"COMMIT")):
            if self.manner == "silent later" and b"SET" in text:
                await asyncio.Event().wait()
            writer.write(message(b"C", b"SET\0") + READY)
            return
        match self.manner:
            case "silent":
                await asyncio.Event().wait()
            case "rows":
                await self._flood(writer, iter(lambda: row(b"a" * 9000), b""), parsed + head(b"a"))
            case "long row":
                begin = b"D" + struct.pack("!ihi", 2_000_000_000, 1, 1_999_999_990)
                await self._flood(writer, iter(lambda: bytes(65536), b""), parsed + head(b"a") + begin)
            case "values":
                writer.write(parsed + head(b"a") + row(b"") * 2000 + message(b"C", b"SELECT 2000\0") + READY)
            case "notices":
                notice = message(b"N", b"SNOTICE\0C00000\0M" + b"x" * 9000 + b"\0\0")
                await self._flood(writer, iter(lambda: notice, b""))
            case "notifications":
                await self._flood(writer, iter(lambda: message(b"A", b"\0\0\0\1a\0\0") * 500, b""))
            case "parameters":
                await self._flood(writer, self._parameters())
            case "long error":
                told = b"SERROR\0C22000\0M" + b"x" * 500_000 + b"\0D" + b"y" * 400_000 + b"\0\0"
                writer.write(message(b"E", told) + READY)

    def _parameters(self) -> Iterator[bytes]:
        return (message(b"S", b"p%d\0" % n + b"x" * 9000 + b"\0") for n in range(1 << 30))

    async def _flood(self, writer: asyncio.StreamWriter, parts: Iterator[bytes], first: bytes = b"") -> None:
        writer.write(first)
        for part in parts:
            writer.write(part)
            await writer.drain()
            self.sent += len(part)


@pytest.fixture
async def hostile(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hostile]:
    monkeypatch.setattr(bounded, "LARGEST", 1 << 20)
    monkeypatch.setattr(admins, "MOST_VALUES", 1000)
    found = Hostile()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    for client in found.clients:
        client.cancel()
    await asyncio.gather(*found.clients)
    await asyncio.sleep(0)
    for thread in threading.enumerate():  # it hashes on, and must not while this process ends
        if thread.name == bounded.THREAD:
            await asyncio.to_thread(thread.join)


def opened(hostile: Hostile) -> PostgresAdmin:
    place = {"uris": f"postgresql://127.0.0.1:{hostile.port}/shop", "postgres.username": "u", "postgres.password": "p"}
    return PostgresAdmin("s", place | {"tls.disabled": "true"})


async def said(hostile: Hostile) -> PgStreamError:
    a = opened(hostile)
    with pytest.raises(PgStreamError) as e:
        await a.list_entities()
    await a.close()
    return e.value


@pytest.mark.parametrize("manner", ["rows", "long row", "notices", "notifications", "parameters", "parameters first"])
async def test_a_flood_is_left_soon(hostile: Hostile, manner: str) -> None:
    hostile.manner = manner
    e = await said(hostile)
    assert isinstance(e, StoreUnreachable) and "more than 1 MB" in e.text and "'uris'" in str(e.hint)
    assert hostile.sent < 64 << 20


async def test_many_values_are_not_taken_apart(hostile: Hostile) -> None:
    hostile.manner = "values"
    e = await said(hostile)
    assert isinstance(e, StoreUnreachable) and "more than 1000 values" in e.text


async def test_a_long_error_is_cut(hostile: Hostile) -> None:
    hostile.manner = "long error"
    e = await said(hostile)
    assert e.text.endswith("xxx…") and len(e.text) < 2000 and len(str(e.detail)) < 2000


@pytest.mark.parametrize("manner", ["silent", "silent later", "iterations"])
async def test_silence_ends(hostile: Hostile, manner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "PATIENCE_S", 0.5)
    hostile.manner = manner
    e = await said(hostile)
    assert isinstance(e, StoreUnreachable) and "in time" in e.text


async def test_a_whole_call_ends_however_many_things_it_asks(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "WHOLE_S", 0.5)
    hostile.manner = "silent"
    e = await said(hostile)
    assert isinstance(e, StoreUnreachable) and "in time" in e.text


async def test_reading_ends_where_a_page_does_not_come(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "PATIENCE_S", 0.5)
    hostile.manner = "silent"
    a = opened(hostile)
    with pytest.raises(StoreUnreachable, match="in time"):
        await anext(a.read("t", True))
    await a.close()


async def test_a_host_of_several_addresses_of_which_one_is_silent(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "ADDRESS_S", 0.3)
    hostile.manner = "values"
    with socket.create_server(("127.0.0.2", hostile.port)) as silent:
        resolved = socket.getaddrinfo

        def both(host: str, *more: Any, **named: Any) -> list[Any]:
            return [a for each in ("127.0.0.2", "127.0.0.1") for a in resolved(each, *more, **named)]

        monkeypatch.setattr(socket, "getaddrinfo", both)
        e = await said(hostile)
        assert "more than 1000 values" in e.text  # the other one was asked
        silent.settimeout(1)
        silent.accept()[0].close()


async def test_what_computes_for_ever_is_not_begun_again_and_again(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says how often SCRAM hashes: some 15 minutes of a processor at most, which nothing ends."""
    monkeypatch.setattr(bounded, "PATIENCE_S", 0.3)
    hostile.manner = "iterations"
    told = [(await said(hostile)).text for _ in range(4)]
    assert hostile.logins == 2
    assert all("in time" in text for text in told)


async def test_an_admin_goes_on_after_a_connection_was_given_up(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile.manner = "rows"
    a = opened(hostile)
    for _ in range(2):
        with pytest.raises(StoreUnreachable, match="more than 1 MB"):
            await a.list_entities()
    assert hostile.logins == 2
    await a.close()


def test_the_server_ends_while_a_thread_hashes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself a process would then crash in some of its exits, in OpenSSL's."""
    codes: list[int] = []
    monkeypatch.setattr(cli.os, "_exit", codes.append)
    cli._end()
    assert codes == []
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name=bounded.THREAD, daemon=True)
    thread.start()
    cli._end()
    over.set()
    thread.join()
    assert codes == [0]
