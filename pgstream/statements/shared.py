"""Words shared with PostgreSQL: whose statement is it?

Owns: the one table, ``SHARED``, that decides it, and the refusals for PostgreSQL's statements over our streams.
Must not know: how any of them is parsed or run. Called for every text that clients send: what is plainly PostgreSQL's
must be settled by the first words, or by ``Snapshot.mentions`` finding no stream's name; sqlglot comes last.
Start reading at ``SHARED``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import ClassVar, Self

from pgstream.catalog.records import RelationRecord, Snapshot
from pgstream.errors import CannotChange, NotSupported, NotYet, PgStreamError
from pgstream.names import QName
from pgstream.sql.cursor import Cursor
from pgstream.sql.select import names
from pgstream.sql.sniff import blanked, head
from pgstream.statements import backends, cursors, system_tables, unseen
from pgstream.statements.alterations import AlterRelation, TruncateRelation
from pgstream.statements.base import Session, Statement
from pgstream.statements.comments import CommentOn
from pgstream.statements.compute_pools import UpdateComputePool
from pgstream.statements.copy import CopyStream
from pgstream.statements.create_as import CreateMaterializedViewAs, CreateTableAs
from pgstream.statements.cursors import DeclareCursor
from pgstream.statements.entities import UpdateEntity
from pgstream.statements.functions import CreateFunction, DropFunction, is_named
from pgstream.statements.grants import (
    AlterDefaultPrivileges,
    AlterOwner,
    GrantOwnership,
    GrantPrivileges,
    RevokePrivileges,
)
from pgstream.statements.indexes import CreateIndex, DropIndex, Reindex
from pgstream.statements.insert import InsertInto
from pgstream.statements.policies import AlterPolicy, AlterRowSecurity, CreatePolicy, DropPolicy
from pgstream.statements.queries import AlterQuery
from pgstream.statements.relations import DropMaterializedView, DropTable, DropView
from pgstream.statements.roles import GrantRole, RevokeRole
from pgstream.statements.schema_registries import UpdateSchemaRegistry
from pgstream.statements.secrets import UpdateSecret
from pgstream.statements.select import SelectStream
from pgstream.statements.stores import UpdateStore
from pgstream.statements.system_tables import SystemTableWithStream
from pgstream.statements.tables import CreateTable
from pgstream.statements.users import AlterUser

Words = tuple[str, ...]
Decide = Callable[[str, Words, Snapshot, Session], type[Statement] | None]
_STREAMING = ("stream", "changelog")

_PART = r'(?:[^\W\d][\w$]*|"(?:[^"]++|"")++"|`(?:[^`]++|``)++`)'
_NAME = rf"{_PART}(?:\s*\.\s*{_PART}){{0,2}}"
_FROM = re.compile(
    rf"(?:\b(?:FROM|JOIN|COPY|TABLE)\s+|\b(?:TUMBLE|HOP|CUMULATE|SESSION)\s*\(\s*|,\s*)(?=({_NAME}))", re.I
)
_AS_QUERY = re.compile(r"\bAS\b", re.I)
# Where two parts of a pattern meet that both take white space, the first takes all of it (``*+``), or only one may: in
# a long text of spaces each way to share them would be tried, while every session waits.
_OURS_WITH = re.compile(r"\bWITH\s*\((?:[^()';]*,)?\s*'", re.I)
_STRING = r"'(?:[^']|'')*+'"
_TABLE_AS = re.compile(rf"\bWITH\s*\((?:[^()';]*,)?\s*{_STRING}(?:[^()']|{_STRING})*+\)\s*AS\b", re.I)
# What PostgreSQL has no word for: whoever writes it means a stream, also one that is not there.
_STREAMS_ONLY = re.compile(
    r"\bWITHIN\s+\d|\bQUERY\s+WITH\s*\(|\bMATCH_RECOGNIZE\s*\(|\b\w+\s*\([^()]*,\s*(?:SIZE|GAP)\s+\d", re.I
)
_CTE = re.compile(
    rf"(?:\bWITH\s+(?:RECURSIVE\s+)?|,\s*)({_PART})\s*(?:\([^()]*\)\s*)?AS\s+(?:NOT\s+)?(?:MATERIALIZED\s*)?\(", re.I
)
_RECURSIVE = re.compile(r"\bWITH\s+RECURSIVE\b", re.I)
_PARENTHESIS = re.compile(r"[()]")
_WITH_DATA = re.compile(r"\bWITH\s+(?:NO\s+)?DATA\s*+;?\s*+\Z", re.I)
_ON = re.compile(rf"\bON\s+(?:ONLY\s+)?({_NAME})", re.I)
# UPDATE store [AS] s SET: PostgreSQL's table of that name. Without SET it is no statement of PostgreSQL's at all.
_UPDATED = re.compile(rf"\s*UPDATE\s+\w++\s*+(?!\*?\s*+(?:(?:AS\s+)?{_PART}\s*+)?\bSET\b)(?:(?<=\s){_PART}|\Z|;)", re.I)
_CHANGED = re.compile(rf"\s*(?:UPDATE|DELETE\s+FROM|MERGE\s+INTO)\s+(?:ONLY\s+)?({_NAME})", re.I)
_INSERTED = re.compile(rf"\s*INSERT\s+INTO\s+({_NAME})", re.I)
_COMMENTED = re.compile(rf"\s*COMMENT\s+ON\s+(MATERIALIZED\s+VIEW|[A-Z]+)\s+({_PART}(?:\s*\.\s*{_PART}){{0,3}})", re.I)
_COPIED = re.compile(rf"\s*COPY\s+({_NAME})", re.I)
_ROLE = re.compile(r"\b(?:TO|FROM)\s+(?:ROLE|USER)\b", re.I)
_DROPPED_FUNCTION = re.compile(rf"\s*DROP\s+FUNCTION\s+(?:IF\s+EXISTS\s+)?({_PART})\s*\(", re.I)
_GRANTED = re.compile(
    rf"\bON\s+(?:(?:TABLE|RELATION|STREAM|CHANGELOG|MATERIALIZED\s+VIEW|VIEW)\s+(?!(?:TO|FROM)\b))?"
    rf"({_NAME}(?:\s*,\s*{_NAME})*)",
    re.I,
)
_GRANTED_PLACE = re.compile(
    rf"\bON\s+(DATABASE|SCHEMA|ALL\s+TABLES\s+IN\s+SCHEMA)\s+({_NAME}(?:\s*,\s*{_NAME})*)", re.I
)
_PASSWORD = re.compile(rf"\s*ALTER\s+(?:USER|ROLE)\s+(?:{_PART}|'')\s+(?:WITH\s+)?(?:ENCRYPTED\s+)?PASSWORD\s+'", re.I)
_ROW_SECURITY = re.compile(r"\bROW\s+LEVEL\s+SECURITY\b", re.I)
_OWNER = re.compile(r"\bOWNER\s+TO\b", re.I)
_OURS_ALTERED = ("RELATION", "STREAM", "CHANGELOG", "DATABASE", "SCHEMA", "STORE", "SCHEMA_REGISTRY", "SECRET", "QUERY",
                 "COMPUTE_POOL", "DESCRIPTOR_SOURCE", "FUNCTION_SOURCE", "ROLE")  # fmt: skip
_DROPPED, _MADE = unseen.dropping(_NAME), unseen.making(_NAME)
_ALTERED = re.compile(
    rf"\s*ALTER\s+(?:TABLE|VIEW|RELATION|MATERIALIZED\s+VIEW)\s+(?:IF\s+EXISTS\s+)?(?:ONLY\s+)?({_NAME})", re.I
)
_LATER_TABLES = re.compile(r"\bON\s+TABLES\b", re.I)
_ALTER_WORDS = ("ALTER", "TABLE", "VIEW", "MATERIALIZED")
_REFRESHED = re.compile(rf"\s*REFRESH\s+MATERIALIZED\s+VIEW\s+(?:CONCURRENTLY\s+)?({_NAME})", re.I)
_REINDEXED = re.compile(rf"\s*REINDEX\s+(?:\([^)]*\)\s*)?(TABLE|INDEX|SCHEMA)\s+(?:CONCURRENTLY\s+)?({_NAME})", re.I)
_DESCRIPTION = re.compile(r"\bSET\s+description\s*=", re.I)
_EMPTIED = re.compile(rf"\s*TRUNCATE\s+(?:TABLE\s+)?(?:ONLY\s+)?({_NAME})", re.I)
# TRUNCATE relation, with nothing or these words after it, empties PostgreSQL's table of that name.
_TRUNCATED = re.compile(rf"\s*TRUNCATE\s+RELATION\s+(?!(?:CASCADE|RESTRICT|RESTART|CONTINUE)\b)(?={_PART})", re.I)


class Refused(Statement):
    """A statement of PostgreSQL's that cannot be done over a stream, or one of the product's that is planned.

    It is refused with 0A000 and what to do instead.
    """

    words: ClassVar = ()
    what: ClassVar[str]
    hint: ClassVar[str | None] = None

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        raise NotYet(what=cls.what, at=c.at, hint=cls.hint)


class ExplainStream(Refused):
    """EXPLAIN of a SELECT over a stream.

    Refused; DESCRIBE shows the plan.
    """

    what = "EXPLAIN of a select that reads a stream"
    hint = "DESCRIBE SELECT … shows the plan."


class CreateViewOverStream(Refused):
    """CREATE VIEW over a stream.

    Refused; PostgreSQL cannot read a stream.
    """

    what = "CREATE VIEW of a select that reads a stream"
    hint = "CREATE MATERIALIZED VIEW AS keeps its result current."


class ChangeStream(Refused):
    """UPDATE, DELETE, MERGE and TRUNCATE of a stream or a changelog.

    Refused; records stay as they are, and a changelog's later one replaces an earlier of its key.
    """

    what = "a change of rows of a stream or a changelog"
    hint = "INSERT INTO adds to it; in a changelog a later row replaces that of its key."

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        what = f"{head(c.text)[0]} of a stream or a changelog"
        raise NotSupported(what=what, at=c.at, hint=cls.hint)


class AlterOver(Refused):
    """PostgreSQL's ALTER TABLE, VIEW and MATERIALIZED VIEW of a relation of the catalogue, but for what is ours.

    Refused; its columns are its query's, or its topic's.
    """

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        what = f"{' '.join(w for w in head(c.text)[:3] if w in _ALTER_WORDS)} of a relation of pgstream"
        hint = (
            "CREATE OR REPLACE MATERIALIZED VIEW gives a view another query and more columns; SET description, "
            "OWNER TO and row-level security can be altered."
        )
        raise NotSupported(what=what, at=c.at, hint=hint)


class RefreshView(Refused):
    """REFRESH of a materialized view that a continuous query keeps.

    Refused; it is current by itself.
    """

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        hint = "Its query keeps it current; pgstream_wait_for waits until it has read up to a given place."
        raise NotSupported(what="REFRESH of a materialized view that a query keeps", at=c.at, hint=hint)


class ChangeView(Statement):
    """INSERT, UPDATE, DELETE, MERGE and TRUNCATE of a materialized view.

    Refused in PostgreSQL's words about one of its own; what a view holds is its query's answer.
    """

    words: ClassVar = ()

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        named = next(m for p in (_CHANGED, _INSERTED, _EMPTIED) if (m := p.match(blanked(c.text, _spaces))))
        hint = "TRUNCATE RELATION takes its rows away." if head(c.text)[0] == "TRUNCATE" else None
        raise CannotChange(name=_parts(named[1])[-1], at=named.start(1), hint=hint)


def _select(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    system = "deltastream" in text.lower()
    if system and (found := system_tables.find(text)) is not None:
        return found
    if not _reads(text, snapshot, session):
        return backends.find(text)
    return SystemTableWithStream if system and system_tables.reads(text) else SelectStream


def _insert(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    if not _mentions(text, snapshot):
        return None
    named = _INSERTED.match(blanked(text, " "))
    if named is None:
        return None
    into = _relation(named[1], snapshot, session)
    if into is not None:
        ours = into.kind in (*_STREAMING, "table") or _from_stream(text, snapshot, session)
        return InsertInto if ours else _changing(named, snapshot, session)
    return InsertInto if _from_stream(text, snapshot, session) else None


def _comment(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    named = _COMMENTED.match(blanked(text, " "))
    if named is None:
        return None
    kind, parts = named[1].upper().split()[0], _parts(named[2])
    match kind:
        case "RELATION" | "STREAM" | "CHANGELOG" | "DATABASE":  # PostgreSQL has no such words, or no such owner
            ours = True
        case "TABLE" | "VIEW" | "MATERIALIZED" | "COLUMN":
            name = QName(parts[:-1] if kind == "COLUMN" else parts)
            hidden = session.temporary and len(name.parts) == 1
            found = snapshot.relation(name, session.database, session.schema) if name.parts and not hidden else None
            ours = found is not None
        case _:
            ours = kind == "SCHEMA" and parts[-1] != "information_schema" and not parts[-1].startswith("pg_")
    return CommentOn if ours else None


def _copy(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    if not snapshot.mentions(text):
        return None
    named = _COPIED.match(blanked(text, " "))
    if named is None:
        return CopyStream if _from_stream(text, snapshot, session) else None
    found = _relation(named[1], snapshot, session)
    return CopyStream if found is not None and found.kind in _STREAMING else None


def _cursor(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    return cursors.reader(text, words, session) if session.cursors else None


def _over(refused: type[Statement]) -> Decide:
    def decide(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
        return refused if _from_stream(text, snapshot, session) else None

    return decide


def _create(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    kinds = words[1:]
    if "TABLE" in kinds:
        made = _MADE.match(text)
        rest = text[made.end() :] if made is not None else text
        if _AS_QUERY.search(rest) and (_from_stream(rest, snapshot, session) or _TABLE_AS.search(rest)):
            return CreateTableAs
        return CreateTable if _OURS_WITH.search(rest) else None
    if "FUNCTION" in kinds:
        return CreateFunction if _OURS_WITH.search(text) else None
    if "INDEX" in kinds:
        return CreateIndex if _on_ours(text, snapshot, session) else None
    if kinds[:1] == ("POLICY",):
        return CreatePolicy if _on_ours(text, snapshot, session) else None
    if kinds[:2] == ("MATERIALIZED", "VIEW"):
        ours = _OURS_WITH.search(text) or _from_stream(text, snapshot, session) or _on_view(text, snapshot, session)
        return CreateMaterializedViewAs if ours or _STREAMS_ONLY.search(blanked(text, "''")) else None
    if "VIEW" in kinds:
        return CreateViewOverStream if _from_stream(text, snapshot, session) else None
    return None


def _on_ours(text: str, snapshot: Snapshot, session: Session) -> bool:
    """Whether ON is followed by a relation of the catalogue."""
    on = _ON.search(blanked(text, "''"))
    return on is not None and _relation(on[1], snapshot, session) is not None


def _drop(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    if words[1:2] == ("FUNCTION",):
        named = _DROPPED_FUNCTION.match(blanked(text, " "))
        return DropFunction if named is not None and is_named(_parts(named[1])[-1], snapshot) else None
    if words[1:2] == ("POLICY",):
        return DropPolicy if _on_ours(text, snapshot, session) else None
    if words[1:2] not in (("TABLE",), ("VIEW",), ("MATERIALIZED",), ("INDEX",)):
        return None
    dropped = _DROPPED.match(blanked(text, " "))
    if dropped is None or not any(_relation(n, snapshot, session) for n in re.findall(_NAME, dropped[1])):
        return None
    return {"TABLE": DropTable, "VIEW": DropView, "INDEX": DropIndex}.get(words[1], DropMaterializedView)


def _reindex(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    named = _REINDEXED.match(blanked(text, " "))
    if named is None:
        return None
    if named[1].upper() == "SCHEMA":
        return Reindex if (session.database, *_parts(named[2]))[-2:] in snapshot.schemas else None
    return Reindex if _relation(named[2], snapshot, session) is not None else None


def _truncate(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    plain = blanked(text, " ")
    if _TRUNCATED.match(plain):
        return TruncateRelation
    named = _EMPTIED.match(plain)
    return _changing(named, snapshot, session)


def _grant(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    grants = words[0] == "GRANT"
    if words[1:2] == ("ROLE",) and words[2:3] not in (("TO",), ("FROM",), ()):
        return GrantRole if grants else RevokeRole
    if words[1:2] == ("OWNERSHIP",):
        return GrantOwnership if grants else None
    plain = blanked(text, "''")
    ours = _ROLE.search(plain) or any(_relation(n, snapshot, session) for n in _granted(plain))
    ours = ours or _granted_place(plain, snapshot, session)
    return (GrantPrivileges if grants else RevokePrivileges) if ours else None


def _granted(plain: str) -> list[str]:
    """The names after ON [TABLE]."""
    on = _GRANTED.search(plain)
    return re.findall(rf"{_NAME}", on[1]) if on is not None else []


def _granted_place(plain: str, snapshot: Snapshot, session: Session) -> bool:
    """A database or schema of the catalogue; all tables of schemas, if some are ours."""
    place = _GRANTED_PLACE.search(plain)
    if place is None:
        return False
    word, named = place[1].upper().split()[0], [_parts(name) for name in re.findall(_NAME, place[2])]
    if word == "DATABASE":
        return any(parts[-1] in snapshot.databases for parts in named)
    schemas = {(session.database, *parts)[-2:] for parts in named}
    if word == "SCHEMA":
        return not schemas.isdisjoint(snapshot.schemas)
    return any((r.full.database, r.full.schema) in schemas for r in snapshot.relations.values())


def _alter(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    """PostgreSQL's ALTER … OWNER TO is ours for what is in the catalogue, and SET description; its own tables are its
    own.
    """
    plain = blanked(text, "''")
    if words[1:2] in (("USER",), ("ROLE",)):
        return AlterUser if _PASSWORD.match(plain) else AlterOwner if _OWNER.search(plain) else None
    if words[1:2] == ("QUERY",):
        return AlterOwner if _OWNER.search(plain) else AlterQuery
    if words[1:3] == ("DEFAULT", "PRIVILEGES"):
        seen = snapshot.seen_by(session.role).relations.values()
        told = _LATER_TABLES.search(plain) and any(r.full.database == session.database for r in seen)
        return AlterDefaultPrivileges if told else None
    if words[1:2] == ("POLICY",):
        return AlterPolicy if _on_ours(text, snapshot, session) else None
    altered = _ALTERED.match(plain)
    known = altered is not None and _relation(altered[1], snapshot, session) is not None
    if _ROW_SECURITY.search(plain) and (known or words[1:2] == ("RELATION",)):
        return AlterRowSecurity
    found = AlterOwner if _OWNER.search(plain) else AlterRelation if _DESCRIPTION.search(plain) else None
    ours = _OURS_ALTERED if found is AlterOwner else _OURS_ALTERED[:3]
    if found is None and words[1:2] in (("RELATION",), ("STREAM",), ("CHANGELOG",)):
        return AlterRelation  # no words of PostgreSQL's: a syntax error of ours
    if found is None:
        return AlterOver if known and not _may_hide(altered, session) else None
    return found if known or (words[1:2] and words[1] in ours) else None


def _refresh(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    named = _REFRESHED.match(blanked(text, " "))
    return RefreshView if named is not None and _relation(named[1], snapshot, session) is not None else None


def _change(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    if not _mentions(text, snapshot):
        return None
    return _changing(_CHANGED.match(blanked(text, " ")), snapshot, session)


def _may_hide(named: re.Match[str] | None, session: Session) -> bool:
    """Whether a name may mean a temporary table of the session, in which PostgreSQL looks first. Of what is ours it
    says itself that it is not the client's to change.
    """
    return session.temporary and named is not None and len(_parts(named[1])) == 1


def _mentions(text: str, snapshot: Snapshot) -> bool:
    return snapshot.mentions(text) or snapshot.mentions_view(text)


def _changing(named: re.Match[str] | None, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    """The refusal of a change of this relation's rows, if it is none of PostgreSQL's tables. PostgreSQL denies it to
    who may not read a view, as it denies reading it.
    """
    found = _relation(named[1], snapshot, session) if named is not None else None
    if found is None or (found.kind == "materialized_view" and _may_hide(named, session)):
        return None
    if found.kind == "materialized_view":
        seen = snapshot.seen_by(session.role).relations
        return ChangeView if (found.full.database, found.full.schema, found.full.name) in seen else None
    return ChangeStream if found.kind in _STREAMING else None


def _update(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    kind = "ENTITY" if words[1:2] == ("TOPIC",) else words[1] if words[1:2] else ""
    if kind in UPDATES and _UPDATED.match(blanked(text, "''")):
        return UPDATES[kind]
    return _change(text, words, snapshot, session)


UPDATES: dict[str, type[Statement]] = {
    "COMPUTE_POOL": UpdateComputePool,
    "ENTITY": UpdateEntity,
    "SCHEMA_REGISTRY": UpdateSchemaRegistry,
    "SECRET": UpdateSecret,
    "STORE": UpdateStore,
}

_OVER_TABLES = frozenset(("DELETE", "LOCK", "MERGE", "PREPARE", "TABLE"))


def _postgres(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    return None


# First word → who decides. A word that is not here, and begins no statement of ours, is PostgreSQL's.
SHARED: dict[str, Decide] = {
    # SET description is no form of PostgreSQL's ALTER. A password is a user's, which no working role may change.
    # Row-level security of materialized views is ours, that of PostgreSQL's own tables PostgreSQL's; CREATE and DROP of
    # policies likewise.
    "ALTER": _alter,
    # Ours when it creates something in a store, or reads a stream; CREATE DATABASE and SCHEMA are always ours
    # (``STATEMENTS``). Tables, views of both kinds, indexes and functions of PostgreSQL's own are PostgreSQL's.
    "CREATE": _create,
    # CLOSE, FETCH and MOVE are ours when they name a cursor that reads a stream. CLOSE ALL is PostgreSQL's.
    "CLOSE": _cursor,
    # Of a relation of the catalogue, its column, a schema or a database.
    "COMMENT": _comment,
    # COPY of tables and materialized views is PostgreSQL's.
    "COPY": _copy,
    "DECLARE": _over(DeclareCursor),
    # DROP TABLE, VIEW and MATERIALIZED VIEW are ours when a name is a relation of the catalogue, DROP FUNCTION when
    # a function of that name is in it, whatever its arguments.
    "DROP": _drop,
    "EXPLAIN": _over(ExplainStream),
    "FETCH": _cursor,
    # TO ROLE and TO USER are no words of PostgreSQL's GRANT; GRANT ROLE r and GRANT OWNERSHIP neither. PostgreSQL's own
    # form is ours when it is about a relation, schema or database of the catalogue.
    "GRANT": _grant,
    # Ours when the target or a source is a stream or a changelog. INSERT INTO ENTITY name is found before.
    "INSERT": _insert,
    # Statements over PostgreSQL's tables, which a stream is not.
    "DELETE": _change,
    "LOCK": _postgres,
    "MERGE": _change,
    "PREPARE": _postgres,
    "TABLE": _postgres,
    "MOVE": _cursor,
    # REFRESH and REINDEX of what is PostgreSQL's own are its own.
    "REFRESH": _refresh,
    "REINDEX": _reindex,
    "REVOKE": _grant,
    # Ours when it reads a stream or a changelog, whatever else it reads: the planner refuses what it cannot do.
    "SELECT": _select,
    # TRUNCATE RELATION name; PostgreSQL has no such word before the name.
    "TRUNCATE": _truncate,
    # UPDATE STORE name WITH (…): PostgreSQL's UPDATE goes on with SET.
    "UPDATE": _update,
    "WITH": _select,
}


def decided(text: str, words: Words, snapshot: Snapshot, session: Session) -> type[Statement] | None:
    """The class of a text that begins with one of these words; None when it is PostgreSQL's."""
    found = SHARED[words[0]](text, words, snapshot, session)
    if found is None and (words[0] not in _OVER_TABLES or not snapshot.mentions(text)):
        return None
    return found if _by_its_words(text, words) else unseen.answer(text, words, found, snapshot, session)


