"""Continuous queries in the catalogue.

Owns: their rows, how a query is named (id, name, ``name:version``), and the states a query may take.
Must not know: what runs them (``engine``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from sqlalchemy import and_, delete, exists, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from pgstream import types
from pgstream.catalog import models, rows
from pgstream.catalog.records import ColumnRecord, QueryEvent, QueryRecord, RelationRecord
from pgstream.errors import UndefinedQuery

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.I)
INTENDED = frozenset({"running", "terminated"})
ACTUAL = frozenset({"starting", "running", "errored", "terminate_requested", "terminated"})
STRAY_S = 5
KEPT_EVENTS = 100
"""Of a query: one that fails for ever must not fill the catalogue."""
_MAY_CHANGE = frozenset({"intended", "actual", "message", "attempt", "progress", "pool"})


class _Sink(msgspec.Struct):
    """What the catalogue reads of a plan: the shape of a view's state table. ``sinks``: an application's."""

    relation: str = ""
    mode: str = ""
    key: list[str] = []
    sinks: list[_Sink] = []
    options: dict[str, str] = {}


class _Column(msgspec.Struct):
    name: str
    type: str
    nullable: bool = True


class _Plan(msgspec.Struct):
    sink: _Sink
    columns: list[_Column] = []


async def find(session: AsyncSession, ref: str, at: int | None = None) -> models.QueryRow:
    """By id, by name (its latest version) or by ``name:version``."""
    row: models.QueryRow | None
    if _UUID.match(ref):
        row = await session.get(models.QueryRow, ref.lower())
    else:
        name, _, version = ref.rpartition(":")
        exact = bool(name) and version.isdigit()
        found = select(models.QueryRow).where(models.QueryRow.name == (name if exact else ref))
        if exact:
            found = found.where(models.QueryRow.version == int(version))
        row = await session.scalar(found.order_by(models.QueryRow.version.desc()).limit(1))
    if row is None:
        raise UndefinedQuery(name=ref, at=at)
    return row


async def locked(session: AsyncSession, ids: Collection[str]) -> dict[str, QueryRecord]:
    """As they are now, and stay until the transaction's end; those that are there. Who locks several does it in the
    order of their ids.
    """
    row = models.QueryRow
    wanted = select(row).where(row.id.in_(ids)).order_by(row.id).with_for_update()
    found = await session.scalars(wanted, execution_options={"populate_existing": True})
    return {r.id: rows.query(r) for r in found}


async def create(session: AsyncSession, record: QueryRecord) -> QueryRecord:
    """A named query gets the next version of its name; others have version 1."""
    version = 1
    if record.name is not None:
        last = await session.scalar(
            select(func.max(models.QueryRow.version)).where(models.QueryRow.name == record.name)
        )
        version = (last or 0) + 1
    row = rows.query_row(replace(record, version=version))
    session.add(row)
    await session.flush()
    await _note(session, row, "created")
    await session.refresh(row)
    return rows.query(row)


def shaped(record: QueryRecord, relation: RelationRecord) -> RelationRecord:
    """The relation that a query makes, with what only the query's plan knows: a view's mode and key."""
    relation = replace(relation, query=record.id)
    if relation.kind != "materialized_view":
        return relation
    sink = msgspec.json.decode(record.plan, type=_Plan).sink
    sink = next((s for s in sink.sinks if s.relation == str(relation.full)), sink)
    return replace(relation, mode=sink.mode, primary_key=tuple(sink.key))


def succeeding(record: QueryRecord, view: RelationRecord) -> RelationRecord:
    """The view as it is once another query keeps it: its columns, key, mode and options are those of the plan."""
    plan = msgspec.json.decode(record.plan, type=_Plan)
    columns = tuple(ColumnRecord(c.name, types.parse(c.type), c.nullable) for c in plan.columns)
    return replace(view, query=record.id, mode=plan.sink.mode, primary_key=tuple(plan.sink.key), columns=columns,
                   properties=plan.sink.options)  # fmt: skip


async def writing(session: AsyncSession, sink: str) -> list[QueryRecord]:
    """The queries that write a relation and have not ended, oldest first."""
    row = models.QueryRow
    wanted = select(row).where(row.actual != "terminated").order_by(row.created_at, row.id)
    return [rows.query(r) for r in await session.scalars(wanted) if sink in r.sinks]


async def of_kind(session: AsyncSession, kind: str) -> list[QueryRecord]:
    """Those of a kind that have not ended and are to run."""
    row = models.QueryRow
    wanted = select(row).where(row.kind == kind, row.actual != "terminated", row.intended == "running")
    return [rows.query(r) for r in await session.scalars(wanted)]


async def listed(session: AsyncSession, include_ended: bool) -> list[QueryRecord]:
    wanted = select(models.QueryRow).order_by(models.QueryRow.created_at, models.QueryRow.id)
    if not include_ended:
        wanted = wanted.where(models.QueryRow.actual != "terminated")
    return [rows.query(r) for r in await session.scalars(wanted)]


async def every(session: AsyncSession, only: Iterable[str] | None = None) -> list[QueryRecord]:
    """All of them, or some, the ended ones too."""
    wanted = select(models.QueryRow)
    found = await session.scalars(wanted if only is None else wanted.where(models.QueryRow.id.in_(list(only))))
    return [rows.query(r) for r in found]


async def forget_ended(session: AsyncSession, days: int) -> list[str]:
    """Forget those that were terminated longer ago; their ids. One that a relation was made by stays as long as that,
    and one of a name as long as an older version, so that versions count up.
    """
    row, older = models.QueryRow, aliased(models.QueryRow)
    gone = delete(row).where(
        row.actual == "terminated",
        row.updated_at < func.now() - func.make_interval(0, 0, 0, days),
        ~exists().where(models.RelationRow.query == row.id),
        ~exists().where(older.name == row.name, older.version < row.version),
    )
    return list(await session.scalars(gone.returning(row.id), execution_options={"synchronize_session": False}))


async def busy_pools(session: AsyncSession) -> set[str]:
    """Pools of queries that are neither errored nor terminated."""
    found = select(models.QueryRow.pool).where(models.QueryRow.actual.not_in(("terminated", "errored"))).distinct()
    return set(await session.scalars(found))


async def strays(session: AsyncSession) -> list[QueryRecord]:
    """Those that are to run or to end, and whose state has been on the way there for some seconds."""
    row = models.QueryRow
    ending = and_(row.intended == "terminated", row.actual != "terminated")
    starting = and_(row.intended == "running", row.actual == "starting")
    since = func.now() - text(f"interval '{STRAY_S} seconds'")
    wanted = select(row).where(or_(ending, starting), row.updated_at < since).order_by(row.created_at, row.id)
    return [rows.query(r) for r in await session.scalars(wanted)]


async def change(session: AsyncSession, id: str, changes: Mapping[str, Any]) -> QueryRecord:
    """Set some of intended, actual, message, attempt, progress, pool."""
    if unknown := changes.keys() - _MAY_CHANGE:
        raise ValueError(f"a query's {sorted(unknown)} cannot be changed")
    if changes.get("intended", "running") not in INTENDED or changes.get("actual", "running") not in ACTUAL:
        raise ValueError(f"not a state of a query: {changes}")
    row = await find(session, id)
    before = row.actual, row.message, row.pool
    for name, value in changes.items():
        setattr(row, name, dict(value) if name == "progress" else value)
    await session.flush()
    if (row.actual, row.message, row.pool) != before:
        await _note(session, row, _event(row, before[2]))
    await session.refresh(row)
    return rows.query(row)


async def tag(session: AsyncSession, id: str, tagged: Callable[[QueryRecord], Mapping[str, str]]) -> QueryRecord:
    """Other tags, made of those that are there: two at once come one after the other."""
    row = await session.get(models.QueryRow, id, with_for_update=True)
    if row is None:
        raise UndefinedQuery(name=id)
    row.tags = dict(tagged(rows.query(row)))
    await session.flush()
    await session.refresh(row)
    return rows.query(row)


def _event(row: models.QueryRow, pool: str) -> str:
    """What a change of a query's state is called."""
    if row.pool != pool:
        return "moved"
    return "waiting" if row.actual == "starting" and row.message else row.actual


async def _note(session: AsyncSession, row: models.QueryRow, event: str) -> None:
    e = models.QueryEventRow
    last = await session.scalar(select(func.max(e.number)).where(e.query == row.id)) or 0
    session.add(e(query=row.id, number=last + 1, event=event, attempt=row.attempt, pool=row.pool, message=row.message))
    await session.execute(delete(e).where(e.query == row.id, e.number <= last + 1 - KEPT_EVENTS))


async def events(session: AsyncSession, id: str) -> list[QueryEvent]:
    """The newest of them, oldest first."""
    e = models.QueryEventRow
    found = await session.scalars(select(e).where(e.query == id).order_by(e.number))
    return [QueryEvent(r.number, r.at, r.event, r.attempt, r.pool, r.message) for r in found]


async def record_progress(session: AsyncSession, progress: Mapping[str, Mapping[str, object]]) -> None:
    """Write the progress of several queries; ``updated_at`` stays, for it says when the query's state changed."""
    for id, values in sorted(progress.items()):  # as ``locked``
        await session.execute(
            update(models.QueryRow)
            .where(models.QueryRow.id == id)
            .values(progress=dict(values), updated_at=models.QueryRow.updated_at)
        )
