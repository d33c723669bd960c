"""Resuming: a query that begins where a terminated one stopped.

Owns: 'resume.from.query.…', which queries can be resumed, and how long their positions are known.
Must not know: how a query ends or begins. Manual: "Resume query". Start reading at ``resumed``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pgstream import stores
from pgstream.catalog.records import QueryRecord
from pgstream.errors import InvalidOption, NotReady, NotSupported
from pgstream.planner.plan import Filter, Node, Plan, Project, Source, Unnest, Windows, load, readings, walk
from pgstream.planner.steps import with_sources
from pgstream.properties import Options
from pgstream.statements import access
from pgstream.statements.base import Context

ID, NAME, VERSION = (f"resume.from.query.{word}" for word in ("id", "name", "version"))
KEPT = dt.timedelta(days=30)
"""How long it is known where a query stopped."""
_PLAIN = (Source, Filter, Project, Unnest, Windows)
_KINDS = {"Aggregate": "an aggregation", "ChangeAggregate": "an aggregation", "Union": "a set operation",
          "Recognize": "pattern recognition"}  # fmt: skip
_LIMITS = "A query can be resumed that reads one Kafka topic, without aggregation, join or pattern recognition."


@dataclass(frozen=True, slots=True)
class Resume:
    """``ref``: the query, as ``Catalog.query`` takes it; ``at``: its place in the text."""

    ref: str
    at: int | None


def told(given: Options, checked: Mapping[str, str]) -> Resume | None:
    """What QUERY WITH says. Errors: InvalidOption."""
    if VERSION in given and NAME not in given:
        raise InvalidOption(what=f'parameter "{VERSION}" needs "{NAME}"', at=given[VERSION].at)
    if NAME in given and ID in given:
        raise InvalidOption(
            what=f'"{ID}" and "{NAME}" exclude each other', at=given[NAME].at,
            hint="Both say which query to go on from.",
        )  # fmt: skip
    if (found := given.get(ID) or given.get(NAME)) is None:
        return None
    ref = checked[ID] if ID in checked else checked[NAME]
    return Resume(f"{ref}:{checked[VERSION]}" if VERSION in checked else ref, found.value_at or found.at)


async def resumed(ctx: Context, r: Resume, plan: Plan) -> Plan:
    """The plan with its source beginning where the other query stopped. Errors: NotSupported, NotReady, UndefinedQuery,
    InvalidOption.
    """
    new = _source(plan.root, "this query", r.at)
    old = await access.query(ctx, access.SEES, r.ref, r.at)
    before = _terminated(old, r.at)
    for source in (new, before):
        store = ctx.catalog.snapshot.stores.get(source.store)
        if store is None or store.type != "kafka":
            label = stores.find(store.type).label if store is not None else "dropped"
            raise NotSupported(what=f"resuming from a {label} store", at=r.at, hint=_LIMITS)
    if (new.store, new.entity) != (before.store, before.entity):
        raise InvalidOption(
            what=f'query "{old.id}" reads entity "{before.entity}" of store "{before.store}", '
            f'and this one "{new.entity}" of store "{new.store}"',
            at=r.at, hint="Both must read the same.",
        )  # fmt: skip
    position = _position(old, before, r.at)
    if not old.progress.get("whole"):
        ctx.notice(
            f"query {old.id} did not tell where it ended: what it wrote last may be written again",
            severity="WARNING",
        )
    root = with_sources(plan.root, lambda s: msgspec.structs.replace(s, starting_position=position))
    return msgspec.structs.replace(plan, root=root)


def _source(root: Node, whose: str, at: int | None) -> Source:
    """The one source of a query that keeps nothing."""
    for node in walk(root):
        if not isinstance(node, _PLAIN):
            what = _KINDS.get(type(node).__name__, "a join" if "Join" in type(node).__name__ else "an operator")
            raise NotSupported(what=f"resuming, because {whose} has {what},", at=at, hint=_LIMITS)
    [source] = readings(root)
    assert isinstance(source, Source)
    return source


def _terminated(old: QueryRecord, at: int | None) -> Source:
    """What a query that can be gone on from has read."""
    if old.kind == "application":
        raise NotSupported(what="resuming from an application", at=at, hint=_LIMITS)
    if old.actual != "terminated":
        raise NotReady(
            what=f'query "{old.id}" has not ended', at=at, hint=f"TERMINATE QUERY {old.id} ends it; it is {old.actual}."
        )
    if old.updated_at is not None and dt.datetime.now(dt.UTC) - old.updated_at > KEPT:
        raise NotReady(
            what=f'query "{old.id}" ended more than {KEPT.days} days ago, and where it stopped is not known any more',
            at=at, hint="Give the source a 'starting.position' instead.",
        )  # fmt: skip
    try:
        plan = load(old.plan)
    except ValueError as e:
        raise NotReady(what=f'the plan of query "{old.id}" cannot be read: {e}', at=at) from None
    return _source(plan.root, f'query "{old.id}"', at)


def _position(old: QueryRecord, source: Source, at: int | None) -> str:
    """Where it stopped: the next offset of each partition, or, where it had read nothing, what it was to begin with."""
    sources: Any = old.progress.get("sources") or {}
    offsets: Mapping[str, int] = sources.get(source.relation, {}).get("offset", {})
    if offsets:
        return "offset:" + ",".join(f"{p}:{o}" for p, o in sorted(offsets.items(), key=lambda i: int(i[0])))
    if source.starting_position == "latest":  # where that was, the store did not say
        raise NotReady(
            what=f'query "{old.id}" ended before it had read anything', at=at,
            hint=f"Leave {ID} out; 'starting.position' says where to begin.",
        )  # fmt: skip
    return source.starting_position
