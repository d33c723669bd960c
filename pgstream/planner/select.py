"""SELECT to plan: the planner's door.

Owns: ``Planned``, an interactive select's LIMIT, and what a sink of each kind is given.
Must not know: how queries are built (``query``), Spark beyond its SQL text, sessions. Everything is pure: a snapshot
goes in, a plan comes out. Start reading at ``plan_select``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
from sqlglot import exp

from pgstream import stores as store_types
from pgstream.catalog.records import RelationRecord, Snapshot
from pgstream.errors import NotSupported, PgStreamError, TooDeep
from pgstream.names import FullName
from pgstream.planner import parameters as bound
from pgstream.planner import plan
from pgstream.planner.answers import Answers
from pgstream.planner.bind import at
from pgstream.planner.bounded import Bounded
from pgstream.planner.narrow import narrowed
from pgstream.planner.query import Planner
from pgstream.planner.ranks import Numbering, check_bounded
from pgstream.planner.relations import Relations, Virtual
from pgstream.planner.steps import Step, with_sources
from pgstream.sql.select import Select

_COUNT = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned select. ``key``: output names of a changelog's key. ``limit``: of an interactive select.
    ``sources`` are read; ``met`` are named: virtual relations stand there for what they read. ``state_ttl_ms``: how
    long state that nothing touches is kept, as all sources say together.
    """

    root: plan.Node
    mode: str
    kind: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    sources: tuple[RelationRecord, ...]
    stores: tuple[str, ...]
    limit: int | None = None
    met: tuple[RelationRecord, ...] = ()
    state_ttl_ms: int | None = None


def plan_select(
    select: Select,
    snapshot: Snapshot,
    database: str,
    schema: str,
    want: str,
    *,
    parameters: Sequence[bound.Parameter] = (),
    expires: bool = False,
    answers: Answers | None = None,
    virtuals: Mapping[FullName, Virtual] | None = None,
) -> Planned:
    """Plan a select for ``want``: view (early results), stream, changelog (final windows) or result (interactive).
    ``expires``: its state has a time to live. ``answers``: what PostgreSQL has said so far; Unanswered asks for more.
    ``virtuals``: of the application that it is part of; beside its others Spark's own GROUP BY tells final rows only.

    Errors: UndefinedRelation, UndefinedColumn, UndefinedFunction, GroupingError, NotYet … with ``at`` in the text.
    """
    numbering = Numbering()
    try:
        tree = bound.bind(select.tree, parameters)
        limit = _limit(tree, want)
        empty = Relations(snapshot, database, schema, want, answers=answers or Answers(), virtuals=virtuals)
        step, relations = _settled(replace(select, tree=tree), empty, want, expires or empty.expire(tree), numbering)
        check_bounded(plan.walk(step.node))
    except PgStreamError as e:
        # What has no token of its own, such as an empty list, is said at the query.
        e.at = select.at if e.at is None else e.at
        raise
    except RecursionError:  # a long sum, which is read as one in another
        raise TooDeep(what="the query", at=select.at) from None
    step = _with_metadata(_for_sink(step, want), snapshot)
    step = replace(step, node=narrowed(step.node))
    stores = dict.fromkeys(s for source in plan.sources(step.node) for s in (source.store, source.bad_record_store))
    stores |= dict.fromkeys(n.store or None for n in plan.lookups(step.node))
    return Planned(
        step.node,
        step.mode,
        step.kind,
        step.key,
        tuple(c.field for c in step.columns),
        tuple({r.id: r for r in relations.read}.values()),
        tuple(s for s in stores if s is not None),
        limit,
        tuple({r.full: r for r in relations.met}.values()),
        _longest(relations.ttls),
    )


def _longest(ttls: Sequence[int | None]) -> int | None:
    """State is kept for good where one source does not say how long."""
    found = [ttl for ttl in ttls if ttl is not None]
    return max(found) if found and len(found) == len(ttls) else None


def _with_metadata(step: Step, snapshot: Snapshot) -> Step:
    """The step, its sources told the type of what their stores say of records, where that is wanted."""

    def told(s: plan.Source | plan.ViewSource) -> plan.Source | plan.ViewSource:
        if not isinstance(s, plan.Source) or "metadata" not in s.wants:
            return s
        return msgspec.structs.replace(s, metadata=store_types.find(snapshot.store_behind(s.store).type).metadata)

    return replace(step, node=with_sources(step.node, told))


def _settled(
    select: Select, relations: Relations, want: str, expires: bool, numbering: Numbering
) -> tuple[Step, Relations]:
    """The select planned, again while there are ranks by event time that turn out to be bounded by nothing."""
    first: PgStreamError | None = None
    while True:
        read = replace(relations, read=[], met=[], ttls=[])
        try:
            planner = Planner(read, Bounded(read, select), want, expires, numbering)
            step = planner.query(select.tree, {}, top=True, last=read.virtuals is None)
        except PgStreamError as e:
            first = first or e
            if not numbering.open:
                raise first from None
        else:
            if not numbering.open:
                return step, read
        numbering = Numbering(numbering.found | numbering.open)


def _for_sink(step: Step, want: str) -> Step:
    """A topic holds the last record of a key: what is replaced must not be taken back after it. A view removes first
    and adds then, but where it holds a single row; without a key it holds rows as often as they are there.
    """
    if step.mode != "retract" or want == "result" or (want == "view" and step.keyless):
        return step
    both = want == "view" and step.key
    return replace(step, node=step.node if both else plan.Normalize(step.node, list(step.key), True), mode="upsert")


def _limit(tree: exp.Expr, want: str) -> int | None:
    """The top query's LIMIT, for an interactive select; others are refused further in."""
    limit = tree.args.get("limit")
    if limit is None or want != "result":
        return None
    count = limit.expression if isinstance(limit, exp.Limit) else None
    if count is None or not isinstance(count, exp.Literal) or not _COUNT.fullmatch(str(count.this)):
        raise NotSupported(what="LIMIT other than a whole number", at=at(limit))
    return int(str(count.this))
