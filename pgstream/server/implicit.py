"""The implicit transaction of a Query of several statements: PostgreSQL's rules, where some of them are ours.

PostgreSQL runs such a text as one transaction unless it holds BEGIN or COMMIT. Its pieces go to it one by one, so the
block is opened here. A statement of ours that takes effect at once ends it first, as COMMIT would: what stands before
it in the text is kept, and seen by it.

Owns: that block, and what BEGIN, COMMIT and SAVEPOINT mean in it.
Must not know: statements of ours. Start reading at ``Implicit.before``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgstream.errors import Canceled, NoTransactionBlock, PgStreamError
from pgstream.server.ask import ask, query
from pgstream.server.backend import Taker
from pgstream.server.flight import FAILED, IDLE
from pgstream.wire import backend as messages

if TYPE_CHECKING:
    from pgstream.server.session import ClientSession

_BEGIN = ("BEGIN", "START")
_END = ("COMMIT", "END", "ROLLBACK", "ABORT")
_SAVEPOINT = ("SAVEPOINT", "RELEASE")
_NOT_READ = b"C42601\0"
_IN_PROGRESS = b"C25001\0"
_COMPLETE, _ERROR = ord("C"), ord("E")
_TRIES = 3


class Implicit:
    """Of one Query. ``several``: it holds more than one statement."""

    def __init__(self, client: ClientSession, *, several: bool) -> None:
        self._client = client
        self._several = several
        self._open = False  # a block that the client did not begin
        self._hands_over = False  # which is the client's, or over, once the next statement has been done
        self._quiet = False  # PostgreSQL warns that the block which the client begins is there

    async def before(self, words: Sequence[str]) -> None:
        """A statement that PostgreSQL runs, or joins, is next. Errors: NoTransactionBlock."""
        self._quiet = self._hands_over = False
        first = words[0] if words else ""
        ends = first in _END and words[1:2] != ("PREPARED",)
        is_new = not self._open and self._several and self._client.flight.status == IDLE and first != ""
        if is_new and not ends and first not in (*_BEGIN, *_SAVEPOINT):
            await ask(self._client.backend, "BEGIN")
            self._open = True
            return
        if first in _SAVEPOINT and (self._open or is_new):
            raise NoTransactionBlock(what="RELEASE SAVEPOINT" if first == "RELEASE" else first)
        if not self._open:
            return
        if first in _BEGIN:
            self._hands_over = self._quiet = True
        elif first == "ROLLBACK" and "TO" in words[1:3]:
            raise NoTransactionBlock(what="ROLLBACK TO SAVEPOINT")
        elif ends and _chains(words):
            raise NoTransactionBlock(what=f"{'COMMIT' if first in ('COMMIT', 'END') else 'ROLLBACK'} AND CHAIN")
        elif ends:
            self._hands_over = True

    async def run(self, text: str, each: Taker) -> PgStreamError | None:
        """Have PostgreSQL run a piece; gives its error."""
        client = self._client

        def told(kind: int, message: bytes) -> None:
            if self._hands_over and kind in (_COMPLETE, _ERROR):
                self._open = kind == _ERROR
                if not self._quiet and _NOT_READ not in message:
                    what, warning = "there is no transaction in progress", "WARNING"
                    client.write(messages.notice(what, severity=warning, code="25P01"))
            each(kind, message)

        client.backend.mute = (lambda message: _IN_PROGRESS in message) if self._quiet else None
        try:
            return await query(client.backend, text, told)
        finally:
            client.backend.mute = None

    async def settle(self) -> None:
        """Commit what the text did so far. Errors: those of PostgreSQL's deferred checks."""
        if self._open:
            self._open = False
            self._client.asked = -1
            await ask(self._client.backend, "COMMIT")

    async def end(self, *, failed: bool) -> None:
        """The text has ended, or an error ended it."""
        if not self._open or self._client.flight.status == IDLE:  # a COMMIT that failed has ended it
            return
        self._open = False
        if failed or self._client.flight.status == FAILED:
            await self._roll_back()
            return
        try:
            await ask(self._client.backend, "COMMIT")
        except PgStreamError as e:
            self._client.report(e)

    async def _roll_back(self) -> None:
        """The client has been told an error already: a cancel request or a time limit that meets this is over."""
        for _ in range(_TRIES - 1):
            try:
                await ask(self._client.backend, "ROLLBACK")
                return
            except PgStreamError as e:
                if e.sqlstate != Canceled.sqlstate:
                    raise
        await ask(self._client.backend, "ROLLBACK")


def _chains(words: Sequence[str]) -> bool:
    """COMMIT [WORK | TRANSACTION] AND CHAIN."""
    rest = [word for word in words[1:] if word not in ("WORK", "TRANSACTION")]
    return rest[:2] == ["AND", "CHAIN"]
