"""Stores in the catalogue.

Owns: rows of stores and of their encrypted secrets. Must not know: what an option means (``stores`` does).
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from pgstream.catalog import models, rows
from pgstream.catalog.crypto import Cipher
from pgstream.catalog.records import StoreRecord
from pgstream.errors import DependentsExist, DuplicateObject, UndefinedStore


async def find(session: AsyncSession, name: str, at: int | None = None) -> models.StoreRow:
    row = await session.scalar(select(models.StoreRow).where(models.StoreRow.name == name))
    if row is None:
        raise UndefinedStore(name=name, at=at)
    return row


async def create(
    session: AsyncSession, cipher: Cipher, record: StoreRecord, secrets: frozenset[str], at: int | None = None
) -> StoreRecord:
    """``secrets`` names the options that are kept encrypted and apart."""
    if await session.scalar(select(models.StoreRow.id).where(models.StoreRow.name == record.name)):
        raise DuplicateObject(kind="store", name=record.name, at=at)
    row = models.StoreRow(
        id=record.id,
        name=record.name,
        type=record.type,
        options={k: v for k, v in record.options.items() if k not in secrets},
        owner=record.owner,
        state=record.state,
        message=record.message,
    )
    session.add(row)
    await session.flush()
    _keep(session, cipher, row.id, record.options, secrets)
    await session.flush()
    await session.refresh(row)
    return rows.store(row)


async def update(
    session: AsyncSession,
    cipher: Cipher,
    name: str,
    options: Mapping[str, str],
    *,
    secrets: frozenset[str],
    at: int | None = None,
) -> StoreRecord:
    """All options anew."""
    row = await find(session, name, at)
    row.options = {k: v for k, v in options.items() if k not in secrets}
    await session.execute(delete(models.StoreSecretRow).where(models.StoreSecretRow.store_id == row.id))
    _keep(session, cipher, row.id, options, secrets)
    await session.flush()
    await session.refresh(row)
    return rows.store(row)


def _keep(session: AsyncSession, cipher: Cipher, id: str, options: Mapping[str, str], secrets: frozenset[str]) -> None:
    for option in secrets & options.keys():
        session.add(models.StoreSecretRow(store_id=id, name=option, value=cipher.encrypt(options[option])))


async def options(session: AsyncSession, cipher: Cipher, name: str) -> dict[str, str]:
    """Every option in clear."""
    row = await find(session, name)
    kept = await session.scalars(select(models.StoreSecretRow).where(models.StoreSecretRow.store_id == row.id))
    return {**row.options, **{s.name: cipher.decrypt(s.value) for s in kept}}


async def drop(session: AsyncSession, name: str, at: int | None = None) -> None:
    """Refused while a relation lies in it or a live query uses it (for its bad records, say)."""
    row = await find(session, name, at)
    users = [
        ("relation", str(rows.relation(r).full))
        for r in await session.scalars(
            select(models.RelationRow).where(models.RelationRow.store == name).order_by(models.RelationRow.name)
        )
    ]
    live = await session.execute(
        select(models.QueryRow.id, models.QueryRow.stores).where(models.QueryRow.actual != "terminated")
    )
    users += [("query", id) for id, stores in live if name in stores]
    if users:
        raise DependentsExist(kind="store", name=name, users=users, at=at)
    await session.execute(delete(models.StoreRow).where(models.StoreRow.id == row.id))
