"""A Query message that holds a statement of ours, alone or among PostgreSQL's.

Owns: the answer to it, up to its one ReadyForQuery. Each piece that is PostgreSQL's is sent as a Query of its own.
Must not know: sockets, the extended protocol, what makes such a text one transaction (``implicit``).
Start reading at ``answer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pgstream import traces
from pgstream.errors import InvalidEncoding, PgStreamError
from pgstream.server import ask, results, spans
from pgstream.server.backend import COPY_IN
from pgstream.server.implicit import Implicit
from pgstream.server.language import Piece
from pgstream.server.run import READS, as_error
from pgstream.statements.base import Statement
from pgstream.wire import backend as messages
from pgstream.wire.encodings import CODECS

if TYPE_CHECKING:
    from pgstream.server.session import ClientSession

_TELLS = b"EN"


async def answer(client: ClientSession, pieces: Sequence[Piece], raw: bytes) -> None:
    """Answer the statements of a Query, whose bytes are ``raw``, in turn; the first error ends it."""
    await client.drained()
    if not await client.catch_up():
        client.eat(messages.message(b"Q", raw + b"\0"))
        return
    await client.extended.queried()
    client.backend.hold()
    error: PgStreamError | None = None
    implicit = Implicit(client, several=len(pieces) > 1)
    if not _is_text(client, raw):
        client.report(InvalidEncoding(encoding=client.backend.encoding))
        await client.fail_transaction(extended=False)
        pieces = ()
    for number, piece in enumerate(pieces):
        error = await _answer_piece(client, implicit, piece, again=number > 0)
        if error is not None:
            break
    if client.flight.failed:  # what we asked, among messages without Sync: PostgreSQL skips to one
        await ask.sync(client.backend)
    await implicit.end(failed=error is not None)
    await client.own_ready()


def _is_text(client: ClientSession, raw: bytes) -> bool:
    if client.backend.encoding not in CODECS:
        return True  # refused by its name
    try:
        raw.decode(client.backend.codec)
    except UnicodeDecodeError:
        return False
    return True


async def _answer_piece(
    client: ClientSession, implicit: Implicit, piece: Piece, *, again: bool
) -> PgStreamError | None:
    """Answer one statement; gives its error, which the client has been told."""
    words = client.listener.language.head(piece.text)
    try:
        if again:  # what ran before it may have made it ours, or PostgreSQL's, and changed role and search path
            piece = replace(piece, kind=await client.inbound.recognize_now(piece.text))
        if piece.kind is None:
            await implicit.before(words)
            return await _relay(client, implicit, piece)
        if words[:1] == ("DECLARE",):
            await implicit.before(words)
        elif words and words[0] not in READS:
            await implicit.settle()
        await _run(client, piece, piece.kind)
    except Exception as e:  # the session's edge
        error = as_error(e)
        client.report(error, piece.at)
        await client.fail_transaction(extended=False)
        return error
    return None


async def _relay(client: ClientSession, implicit: Implicit, piece: Piece) -> PgStreamError | None:
    def each(kind: int, message: bytes) -> None:
        # PostgreSQL saw the piece alone, the client counts in its whole text.
        client.write(messages.moved(message, piece.at) if kind in _TELLS and piece.at else message)
        if kind == COPY_IN:
            client.copy_wanted()

    client.asked = -1
    return await implicit.run(piece.text, each)


async def _run(client: ClientSession, piece: Piece, kind: type[Statement]) -> None:
    runner = client.runner
    with spans.statement(client, piece.text, kind):
        runner.check()
        with traces.span("parse"):
            statement = runner.parse(piece.text, kind)
        spans.parsed(piece.text)
        runner.warn_transaction(piece.text, statement)
        await runner.cancelable(_execute(client, piece.text, statement))


async def _execute(client: ClientSession, text: str, statement: Statement) -> None:
    result = await client.runner.execute(text, statement)
    forms = results.formats(result.columns, (1,) if result.binary else ())
    codec = client.backend.codec
    sending = results.Sending(result, forms, codec)
    try:
        if result.columns and result.copy is None:
            client.write(results.description(result.columns, forms, codec))
        client.write(await sending.send(client))
    finally:
        await sending.close()
