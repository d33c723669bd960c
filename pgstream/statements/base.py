"""The statement base: what every statement of ours is, what it is given, what it answers.

Owns: ``Statement``, ``Context``, ``Session``, ``Result``. A statement is a frozen dataclass with ``parse`` and
``execute``, in the module of its object (``stores.py`` holds everything about STORE).
Must not know: sockets or messages; ``server`` runs statements and encodes results.
Start reading at ``Statement``. How to add one: ``docs/howto/add_a_statement.md``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from pgstream import types
from pgstream.catalog.records import DEFAULT_ORGANIZATION, ObjectRecord, Snapshot
from pgstream.config import Config

if TYPE_CHECKING:
    from pgstream.catalog.records import Snapshot
    from pgstream.catalog.store import Catalog
    from pgstream.engine.engine import Engine
    from pgstream.names import FullName
    from pgstream.planner.relations import Virtual
    from pgstream.sql.cursor import Cursor
    from pgstream.statements.access import Need
    from pgstream.statements.copy import CopyFormat
    from pgstream.statements.cursors import OpenCursor

TextRow = Sequence[str | None]


class KeptRow(list[str | None]):
    """A row that is answered again and again. ``sent`` keeps it as a client gets it in text and UTF-8."""

    __slots__ = ("sent",)

    def __init__(self, values: TextRow) -> None:
        super().__init__(values)
        self.sent: bytes | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """An output column: name and type; its values travel in PostgreSQL's text format."""

    name: str
    type: types.Type = types.TEXT


@dataclass(slots=True)
class Result:
    """The answer of a statement.

    ``rows`` is a finished sequence, or an asynchronous iterator of rows for streaming results: ``server`` sends rows as
    they come and calls ``aclose()`` on it when the client cancels, closes the portal, or goes away.
    ``tag`` is the CommandComplete text; with ``{rows}`` in it the number of rows sent is filled in.
    ``columns`` empty means: no result set. ``binary``: rows of a binary cursor, which the simple protocol sends so.
    ``copy``: the rows go out as COPY data in that format.
    """

    tag: str
    columns: Sequence[Column] = ()
    rows: Sequence[TextRow] | AsyncIterator[TextRow] = ()
    binary: bool = False
    copy: CopyFormat | None = None


@dataclass(slots=True)
class Session:
    """A client's session context: what USE changes, its cursors over streams, and the schemas that it has made or
    dropped in a transaction whose end is not known. ``temporary``: it may have tables that hide others of their name.
    """

    user: str
    database: str
    schema: str = "public"
    store: str | None = None
    role: str = "sysadmin"
    organization: str = DEFAULT_ORGANIZATION
    pool: str = "default"
    parameters: dict[str, str] = field(default_factory=dict)
    cursors: dict[str, OpenCursor] = field(default_factory=dict, compare=False, repr=False)
    undecided: list[Undecided] = field(default_factory=list)
    temporary: bool = False


class Undecided(NamedTuple):
    """A schema that a transaction made, or the transaction that ``dropped`` it, which may not have ended."""

    database: str
    schema: str
    dropped: str | None = None


class Member(NamedTuple):
    """An organization of a user's, as seen from a session."""

    record: ObjectRecord
    is_current: bool
    is_default: bool


@dataclass(slots=True)
class Context:
    """What a running statement may use.

    ``notice`` sends a NoticeResponse at once (severity NOTICE unless given). ``use_database`` moves the session's
    backend connection; ``use_schema`` sets its search_path, ``use_role`` its role; ``postgres`` runs one statement of
    PostgreSQL's in it (with the types and values of its parameters, if it has any), inside the client's transaction,
    and gives the first value of its first row; ``run`` runs
    another statement, which was parsed from a text, with the same parameters; ``transaction`` gives the client's
    transaction that a change stands or falls with, if one is open, and refuses what it is told in a read-only one;
    ``cancel_own`` ends the statement of ours that a session of the same user runs, known by its backend's process id.
    ``organizations`` are the user's; ``create_organization`` and ``use_organization`` (by name, with its place in the
    text) move the session there.
    ``parameters`` are the bound values of the extended protocol in text form (None = NULL), ``parameter_oids`` the
    PostgreSQL types of these. ``virtuals``: the virtual relations so far, in a statement of an application.
    """

    config: Config
    session: Session
    catalog: Catalog
    engine: Engine
    notice: Callable[..., None]
    use_database: Callable[[str], Any]
    use_schema: Callable[[str], Any]
    use_role: Callable[[str], Any]
    postgres: Callable[..., Awaitable[str | None]]
    transaction: Callable[[str], Awaitable[str | None]]
    run: Callable[[str, Statement], Awaitable[Result]]
    cancel_own: Callable[[int], Awaitable[bool]]
    organizations: Callable[[], Awaitable[Sequence[Member]]]
    create_organization: Callable[..., Awaitable[None]]
    use_organization: Callable[..., Awaitable[None]]
    parameters: Sequence[str | None] = ()
    parameter_oids: Sequence[int] = ()
    virtuals: Mapping[FullName, Virtual] | None = None

    @property
    def snapshot(self) -> Snapshot:
        """What exists for the session's role; ``catalog.snapshot`` has what others see too."""
        return self.catalog.snapshot.seen_by(self.session.role)


class Statement:
    """One statement of ours.

    ``words``: its first words, by which it is found. ``tag``: the CommandComplete text. ``columns``: the output columns
    when they are known without a catalogue (the extended protocol asks before execution); a statement whose columns
    depend on the catalogue overrides ``describe``. ``local``: it works on the session itself (its cursors, its
    connection), so it runs in the process that holds that; a statement inside it runs by ``Context.run``.
    ``rolls_back``: its change goes with a ROLLBACK of the client's.
    ``as_postgres``: PostgreSQL has this statement too, and drivers know its answer: the extended protocol gives the
    command tag alone.
    ``free``: why it needs no privilege; else ``needs`` says which.
    """

    words: ClassVar[tuple[str, ...]] = ()
    tag: ClassVar[str] = ""
    columns: ClassVar[tuple[Column, ...]] = ()
    local: ClassVar[bool] = False
    rolls_back: ClassVar[bool] = False
    as_postgres: ClassVar[bool] = False
    free: ClassVar[str] = ""

    @classmethod
    def parse(cls, c: Cursor) -> Self:
        """Read the whole statement, first words included, up to its end. Errors: SyntaxFault with position."""
        raise NotImplementedError

    def needs(self, ctx: Context) -> Iterable[Need]:
        """The privileges without which it is not run; ``access.check`` asks for them first."""
        if not self.free:
            raise NotImplementedError
        return ()

    async def describe(self, ctx: Context) -> tuple[Column, ...]:
        """Output columns, without running anything."""
        return self.columns

    def parameter_types(self, snapshot: Snapshot, session: Session) -> Mapping[int, int]:
        """PostgreSQL oids of parameters by number, where their place tells; the client's own declarations win."""
        return {}

    async def execute(self, ctx: Context) -> Result:
        """Run it. Called once; a PgStreamError raised here reaches the client with its position."""
        raise NotImplementedError


DDL_ROW = (Column("Type"), Column("Name"), Column("Command"), Column("Summary"), Column("Path"))


def rows(*rows: Sequence[Any]) -> list[list[str | None]]:
    """Python values as text rows."""
    return [[types.render(v) for v in r] for r in rows]
