"""The client's own SET search_path: the session's schema follows it.

Owns: noticing texts and prepared statements that may change the search path, and asking PostgreSQL for the schema in
force then, once, before the next statement is sniffed or run. PostgreSQL 16 does not report the search path by itself.
Must not know: messages. Start reading at ``SearchPath.saw``.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgstream.server.flight import IDLE

_HEAD = 300
"""Characters of a text that are looked at: it is SET or set_config, not a line deep in a script."""
_CHANGES = ("search_path", "discard all", "reset all", "set schema", "set local schema", "set session schema")
QUESTION = "SELECT pg_catalog.current_schema()"


class SearchPath:
    """Of one session. ``stale``: PostgreSQL's may differ from the session's schema. ``touched``: the end of the
    transaction may undo a change. ``statements``: the client's prepared statements that change it when they run.
    """

    __slots__ = ("stale", "statements", "touched")

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.stale = self.touched = "search_path" in parameters or "options" in parameters
        self.statements: set[str] = set()

    def saw(self, text: str) -> bool:
        """A text goes to PostgreSQL; whether it may change the path. Not asked of what is settled at a glance."""
        low = text[:_HEAD].lower()
        if any(change in low for change in _CHANGES):
            self.stale = self.touched = True
            return True
        if self.touched and low.lstrip().startswith("rollback"):
            self.stale = True  # to a savepoint
        return False

    def parsed(self, name: str, changes: bool) -> None:
        """PostgreSQL got a prepared statement of this name."""
        (self.statements.add if changes else self.statements.discard)(name)

    def bound(self, name: str) -> None:
        """PostgreSQL's prepared statement of this name will run."""
        if name in self.statements:
            self.stale = self.touched = True

    def ready(self, status: int) -> None:
        """PostgreSQL is ready: at the end of a transaction, what was set in it may be undone."""
        if self.touched and status == IDLE:
            self.stale, self.touched = True, False
