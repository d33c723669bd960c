"""Objects that are a row and nothing more: registries, secrets, pools, functions, tokens, users, organizations, …

Owns: their rows, their encrypted secrets, users' defaults; when one may not go, because a row elsewhere names it.
Must not know: what a kind means; ``kinds`` names them all. Start reading at ``Inventory``.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol, TypeVar

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from pgstream.catalog import kinds, models, rows
from pgstream.catalog.crypto import Cipher
from pgstream.catalog.records import ObjectRecord
from pgstream.errors import DependentsExist

D = TypeVar("D", str, bytes)
R = TypeVar("R", str, bytes)
Key = tuple[str, str, str]
"""Organization, kind, name."""
POOL = ObjectRecord("compute_pool", "default", owner="sysadmin")
"""The pool that every catalogue has."""
_SHORT = 64 << 10


class Changed(Protocol):
    """A change under way."""

    @property
    def session(self) -> AsyncSession: ...


class Inventory:
    """Simple objects; ``change`` and ``reading`` are the catalogue's transactions."""

    def __init__(
        self,
        change: Callable[[], AbstractAsyncContextManager[Changed]],
        reading: Callable[[], AbstractAsyncContextManager[AsyncSession]],
        cipher: Cipher,
    ) -> None:
        self._change = change
        self._reading = reading
        self._cipher = cipher

    async def create(
        self, record: ObjectRecord, secrets: Mapping[str, str] | None = None, at: int | None = None
    ) -> ObjectRecord:
        """An empty ``id`` gets a new one. ``secrets`` are kept encrypted and never shown."""
        async with self._change() as change:
            row = await insert(change.session, record, at)
            await self._keep(change.session, row.id, secrets or {})
            await change.session.refresh(row)
            return rows.object_(row)

    async def update(
        self, record: ObjectRecord, secrets: Mapping[str, str] | None = None, at: int | None = None
    ) -> ObjectRecord:
        """Write options, owner, state and message of a record; ``secrets``, if given, replace all that were kept."""
        async with self._change() as change:
            row = await find(change.session, record.key, at)
            row.options, row.owner = dict(record.options), record.owner
            row.type, row.state, row.message = record.type, record.state, record.message
            if secrets is not None:
                await change.session.execute(
                    delete(models.ObjectSecretRow).where(models.ObjectSecretRow.object_id == row.id)
                )
                await self._keep(change.session, row.id, secrets)
            await change.session.flush()
            await change.session.refresh(row)
            return rows.object_(row)

    async def drop(self, key: Key, at: int | None = None) -> None:
        """Refused while another object names this one."""
        async with self._change() as change:
            row = await find(change.session, key, at)
            if users := await _users(change.session, key):
                raise DependentsExist(kind=kinds.KINDS[key[1]].called, name=key[2], users=users, at=at)
            await change.session.delete(row)
            grant = models.GrantRow
            await change.session.execute(delete(grant).where(grant.kind == key[1], grant.name == key[2]))
            await change.session.flush()

    async def secrets(self, record: ObjectRecord) -> dict[str, str]:
        """Secrets and files in clear: for whoever uses the object, never to be shown."""
        async with self._reading() as session:
            kept = await session.scalars(
                select(models.ObjectSecretRow).where(models.ObjectSecretRow.object_id == record.id)
            )
            return {s.name: await _beside(self._cipher.decrypt, s.value) for s in kept}

    async def _keep(self, session: AsyncSession, id: str, secrets: Mapping[str, str]) -> None:
        for name, value in secrets.items():
            kept = await _beside(self._cipher.encrypt, value)
            session.add(models.ObjectSecretRow(object_id=id, name=name, value=kept))
        await session.flush()

    # Defaults of users

    async def set_default(self, user: str, organization: str, kind: str, value: str) -> None:
        async with self._change() as change:
            await change.session.merge(models.DefaultRow(user=user, organization=organization, kind=kind, value=value))


async def _beside(work: Callable[[D], R], data: D) -> R:
    """A secret's other form, made in a thread where it is a long file: others are served meanwhile."""
    return work(data) if len(data) <= _SHORT else await asyncio.to_thread(work, data)


async def _row(session: AsyncSession, key: Key) -> models.ObjectRow | None:
    row = models.ObjectRow
    return await session.scalar(select(row).where(row.organization == key[0], row.kind == key[1], row.name == key[2]))


async def insert(session: AsyncSession, record: ObjectRecord, at: int | None = None) -> models.ObjectRow:
    """Inside the caller's transaction; refused when the name is taken."""
    if await _row(session, record.key) is not None:
        raise kinds.duplicate(record.kind, record.name, at)
    row = rows.object_row(record if record.id else replace(record, id=str(uuid.uuid4())))
    session.add(row)
    await session.flush()
    return row


async def ensure(session: AsyncSession, record: ObjectRecord) -> None:
    """Made once, and never changed here."""
    if await _row(session, record.key) is None:
        await insert(session, record)


async def find(session: AsyncSession, key: Key, at: int | None = None) -> models.ObjectRow:
    row = await _row(session, key)
    if row is None:
        raise kinds.missing(key[1], key[2], at)
    return row


async def first(session: AsyncSession, organization: ObjectRecord) -> None:
    """Make what every catalogue has and this one has not yet: its organization, and a pool."""
    for record in (organization, POOL):
        await ensure(session, record)


# Which options of which kinds name an object: kind of the user, option, kind of the used.
REFERENCES = (("function", "source.name", "function_source"),)


async def _users(session: AsyncSession, key: Key) -> list[tuple[str, str]]:
    """Objects, stores and live queries that name this one."""
    out = [f async for f in _named(session, key)]
    return sorted(out)


async def _named(session: AsyncSession, key: Key) -> AsyncIterator[tuple[str, str]]:
    organization, kind, name = key
    for user, option, used in REFERENCES:
        if used == kind:
            rows_ = await session.scalars(
                select(models.ObjectRow).where(
                    models.ObjectRow.organization == organization, models.ObjectRow.kind == user
                )
            )
            for row in rows_:
                if row.options.get(option) == name:
                    yield user, row.name
    if kind == "schema_registry":
        for store in await session.scalars(select(models.StoreRow)):
            if store.options.get("schema_registry.name") == name:
                yield "store", store.name
    if kind == "compute_pool":
        live = await session.scalars(select(models.QueryRow).where(models.QueryRow.actual != "terminated"))
        for query in live:
            if query.pool == name:
                yield "query", query.id
