"""The catalogue's tables, as SQLAlchemy models.

Owns: how records are kept in the control database. A change here needs a migration under ``migrations/versions`` (a
test compares the two). Secrets have a table of their own, so that a row of ``stores`` can be shown to anyone.
Must not know: PostgreSQL objects made from these rows; who asks. Start reading at ``StoreRow``.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    Text,
    UniqueConstraint,
    false,
    func,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Moment = DateTime(timezone=True)
_XID = text("(pg_current_xact_id()::text)::bigint")


class Base(DeclarativeBase):
    """Text for ``str``, JSON for lists and mappings, timestamptz for moments."""

    type_annotation_map = {  # noqa: RUF012 - read by SQLAlchemy from the class
        str: Text,
        dict[str, str]: JSON,
        dict[str, Any]: JSON,
        list[str]: JSON,
        list[list[Any]]: JSON,
        dt.datetime: Moment,
        bytes: LargeBinary,
    }


class Signed:
    """Who made a row and changed it last, and in which roles: written by a trigger (``authors``)."""

    created_by: Mapped[str | None]
    created_by_role: Mapped[str | None]
    updated_by: Mapped[str | None]
    updated_by_role: Mapped[str | None]


class MetaRow(Base):
    """Single facts: the key's check value, the worker role's password (encrypted)."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class DatabaseRow(Signed, Base):
    __tablename__ = "databases"
    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    created_at: Mapped[dt.datetime] = mapped_column(server_default=func.now())


class SystemCopyRow(Base):
    """A database whose sessions read system tables (``system_copies``)."""

    __tablename__ = "system_copies"
    database: Mapped[str] = mapped_column(ForeignKey("databases.name", ondelete="CASCADE"), primary_key=True)


