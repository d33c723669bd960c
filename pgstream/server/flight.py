"""What PostgreSQL still owes to a client: requests relayed against answers seen.

Owns: the accounting that tells when the backend has caught up, so that our own answers stand in their place in the
stream, and the transaction status. Pure: fed with message types by ``session`` (sent) and ``backend`` (seen).
Must not know: sockets, the contents of messages. Start reading at ``Flight.caught_up``.
"""

from __future__ import annotations

import asyncio
from collections import deque

QUERY, SYNC, COPY_END, QUERY_COPY_END = b"QScf"
PLAIN = frozenset((QUERY, SYNC))
ENDS = frozenset((COPY_END, QUERY_COPY_END))
IDLE, BLOCK, FAILED = ord("I"), ord("T"), ord("E")
ANSWERS = frozenset(b"123CIsnT")
"""Backend messages that end the answer to one extended-protocol message."""


class Flight:
    """The account of one backend connection.

    ``pending``: Query and Sync messages sent, each owed a ReadyForQuery, and ends of COPY sent ahead of its start
    (QUERY_COPY_END: of the Query before it, if that is a COPY at all).
    ``open``: extended-protocol messages sent since the last of them; ``answered``: answers since the last
    ReadyForQuery; ``failed``: the backend skips to the next Sync; ``copying``: it wants COPY data;
    ``waiter``: done when caught up.
    """

    __slots__ = ("answered", "copying", "failed", "open", "pending", "status", "waiter")

    def __init__(self) -> None:
        self.pending: deque[int] = deque()
        self.open = self.answered = 0
        self.failed = self.copying = False
        self.status = IDLE
        self.waiter: asyncio.Future[None] | None = None

    # What the client's side was sent.

    def sent(self, kind: int) -> None:
        """A Query, FunctionCall (as QUERY) or Sync was relayed."""
        if kind == SYNC and self.copying:
            return  # PostgreSQL: Flush and Sync are ignored while COPY data is expected.
        self.pending.append(kind)
        self.open = 0

    def copy_ended(self) -> None:
        """CopyDone or CopyFail was relayed."""
        if self.copying:
            self.copying = False
        elif not self.open and self.pending and self.pending[-1] in (QUERY, QUERY_COPY_END):
            self.pending.append(QUERY_COPY_END)
        elif self.pending or self.open > self.answered:
            self.pending.append(COPY_END)

    # What the backend's side has seen.

    def ready(self, status: int) -> None:
        """A ReadyForQuery came."""
        pending = self.pending
        while pending and pending.popleft() == COPY_END:
            pass
        while pending and pending[0] == QUERY_COPY_END:
            pending.popleft()
        self.status = status
        self.answered = 0
        self.failed = self.copying = False

    def error(self) -> None:
        """An ErrorResponse came."""
        self.failed, self.copying = True, False

    @property
    def simple(self) -> bool:
        """What the backend answers now came as a Query."""
        return bool(self.pending) and self.pending[0] == QUERY

    def copy_in(self) -> None:
        """The backend asks for COPY data; Syncs sent before the end of that data are ignored by it."""
        pending = self.pending
        if self.simple:
            if len(pending) > 1 and pending[1] == QUERY_COPY_END:
                del pending[1]
            elif pending.count(QUERY) > 1:
                # A Query that was sent ahead where COPY data should be: it is taken for an error, and ends the COPY.
                del pending[pending.index(QUERY, 1)]
            else:
                self.copying = True
            return
        if COPY_END in pending:
            ignored = False
            while pending.popleft() != COPY_END:
                ignored = True
            if ignored and PLAIN.isdisjoint(pending):
                self.open += self.answered + 1  # what was sent before that Sync is of the same group, and so is its end
            return
        self.copying = True
        pending.clear()
        self.open = self.answered + 1

    def caught_up_with(self) -> None:
        """All was answered, and no COPY is left that an end sent ahead could be of."""
        if self.caught_up:
            self.pending.clear()

    # Questions.

    @property
    def is_plain(self) -> bool:
        """Nothing but ReadyForQuery is owed, to messages that were understood, and nobody waits for it."""
        return not (self.failed or self.copying or self.waiter is not None) and PLAIN.issuperset(self.pending)

    @property
    def caught_up(self) -> bool:
        """Everything relayed has been answered, or will never be (skipped to Sync)."""
        if self.copying or not ENDS.issuperset(self.pending):
            return False
        return self.failed or self.answered >= self.open

    def wait(self) -> asyncio.Future[None]:
        """A future that is done when ``caught_up`` or ``copying``; ``settle`` completes it."""
        waiter = self.waiter = asyncio.get_running_loop().create_future()
        self.settle()
        return waiter

    def settle(self) -> None:
        """Wake who waits, if the backend has caught up, or wants COPY data and so will not."""
        if self.waiter is not None and (self.copying or self.caught_up):
            if not self.waiter.done():
                self.waiter.set_result(None)
            self.waiter = None