def _by_its_words(text: str, words: Words) -> bool:
    """Whether it is what it is whatever it names."""
    match words[0]:
        case "CREATE":
            return _OURS_WITH.search(text) is not None
        case "ALTER":
            return words[1:2] in (("USER",), ("DEFAULT",)) or words[1:2] in {(w,) for w in _OURS_ALTERED}
        case "COMMENT":
            return words[2:3] not in {("TABLE",), ("VIEW",), ("MATERIALIZED",), ("COLUMN",)}
        case "DROP":
            return words[1:2] == ("FUNCTION",)
        case "GRANT" | "REVOKE":
            return words[1:2] in (("ROLE",), ("OWNERSHIP",)) or _ROLE.search(blanked(text, "''")) is not None
        case "UPDATE":
            return _UPDATED.match(blanked(text, "''")) is not None
        case "TRUNCATE":
            return _TRUNCATED.match(blanked(text, " ")) is not None
    return words[0] in ("CLOSE", "FETCH", "MOVE")


def _reads(text: str, snapshot: Snapshot, session: Session) -> bool:
    """Whether a query reads a stream or changelog; decided by a real parse once a name stands in the text at all."""
    if not snapshot.mentions(text):
        return False
    try:
        read = names(Cursor(text).select())
    except PgStreamError:
        # Not a query of our grammar: ours all the same if a stream stands where a relation does, so that the error
        # is about our grammar and not about a view that PostgreSQL cannot read.
        return _from_stream(text, snapshot, session)
    found = (snapshot.relation(name, session.database, session.schema) for name in read)
    return any(r is not None and r.kind in _STREAMING for r in found)