class SchemaRow(Signed, Base):
    __tablename__ = "schemas"
    database: Mapped[str] = mapped_column(ForeignKey("databases.name", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    created_at: Mapped[dt.datetime] = mapped_column(server_default=func.now())


class StoreRow(Signed, Base):
    __tablename__ = "stores"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    type: Mapped[str]
    options: Mapped[dict[str, str]]
    owner: Mapped[str]
    state: Mapped[str]
    message: Mapped[str]
    created_at: Mapped[dt.datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[dt.datetime] = mapped_column(server_default=func.now(), onupdate=func.now())


class StoreSecretRow(Base):
    """A secret option of a store, encrypted."""

    __tablename__ = "store_secrets"
    store_id: Mapped[str] = mapped_column(ForeignKey("stores.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[bytes]


class RelationRow(Signed, Base):
    __tablename__ = "relations"
    __table_args__ = (
        UniqueConstraint("database", "schema", "name"),
        ForeignKeyConstraint(["database", "schema"], ["schemas.database", "schemas.name"]),
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    database: Mapped[str]
    schema: Mapped[str]
    name: Mapped[str]
    kind: Mapped[str]
    columns: Mapped[list[list[Any]]]
    owner: Mapped[str]
    primary_key: Mapped[list[str]]
    store: Mapped[str | None] = mapped_column(ForeignKey("stores.name"))
    entity: Mapped[str | None]
    properties: Mapped[dict[str, str]]
    query: Mapped[str | None]
    description: Mapped[str | None]
    state: Mapped[str]
    mode: Mapped[str]
    row_security: Mapped[bool] = mapped_column(server_default=false())
    created_at: Mapped[dt.datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[dt.datetime] = mapped_column(server_default=func.now(), onupdate=func.now())


class QueryRow(Signed, Base):
    __tablename__ = "queries"
    __table_args__ = (UniqueConstraint("name", "version"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    version: Mapped[int]
    kind: Mapped[str]
    sql: Mapped[str]
    plan: Mapped[bytes]
    owner: Mapped[str]
    database: Mapped[str]
    sources: Mapped[list[str]]
    sinks: Mapped[list[str]]
    stores: Mapped[list[str]]
    intended: Mapped[str]
    actual: Mapped[str] = mapped_column(index=True)
    message: Mapped[str]
    attempt: Mapped[int]
    settings: Mapped[dict[str, str]]
    pool: Mapped[str] = mapped_column(server_default="default")
    tags: Mapped[dict[str, str]] = mapped_column(server_default="{}")
    progress: Mapped[dict[str, Any]]
    created_at: Mapped[dt.datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[dt.datetime] = mapped_column(server_default=func.now(), onupdate=func.now())


class QueryEventRow(Base):
    """Something that happened to a query; the newest of them are kept (``queries.KEPT_EVENTS``)."""

    __tablename__ = "query_events"
    query: Mapped[str] = mapped_column(ForeignKey("queries.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[dt.datetime] = mapped_column(server_default=func.clock_timestamp())
    event: Mapped[str]
    attempt: Mapped[int]
    pool: Mapped[str]
    message: Mapped[str]


class ObjectRow(Base):
    """An object of an organization that is nothing but its row: every kind of ``kinds`` without a table of its own.

    ``organization`` is an organization's id; empty for organizations themselves.
    """

    __tablename__ = "objects"
    __table_args__ = (UniqueConstraint("organization", "kind", "name"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    organization: Mapped[str]
    kind: Mapped[str]
    name: Mapped[str]
    type: Mapped[str]
    options: Mapped[dict[str, str]]
    owner: Mapped[str]
    state: Mapped[str]
    message: Mapped[str]
    created_by: Mapped[str]
    created_by_role: Mapped[str | None]
    updated_by: Mapped[str | None]
    updated_by_role: Mapped[str | None]
    created_at: Mapped[dt.datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[dt.datetime] = mapped_column(server_default=func.now(), onupdate=func.now())


class ObjectSecretRow(Base):
    """A secret or a file of an object, encrypted."""

    __tablename__ = "object_secrets"
    object_id: Mapped[str] = mapped_column(ForeignKey("objects.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[bytes]


class TokenUseRow(Base):
    """When a token was last logged in with, to the minute."""

    __tablename__ = "token_uses"
    login: Mapped[str] = mapped_column(primary_key=True)
    used_at: Mapped[dt.datetime]


class DefaultRow(Base):
    """What SET DEFAULT keeps of a user: ``kind`` is database, schema, store, role, compute_pool or organization."""

    __tablename__ = "defaults"
    user: Mapped[str] = mapped_column(primary_key=True)
    organization: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class MembershipRow(Base):
    """A role that was granted to a role, or to a user."""

    __tablename__ = "memberships"
    role: Mapped[str] = mapped_column(primary_key=True)
    member: Mapped[str] = mapped_column(primary_key=True)
    is_user: Mapped[bool] = mapped_column(primary_key=True)
    grantor: Mapped[str]
    granted_at: Mapped[dt.datetime] = mapped_column(server_default=func.now())


class GrantRow(Base):
    """A privilege of a role on an object, or on a column of it (empty: on all); see ``privileges``."""

    __tablename__ = "grants"
    __table_args__ = (Index("grants_object", "kind", "name"),)
    role: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    privilege: Mapped[str] = mapped_column(primary_key=True)
    column: Mapped[str] = mapped_column(primary_key=True)
    grant_option: Mapped[bool]
    grantor: Mapped[str]
    granted_at: Mapped[dt.datetime] = mapped_column(server_default=func.now())


class ChangeRow(Base):
    """A row that changed: its table, and its key where the table is read by key. Written by triggers."""

    __tablename__ = "changes"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    xid: Mapped[int] = mapped_column(
        BigInteger, server_default=text("(pg_current_xact_id()::text)::bigint"), index=True
    )
    of: Mapped[str]
    key: Mapped[list[str]] = mapped_column(ARRAY(Text))
    at: Mapped[dt.datetime] = mapped_column(server_default=func.now())


class PolicyRow(Base):
    """A row-level security policy of a materialized view: what follows ``CREATE POLICY name ON relation``."""

    __tablename__ = "policies"
    relation: Mapped[str] = mapped_column(ForeignKey("relations.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    definition: Mapped[str]
