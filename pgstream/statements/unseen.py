"""Relations that the session's role does not see, in statements that PostgreSQL would answer if there were none.

A statement of words that PostgreSQL has too is ours because of the relation that it names. If its role sees no such
relation, the answer is PostgreSQL's about a missing one: not a word of ours, which would tell that there is something.
Owns: finding such names, and that answer. Must not know: whose a statement is otherwise (``shared``).
Start reading at ``answer``.
"""

from __future__ import annotations

import re
from typing import ClassVar, Self

from pgstream.catalog.records import RelationRecord, Snapshot
from pgstream.errors import RelayedError
from pgstream.names import QName, quote
from pgstream.sql.cursor import Cursor
from pgstream.sql.sniff import LITERAL
from pgstream.statements.base import Context, Result, Session, Statement

_PART = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+")'
_NAME = rf"{_PART}(?:\s*\.\s*{_PART}){{0,2}}"
_NAMED = re.compile(
    rf"\b(?:(?P<word>FROM|JOIN|COPY|INTO|ON|ONLY|EXISTS|TABLE|UPDATE|VIEW|INDEX)\s+(?:CONCURRENTLY\s+)?|(?:TUMBLE|HOP|CUMULATE|SESSION)\s*\(\s*)"
    rf"(?=(?P<name>{_NAME}))|,\s*(?=(?P<more>{_NAME}))",
    re.I,
)
_KINDS = {"TABLE": "table", "VIEW": "view", "MATERIALIZED": "materialized view", "INDEX": "index"}
"""What PostgreSQL calls what DROP does not find."""
_ANALYZED = frozenset(("DECLARE", "DELETE", "EXPLAIN", "INSERT", "MERGE", "SELECT", "TABLE", "WITH"))
_RUN = frozenset(("ALTER", "DROP", "GRANT", "LOCK", "REINDEX", "REVOKE", "TRUNCATE"))
_CROSS = "cross-database references are not implemented: "


class Unseen(Statement):
    """A statement about a relation that does not exist for its role.

    Answered as PostgreSQL answers one about a relation that does not exist.
    """

    words: ClassVar = ()
    free: ClassVar = "it does nothing"
    local: ClassVar = True
    code: ClassVar[str] = "42P01"
    text: ClassVar[str]
    at: ClassVar[int | None]
    early: ClassVar[bool]
    """Whether PostgreSQL looks for relations when it parses such a statement, and not when it runs it."""
    skips: ClassVar[bool]
    """DROP … IF EXISTS."""

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        if cls.early:
            raise cls._error()
        return cls()

    async def execute(self, ctx: Context) -> Result:
        if self.skips:
            ctx.notice(f"{self.text}, skipping")
            return Result(self.tag)
        raise self._error()

    @classmethod
    def _error(cls) -> RelayedError:
        return RelayedError(code=cls.code, text=cls.text, at=cls.at)


def answer(
    text: str, words: tuple[str, ...], found: type[Statement] | None, snapshot: Snapshot, session: Session
) -> type[Statement] | None:
    """What a text is that would be ``found`` for who sees what it names: ``found``, ``Unseen``, or PostgreSQL's."""
    code = LITERAL.sub(lambda m: " " * len(m[0]), text)
    places = (m for m in _NAMED.finditer(code) if found is not None or m["word"])
    named = [(m, r) for m in places if (r := _relation(m, snapshot, session)) is not None]
    seen = snapshot.seen_by(session.role).relations
    if not named or any((r.full.database, r.full.schema, r.full.name) in seen for _, r in named):
        return found
    first = next((m for m, _ in named if m["word"] or m["more"]), None)
    if first is None:
        return None  # TUMBLE(name, …) alone: no syntax of PostgreSQL's
    return _missing(first, words, session)


def _relation(m: re.Match[str], snapshot: Snapshot, session: Session) -> RelationRecord | None:
    return snapshot.relation(_name(m), session.database, session.schema)


def _name(m: re.Match[str]) -> QName:
    parts = re.findall(_PART, m["name"] or m["more"])
    return QName(tuple(p[1:-1].replace('""', '"') if p[0] == '"' else p.lower() for p in parts))


def _missing(m: re.Match[str], words: tuple[str, ...], session: Session) -> type[Unseen]:
    parts, at = _name(m).parts, m.end()
    drops = words[0] == "DROP"
    shown = parts[-1] if drops else ".".join(parts[-2:])
    on = words[0] == "CREATE" and bool({"INDEX", "POLICY"}.intersection(words))
    early = words[0] in _ANALYZED or (words[0] == "CREATE" and not on and words[1:2] != ("VIEW",))
    # PostgreSQL has no place for what it only looks for when a statement runs.
    late = on or words[0] in _RUN or (m["word"] or "").upper() == "COPY"
    kind = _KINDS.get(words[1], "relation") if drops and len(words) > 1 else "relation"
    given = {
        "text": f'{kind} "{shown}" does not exist', "at": None if late else at, "early": early,
        "skips": drops and "IF" in words, "tag": f"DROP {kind.upper()}",
    }  # fmt: skip
    if kind == "index":
        given["code"] = "42704"
    if len(parts) == 3 and parts[0] != session.database:
        given |= {"text": _CROSS + f'"{".".join(map(quote, parts))}"', "code": "0A000"}
    return type("Unseen", (Unseen,), given)
