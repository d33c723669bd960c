"""The relation a query writes to: its defaults, its record key, and the plan's sink.

Owns: the defaults of "CREATE STREAM AS SELECT" and how key columns are chosen; the check that the select's kind fits.
Must not know: grammar, topics that are there or not (``topics``). Start reading at ``settle`` and ``record_sink``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord
from pgstream.errors import InvalidOption, InvalidStatement, NotYet, UndefinedColumn
from pgstream.names import Name, QName
from pgstream.planner.plan import RecordSink, TableSink
from pgstream.planner.select import Planned
from pgstream.properties import Options
from pgstream.statements import declared, descriptors, registered
from pgstream.statements.base import Context
from pgstream.statements.declared import Declared
from pgstream.stores.spec import Can

UPSERTS = "enable.upsert.mode"


def declare(ctx: Context, given: Options, name: QName) -> Declared:
    """A new sink's WITH, checked against its store."""
    d = declared.declare(ctx, given, name.name.lower())
    d.kind.require(Can.SINK, name.at)
    return descriptors.settle(ctx, d)


def check_kind(planned: Planned, kind: str, statement: str, at: int) -> None:
    """CREATE STREAM AS takes a stream, CREATE CHANGELOG AS a changelog."""
    if planned.kind != kind:
        raise InvalidStatement(
            what=f"{statement} needs a select that gives a {kind}, but this one gives a {planned.kind}",
            at=at,
            hint=f"A {planned.kind} can be kept by CREATE {planned.kind.upper()} AS or CREATE MATERIALIZED VIEW AS.",
        )


def settle(
    d: Declared,
    planned: Planned | None,
    columns: Sequence[ColumnRecord],
    partition_by: Sequence[Name],
    key: Sequence[str],
    *,
    at: int | None,
) -> Declared:
    """Defaults and record key of a sink. ``planned``: None where no query writes; ``key``: a changelog's primary key;
    ``at``: where its select stands.
    """
    source = planned.sources[0].properties if planned is not None and planned.sources else {}
    d = d.also(value_format=d.get("value.format") or source.get("value.format") or "json")
    d = declared.check_timestamp(d, columns)
    if partition_by and d.get("key.columns") is not None:
        raise InvalidStatement(
            what='PARTITION BY and "key.columns" exclude each other', at=partition_by[0].at, hint="Both name the key."
        )
    _check_named(columns, partition_by)
    default = tuple(p.text for p in partition_by) or tuple(key)
    d = _check_key(d, columns, default)
    if (
        key
        and planned is not None
        and planned.mode == "upsert"
        and d.at("key.columns")
        and {*declared.key_columns(d)} != {*key}
    ):
        raise InvalidOption(
            what='"key.columns" of a changelog of changing rows cannot be other than its primary key',
            at=d.at("key.columns"),
            hint=f"That is {', '.join(key)}: by it later records replace earlier ones.",
        )
    registered.check(d, at)
    declared.check_value(d, columns, at)
    return _upserts(d, planned) if key and planned is not None else d


def _upserts(d: Declared, planned: Planned) -> Declared:
    """A changelog made of one whose record key carries its primary key is such a one. Error: InvalidOption."""
    if not any(s.kind == "changelog" and s.properties.get(UPSERTS) == "true" for s in planned.sources):
        return d
    if (at := d.at(UPSERTS)) is not None and d.get(UPSERTS) == "false":
        raise InvalidOption(
            what=f'"{UPSERTS}" cannot be FALSE for a changelog that is made of one with TRUE', at=at,
            hint="Leave it out: it is inherited.",
        )  # fmt: skip
    return d.also(enable_upsert_mode="true") if d.kind.relation_options.find(UPSERTS) is not None else d


def record_sink(into: RelationRecord, d: Declared, mode: str, columns: Sequence[str]) -> RecordSink:
    """The plan's sink for a stream or changelog."""
    if mode == "upsert":
        d.kind.require(Can.DELETES)
    left_out, key = declared.excluded(d), declared.key_columns(d)
    return RecordSink(
        relation=str(into.full),
        store=d.store.name,
        entity=d.entity,
        mode=mode,
        value_format=d.get("value.format") or "json",
        columns=[c for c in columns if c not in left_out],
        key_format=d.get("key.format") if key else None,
        key_columns=list(key),
        timestamp_format=d.get("timestamp.format") or "sql",
        options={k: v for k, v in d.properties.items() if k.startswith(d.kind.sending)} if d.kind.sending else {},
        value_descriptor=descriptors.of(d, "value"),
        key_descriptor=descriptors.of(d, "key"),
        together=True,
    )


def table_sink(into: RelationRecord, d: Declared, planned: Planned, at: int) -> TableSink:
    """The plan's sink for a table of a store: with a primary key one row each, without every row."""
    if planned.mode == "retract" or (planned.mode == "upsert" and not into.primary_key):
        raise NotYet(
            what="a table of changing rows without a key", at=at,
            hint="Add GROUP BY, or give the table a PRIMARY KEY that the select's key fills.",
        )  # fmt: skip
    key = list(into.primary_key)
    return TableSink(str(into.full), d.store.name, d.entity, "upsert" if key else "append", key)


def _check_named(columns: Sequence[ColumnRecord], partition_by: Sequence[Name]) -> None:
    names = {c.name for c in columns}
    for part in partition_by:
        if part.text not in names:
            raise UndefinedColumn(name=part.text, at=part.at, hint="PARTITION BY names output columns of the select.")


def _check_key(d: Declared, columns: Sequence[ColumnRecord], default: tuple[str, ...]) -> Declared:
    said = d.get("key.type")
    if said is None or d.get("key.columns") is not None:
        return declared.check_key(d, columns, default)
    # A sink's key is made of columns, so key.type can only confirm what they give.
    if not default:
        raise InvalidOption(
            what='parameter "key.type" does not say which columns make the key of a sink',
            at=d.at("key.type"),
            hint="Use PARTITION BY, or 'key.columns' = 'a,b'.",
        )
    declared.check_key(d, columns)
    bare = replace(d, properties={k: v for k, v in d.properties.items() if k != "key.type"})
    made = declared.check_key(bare, columns, default)
    wanted = types.parse(said)
    if str(wanted) != made.get("key.type"):
        raise InvalidOption(
            what=f"key.type {wanted} does not fit the key columns, which give {made.get('key.type')}",
            at=d.at("key.type"),
        )
    return made
