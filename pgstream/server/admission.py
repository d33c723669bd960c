"""Whom PostgreSQL would let in: one question to it at each start-up, before the client's password is checked.

Owns: the connection that asks, as the superuser; its return after a break.
Must not know: the client, how a password is checked. Start reading at ``Admissions.ask``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import psycopg

from pgstream.catalog.postgres import ADMISSION, WORKER, relayed
from pgstream.server.connect import unreachable

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

    async def _row(self, given: dict[str, str]) -> _Row | None:
        connection = self._connection
        if connection is None or connection.closed:
            connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=10)
            self._connection = connection
        try:
            return await (await connection.execute(ADMISSION, given, prepare=True)).fetchone()
        except BaseException:
            # Also when cancelled in the middle: what it would answer next is not ours.
            self._connection = None
            await connection.close()
            raise

    async def close(self) -> None:
        async with self._turn:
            if self._connection is not None:
                await self._connection.close()
