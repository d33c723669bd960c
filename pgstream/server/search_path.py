"""The client's own SET search_path: the session's schema follows it.

Owns: noticing relayed texts that may change the search path, and asking PostgreSQL for the schema in force then, once,
before the next text is sniffed. PostgreSQL 16 does not report the search path by itself.
Must not know: messages. Start reading at ``SearchPath.saw``.
"""

from __future__ import annotations

from collections.abc import Mapping

_HEAD = 300
"""Characters of a text that are looked at: it is SET or set_config, not a line deep in a script."""
_CHANGES = ("search_path", "discard all", "reset all", "set schema", "set local schema", "set session schema")
_ENDS = ("rollback", "abort", "commit", "end")
QUESTION = "SELECT current_schema()"


class SearchPath:
    """Of one session. ``stale``: PostgreSQL's may differ from the session's schema."""

    __slots__ = ("_touched", "stale")

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.stale = self._touched = "search_path" in parameters or "options" in parameters

    def saw(self, text: str) -> None:
        """A text goes to PostgreSQL. Runs for every one: two scans of a short string."""
        low = text[:_HEAD].lower()
        if any(change in low for change in _CHANGES):
            self.stale = self._touched = True
        elif self._touched and low.lstrip().startswith(_ENDS):
            self.stale = True  # what was set in the block may be undone
