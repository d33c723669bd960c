"""Catalogue objects as immutable values, and the snapshot that readers share.

Owns: the records that statements, planner and engine pass around, and name resolution against a session.
Must not know: SQLAlchemy, PostgreSQL, who asks. ``catalog.store`` reads and writes them.
Start reading at ``Snapshot``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from pgstream import types
from pgstream.catalog.kinds import KINDS, missing
from pgstream.catalog.mentions import Mentions
from pgstream.catalog.privileges import MEMBERS, PUBLIC, Access
from pgstream.catalog.roles import pg_role
from pgstream.errors import UndefinedRelation
from pgstream.names import FullName, QName, closest, quote

K = TypeVar("K")
V = TypeVar("V")
STREAMED = ("stream", "changelog")
"""Kinds of relations that are read by streaming."""
_VIEWS = ("materialized_view",)
VIRTUAL = "virtual"
"""The database that the virtual relations of an application are named in."""
_COMPARED = 1000
"""Names that a wrong one is compared with at most: it is done while others wait."""
DEFAULT_ORGANIZATION = "00000000-0000-4000-8000-000000000001"
"""The organization that every server has."""


class Authors(NamedTuple):
    """Who made an object and changed it last, and in which roles; None: the server, or an earlier version's user."""

    created_by: str | None = None
    created_by_role: str | None = None
    updated_by: str | None = None
    updated_by_role: str | None = None


NOBODY = Authors()


@dataclass(frozen=True, slots=True)
class ColumnRecord:
    """A column of a relation. ``description``: what COMMENT ON COLUMN said of it."""

    name: str
    type: types.Type
    nullable: bool = True
    description: str | None = None


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """A store. ``options`` are normalised; secret ones are absent here and come from ``Catalog.store_secrets``."""

    id: str
    name: str
    type: str
    options: Mapping[str, str]
    owner: str
    state: str = "ready"
    message: str = ""
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    authors: Authors = NOBODY


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """Which rows of a materialized view these roles read (none named: everybody); ``using`` is PostgreSQL's text."""

    name: str
    roles: tuple[str, ...]
    using: str
    permissive: bool = True


@dataclass(frozen=True, slots=True)
class RelationRecord:
    """A stream, changelog, table or materialized view.

    ``kind``: ``stream``, ``changelog``, ``table`` or ``materialized_view``. ``properties``: WITH parameters as resolved
    (what LIST RELATIONS shows). ``store`` and ``entity`` are None for a materialized view. ``query``: id of the query
    that writes it, if one was made with it. ``mode``: of a materialized view, ``append`` or ``upsert`` (one row per
    ``primary_key``; no key: a single row); ``Catalog.create_query`` fills both from the plan's sink. ``policies`` are
    asked while ``row_security`` is on; those of a record that was read alone are not known.
    """

    id: str
    full: FullName
    kind: str
    columns: tuple[ColumnRecord, ...]
    owner: str
    primary_key: tuple[str, ...] = ()
    store: str | None = None
    entity: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    query: str | None = None
    description: str | None = None
    state: str = "created"
    mode: str = ""
    row_security: bool = False
    policies: tuple[PolicyRecord, ...] = ()
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    authors: Authors = NOBODY
    memo: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What readers derive from it and ask for again, such as its row in a listing."""

    @property
    def label(self) -> str:
        """The kind in words: ``materialized view``."""
        return self.kind.replace("_", " ")


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A continuous query. ``plan`` is the plan's JSON. States are those of ``semantics.md`` §17, lower case.

    ``intended``: running or terminated. ``actual``: starting, running, errored, terminate_requested, terminated.
    ``attempt`` counts starts and fences sinks. ``sources`` and ``sinks`` are full names as text; only an application
    has more than one sink. ``message`` says why a query is errored or waiting. ``progress`` is the last Progress as a
    mapping.
    """

    id: str
    name: str | None
    version: int
    kind: str
    sql: str
    plan: bytes
    owner: str
    database: str
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    stores: tuple[str, ...]
    intended: str = "running"
    actual: str = "starting"
    message: str = ""
    attempt: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    pool: str = "default"
    tags: Mapping[str, str] = field(default_factory=dict)
    progress: Mapping[str, object] = field(default_factory=dict)
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    authors: Authors = NOBODY


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """Something that happened to a query. ``event``: created, moved, waiting, or the state that it came into."""

    number: int
    at: dt.datetime
    event: str
    attempt: int
    pool: str
    message: str


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A schema of a database."""

    database: str
    name: str
    owner: str
    created_at: dt.datetime | None = None
    authors: Authors = NOBODY

    @property
    def full_name(self) -> str:
        return f"{quote(self.database)}.{quote(self.name)}"


@dataclass(frozen=True, slots=True)
class DatabaseRecord:
    """A database."""

    name: str
    owner: str
    created_at: dt.datetime | None = None
    authors: Authors = NOBODY


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """An object that is nothing but its row (``inventory``). Secrets are absent from ``options``."""

    kind: str
    name: str
    type: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    state: str = "ready"
    message: str = ""
    organization: str = DEFAULT_ORGANIZATION
    id: str = ""
    created_by: str = ""
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    authors: Authors = NOBODY

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is found by: organization, kind, name."""
        return self.organization, self.kind, self.name


