"""Reading the catalogue: all of it once, then the rows that changed.

Owns: which tables a snapshot is made of, how each is read, and what to read anew. A trigger on each table logs the keys
of changed rows with their transaction (migration 0004); the log says what became visible since the moment of the last
reading, whoever wrote it, so that a change costs the same among ten relations and among ten thousand. A new table of
the snapshot needs an entry in ``TABLES`` and the trigger. Must not know: who reads. Start reading at ``Reader.read``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from pgstream.catalog import models, rows
from pgstream.catalog.delta import Delta, Part
from pgstream.catalog.privileges import by_object

FEW = 100
LOGS_IN = "api_token"
Key = tuple[str, ...]
Read = Callable[[AsyncSession, Select[Any]], Awaitable[Mapping[Any, Any]]]


@dataclass(frozen=True, slots=True)
class Table:
    """Where one part of a snapshot comes from. Without ``by`` it is always read as a whole."""

    row: type[models.Base]
    read: Read
    by: tuple[str, ...] = ()

    async def part(self, session: AsyncSession, keys: Collection[Key] | None) -> Part:
        """The rows of these keys; None: of all."""
        wanted = select(self.row)
        if keys is None or not self.by:
            return Part(await self.read(session, wanted))
        columns = [getattr(self.row, name) for name in self.by]
        found = await self.read(session, wanted.where(tuple_(*columns).in_(list(keys))))
        return Part(found, frozenset(keys))


async def _databases(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    return {r.name: rows.database(r) for r in await session.scalars(wanted)}


async def _schemas(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    return {(r.database, r.name): rows.schema(r) for r in await session.scalars(wanted)}


async def _stores(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    return {r.name: rows.store(r) for r in await session.scalars(wanted)}


async def _relations(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    """With their policies; who changes one of these touches the relation's row, for the log."""
    found = list(await session.scalars(wanted))
    of_these = select(models.PolicyRow)
    if len(found) <= FEW:
        of_these = of_these.where(models.PolicyRow.relation.in_([r.id for r in found]))
    policies = rows.policies(await session.scalars(of_these)) if found else {}
    return {(r.database, r.schema, r.name): rows.relation(r, policies.get(r.id, ())) for r in found}


async def _objects(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    return {o.key: o for o in map(rows.object_, await session.scalars(wanted))}


async def _tokens(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    return rows.tokens(await session.scalars(wanted.where(models.ObjectRow.kind == LOGS_IN)))


async def _defaults(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    return rows.defaults(await session.scalars(wanted))


async def _memberships(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    return {(m.role, m.member, m.is_user): m for m in map(rows.membership, await session.scalars(wanted))}


async def _grants(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    return by_object(map(rows.grant, await session.scalars(wanted)))


async def _system(session: AsyncSession, wanted: Select[Any]) -> Mapping[Any, Any]:
    return {r.database: r.database for r in await session.scalars(wanted)}


TABLES: Mapping[str, Table] = {
    "databases": Table(models.DatabaseRow, _databases),
    "schemas": Table(models.SchemaRow, _schemas, ("database", "name")),
    "stores": Table(models.StoreRow, _stores),
    "relations": Table(models.RelationRow, _relations, ("database", "schema", "name")),
    "objects": Table(models.ObjectRow, _objects, ("organization", "kind", "name")),
    "tokens": Table(models.ObjectRow, _tokens),
    "defaults": Table(models.DefaultRow, _defaults),
    "memberships": Table(models.MembershipRow, _memberships),
    "grants": Table(models.GrantRow, _grants, ("kind", "name")),
    "system_copies": Table(models.SystemCopyRow, _system),
}
_NOW = text("SELECT pg_current_snapshot()::text")
_SINCE = text("""
SELECT pg_current_snapshot()::text, (SELECT json_agg(DISTINCT jsonb_build_array(of, key)) FROM changes
    WHERE xid >= (pg_snapshot_xmin(CAST(:seen AS pg_snapshot))::text)::bigint
    AND NOT pg_visible_in_snapshot((xid::text)::xid8, CAST(:seen AS pg_snapshot)))""")
KEPT_S = 86400
"""How long the log goes back. A server that has not read for half of it reads everything."""
_FORGET = text(f"DELETE FROM changes WHERE at < now() - interval '{KEPT_S} seconds'")
FORGET_EVERY = 1000
"""Changes by this server between two clearings of the log."""


class Reader:
    """One server's reading of the catalogue."""

    def __init__(self) -> None:
        self._seen: str | None = None
        self._at = 0.0
        self._read: tuple[str, float] | None = None
        self._changes = 0

    async def read(self, session: AsyncSession) -> Delta:
        """What is new since the last reading that was ``taken``; everything the first time. All is of one moment."""
        await session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        changed: dict[str, set[Key] | None]
        now = time.monotonic()
        if self._seen is None or now - self._at > KEPT_S / 2:
            moment = (await session.execute(_NOW)).scalar_one()
            changed = dict.fromkeys(TABLES)
        else:
            moment, log = (await session.execute(_SINCE, {"seen": self._seen})).one()
            changed = {}
            for of, key in log or ():
                if of not in TABLES:  # a newer server's on the same catalogue
                    continue
                keys = changed.setdefault(of, set())
                if keys is not None:
                    keys.add(tuple(key))
            if any(kind == LOGS_IN for _, kind, _ in changed.get("objects") or ()):
                changed["tokens"] = None  # the same rows, as what logs in
        delta = {of: await TABLES[of].part(session, keys) for of, keys in changed.items()}
        self._read = moment, now
        return delta

    def taken(self) -> None:
        """Everybody knows what was read last. Where that was interrupted it is read again."""
        if self._read is not None:
            self._seen, self._at = self._read

    async def forget(self, session: AsyncSession) -> None:
        """Clear what no server needs any more from the log, now and then."""
        if self._changes % FORGET_EVERY == 0:
            await session.execute(_FORGET)
        self._changes += 1
