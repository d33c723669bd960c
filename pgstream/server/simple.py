"""A Query message that holds a statement of ours, alone or among PostgreSQL's.

Owns: the answer to it, up to its one ReadyForQuery. Each piece that is PostgreSQL's is sent as a Query of its own, so
such a text is not one implicit transaction.
Must not know: sockets, the extended protocol. Start reading at ``answer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgstream.errors import InvalidEncoding, PgStreamError
from pgstream.server import results
from pgstream.server.language import Piece
from pgstream.server.run import as_error
from pgstream.statements.base import Statement

if TYPE_CHECKING:
    from pgstream.server.session import ClientSession


async def answer(client: ClientSession, pieces: Sequence[Piece], raw: bytes) -> None:
    """Answer the statements of a Query, whose bytes are ``raw``, in turn; the first error ends it."""
    if not await client.catch_up():
        return
    await client.extended.queried()
    if not _is_text(raw):
        client.report(InvalidEncoding())
        await client.fail_transaction(extended=False)
        pieces = ()
    for piece in pieces:
        if piece.kind is None:
            error = await _relay(client, piece.text)
            if error:
                break
            continue
        try:
            await _run(client, piece, piece.kind)
        except Exception as e:  # the session's edge
            client.report(as_error(e), piece.at)
            await client.fail_transaction(extended=False)
            break
    await client.own_ready()


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


async def _relay(client: ClientSession, text: str) -> PgStreamError | None:
    with client.relaying_copy():
        return await client.backend.query(text, lambda kind, message: client.write(message))


async def _run(client: ClientSession, piece: Piece, kind: type[Statement]) -> None:
    runner = client.runner
    runner.check()
    statement = client.listener.language.parse(piece.text, kind)
    runner.warn_transaction(piece.text, statement)
    await runner.cancelable(_execute(client, piece.text, statement))


async def _execute(client: ClientSession, text: str, statement: Statement) -> None:
    result = await client.runner.execute(text, statement)
    forms = results.formats(result.columns, ())
    sending = results.Sending(result, result.columns, forms)
    try:
        if result.columns:
            client.write(results.description(result.columns, forms))
        client.write(await sending.send(client))
    finally:
        await sending.close()