def _from_stream(text: str, snapshot: Snapshot, session: Session) -> bool:
    """Whether a stream stands where PostgreSQL's grammar or ours has a relation; strings and comments left out."""
    if not snapshot.mentions(text):
        return False
    kinds = _read_kinds(blanked(text, "''"), snapshot, session)
    return any(kind in _STREAMING for kind in kinds)


def _read_kinds(code: str, snapshot: Snapshot, session: Session) -> set[str]:
    """The kinds of the relations of ours that a query reads."""
    ctes, kinds = _ctes(code), set()
    for m in _FROM.finditer(code):
        spans = ctes.get(m[1].lower(), ())
        i = bisect_right(spans, (m.end(), len(code)))
        if (i == 0 or m.end() > spans[i - 1][1]) and (r := _relation(m[1], snapshot, session)) is not None:
            kinds.add(r.kind)
    return kinds


def _ctes(code: str) -> dict[str, list[tuple[int, int]]]:
    """Where a name means a CTE: from the end of its query, which may read the relation that it hides, or from its
    beginning if it is recursive, to the end of the query around it. In order, apart from each other.
    """
    found = {m.end() - 1: m[1].lower() for m in _CTE.finditer(code)}
    if not found:
        return {}
    recursive = _RECURSIVE.search(code) is not None
    made: list[list[tuple[str, int]]] = [[]]  # of each query that is open: its CTEs so far, and where they began
    opened: list[int] = []
    out: dict[str, list[tuple[int, int]]] = {}

    def close(end: int) -> None:
        for name, begin in made.pop():
            spans = out.setdefault(name, [])
            while spans and spans[-1][0] >= begin:
                spans.pop()  # of a query inside
            if not spans or spans[-1][1] <= begin:
                spans.append((begin, end))

    for m in _PARENTHESIS.finditer(code):
        if m[0] == "(":
            opened.append(m.start())
            if recursive and m.start() in found:
                made[-1].append((found[m.start()], m.start()))
            made.append([])
        elif opened:
            close(m.start())
            begin = opened.pop()
            if not recursive and begin in found:
                made[-1].append((found[begin], m.start()))
    while made:
        close(len(code))
    return out


def _on_view(text: str, snapshot: Snapshot, session: Session) -> bool:
    """Whether a query reads a materialized view of ours, whose changes then stream on. WITH [NO] DATA at its end, which
    is PostgreSQL's alone, makes one of PostgreSQL's of what is there now.
    """
    code = blanked(text, "''")
    return _WITH_DATA.search(code) is None and "materialized_view" in _read_kinds(code, snapshot, session)


def _relation(text: str, snapshot: Snapshot, session: Session) -> RelationRecord | None:
    return snapshot.relation(QName(_parts(text)), session.database, session.schema)


def _spaces(literal: str) -> str:
    return " " * len(literal)


def _parts(text: str) -> tuple[str, ...]:
    """A name's parts as they are kept: folded, or without their quotes."""
    parts = re.findall(_PART, text)
    return tuple(p[1:-1].replace(p[0] * 2, p[0]) if p[0] in '"`' else p.lower() for p in parts)


def code(text: str) -> str:
    """A text without what stands in strings and comments."""
    return blanked(text, "''")
