"""Relations that the session's role does not see, in statements that PostgreSQL would answer if there were none.

A statement of words that PostgreSQL has too is ours because of the relation that it names. If its role sees no such
relation, the answer is PostgreSQL's about a missing one: not a word of ours, which would tell that there is something.
Owns: finding such names, and that answer. Must not know: whose a statement is otherwise (``shared``).
Start reading at ``answer``.
"""

from __future__ import annotations

import re
import uuid
from typing import ClassVar, Self

from pgstream.catalog.records import RelationRecord, Snapshot
from pgstream.errors import RelayedError
from pgstream.names import QName, quote, quote_anywhere
from pgstream.sql.cursor import Cursor
from pgstream.sql.sniff import blanked
from pgstream.statements.base import Context, Result, Session, Statement

_PART = r'(?:[^\W\d][\w$]*|"(?:[^"]++|"")++")'
_NAME = rf"{_PART}(?:\s*\.\s*{_PART}){{0,2}}"
_NAMED = re.compile(
    rf"\b(?:(?P<word>FROM|JOIN|COPY|INTO|ON|ONLY|EXISTS|TABLE|UPDATE|VIEW|INDEX|COLUMN|TRUNCATE)\s+(?:CONCURRENTLY\s+)?|(?:TUMBLE|HOP|CUMULATE|SESSION)\s*\(\s*)"
    rf"(?=(?P<name>{_NAME}(?:\s*\.\s*{_PART})?))|,\s*(?=(?P<more>{_NAME}))",
    re.I,
)


def dropping(name: str) -> re.Pattern[str]:
    """DROP of relations; the group is the list of them. ``name``: what a name looks like."""
    heads = r"\s*DROP\s+(?:TABLE|VIEW|MATERIALIZED\s+VIEW|INDEX)\s+(?:CONCURRENTLY\s+)?(?:IF\s+EXISTS\s+)?"
    return re.compile(rf"{heads}({name}(?:\s*,\s*{name})*)", re.I)


def making(name: str) -> re.Pattern[str]:
    """CREATE of a relation; the group is what it is to be called, which need not be there."""
    return re.compile(
        rf"\s*CREATE\s+(?:[a-z]+\s+){{0,4}}?(?:TABLE|VIEW|INDEX)\s+(?:CONCURRENTLY\s+)?(?:IF\s+NOT\s+EXISTS\s+)?({name})",
        re.I,
    )


_DROPPED, _MADE = dropping(_NAME), making(_NAME)
_LAST = re.compile(rf"{_PART}\Z")
_THERE = "SELECT pg_catalog.to_regclass({})"
_KINDS = {"TABLE": "table", "VIEW": "view", "MATERIALIZED": "materialized view", "INDEX": "index"}
"""What PostgreSQL calls what DROP does not find."""
_ANALYZED = frozenset(("DECLARE", "DELETE", "EXPLAIN", "INSERT", "MERGE", "SELECT", "TABLE", "UPDATE", "WITH"))
_RUN = frozenset(("ALTER", "COMMENT", "DROP", "GRANT", "LOCK", "REFRESH", "REINDEX", "REVOKE", "TRUNCATE"))
_CROSS = "cross-database references are not implemented: "


class Unseen(Statement):
    """A statement about a relation that does not exist for its role.

    Answered as PostgreSQL answers one about a relation that does not exist.
    """

    words: ClassVar = ()
    free: ClassVar = "it does nothing"
    local: ClassVar = True
    rolls_back: ClassVar = True
    code: ClassVar[str] = "42P01"
    text: ClassVar[str]
    at: ClassVar[int | None]
    early: ClassVar[bool]
    """Whether PostgreSQL looks for relations when it parses such a statement, and not when it runs it."""
    skips: ClassVar[bool]
    """DROP and ALTER … IF EXISTS."""

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


