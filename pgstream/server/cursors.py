"""The cursors over streams that a session holds, kept in step with PostgreSQL's twins of them.

What else a transaction's end decides (``undecided``) is noticed here too.

Owns: noticing that a transaction has ended, or that a text may have closed cursors or statements, and asking PostgreSQL
then which are left. What is left is the same there and here.
Must not know: how a cursor is declared or read (``statements.cursors``). Start reading at ``Cursors.saw``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgstream.server.ask import ask_json
from pgstream.server.flight import IDLE
from pgstream.sql import sniff

if TYPE_CHECKING:
    from pgstream.server.session import ClientSession
    from pgstream.statements.cursors import OpenCursor

_CLOSE = frozenset(("CLOSE", "ROLLBACK", "ABORT", "COMMIT", "END", "DISCARD", "DEALLOCATE", "RELEASE", "DO", "CALL",
                    "EXECUTE"))  # fmt: skip
# Qualified, as all that we ask in a client's connection: another client may have made a function of the same name that
# fits better, in a schema of this one's search path. Of prepared statements those that hold a name for ours are empty:
# PostgreSQL may have another one under it by now.
_LEFT = (
    "pg_catalog.json_build_array((SELECT pg_catalog.json_agg(name) FROM pg_catalog.pg_cursors), "
    "(SELECT pg_catalog.json_agg(name) FROM pg_catalog.pg_prepared_statements "
    "WHERE statement OPERATOR(pg_catalog.=) ''))"
)


class Cursors:
    """Of one session. ``doubtful``: PostgreSQL may have closed some of them."""

    __slots__ = ("_client", "doubtful")

    def __init__(self, client: ClientSession) -> None:
        self._client = client
        self.doubtful = False

    @property
    def open(self) -> dict[str, OpenCursor]:
        return self._client.context.cursors

    def saw(self, text: str, *, whole: bool = True) -> None:
        """A text goes to PostgreSQL while there are cursors, or prepared statements, of ours."""
        if not whole or not _CLOSE.isdisjoint(sniff.head(text)[:1]):
            self.doubtful = True

    def ready(self, status: int) -> None:
        """PostgreSQL is ready: outside a transaction only cursors WITH HOLD are left, if their own has committed."""
        if status == IDLE and self.open:
            ended = [self.open.pop(name) for name in [n for n, c in self.open.items() if not c.hold]]
            for cursor in ended:
                self._client.spawn(cursor.close())
            self.doubtful = self.doubtful or bool(self.open)
        if status == IDLE and self._client.context.undecided:
            self.doubtful = True

    async def settle(self) -> None:
        """Close what PostgreSQL has closed. Only while it has caught up."""
        self.doubtful = False
        cursors, statements = await ask_json(self._client.backend, _LEFT)
        for name in set(self.open) - set(cursors or ()):
            await self.open.pop(name).close()
        self._client.extended.keep(frozenset(statements or ()))

    async def close_all(self) -> None:
        """The session ends, or moves to another database."""
        while self.open:
            _, cursor = self.open.popitem()
            await cursor.close()
