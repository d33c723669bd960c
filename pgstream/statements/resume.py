"""Resuming: a query, or an application, that begins where a terminated one stopped.

Owns: 'resume.from.query.…', which queries can be resumed, and how long their positions are known.
Must not know: how a query ends or begins. Manual: "Resume query". Start reading at ``resumed``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pgstream import stores
from pgstream.catalog.records import QueryRecord
from pgstream.errors import InvalidOption, NotReady, NotSupported
from pgstream.planner.plan import (
    Filter,
    Node,
    Outputs,
    Plan,
    Project,
    Source,
    Unnest,
    ViewSource,
    Windows,
    load,
    sources,
    walk,
)
from pgstream.planner.steps import with_sources
from pgstream.properties import Options
from pgstream.statements import access
from pgstream.statements.base import Context

ID, NAME, VERSION = (f"resume.from.query.{word}" for word in ("id", "name", "version"))
KEPT = dt.timedelta(days=30)
"""How long it is known where a query stopped."""
_PLAIN = (Source, Filter, Project, Unnest, Windows, Outputs)
_KINDS = {"Aggregate": "an aggregation", "ChangeAggregate": "an aggregation", "Union": "a set operation",
          "Recognize": "pattern recognition"}  # fmt: skip
_LIMITS = "What can be resumed reads Kafka topics, without aggregation, join, UNION or pattern recognition."


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


async def resumed(ctx: Context, r: Resume, plans: Sequence[Plan]) -> list[Plan]:
    """The plans of a query, or of an application's statements, with their sources beginning where the other one
    stopped. Errors: NotSupported, NotReady, UndefinedQuery, InvalidOption.
    """
    new = [_sources(plan.root, "this query", r.at) for plan in plans]
    old = await access.query(ctx, access.SEES, r.ref, r.at)
    before = _terminated(old, r.at)
    for source in (*(s for each in new for s in each), *before):
        store = ctx.catalog.snapshot.stores.get(source.store)
        if store is None or store.type != "kafka":
            label = stores.find(store.type).label if store is not None else "dropped"
            raise NotSupported(what=f"resuming from a {label} store", at=r.at, hint=_LIMITS)
    known = _known(old, before, r.at)
    position: dict[tuple[str, str], str] = {}
    for source in (s for each in new for s in each):
        place = source.store, source.entity
        if place not in known:
            read = ", ".join(f'entity "{entity}" of store "{store}"' for store, entity in known)
            raise InvalidOption(
                what=f'query "{old.id}" reads {read}, and this one "{source.entity}" of store "{source.store}"',
                at=r.at, hint="Both must read the same.",
            )  # fmt: skip
        position[place] = _position(old, known[place], r.at)
    if not old.progress.get("whole"):
        ctx.notice(
            f"query {old.id} did not tell where it ended: what it wrote last may be written again",
            severity="WARNING",
        )

    def begun(source: Source | ViewSource) -> Source | ViewSource:
        assert isinstance(source, Source)
        return msgspec.structs.replace(source, starting_position=position[source.store, source.entity])

    return [msgspec.structs.replace(plan, root=with_sources(plan.root, begun)) for plan in plans]


def _sources(root: Node, whose: str, at: int | None) -> list[Source]:
    """The sources of a query that keeps nothing: one, or several of an application."""
    for node in walk(root):
        if not isinstance(node, _PLAIN):
            what = _KINDS.get(type(node).__name__, "a join" if "Join" in type(node).__name__ else "an operator")
            raise NotSupported(what=f"resuming, because {whose} has {what},", at=at, hint=_LIMITS)
    return sources(root)


def _terminated(old: QueryRecord, at: int | None) -> list[Source]:
    """What a query that can be gone on from has read."""
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
    return _sources(plan.root, f'query "{old.id}"', at)


def _known(old: QueryRecord, before: Sequence[Source], at: int | None) -> dict[tuple[str, str], Source]:
    """What has been read, by store and entity. A topic that was read from several positions at once is two sources of
    Spark's, of which one may be behind; what is told of it is one position, so the other's records would be lost.
    """
    found: dict[tuple[str, str], Source] = {}
    for source in before:
        other = found.setdefault((source.store, source.entity), source)
        if any(getattr(source, field) != getattr(other, field) for field in ("starting_position", "options", "kind")):
            raise NotSupported(
                what=f'resuming, because query "{old.id}" read topic "{source.entity}" in several ways at once,', at=at,
                hint="Each topic must be read by one kind of relation, with the same position and options.",
            )  # fmt: skip
    return found


def _position(old: QueryRecord, source: Source, at: int | None) -> str:
    """Where it stopped: the next offset of each partition, or, where it had read nothing, what it was to begin with."""
    read: Any = old.progress.get("sources") or {}
    offsets: Mapping[str, int] = read.get(source.relation, {}).get("offset", {})
    if offsets:
        return "offset:" + ",".join(f"{p}:{o}" for p, o in sorted(offsets.items(), key=lambda i: int(i[0])))
    if source.starting_position == "latest":  # where that was, the store did not say
        raise NotReady(
            what=f'query "{old.id}" ended before it had read anything', at=at,
            hint=f"Leave {ID} out; 'starting.position' says where to begin.",
        )  # fmt: skip
    return source.starting_position
