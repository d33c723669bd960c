"""Catalogue objects as immutable values, and the snapshot that readers share.

Owns: the records that statements, planner and engine pass around, and name resolution against a session.
Must not know: SQLAlchemy, PostgreSQL, who asks. ``catalog.store`` reads and writes them.
Start reading at ``Snapshot``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pgstream import types
from pgstream.catalog.mentions import Mentions
from pgstream.names import FullName, QName

DEFAULT_ORGANIZATION = "00000000-0000-4000-8000-000000000001"
"""The organization that every server has."""


@dataclass(frozen=True, slots=True)
class ColumnRecord:
    """A column of a relation."""

    name: str
    type: types.Type
    nullable: bool = True


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


@dataclass(frozen=True, slots=True)
class RelationRecord:
    """A stream, changelog, table or materialized view.

    ``kind``: ``stream``, ``changelog``, ``table`` or ``materialized_view``. ``properties``: WITH parameters as resolved
    (what LIST RELATIONS shows). ``store`` and ``entity`` are None for a materialized view. ``query``: id of the query
    that writes it, if one was made with it. ``mode``: of a materialized view, ``append`` or ``upsert`` (one row per
    ``primary_key``; no key: a single row); ``Catalog.create_query`` fills both from the plan's sink.
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
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None

    @property
    def label(self) -> str:
        """The kind in words: ``materialized view``."""
        return self.kind.replace("_", " ")


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A continuous query. ``plan`` is the plan's JSON. States are those of ``semantics.md`` §17, lower case.

    ``intended``: running or terminated. ``actual``: starting, running, errored, terminate_requested, terminated.
    ``attempt`` counts starts and fences sinks. ``sources`` / ``sink`` are full names as text. ``message`` says why a
    query is errored or waiting. ``progress`` is the last Progress as a mapping.
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
    sink: str
    stores: tuple[str, ...]
    intended: str = "running"
    actual: str = "starting"
    message: str = ""
    attempt: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    pool: str = "default"
    progress: Mapping[str, object] = field(default_factory=dict)
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A schema of a database."""

    database: str
    name: str
    owner: str
    created_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class DatabaseRecord:
    """A database."""

    name: str
    owner: str
    created_at: dt.datetime | None = None


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

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is found by: organization, kind, name."""
        return self.organization, self.kind, self.name


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

    @cached_property
    def mentions(self) -> Callable[[str], bool]:
        """Whether a stream's or changelog's name stands in a text at all."""
        return Mentions([r.full.name for r in self.relations.values() if r.kind in ("stream", "changelog")]).within
