"""Our statements in the extended query protocol: prepared statements and portals of one session.

Owns: the tables of our prepared statements and portals, and the answer to each message that names one.
Must not know: sockets, what is PostgreSQL's; ``session`` asks ``is_ours`` and keeps the order with relayed messages.
Start reading at ``Extended.answer``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgstream import traces
from pgstream.errors import (
    DuplicatePortal,
    InvalidBinary,
    InvalidEncoding,
    InvalidStatement,
    NotReady,
    PgStreamError,
    PlanChanged,
    TooMuchHeld,
    UndefinedPortal,
    UndefinedPrepared,
)
from pgstream.names import quote_always
from pgstream.server import ask, results, spans
from pgstream.server.language import parameter_count
from pgstream.statements.base import Column, Result, Statement
from pgstream.types import TEXT
from pgstream.wire import backend, frontend, values

if TYPE_CHECKING:
    from pgstream.server.backend import Backend
    from pgstream.server.session import ClientSession


MOST = 5000
"""Prepared statements, and portals, of ours in one session: they are kept in the process that all sessions share."""
LONG = 1 << 14
ROOM = 64 << 20
"""Bytes that those longer than ``LONG`` may take together."""
PARSED = 1 << 17
"""Characters of the texts that are kept as they were parsed, which takes 600 times as much; others are parsed again
when they are run."""


@dataclass(slots=True)
class Prepared:
    """A statement of ours that was parsed. ``columns`` is known once described; ``parsed`` may have been let go."""

    text: str
    kind: type[Statement]
    oids: tuple[int, ...]
    columns: tuple[Column, ...] | None = None
    parsed: Statement | None = None


@dataclass(slots=True)
class Portal:
    """A prepared statement with its values; ``sending`` begins at the first Execute."""

    prepared: Prepared
    parameters: Sequence[str | None]
    asked: tuple[int, ...]
    sending: results.Sending | None = field(default=None)


class Extended:
    """The tables of a session. The value None: the name was ours last and means nothing now, whatever PostgreSQL has
    under it. That is so for the unnamed statement and portal only, which need no Close to be replaced.

    PostgreSQL holds the name of each of our named statements (``ask.claim``). A cursor over a stream is a portal, too.
    """

    def __init__(self, client: ClientSession) -> None:
        self._client = client
        self.prepared: dict[str, Prepared | None] = {}
        self.portals: dict[str, Portal | None] = {}
        self._parsed: list[Prepared] = []  # also such as only a portal has
        self._parsed_size = 0
        self.goes_on = False  # what is executed has no Sync behind it: what follows is of the same transaction

    def is_ours(self, message: frontend.Message) -> bool:
        """Whether a message other than Parse names something in our tables. A name given to PostgreSQL leaves them."""
        if isinstance(message, frontend.Bind):
            return message.statement in self.prepared or (bool(message.portal) and self._holds(message.portal))
        if isinstance(message, frontend.Execute):
            return self._holds(message.portal)
        if isinstance(message, frontend.Describe | frontend.Close):
            return message.name in self.prepared if message.kind == "S" else self._holds(message.name)
        return False

    def _holds(self, portal: str) -> bool:
        return portal in self.portals or portal in self._client.context.cursors

    async def answer(self, message: frontend.Message, kind: type[Statement] | None) -> None:
        """Answer one message. Errors: PgStreamError; the caller reports it and skips to Sync."""
        if isinstance(message, frontend.Parse):
            assert kind is not None
            await self._parse(message, kind)
        elif isinstance(message, frontend.Bind):
            await self._bind(message)
        elif isinstance(message, frontend.Describe):
            await self._describe(message)
        elif isinstance(message, frontend.Execute):
            self.goes_on = not self._client.inbound.waiting.startswith(frontend.SYNC)
            try:
                with self._execute_span(message.portal):
                    await self._client.runner.cancelable(self._execute(message))
            finally:
                self.goes_on = False
        elif isinstance(message, frontend.Close):
            await self._close(message)

    def _execute_span(self, name: str) -> AbstractContextManager[object]:
        """A cursor's rows have none."""
        portal = self.portals.get(name)
        if portal is None:
            return traces.NOTHING
        return spans.statement(self._client, portal.prepared.text, portal.prepared.kind)

    def _describe_span(self, prepared: Prepared) -> AbstractContextManager[object]:
        """Where the columns must be found out; those of most statements are known."""
        kind = prepared.kind
        if kind.describe is Statement.describe:
            return traces.NOTHING
        return spans.statement(self._client, prepared.text, kind, "DESCRIBE")

    def keep(self, names: frozenset[str]) -> None:
        """Forget named statements whose name PostgreSQL does not hold any more."""
        for name in [n for n in self.prepared if n and n not in names]:
            del self.prepared[name]

    async def queried(self) -> None:
        """A Query of ours ends the unnamed statement and portal, also those that PostgreSQL has."""
        await self.close_portal("")
        self.prepared[""] = self.portals[""] = None

    def _prepared(self, name: str) -> Prepared:
        prepared = self.prepared[name]
        if prepared is None:
            raise UndefinedPrepared(what=f'prepared statement "{name}"' if name else "unnamed prepared statement")
        return prepared

    def _portal(self, name: str) -> Portal:
        cursor = self._client.context.cursors.get(name)
        portal = self.portals.get(name)  # it may have ended with its transaction since the message was sniffed
        if portal is None and cursor is not None:
            rows = Result("SELECT {rows}", cursor.columns, cursor.take(0, None))
            forms = (1,) if cursor.binary else ()
            sending = results.Sending(rows, results.formats(cursor.columns, forms), self._client.backend.codec)
            return Portal(Prepared("", Statement, (), cursor.columns), (), forms, sending)
        if portal is None:
            raise UndefinedPortal(name=name)
        return portal

    def _check_room(self, held: Mapping[str, Prepared | Portal | None], more: int) -> None:
        """Whether one more may be kept beside those that are. Errors: TooMuchHeld."""
        if len(held) >= MOST or (more > LONG and sum(_size(one) for one in held.values()) + more > ROOM):
            raise TooMuchHeld()

    async def _parse(self, message: frontend.Parse, kind: type[Statement]) -> None:
        if not message.name:
            self.prepared[""] = None
        else:
            self._check_room(self.prepared, len(message.text))
        self._client.runner.check()
        backend_ = self._client.backend
        try:
            text = message.text.decode(backend_.codec)
        except UnicodeDecodeError:
            raise InvalidEncoding(encoding=backend_.encoding) from None
        try:
            statement = self._client.runner.parse(text, kind)
        except PgStreamError:
            with spans.statement(self._client, text, kind):
                raise
        count = max(parameter_count(text), len(message.oids))
        given = message.oids + (0,) * (count - len(message.oids))
        told = statement.parameter_types(self._client.listener.snapshot, self._client.context) if 0 in given else {}
        oids = tuple(oid or told.get(n, TEXT.oid) for n, oid in enumerate(given, 1))
        if message.name:
            await ask.claim(backend_, message.name)
        self.prepared[message.name] = prepared = Prepared(text, type(statement), oids)
        self._keep_parsed(prepared, statement)
        self._client.write(backend.PARSE_COMPLETE)

    def _statement(self, prepared: Prepared) -> Statement:
        """As it was parsed, or is again."""
        if prepared.parsed is not None:
            return prepared.parsed
        statement = self._client.runner.parse(prepared.text, prepared.kind)
        self._keep_parsed(prepared, statement)
        return statement

    def _keep_parsed(self, prepared: Prepared, statement: Statement) -> None:
        """The last ones, as far as there is room: what is parsed takes the memory of the process of all sessions."""
        size = len(prepared.text) + 1
        if size > PARSED:
            return
        if self._parsed_size + size > PARSED:
            for one in self._parsed:
                one.parsed = None
            self._parsed.clear()
            self._parsed_size = 0
        prepared.parsed = statement
        self._parsed.append(prepared)
        self._parsed_size += size

    async def _bind(self, message: frontend.Bind) -> None:
        self._client.runner.check()
        if message.portal and self._holds(message.portal):
            raise DuplicatePortal(name=message.portal)
        prepared = self._prepared(message.statement)
        if len(message.values) != len(prepared.oids):
            raise InvalidStatement(
                what=f"bind message supplies {len(message.values)} parameters, "
                f'but prepared statement "{message.statement}" requires {len(prepared.oids)}'
            )
        await self.close_portal(message.portal)
        if message.portal:
            given = sum(len(v) for v in message.values if v is not None)
            self._check_room(self.portals, given + len(prepared.text))
        self._client.alert = True
        parameters = _decode_values(message, prepared.oids, self._client.backend)
        self.portals[message.portal] = Portal(prepared, parameters, message.result_formats)
        self._client.write(backend.BIND_COMPLETE)

    async def _columns(self, prepared: Prepared, parameters: Sequence[str | None]) -> tuple[Column, ...]:
        if prepared.kind.as_postgres:
            return ()
        if prepared.columns is None:
            statement = self._statement(prepared)
            describing = self._client.runner.describe(prepared.text, statement, parameters, prepared.oids)
            with self._describe_span(prepared):
                prepared.columns = await self._client.runner.cancelable(describing)
        return prepared.columns

    async def _describe(self, message: frontend.Describe) -> None:
        if message.kind == "S":
            prepared = self._prepared(message.name)
            columns = await self._columns(prepared, (None,) * len(prepared.oids))
            self._client.write(backend.parameter_description(prepared.oids))
            self._client.write(results.description(columns, (0,) * len(columns), self._client.backend.codec))
        else:
            portal = self._portal(message.name)
            columns = await self._columns(portal.prepared, portal.parameters)
            forms = results.formats(columns, portal.asked)
            self._client.write(results.description(columns, forms, self._client.backend.codec))

    async def _execute(self, message: frontend.Execute) -> None:
        portal, client = self._portal(message.portal), self._client
        client.runner.check()
        spans.parsed(portal.prepared.text)
        if portal.sending is None:
            prepared = portal.prepared
            statement = self._statement(prepared)
            client.runner.warn_transaction(prepared.text, statement)
            result = await client.runner.execute(prepared.text, statement, portal.parameters, prepared.oids)
            if statement.as_postgres:
                result = Result(result.tag)
            forms = results.formats(result.columns, portal.asked)
            portal.sending = results.Sending(result, forms, client.backend.codec)
            if prepared.columns and result.copy is None and not _same(prepared.columns, result.columns):
                prepared.columns = None
                await portal.sending.close()
                raise PlanChanged()
        elif portal.sending.ran:
            raise NotReady(what=f'portal "{message.portal}" cannot be run')
        try:
            # A portal with a name is read piece by piece, and so goes on after a short piece. The limit of the one
            # without is all that is asked for (JDBC's setMaxRows).
            part = bool(message.portal)
            client.write(await portal.sending.send(client, max(message.limit, 0), part=part))
        except BaseException:
            await portal.sending.close()  # its Sync may wait behind a client that does not read
            raise

    async def _close(self, message: frontend.Close) -> None:
        if message.kind == "S":
            if self.prepared.pop(message.name, None) is not None and message.name:
                await ask.release(self._client.backend, message.name)
            if not message.name:
                self.prepared[""] = None
        else:
            if (cursor := self._client.context.cursors.pop(message.name, None)) is not None:
                await cursor.close()
                await ask.ask(self._client.backend, f"CLOSE {quote_always(message.name)}")
            await self.close_portal(message.name)
            if not message.name:
                self.portals[""] = None
        self._client.write(backend.CLOSE_COMPLETE)

    async def close_portal(self, name: str) -> None:
        portal = self.portals.pop(name, None)
        if portal is not None and portal.sending is not None:
            await portal.sending.close()

    async def close_portals(self, portals: list[Portal]) -> None:
        """End the rows of portals that ``take_portals`` gave."""
        for portal in portals:
            if portal.sending is not None:
                await portal.sending.close()

    def take_portals(self) -> list[Portal]:
        """The transaction has ended, or the session: forget all portals now, before the next Bind makes new ones."""
        portals = [p for p in self.portals.values() if p is not None]
        self.portals.clear()
        return portals


