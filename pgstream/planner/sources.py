"""Sources: a relation and its ``WITH ('property' = …)`` to ``plan.Source`` or ``plan.ViewSource``.

Owns: looking the relation up, checking source properties (the store type's own table says which there are, ``VIEW``
those of a materialized view), and what holds when neither the query nor the relation says it: reading begins at
``latest``.
Must not know: SELECT. Start reading at ``open_source`` and ``open_view``.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgstream import stores
from pgstream.catalog.records import RelationRecord, Snapshot
from pgstream.errors import (
    InsufficientPrivilege,
    InvalidOption,
    MissingOption,
    NotSupported,
    NotYet,
    UndefinedRelation,
    UndefinedStore,
)
from pgstream.names import QName
from pgstream.planner import plan
from pgstream.properties import Given, Options
from pgstream.stores.shared import IDLE, LATENESS, LATENESS_MS, duration
from pgstream.stores.shared import STATE_TTL as STATE_TTL
from pgstream.stores.spec import Can, Full, Kind, Option, OptionTable, StoreType

TIME_TYPES = ("BIGINT", "TIMESTAMP", "TIMESTAMP_LTZ")
_ON_BAD_RECORD = {"TERMINATE": "terminate", "IGNORE": "ignore", "IGNORE_AND_LOG": "log"}
_ERROR = "source.deserialization.error."
_LOG_TOPIC, _LOG_STORE = _ERROR + "log.topic", _ERROR + "log.store"
VIEW = OptionTable(
    "a materialized view as a source",
    (
        Option("timestamp", Kind.TEXT, "Column that is the event time; otherwise when the view got the row."),
        LATENESS,
        IDLE,
        STATE_TTL,
    ),
)


def find(name: QName, snapshot: Snapshot, database: str, schema: str) -> RelationRecord:
    """The relation a name means. Errors: UndefinedRelation, NotYet for what cannot be a source."""
    relation = snapshot.relation(name, database, schema)
    if relation is None:
        raise UndefinedRelation(name=str(name), at=name.at)
    if relation.kind not in ("stream", "changelog", "materialized_view"):
        reads = "CREATE CHANGELOG over it reads its rows and changes; FROM stream [LEFT] JOIN table ON … looks rows up."
        hint = reads if is_looked_up(relation, snapshot) else "Its store's own clients read it."
        what = f'{relation.label} "{name}" of a store as what a select reads'
        raise NotYet(what=what, at=name.at, hint=hint if relation.kind == "table" else None)
    return relation


def is_looked_up(relation: RelationRecord, snapshot: Snapshot) -> bool:
    """Whether it is a table of a store that answers for the rows of a stream."""
    if relation.kind != "table" or relation.store is None:
        return False
    return isinstance(stores.find(snapshot.store_of(relation).type).can.get(Can.LOOKUP), Full)


def open_source(
    relation: RelationRecord, alias: str, given: Options, snapshot: Snapshot, at: int | None
) -> plan.Source:
    """The source step. Errors: InvalidOption and MissingOption at the property that is wrong."""
    store = snapshot.store_of(relation)
    kind = stores.find(store.type)
    kind.require(Can.STREAM if relation.kind == "stream" else Can.CHANGELOG, at)
    try:
        checked = kind.source_options.check(given)
    except MissingOption as e:
        e.at = next((g.at for g in given.values()), at)
        raise
    _check_taken(relation, kind, given, snapshot)
    settled = {**relation.properties, **checked}
    handling = _ON_BAD_RECORD[settled.get(_ERROR + "handling", "TERMINATE").upper()]
    log_store = _log_store(relation, settled, given, snapshot, at) if handling == "log" else None
    return plan.Source(
        alias=alias,
        relation=str(relation.full),
        kind=relation.kind,
        store=store.name,
        entity=relation.entity or relation.full.name,
        columns=[plan.Column(c.name, str(c.type), c.nullable) for c in relation.columns],
        value_format=settled.get("value.format", "json").lower(),
        primary_key=list(relation.primary_key),
        key_format=settled["key.format"].lower() if settled.get("key.format") else None,
        key_type=settled.get("key.type") or None,
        value_descriptor=settled.get("value.descriptor.name") or None,
        key_descriptor=settled.get("key.descriptor.name") or None,
        timestamp=_timestamp(relation, settled.get("timestamp"), given.get("timestamp")),
        timestamp_format=settled.get("timestamp.format", "sql").lower(),
        lateness_ms=int(settled.get(LATENESS.name, LATENESS_MS)),
        idle_ms=_idle(settled),
        starting_position=settled.get("starting.position", "latest").lower(),
        on_bad_record=handling,
        bad_record_topic=settled.get(_LOG_TOPIC) if handling == "log" else None,
        bad_record_store=log_store,
        options={k: v for k, v in settled.items() if k.startswith(kind.reading)},
        at=at,
        apart=kind.kinds_apart,
        empties=kind.empties and relation.kind == "changelog",
        needs=_needs(relation, kind, settled.get("value.format", "json").lower()),
    )


def _needs(relation: RelationRecord, kind: StoreType, value_format: str) -> list[str]:
    """The columns declared NOT NULL. A table and a schema see to their own, and may change while a query runs."""
    if kind.changes is not None or value_format in ("avro", "protobuf"):
        return []
    return [c.name for c in relation.columns if not c.nullable and c.name not in relation.primary_key]


def open_view(relation: RelationRecord, alias: str, given: Options, at: int | None) -> plan.ViewSource:
    """The source step of a materialized view. Errors: InvalidOption at the property that is wrong, NotSupported."""
    if relation.row_security:
        raise NotSupported(
            what="a materialized view with row-level security as the source of a query", at=at,
            detail="Its changes are read as a whole, and would come without its policies.",
            hint="Make a view of the rows that may be read from what it is made of.",
        )  # fmt: skip
    checked = VIEW.check(given)
    settled = {**relation.properties, **checked}
    return plan.ViewSource(
        alias=alias,
        relation=str(relation.full),
        database=relation.full.database,
        view=relation.id,
        columns=[plan.Column(c.name, str(c.type), c.nullable) for c in relation.columns],
        mode=relation.mode or "append",
        key=list(relation.primary_key),
        timestamp=_timestamp(relation, settled.get("timestamp"), given.get("timestamp")),
        lateness_ms=int(settled.get(LATENESS.name, LATENESS_MS)),
        idle_ms=_idle(settled),
        at=at,
    )


def _idle(settled: Mapping[str, str]) -> int | None:
    return int(settled[IDLE.name]) if IDLE.name in settled else None


def state_ttl(given: Options) -> int | None:
    """How long the state of what is made of a source is kept, in ms, as checked before."""
    found = given.get(STATE_TTL.name)
    return int(duration(found.value)) if found is not None and found.value is not None else None


def _log_store(
    relation: RelationRecord, settled: Mapping[str, str], given: Options, snapshot: Snapshot, at: int | None
) -> str:
    """The store of the bad records' topic. Reading a relation needs no right on a store, writing there does: who reads,
    where the query names the topic or its store, otherwise the relation's owner.
    Errors: UndefinedStore, InsufficientPrivilege, NotSupported.
    """
    name, named = settled.get(_LOG_STORE, relation.store or ""), given.get(_LOG_STORE)
    at = at if named is None else named.value_at
    if named is not None and name not in snapshot.stores:
        raise UndefinedStore(name=name, at=at)
    store, topic = snapshot.store_behind(name), given.get(_LOG_TOPIC)
    if topic is not None and name not in snapshot.stores:
        raise InsufficientPrivilege(
            kind="the store of", name=f'{relation.label} "{relation.full.name}"', at=topic.value_at,
            detail="Bad records are written to it, which needs USAGE on it.",
            hint="'source.deserialization.error.log.store' names another store.",
        )  # fmt: skip
    told = named is not None or topic is not None
    if not told and not snapshot.access.has(relation.owner, "usage", "store", name, store.owner):
        raise InsufficientPrivilege(
            kind=relation.label, name=relation.full.name, at=at,
            detail=f'Its bad records are written to a store that its owner, role "{relation.owner}", has no USAGE on.',
        )  # fmt: skip
    stores.find(store.type).require(Can.BAD_RECORDS, at)
    return name


def _check_taken(relation: RelationRecord, kind: StoreType, given: Options, snapshot: Snapshot) -> None:
    """Whose a slot of a store is, nobody asks there: who names one uses it up. Errors: InsufficientPrivilege."""
    named = next((given[name] for name in kind.takes if name in given), None)
    if named is not None and relation.store not in snapshot.stores:
        raise InsufficientPrivilege(
            kind="the store of", name=f'{relation.label} "{relation.full.name}"', at=named.value_at,
            detail=f"What '{named.name}' names is made or used up there, which needs USAGE on it.",
        )  # fmt: skip


def _timestamp(relation: RelationRecord, name: str | None, given: Given | None) -> str | None:
    if not name:
        return None
    types = {c.name: c.type for c in relation.columns}
    column = name if name in types else name.lower()
    position = given.value_at if given is not None else None
    if column not in types:
        raise InvalidOption(
            what=f'timestamp column "{name}" does not exist in {relation.label} "{relation.full.name}"', at=position,
            hint=f"Its columns are {', '.join(types)}.",
        )  # fmt: skip
    if types[column].name not in TIME_TYPES:
        raise InvalidOption(
            what=f'timestamp column "{column}" is of type {types[column]}', at=position,
            hint="Use a column of type BIGINT (epoch milliseconds), TIMESTAMP or TIMESTAMP_LTZ.",
        )  # fmt: skip
    return column
