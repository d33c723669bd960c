"""Rows of the control database as records, and back.

Owns: the JSON form of columns (``[name, type text, nullable]``, and a description if there is one) and of policies.
Must not know: sessions, PostgreSQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache

from pgstream import types
from pgstream.catalog import models
from pgstream.catalog.privileges import Grant, Membership, Token
from pgstream.catalog.records import (
    Authors,
    ColumnRecord,
    DatabaseRecord,
    ObjectRecord,
    PolicyRecord,
    QueryRecord,
    RelationRecord,
    SchemaRecord,
    StoreRecord,
)
from pgstream.catalog.roles import login
from pgstream.names import FullName

_type = lru_cache(maxsize=4096)(types.parse)


_shared = lru_cache(maxsize=4096)(Authors)


def _authors(row: models.Signed | models.ObjectRow) -> Authors:
    return _shared(row.created_by or None, row.created_by_role, row.updated_by, row.updated_by_role)


def database(row: models.DatabaseRow) -> DatabaseRecord:
    return DatabaseRecord(row.name, row.owner, row.created_at, _authors(row))


def schema(row: models.SchemaRow) -> SchemaRecord:
    return SchemaRecord(row.database, row.name, row.owner, row.created_at, _authors(row))


def store(row: models.StoreRow) -> StoreRecord:
    return StoreRecord(
        row.id, row.name, row.type, row.options, row.owner, row.state, row.message, row.created_at, row.updated_at,
        _authors(row),
    )  # fmt: skip


def relation(row: models.RelationRow, policies: tuple[PolicyRecord, ...] = ()) -> RelationRecord:
    return RelationRecord(
        id=row.id,
        full=FullName(row.database, row.schema, row.name),
        kind=row.kind,
        columns=tuple(ColumnRecord(name, _type(type), *more) for name, type, *more in row.columns),
        owner=row.owner,
        primary_key=tuple(row.primary_key),
        store=row.store,
        entity=row.entity,
        properties=row.properties,
        query=row.query,
        description=row.description,
        state=row.state,
        mode=row.mode,
        row_security=row.row_security,
        policies=policies,
        created_at=row.created_at,
        updated_at=row.updated_at,
        authors=_authors(row),
    )


def policy(row: models.PolicyRow) -> PolicyRecord:
    definition = json.loads(row.definition)
    return PolicyRecord(row.name, tuple(definition["roles"]), definition["using"], definition["permissive"])


def policies(found: Iterable[models.PolicyRow]) -> dict[str, tuple[PolicyRecord, ...]]:
    """By the relation's id, each relation's by name."""
    out: dict[str, tuple[PolicyRecord, ...]] = {}
    for row in sorted(found, key=lambda row: row.name):
        out[row.relation] = (*out.get(row.relation, ()), policy(row))
    return out


def relation_row(record: RelationRecord) -> models.RelationRow:
    return models.RelationRow(
        id=record.id,
        database=record.full.database,
        schema=record.full.schema,
        name=record.full.name,
        kind=record.kind,
        columns=[column_row(c) for c in record.columns],
        owner=record.owner,
        primary_key=list(record.primary_key),
        store=record.store,
        entity=record.entity,
        properties=dict(record.properties),
        query=record.query,
        description=record.description,
        state=record.state,
        mode=record.mode,
        row_security=record.row_security,
    )


def column_row(column: ColumnRecord) -> list[object]:
    """An older version reads what has no description."""
    described = [] if column.description is None else [column.description]
    return [column.name, str(column.type), column.nullable, *described]


def query(row: models.QueryRow) -> QueryRecord:
    return QueryRecord(
        id=row.id,
        name=row.name,
        version=row.version,
        kind=row.kind,
        sql=row.sql,
        plan=row.plan,
        owner=row.owner,
        database=row.database,
        sources=tuple(row.sources),
        sinks=tuple(row.sinks),
        stores=tuple(row.stores),
        intended=row.intended,
        actual=row.actual,
        message=row.message,
        attempt=row.attempt,
        settings=row.settings,
        pool=row.pool,
        tags=row.tags,
        progress=row.progress,
        created_at=row.created_at,
        updated_at=row.updated_at,
        authors=_authors(row),
    )


def query_row(record: QueryRecord) -> models.QueryRow:
    return models.QueryRow(
        id=record.id,
        name=record.name,
        version=record.version,
        kind=record.kind,
        sql=record.sql,
        plan=record.plan,
        owner=record.owner,
        database=record.database,
        sources=list(record.sources),
        sinks=list(record.sinks),
        stores=list(record.stores),
        intended=record.intended,
        actual=record.actual,
        message=record.message,
        attempt=record.attempt,
        settings=dict(record.settings),
        pool=record.pool,
        tags=dict(record.tags),
        progress=dict(record.progress),
    )


def object_(row: models.ObjectRow) -> ObjectRecord:
    return ObjectRecord(
        kind=row.kind,
        name=row.name,
        type=row.type,
        options=row.options,
        owner=row.owner,
        state=row.state,
        message=row.message,
        organization=row.organization,
        id=row.id,
        created_by=row.created_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
        authors=_authors(row),
    )


def object_row(record: ObjectRecord) -> models.ObjectRow:
    return models.ObjectRow(
        id=record.id,
        organization=record.organization,
        kind=record.kind,
        name=record.name,
        type=record.type,
        options=dict(record.options),
        owner=record.owner,
        state=record.state,
        message=record.message,
        created_by=record.created_by,
    )


def tokens(found: Iterable[models.ObjectRow]) -> dict[str, Token]:
    """By the name that each logs in with."""
    return {login(t.created_by, t.name): Token(t.created_by, t.options["token.role_name"]) for t in found}


def defaults(found: Iterable[models.DefaultRow]) -> dict[tuple[str, str], dict[str, str]]:
    out: dict[tuple[str, str], dict[str, str]] = {}
    for row in found:
        out.setdefault((row.user, row.organization), {})[row.kind] = row.value
    return out


def membership(row: models.MembershipRow) -> Membership:
    return Membership(row.role, row.member, row.is_user, row.grantor, row.granted_at)


def grant(row: models.GrantRow) -> Grant:
    return Grant(row.role, row.privilege, row.kind, row.name, row.column, row.grant_option, row.grantor, row.granted_at)
