"""The client's own SET search_path and SET ROLE: the session's schema and role follow them.

Owns: noticing texts and prepared statements that may change either: PostgreSQL is asked what is in force then, once,
before the next text is sniffed. PostgreSQL 16 does not report them by itself. A change that goes unnoticed (made in a
function, say) only means that a text which names a stream may be taken for PostgreSQL's, or the other way round: before
each statement of ours PostgreSQL is asked in any case (``Inbound``).
``"$user"`` in it means the user's own schema, as in PostgreSQL, where it is by itself the role that a session works in.
Also whether a text may make a temporary table, whose name then hides others'.
Must not know: messages. Start reading at ``SearchPath.saw``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pgstream.names import quote, quote_always
from pgstream.server.flight import IDLE
from pgstream.sql import sniff

_HEAD = 300
"""Characters of a text that are looked at: it is SET or set_config, not a line deep in a script."""
_GAP = re.compile(r"(?:\s++|--[^\n]*+|/\*.*?\*/)++", re.S)
_CHANGES = ("search_path", "discard all", "reset all", "set schema", "set local schema", "set session schema",
            "set role", "set local role", "set session role", "reset role", "set_config", "update pg_settings",
            "update pg_catalog.pg_settings")  # fmt: skip
_HIDES = re.compile(r"(?:do|call)\b|(?:re)?set (?:local |session )?u&")
"""Texts whose begin does not say what they change."""
QUESTION = (
    "pg_catalog.json_build_array(pg_catalog.current_schema(), current_user, pg_catalog.current_setting('search_path'))"
)
_SCHEMA = re.compile(r'"(?:[^"]++|"")*+"|[^\s,"]+')
_USER = ('"$user"', "$user")


def may_make_temporary(text: str) -> bool:
    """Whether a text begins like one that makes a temporary table, in which PostgreSQL looks first."""
    at = sniff.start(text)
    return "temp" in text[at : at + _HEAD].lower()


def with_own_schema(path: str, user: str) -> str | None:
    """A search path with the user's schema behind its ``"$user"``; None: there is nothing to add."""
    schemas, own = _SCHEMA.findall(path), quote(user)
    at = next((n for n, schema in enumerate(schemas) if schema in _USER), None)
    if at is None or own in schemas or quote_always(user) in schemas:
        return None
    return ", ".join([*schemas[: at + 1], own, *schemas[at + 1 :]])


def change(path: str, *, local: bool) -> str:
    """The statement that sets it, in whatever encoding."""
    text = f"pg_catalog.convert_from(pg_catalog.decode('{path.encode().hex()}', 'hex'), 'UTF8')"
    return f"SELECT pg_catalog.set_config('search_path', {text}, {str(local).lower()})"


class SearchPath:
    """Of one session. ``known``: PostgreSQL has been asked; users and databases have settings of their own.
    ``stale``: PostgreSQL's may differ from the session's schema. ``touched``: the end of the transaction may undo a
    change. ``statements``: the client's prepared statements that change it when they run.
    """

    __slots__ = ("_executes", "known", "stale", "statements", "touched")

    def __init__(self, parameters: Mapping[str, str], *, own_schema: bool = False) -> None:
        given = not parameters.keys().isdisjoint(("search_path", "options", "role"))
        self.stale = self.touched = given or own_schema
        self.known = False
        self._executes = False  # an EXECUTE may change it
        self.statements: set[str] = set()

    def saw(self, text: str, *, whole: bool = True) -> bool:
        """A text goes to PostgreSQL; whether it may change the path. Not asked of what is settled at a glance.

        Not ``whole``: there is more of it than what can be seen, perhaps several statements.
        """
        at = sniff.start(text)
        low = _GAP.sub(" ", text[at : at + _HEAD]).replace('"', "").lower()
        changes = any(change in low for change in _CHANGES) or _HIDES.match(low)
        if changes and low.startswith("prepare"):
            self._executes = True
        if not whole or changes or (self._executes and low.startswith("execute")):
            self.stale = self.touched = True
            return True
        if self.touched and low.startswith("rollback"):
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