def _same(described: Sequence[Column], found: Sequence[Column]) -> bool:
    """Whether rows are what the client was told of."""
    return [(c.name, c.type.oid) for c in described] == [(c.name, c.type.oid) for c in found]


def _size(one: Prepared | Portal | None) -> int:
    """What it takes, if that is much."""
    if isinstance(one, Prepared):
        held = len(one.text)
    else:
        values = (v for v in one.parameters if v is not None) if one is not None else ()
        held = sum(map(len, values)) + (len(one.prepared.text) if one is not None else 0)
    return held if held > LONG else 0


def _decode_values(message: frontend.Bind, oids: Sequence[int], client: Backend) -> list[str | None]:
    """Bound values in text form."""
    out: list[str | None] = []
    codec = client.codec
    for i, (value, oid) in enumerate(zip(message.values, oids, strict=True)):
        form = 0 if not message.formats else message.formats[0 if len(message.formats) == 1 else i]
        try:
            decode = values.decoder(oid, codec) if form else None
            text = None if value is None else decode(value) if decode else value.decode(codec)
        except UnicodeDecodeError:
            raise InvalidEncoding(encoding=client.encoding) from None
        except PgStreamError:
            raise
        except (ValueError, struct.error, IndexError, ArithmeticError) as e:
            raise InvalidBinary(number=i + 1, detail=str(e)) from None
        if text is not None and "\0" in text:
            raise InvalidEncoding(encoding=client.encoding)  # PostgreSQL has no text with such a character
        out.append(text)
    return out
