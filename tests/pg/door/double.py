"""A small language and catalogue for the door: the front door alone, before a real PostgreSQL.

``Door`` runs a ``Listener`` with its embedded PostgreSQL in a thread. Its statements are made for tests:
``LIST DOORS`` (typed rows), ``COUNT TO n`` / ``COUNT FOREVER`` (rows as they come), ``CREATE DOOR``, ``ECHO $1 …`` (a ✓
without values), ``QUIET`` (no rows), ``NAP`` (asks PostgreSQL for something slow), ``BREAK`` (a bug),
``USE DATABASE x``, ``USE SCHEMA x``, ``WHERE AM I`` (the schema), and the real
``DECLARE c CURSOR FOR COUNT …``, ``FETCH``, ``MOVE``, ``CLOSE``, ``COPY (LIST DOORS) TO STDOUT``. With
``PGSTREAM_WORKERS=2`` in the environment they run at the other end of a link, as a listener process has them run.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import uvloop

from pgstream import types
from pgstream.catalog.privileges import Access, Grant, by_object
from pgstream.catalog.records import DatabaseRecord, Snapshot
from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from pgstream.errors import SyntaxFault
from pgstream.server import hba
from pgstream.server.admission import Admissions
from pgstream.server.hosted import Host
from pgstream.server.language import Language
from pgstream.server.listener import Listener
from pgstream.server.reach import Address
from pgstream.server.tls import open_tls
from pgstream.sql import sniff
from pgstream.sql.cursor import Cursor
from pgstream.statements import glance
from pgstream.statements.base import Column, Context, Result, Session, Statement
from pgstream.statements.copy import CopyStream
from pgstream.statements.cursors import CloseCursor, DeclareCursor, FetchCursor, reader
from tests.links import Ends

LIVE: set[str] = set()
"""Names of streaming results that are open."""


class Free(Statement):
    free = "the door asks for no privileges of its own"


@dataclass(frozen=True)
class ListDoors(Free):
    words = ("LIST", "DOORS")
    columns = (
        Column("name"),
        Column("number", types.BIGINT),
        Column("open", types.BOOLEAN),
        Column("price", types.parse("DECIMAL(10,2)")),
        Column("at", types.TIMESTAMP_LTZ),
        Column("tags", types.parse("ARRAY<VARCHAR>")),
        Column("shape", types.parse("STRUCT<a BIGINT>")),
    )

    async def execute(self, ctx: Context) -> Result:
        rows = [
            ["front", "1", "t", "12.50", "2024-01-02 03:04:05.678+00", '{a,"b c"}', '{"a": 1}'],
            ["back", "9223372036854775807", "f", None, None, None, None],
        ]
        return Result("LIST DOORS", self.columns, rows)


@dataclass(frozen=True)
class Count(Free):
    limit: int | None
    words = ("COUNT",)
    columns = (Column("n", types.INTEGER), Column("text"))

    async def execute(self, ctx: Context) -> Result:
        return Result("SELECT {rows}", self.columns, self.numbers(ctx.session.user))

    async def numbers(self, name: str) -> AsyncIterator[list[str | None]]:
        LIVE.add(name)
        try:
            n = 0
            while self.limit is None or n < self.limit:
                n += 1
                yield [str(n), "x" * 20]
                if self.limit is None:
                    await asyncio.sleep(0.001)
        finally:
            LIVE.discard(name)


@dataclass(frozen=True)
class Create(Free):
    words = ("CREATE", "DOOR")

    async def execute(self, ctx: Context) -> Result:
        ctx.notice("a door was made")
        return Result("CREATE DOOR")


@dataclass(frozen=True)
class Echo(Free):
    words = ("ECHO",)
    columns = (Column("value"),)

    async def execute(self, ctx: Context) -> Result:
        return Result("ECHO {rows}", self.columns, [[p] for p in ctx.parameters or ("✓",)])


@dataclass(frozen=True)
class Break(Free):
    words = ("BREAK",)

    async def execute(self, ctx: Context) -> Result:
        raise RuntimeError("a secret detail")


@dataclass(frozen=True)
class Use(Free):
    kind: str
    name: str
    words = ("USE",)

    async def execute(self, ctx: Context) -> Result:
        await (ctx.use_database if self.kind == "DATABASE" else ctx.use_schema)(self.name)
        return Result("USE")


@dataclass(frozen=True)
class Where(Free):
    words = ("WHERE",)
    columns = (Column("schema"),)

    async def execute(self, ctx: Context) -> Result:
        return Result("WHERE", self.columns, [[ctx.session.schema]])


@dataclass(frozen=True)
class Quiet(Free):
    words = ("QUIET",)

    async def execute(self, ctx: Context) -> Result:
        return Result("QUIET")


@dataclass(frozen=True)
class Nap(Free):
    words = ("NAP",)

    async def execute(self, ctx: Context) -> Result:
        LIVE.add("napping")
        try:
            await ctx.postgres("SELECT pg_sleep(0.3)")
        finally:
            LIVE.discard("napping")
        return Result("NAP")


KINDS: dict[str, type[Statement]] = {
    "LIST": ListDoors,
    "COUNT": Count,
    "ECHO": Echo,
    "NAP": Nap,
    "BREAK": Break,
    "QUIET": Quiet,
    "USE": Use,
    "WHERE": Where,
}


def part(c: Cursor) -> Statement:
    """A statement of the double inside another one."""
    word = c.take_word()[0]
    if word == "COUNT":
        limit = c.integer() if c.accept("TO") else None
        if limit is None:
            c.expect("FOREVER")
        return Count(limit)
    c.expect("DOORS")
    return ListDoors()


class DeclareCount(DeclareCursor):
    """DECLARE … FOR COUNT …"""

    @classmethod
    def parse(cls, c: Cursor) -> DeclareCount:
        return cls.around(c, part)


class CopyDoors(CopyStream):
    """COPY (LIST DOORS) …"""

    @classmethod
    def parse(cls, c: Cursor) -> CopyDoors:
        return cls.around(c, part)


def recognize(text: str, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    head = sniff.head(text)
    if head[:1] in (("FETCH",), ("MOVE",), ("CLOSE",)):
        return reader(text, head, session) if session.cursors else None
    if head[:1] == ("DECLARE",):
        return DeclareCount if "COUNT" in text else None
    if head[:1] == ("COPY",):
        return CopyDoors if "DOORS" in text or "COUNT" in text else None
    if head[:2] == ("CREATE", "DOOR"):
        return Create
    return KINDS.get(head[0]) if head else None


def parse(text: str, kind: type[Statement]) -> Statement:
    if (bad := text.find("!")) >= 0:
        raise SyntaxFault(near="!", at=bad)
    if issubclass(kind, DeclareCursor | FetchCursor | CloseCursor | CopyStream):
        return kind.parse(Cursor(text))
    if kind is Count:
        n = re.search(r"TO (\d+)", text)
        return Count(int(n[1]) if n else None)
    if kind is Use:
        words = text.rstrip("; ").split()
        if len(words) != 3:
            raise SyntaxFault(near="USE", at=0)
        return Use(words[1].upper(), words[2])
    return kind()


DATABASES = ("main", "other", "nowhere")


class Themselves(Access):
    """Whoever comes works in a role that is themselves: in PostgreSQL's eyes they are who they are without the door."""

    def roles_of(self, user: str) -> tuple[str, ...]:
        return (user,)