FIRST_ORGANIZATION = ObjectRecord("organization", "default", id=DEFAULT_ORGANIZATION, organization="", owner="orgadmin")


@dataclass(frozen=True)
class Snapshot:
    """Everything that name resolution needs, at one moment; replaced as a whole when the catalogue changes."""

    databases: Mapping[str, DatabaseRecord] = field(default_factory=dict)
    schemas: Mapping[tuple[str, str], SchemaRecord] = field(default_factory=dict)
    stores: Mapping[str, StoreRecord] = field(default_factory=dict)
    relations: Mapping[tuple[str, str, str], RelationRecord] = field(default_factory=dict)
    objects: Mapping[tuple[str, str, str], ObjectRecord] = field(default_factory=dict)
    defaults: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """By user and organization: what SET DEFAULT kept, by kind."""

    access: Access = field(default_factory=Access)
    system_copies: Mapping[str, str] = field(default_factory=dict)
    """Databases that have copies of the system tables, by name."""

    behind: Mapping[str, StoreRecord] | None = None
    """All stores, when ``stores`` holds only those that a role sees: a relation is read whatever store it lies in."""

    def __getstate__(self) -> dict[str, object]:
        """For other processes of this server: what is derived is derived anew there."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def store_of(self, relation: RelationRecord) -> StoreRecord:
        """The store that a relation lies in, seen or not."""
        return self.store_behind(relation.store or "")

    def store_behind(self, name: str) -> StoreRecord:
        """A store that something which is seen lies in. Error: UndefinedStore."""
        found = (self.stores if self.behind is None else self.behind).get(name)
        if found is None:
            raise missing("store", name)
        return found

    def first_role(self, user: str) -> str:
        """The role that a user's session begins in: its default if it may still have it."""
        default = self.defaults.get((user, DEFAULT_ORGANIZATION), {}).get("role")
        return default if default in self.access.usable(user) else self.access.first_role(user)

    def kept(self, login: str) -> Mapping[str, str]:
        """What SET DEFAULT kept for a session; a token has its user's, but for what was set with it."""
        own, users = ((name, DEFAULT_ORGANIZATION) for name in (login, self.access.user_of(login)))
        return {**self.defaults.get(users, {}), **self.defaults.get(own, {})}

    @cached_property
    def organization(self) -> ObjectRecord:
        """The one that this is the catalogue of; ask a whole snapshot, not what a role sees."""
        return next((o for o in self.objects.values() if o.kind == "organization"), FIRST_ORGANIZATION)

    @cached_property
    def roles(self) -> frozenset[str]:
        """All of them; ask a whole snapshot, not what a role sees."""
        return frozenset(o.name for o in self.objects.values() if o.kind == "role")

    def knows(self, login: str) -> bool:
        """Whether a login of PostgreSQL's is a user or a token of ours; ask a whole snapshot, not what a role sees."""
        user = (DEFAULT_ORGANIZATION, "user", login)
        return user in self.objects or login in self.access.tokens or bool(self.access.roles_of(login))

    def role_of(self, user: str, current: str) -> str:
        """The role that PostgreSQL's ``current_user`` means."""
        usable = {pg_role(role): role for role in self.access.usable(user)}
        return usable.get(current, PUBLIC)

    @cached_property
    def _views(self) -> dict[str, Snapshot]:
        return {}

    def seen_by(self, role: str) -> Snapshot:
        """What exists for a role. Nothing is copied: each look-up asks ``access``."""
        found = self._views.get(role)
        if found is None:
            found = self._views[role] = Sight(self, role).snapshot()
        return found

    def of_kind(self, organization: str, kind: str) -> list[ObjectRecord]:
        """The objects of one kind, by name."""
        found = [o for o in self.objects.values() if (o.organization, o.kind) == (organization, kind)]
        return sorted(found, key=lambda o: o.name)

    def full_name(self, name: QName, database: str, schema: str) -> FullName:
        """Fill the missing parts from the session. Does not look whether it exists."""
        parts = name.parts
        return FullName(*((database, schema)[: 3 - len(parts)] + parts if len(parts) < 3 else parts))

    def relation(self, name: QName, database: str, schema: str) -> RelationRecord | None:
        """The relation a name means in a session, if there is one."""
        full = self.full_name(name, database, schema)
        return self.relations.get((full.database, full.schema, full.name))

    def no_relation(self, name: QName, database: str, schema: str) -> UndefinedRelation:
        """The error for a name that means no relation in a session: to be raised. Ask what a role sees."""
        full = self.full_name(name, database, schema)
        if (VIRTUAL, "public", full.name) in self.relations:
            hint = f"A virtual relation is named with its database: {FullName(VIRTUAL, 'public', full.name)}."
            return UndefinedRelation(name=str(name), at=name.at, hint=hint)
        all_ = (r for r in self.relations.values() if r.kind != "index")
        there = (r.full.name for r in all_ if (r.full.database, r.full.schema) == (full.database, full.schema))
        return UndefinedRelation(name=str(name), at=name.at, hint=closest(full.name, islice(there, _COMPARED)))

    @cached_property
    def mentions(self) -> Callable[[str], bool]:
        """Whether a stream's or changelog's name stands in a text at all."""
        return self._names.within

    @cached_property
    def mentions_view(self) -> Callable[[str], bool]:
        """Whether a materialized view's name stands in a text at all."""
        return self._view_names.within

    @cached_property
    def _names(self) -> Mentions:
        return Mentions(r.full.name for r in self.relations.values() if r.kind in STREAMED)

    @cached_property
    def _view_names(self) -> Mentions:
        return Mentions(r.full.name for r in self.relations.values() if r.kind in _VIEWS)

    def keep_names(self, before: Snapshot, changed: Collection[tuple[str, str, str]] | None) -> None:
        """Take over the names of the snapshot before, of whose relations only ``changed`` are other ones now."""
        for kept, kinds in (("_names", STREAMED), ("_view_names", _VIEWS)):
            if kept not in before.__dict__ or changed is None:
                continue
            gone, come = (
                [r.full.name for r in map(whole.relations.get, changed) if r and r.kind in kinds]
                for whole in (before, self)
            )
            names = before.__dict__[kept]
            self.__dict__[kept] = names.changed(gone, come) if gone != come else names