class UnseenInList(Unseen):
    """DROP of several relations, some of which do not exist for its role.

    PostgreSQL drops the others, or says what it says of a name that nothing has.
    """

    before: ClassVar[str]
    names: ClassVar[tuple[tuple[str, bool], ...]]
    """Each as it was written, and whether it is one of those."""
    after: ClassVar[str]
    kind: ClassVar[str]

    async def execute(self, ctx: Context) -> Result:
        nothing = {name: f"pgstream_{uuid.uuid4().hex}" for name, hidden in self.names if hidden}
        if self.skips:
            going = [name for name, hidden in self.names if not await self._skipped(ctx, name, hidden)]
        else:
            going = [_LAST.sub("", name) + nothing[name] if hidden else name for name, hidden in self.names]
        try:
            if going:
                await ctx.postgres(self.before + ", ".join(going) + self.after)
        except RelayedError as e:
            said = e.text
            for name, other in nothing.items():
                said = said.replace(other, _parts(name)[-1])
            raise RelayedError(code=e.sqlstate, text=said, detail=e.detail, hint=e.hint) from None
        return Result(self.tag)

    async def _skipped(self, ctx: Context, name: str, hidden: bool) -> bool:
        """Whether there is none; said, but for another schema's, of which PostgreSQL says more."""
        if not hidden and ("." in name or await ctx.postgres(_THERE.format(quote_anywhere(name)))):
            return False
        ctx.notice(f'{self.kind} "{_parts(name)[-1]}" does not exist, skipping')
        return True


def answer(
    text: str, words: tuple[str, ...], found: type[Statement] | None, snapshot: Snapshot, session: Session
) -> type[Statement] | None:
    """What a text is that would be ``found`` for who sees what it names: ``found``, ``Unseen``, or PostgreSQL's."""
    code = blanked(text, lambda literal: " " * len(literal))
    made = _MADE.match(code)
    new = made.start(1) if made is not None else -1
    places = (m for m in _NAMED.finditer(code) if (found is not None or m["word"]) and m.end() != new)
    named = [(m, r) for m in places if (r := _relation(m, snapshot, session)) is not None]
    seen = snapshot.seen_by(session.role).relations
    if not named or any((r.full.database, r.full.schema, r.full.name) in seen for _, r in named):
        return found
    first = next((m for m, _ in named if m["word"] or m["more"]), None)
    if first is None:
        return None  # TUMBLE(name, …) alone: no syntax of PostgreSQL's
    missing = _missing(first, words, session)
    if words[0] == "DROP" and "," in code:
        return _in_a_list(missing, text, code, {m.end() for m, _ in named}) or missing
    return missing


def _relation(m: re.Match[str], snapshot: Snapshot, session: Session) -> RelationRecord | None:
    return snapshot.relation(_name(m), session.database, session.schema)


def _name(m: re.Match[str]) -> QName:
    parts = _parts(m["name"] or m["more"])
    return QName(parts[:-1] if (m["word"] or "").upper() == "COLUMN" and len(parts) > 1 else parts[:3])


def _parts(name: str) -> tuple[str, ...]:
    parts = re.findall(_PART, name)
    return tuple(p[1:-1].replace('""', '"') if p[0] == '"' else p.lower() for p in parts)


def _in_a_list(missing: type[Unseen], text: str, code: str, hidden: set[int]) -> type[Unseen] | None:
    listed = _DROPPED.match(code)
    if listed is None:
        return None
    first, last = listed.span(1)
    names = [(m, m.start() in hidden) for m in re.compile(_NAME).finditer(code, first, last)]
    given = {
        "before": text[:first], "names": tuple((re.sub(r"\s*\.\s*", ".", m[0]), h) for m, h in names),
        "after": text[last:], "kind": missing.text.partition(' "')[0],
    }  # fmt: skip
    return type("UnseenInList", (UnseenInList, missing), given)


def _missing(m: re.Match[str], words: tuple[str, ...], session: Session) -> type[Unseen]:
    parts, at = _name(m).parts, m.end()
    drops = words[0] == "DROP"
    skips = words[0] in ("ALTER", "DROP") and "IF" in words
    shown = parts[-1] if drops or skips else ".".join(parts[-2:])
    on = words[0] == "CREATE" and bool({"INDEX", "POLICY"}.intersection(words))
    early = words[0] in _ANALYZED or (words[0] == "CREATE" and not on and words[1:2] != ("VIEW",))
    # PostgreSQL has no place for what it only looks for when a statement runs.
    late = on or words[0] in _RUN or (m["word"] or "").upper() == "COPY"
    kind = _KINDS.get(words[1], "relation") if drops and len(words) > 1 else "relation"
    given = {
        "text": f'{kind} "{shown}" does not exist', "at": None if late else at, "early": early,
        "skips": skips, "tag": f"DROP {kind.upper()}",
    }  # fmt: skip
    if words[0] == "ALTER":
        given["tag"] = "ALTER MATERIALIZED VIEW" if words[1:2] == ("MATERIALIZED",) else " ".join(words[:2])
    if kind == "index":
        given["code"] = "42704"
    if len(parts) == 3 and parts[0] != session.database:
        given |= {"text": _CROSS + f'"{".".join(map(quote, parts))}"', "code": "0A000"}
    return type("Unseen", (Unseen,), given)
