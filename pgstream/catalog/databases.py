"""Databases and schemas in the catalogue.

Owns: their rows, their reserved names, and when they may go. Must not know: the PostgreSQL database made from a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from pgstream.catalog import models, rows
from pgstream.catalog.records import DatabaseRecord, SchemaRecord
from pgstream.errors import (
    DependentsExist,
    DuplicateDatabase,
    DuplicateSchema,
    ReservedName,
    UnacceptableSchemaName,
    UndefinedDatabase,
    UndefinedSchema,
)

CONTROL = "pgstream_control"
# Only a name of PostgreSQL's own kind stays out of \\dn, tools' trees and dumps: docs/decisions/0007.
STATE = "pg_pgstream"
_DATABASES = frozenset({CONTROL, "postgres", "template0", "template1", "deltastream", "virtual"})
# The hidden schema of earlier versions: ``upgrade`` knows them by it.
BEFORE = "pgstream_state"
_SCHEMAS = frozenset({BEFORE, "information_schema"})


async def find(session: AsyncSession, name: str, at: int | None = None) -> models.DatabaseRow:
    row = await session.get(models.DatabaseRow, name)
    if row is None:
        raise UndefinedDatabase(name=name, at=at)
    return row


async def find_schema(session: AsyncSession, database: str, name: str, at: int | None = None) -> models.SchemaRow:
    await find(session, database, at)
    row = await session.get(models.SchemaRow, (database, name))
    if row is None:
        raise UndefinedSchema(name=name, at=at)
    return row


async def create(session: AsyncSession, name: str, owner: str, at: int | None = None) -> DatabaseRecord:
    """With its default schema ``public``."""
    if name in _DATABASES or name.startswith("pg_"):
        raise ReservedName(kind="database", name=name, at=at)
    if await session.get(models.DatabaseRow, name):
        raise DuplicateDatabase(name=name, at=at)
    row = models.DatabaseRow(name=name, owner=owner)
    session.add(row)
    await session.flush()
    session.add(models.SchemaRow(database=name, name="public", owner=owner))
    await session.flush()
    await session.refresh(row)
    return rows.database(row)


async def create_schema(
    session: AsyncSession, database: str, name: str, owner: str, at: int | None = None
) -> SchemaRecord:
    if name.startswith("pg_"):
        raise UnacceptableSchemaName(name=name, detail='The prefix "pg_" is reserved for system schemas.')
    if name in _SCHEMAS:
        raise ReservedName(kind="schema", name=name, at=at)
    await find(session, database, at)
    if await session.get(models.SchemaRow, (database, name)):
        raise DuplicateSchema(name=name, at=at)
    row = models.SchemaRow(database=database, name=name, owner=owner)
    session.add(row)
    await session.flush()
    await session.refresh(row)
    return rows.schema(row)


async def _relations_in(session: AsyncSession, database: str, schema: str | None = None) -> list[tuple[str, str]]:
    """What is inside."""
    of = models.RelationRow.database == database
    if schema is not None:
        of &= models.RelationRow.schema == schema
    found = await session.scalars(select(models.RelationRow).where(of).order_by(models.RelationRow.name))
    return [("relation", str(rows.relation(r).full)) for r in found]


def says(inside: Sequence[object]) -> str:
    """What a refused DROP says before the relations."""
    return f"It holds {len(inside)} relation{'s' if len(inside) > 1 else ''}:"


async def drop(session: AsyncSession, name: str, at: int | None = None) -> None:
    """Refused while one of its schemas holds a relation; empty schemas go with it."""
    await find(session, name, at)
    if inside := await _relations_in(session, name):
        raise DependentsExist(kind="database", name=name, users=inside, says=says(inside), bare=True, at=at)
    gone = await session.scalars(
        delete(models.SchemaRow).where(models.SchemaRow.database == name).returning(models.SchemaRow)
    )
    names = [rows.schema(s).full_name for s in gone]
    await session.execute(
        delete(models.GrantRow).where(models.GrantRow.kind == "schema", models.GrantRow.name.in_(names))
    )
    await session.execute(delete(models.DatabaseRow).where(models.DatabaseRow.name == name))


async def drop_schema(session: AsyncSession, database: str, name: str, at: int | None = None) -> None:
    """Refused while it holds a relation."""
    row = await find_schema(session, database, name, at)
    if inside := await _relations_in(session, database, name):
        raise DependentsExist(kind="schema", name=name, users=inside, says=says(inside), bare=True, at=at)
    await session.delete(row)
    await session.flush()
