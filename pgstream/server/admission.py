"""Whom PostgreSQL would let in: one question to it at each start-up, before the client's password is checked.

Owns: the connection that asks, as the superuser; its return after a break; noting there that a token was used.
Must not know: the client, how a password is checked. Start reading at ``Admissions.ask``.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import psycopg
import structlog

from pgstream.catalog.postgres import ADMISSION, USED, WORKER, relayed
from pgstream.server.connect import unreachable

NOTED_EVERY_S = 60
log = structlog.get_logger(__name__)
_Row = tuple[str | None, bool, bool | None, str]


@dataclass(frozen=True, slots=True)
class Admission:
    """``may``: whether the user may come in; ``verifier``: None also when there is no password. ``sure`` and ``mark``
    are explained at ADMISSION."""

    verifier: str | None = field(default=None, repr=False)
    may: bool = False
    sure: bool = False
    mark: str = ""


class Admissions:
    """Asks over one connection, which is opened when it is first needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._turn = asyncio.Lock()
        self._connection: psycopg.AsyncConnection[_Row] | None = None
        self._noted: dict[str, float] = {}

    async def ask(self, user: str, database: str) -> Admission:
        """Errors: RelayedError when PostgreSQL cannot be asked."""
        if "\0" in user + database:
            return Admission()
        given = {"user": user, "database": database, "worker": WORKER}
        async with self._turn:
            try:
                row = await self._row(given)
            except psycopg.OperationalError:
                try:
                    row = await self._row(given)  # the connection had been cut since the last question
                except psycopg.OperationalError as e:
                    raise unreachable(e) from None
            except psycopg.Error as e:
                raise relayed(e) from None
        return Admission(row[0], row[1], row[2] is True, row[3]) if row else Admission()

    async def note(self, token: str) -> None:
        """Keep when a token was used; to the minute, so that a busy one costs no more than others."""
        now = time.monotonic()
        if now - self._noted.get(token, -NOTED_EVERY_S) < NOTED_EVERY_S:
            return
        self._noted[token] = now
        async with self._turn:
            try:
                await self._execute(USED, {"login": token})
            except psycopg.Error as e:
                log.warning("use of a token not noted", error=str(e).strip())

    async def _row(self, given: dict[str, str]) -> _Row | None:
        return await (await self._execute(ADMISSION, given)).fetchone()

    async def _execute(self, sql: str, given: dict[str, str]) -> psycopg.AsyncCursor[_Row]:
        connection = self._connection
        if connection is None or connection.closed:
            connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=10)
            self._connection = connection
        try:
            return await connection.execute(sql, given, prepare=True)
        except BaseException:
            # Also when cancelled in the middle: what it would answer next is not ours.
            self._connection = None
            await connection.close()
            raise

    async def close(self) -> None:
        async with self._turn:
            if self._connection is not None:
                await self._connection.close()
