"""Schemas made or dropped in a client's transaction: settled when it has ended, or a savepoint of it.

Owns: when a session asks for that. Must not know: how a transaction's end is found out (``catalog.undecided``).
Start reading at ``settle``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgstream.errors import ReadOnlyTransaction
from pgstream.server.ask import ask
from pgstream.server.flight import BLOCK
from pgstream.statements import settle as settling

if TYPE_CHECKING:
    from pgstream.server.session import ClientSession


async def transaction(client: ClientSession, what: str) -> str | None:
    """The client's transaction or savepoint that a change stands or falls with; None: none is open.

    Errors: ReadOnlyTransaction.
    """
    piped = client.extended.goes_on
    if client.flight.status != BLOCK and not client.flight.open and not piped:
        return None
    if await ask(client.backend, settling.READ_ONLY, piped=piped) == "on":
        raise ReadOnlyTransaction(what=what)
    return await ask(client.backend, settling.TRANSACTION)


async def settle(client: ClientSession, *, gone: bool = False) -> None:
    """Drop those whose making was rolled back, or whose dropping was not. ``gone``: the client is, so a transaction
    that is open will be rolled back.
    """
    if client.context.undecided:
        statement = settling.SettleSchemas(gone)
        await client.runner.execute(statement.text, statement)
