"""Relations in the catalogue.

Owns: rows of streams, changelogs, tables and materialized views, and when they may go.
Must not know: the PostgreSQL objects made from a row (``objects``).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from pgstream.catalog import databases, models, rows, stores
from pgstream.catalog.records import RelationRecord
from pgstream.errors import (
    DependentsExist,
    DuplicateColumn,
    DuplicateRelation,
    ReservedName,
    UndefinedColumn,
    UndefinedRelation,
)
from pgstream.names import HIDDEN, FullName


async def _row(session: AsyncSession, full: FullName) -> models.RelationRow | None:
    row = models.RelationRow
    return await session.scalar(
        select(row).where(and_(row.database == full.database, row.schema == full.schema, row.name == full.name))
    )


async def find(session: AsyncSession, full: FullName, at: int | None = None) -> models.RelationRow:
    row = await _row(session, full)
    if row is None:
        raise UndefinedRelation(name=str(full), at=at)
    return row


async def recorded(session: AsyncSession, ids: Collection[str]) -> bool:
    """Whether one of these is there."""
    row = models.RelationRow
    return await session.scalar(select(row.id).where(row.id.in_(ids)).limit(1)) is not None


async def kept_by(session: AsyncSession, query: str) -> list[RelationRecord]:
    """Those that a query makes or keeps."""
    found = await session.scalars(select(models.RelationRow).where(models.RelationRow.query == query))
    return [rows.relation(row) for row in found]


async def create(session: AsyncSession, record: RelationRecord, at: int | None = None) -> RelationRecord:
    """An empty ``id`` gets a new one."""
    full = record.full
    await databases.find_schema(session, full.database, full.schema, at)
    if record.store is not None:
        await stores.find(session, record.store)
    if await _row(session, full):
        raise DuplicateRelation(name=str(full), at=at)
    seen: set[str] = set()
    for column in record.columns:
        if column.name in seen:
            raise DuplicateColumn(name=column.name, at=at)
        if column.name in HIDDEN and record.kind != "table":
            raise ReservedName(kind="column", name=column.name, at=at)
        seen.add(column.name)
    row = rows.relation_row(record if record.id else replace(record, id=str(uuid.uuid4())))
    session.add(row)
    await session.flush()
    await session.refresh(row)
    return rows.relation(row)


async def describe(session: AsyncSession, full: FullName, description: str | None, at: int | None) -> RelationRecord:
    row = await find(session, full, at)
    row.description = description
    await session.flush()
    await session.refresh(row)
    return rows.relation(row)


async def describe_column(
    session: AsyncSession, full: FullName, column: str, description: str | None, at: int | None
) -> RelationRecord:
    row = await find(session, full, at)
    record = rows.relation(row)
    if column not in {c.name for c in record.columns}:
        raise UndefinedColumn(name=column, at=at)
    row.columns = [
        rows.column_row(replace(c, description=description) if c.name == column else c) for c in record.columns
    ]
    await session.flush()
    await session.refresh(row)
    return rows.relation(row)


async def keep(session: AsyncSession, view: RelationRecord) -> None:
    """A view has another query now, and what comes of it: columns, key, mode, options. Its columns stay described."""
    row = await find(session, view.full)
    said = {c.name: c.description for c in rows.relation(row).columns}
    columns = tuple(replace(c, description=said.get(c.name)) for c in view.columns)
    new = rows.relation_row(replace(view, columns=columns))
    row.query, row.columns, row.primary_key = new.query, new.columns, new.primary_key
    row.mode, row.properties = new.mode, new.properties
    await session.flush()


async def drop(session: AsyncSession, full: FullName, at: int | None = None) -> RelationRecord:
    """The record that went. Refused while a query that is not terminated reads or writes it."""
    row = await find(session, full, at)
    record = rows.relation(row)
    name = str(full)
    live = await session.execute(
        select(models.QueryRow.id, models.QueryRow.sources, models.QueryRow.sinks)
        .where(models.QueryRow.actual != "terminated")
        .order_by(models.QueryRow.created_at)
    )
    users = [("query", id) for id, sources, sinks in live if name in sinks or name in sources]
    if users:
        raise DependentsExist(kind=record.label, name=name, users=users, at=at)
    await session.delete(row)
    await _drop_indexes(session, full)
    await session.flush()
    return record


async def indexes(session: AsyncSession, view: FullName) -> list[models.RelationRow]:
    """Those of a view that clients have made."""
    of = and_(models.RelationRow.kind == "index", models.RelationRow.database == view.database)
    found = await session.scalars(select(models.RelationRow).where(of))
    return [row for row in found if row.properties["on"] == str(view)]


async def _drop_indexes(session: AsyncSession, view: FullName) -> None:
    """The rows of a view's indexes: PostgreSQL drops the indexes with the table."""
    for row in await indexes(session, view):
        await session.delete(row)