class Seen(Mapping[K, V]):
    """A mapping without the values that may not be seen."""

    def __init__(self, whole: Mapping[K, V], sees: Callable[[V], bool]) -> None:
        self._whole = whole
        self._sees = sees

    def __getitem__(self, key: K) -> V:
        value = self._whole[key]
        if not self._sees(value):
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        return (key for key, value in self._whole.items() if self._sees(value))

    def __len__(self) -> int:
        return sum(map(self._sees, self._whole.values()))


class SeenRelations(Seen[tuple[str, str, str], RelationRecord]):
    """Relations that a role sees. All of them are gone through without asking for each about its schema anew."""

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight.whole.relations, sight.relation)
        self._sight = sight

    def values(self) -> ValuesView[RelationRecord]:
        sees = self._sight.relations()
        return {key: r for key, r in self._whole.items() if sees(r)}.values()


class Sight:
    """What one role sees of a snapshot."""

    def __init__(self, whole: Snapshot, role: str) -> None:
        self.whole, self._role = whole, role
        self._sees = whole.access.sees

    def snapshot(self) -> Snapshot:
        w = self.whole
        return Snapshot(
            databases=Seen(w.databases, self.database),
            schemas=Seen(w.schemas, self.schema),
            stores=Seen(w.stores, lambda s: self._sees(self._role, "store", s.name, s.owner)),
            relations=SeenRelations(self),
            objects=Seen(w.objects, self.object),
            defaults=w.defaults,
            access=w.access,
            behind=w.stores,
        )

    def database(self, d: DatabaseRecord) -> bool:
        return self._sees(self._role, "database", d.name, d.owner)

    def schema(self, s: SchemaRecord) -> bool:
        database = self.whole.databases.get(s.database)
        return (
            database is not None and self.database(database) and self._sees(self._role, "schema", s.full_name, s.owner)
        )

    def relation(self, r: RelationRecord) -> bool:
        """USAGE on database and schema, and some privilege on the relation."""
        schema = self.whole.schemas.get((r.full.database, r.full.schema))
        return schema is not None and self.schema(schema) and self._sees(self._role, "relation", str(r.full), r.owner)

    def relations(self) -> Callable[[RelationRecord], bool]:
        """``relation`` for many: what it asks of schemas and roles is asked once."""
        held = self.whole.access.held(self._role)
        open_ = {place for place, s in self.whole.schemas.items() if self.schema(s)}
        return lambda r: (
            (r.full.database, r.full.schema) in open_
            and (r.owner in held or self._sees(self._role, "relation", str(r.full), r.owner))
        )

    def object(self, o: ObjectRecord) -> bool:
        # Users have no owner role, and tokens are their user's: their statements say who sees them.
        if not o.owner or o.kind == "api_token":
            return True
        if o.kind == "role" and o.name in self.whole.access.held(self._role):
            return True
        if KINDS[o.kind].create == MEMBERS and self.whole.access.manages(self._role, MEMBERS):
            return True
        return self._sees(self._role, o.kind, o.name, o.owner)