class Databases:
    """The door's view of the catalogue: the databases there are."""

    mock_secret = b"mock"
    snapshot = Snapshot(
        databases={n: DatabaseRecord(n, "alice") for n in DATABASES},
        access=Themselves((), by_object(Grant("public", "usage", "database", n) for n in DATABASES)),
    )

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        if snapshot is not None:
            self.snapshot = snapshot


class Door:
    """A running door; ``url`` goes through it, ``direct`` to its PostgreSQL, both as the same user."""

    USER, PASSWORD = "alice", "pass wörd"

    def __init__(self, config: Config, language: Language | None = None, snapshot: Snapshot | None = None) -> None:
        self.config = config
        self._language = language or Language(recognize, sniff.split, parse, sniff.head, glance.is_postgres)
        self._snapshot = snapshot
        self._ends: list[Ends] = []
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        self._ready.wait(60)
        if self._error is not None:
            raise self._error

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._open()
        except BaseException as e:
            self._error = e
            self._ready.set()
            return
        self._ready.set()
        await self._stop.wait()
        await self._close()

    async def _open(self) -> None:
        self.postgres = await open_postgres(self.config, without_password=hba.load(self.config).without_password)
        await self._make_user()
        self.listener = await self._listener(self.config)
        _, self.port = await self.listener.open()

    async def _close(self) -> None:
        await self.listener.close()
        for ends in self._ends:
            ends.close()
        await self.postgres.stop()

    async def _listener(self, config: Config) -> Listener:
        listener = Listener(config, tls=open_tls(config, config.data_dir))
        catalog = Databases(self._snapshot)
        if int(os.environ.get("PGSTREAM_WORKERS", "1")) > 1:
            ends = Ends(Host(config, catalog, None, self._language))
            await ends.open()
            self._ends.append(ends)
            listener.executor = ends.remote
        listener.begin(
            catalog=catalog,  # type: ignore[arg-type]
            engine=None,  # type: ignore[arg-type]
            address=Address(self.postgres.host, self.postgres.port),
            admissions=Admissions(self.postgres.url("postgres")),
            language=self._language,
        )
        return listener

    async def _make_user(self) -> None:
        async with await psycopg.AsyncConnection.connect(self.postgres.url("postgres"), autocommit=True) as conn:
            await conn.execute(f"CREATE ROLE {self.USER} LOGIN CREATEDB PASSWORD '{self.PASSWORD}'")
            for database in ("main", "other", "pgstream_control"):
                await conn.execute(f"CREATE DATABASE {database} OWNER {self.USER}")

    def second(self, **settings: object) -> tuple[Listener, int]:
        """Another listener before the same PostgreSQL, with other settings."""

        async def start() -> tuple[Listener, int]:
            listener = await self._listener(replace(self.config, **settings))
            return listener, (await listener.open())[1]

        return asyncio.run_coroutine_threadsafe(start(), self.loop).result(30)

    def run(self, work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        return f"host=127.0.0.1 port={self.port} dbname=main user={self.USER} password='{self.PASSWORD}'"

    @property
    def direct(self) -> str:
        return f"host=127.0.0.1 port={self.postgres.port} dbname=main user={self.USER} password='{self.PASSWORD}'"

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)


def start(
    data_dir: Path, language: Language | None = None, snapshot: Snapshot | None = None, **settings: object
) -> Door:
    config = Config(data_dir=data_dir, listen="127.0.0.1:0", shutdown_grace_s=1, **settings)  # type: ignore[arg-type]
    return Door(config, language, snapshot)
