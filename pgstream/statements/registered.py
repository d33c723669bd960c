"""Schemas of records in their store's schema registry: the columns that they give, and the schema of a sink.

Owns: which subject a relation's records have, when a schema is looked up and when one is registered.
Must not know: Avro (``formats.avro``), how a registry is asked (``formats.registry``).
Manual: "Data formats", "CREATE STREAM" (its form without columns). Start reading at ``columns`` and ``settle``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from pgstream.catalog import kinds
from pgstream.catalog.records import ColumnRecord, StoreRecord
from pgstream.errors import NoRegistry, UnusableSchema
from pgstream.formats import avro, protobuf
from pgstream.formats.registry import Registered, Registry
from pgstream.planner.plan import Plan, RecordSink, Schema
from pgstream.statements import descriptors, messages, places
from pgstream.statements.base import Context
from pgstream.statements.declared import Declared
from pgstream.types import Type, parse

FORMATS = ("avro", "protobuf")
"""Formats that have schemas. Records carry the id of theirs, unless a descriptor says what they are."""


def check(d: Declared, at: int | None = None) -> None:
    """A relation of such a format lies in a store that has a registry, or has a descriptor."""
    for side in ("value.format", "key.format"):
        described = descriptors.of(d, side.removesuffix(".format")) is not None
        if (format_ := d.get(side)) in FORMATS and not described and "schema_registry.name" not in d.store.options:
            raise NoRegistry(store=d.store.name, format=str(format_).upper(), at=d.at(side) or at)


async def columns(ctx: Context, d: Declared) -> tuple[ColumnRecord, ...]:
    """All columns of the newest schema of the values. Errors: UnusableSchema, RegistryUnreachable."""
    if (descriptor := descriptors.of(d, "value")) is not None:
        m = await descriptors.message(ctx, descriptor, d.at("value.descriptor.name"))
        return tuple(ColumnRecord(f.name, f.type, f.nullable) for f in protobuf.columns_of(m))
    found = await _latest(ctx, d, "value")
    if found is None:
        raise UnusableSchema(
            why=f'subject "{subject(d, "value")}" has none',
            hint="Declare the columns, or name another subject in 'value.subject'.",
        )
    if d.get("value.format") == "protobuf":
        fields = protobuf.columns_of(await messages.of_schema(ctx, found))
    else:
        fields = avro.columns_of(await _schema(found))
    return tuple(ColumnRecord(f.name, f.type, f.nullable) for f in fields)


async def key_type(ctx: Context, d: Declared) -> Declared:
    """With the key's type out of its newest schema, when the format has schemas and no type was given."""
    if d.get("key.format") not in FORMATS or d.get("key.type") is not None or d.get("key.columns") is not None:
        return d
    if (descriptor := descriptors.of(d, "key")) is not None:
        m = await descriptors.message(ctx, descriptor, d.at("key.descriptor.name"))
        return d.also(key_type=str(protobuf.struct_of(m)))
    found = await _latest(ctx, d, "key")
    if found is not None and d.get("key.format") == "protobuf":
        return d.also(key_type=str(protobuf.struct_of(await messages.of_schema(ctx, found))))
    return d if found is None else d.also(key_type=str(avro.type_of(await _schema(found))))


async def settle(ctx: Context, d: Declared, plan: Plan) -> Plan:
    """The plan of a query that writes here, its sink's schemas registered. Errors: SchemaRefused, TypeMismatch."""
    if not isinstance(plan.sink, RecordSink):
        return plan
    types = {c.name: parse(c.type) for c in plan.columns}
    return msgspec.structs.replace(plan, sink=await schemas(ctx, d, plan.sink, types))


async def schemas(ctx: Context, d: Declared, sink: RecordSink, types: Mapping[str, Type]) -> RecordSink:
    """The sink with its schemas, registered. ``types``: its columns'. Errors: SchemaRefused, TypeMismatch."""
    for side, format_, names in (
        ("value", sink.value_format, sink.columns),
        ("key", sink.key_format, sink.key_columns),
    ):
        if format_ in FORMATS and names:
            written = [(n, types[n]) for n in names]
            if (descriptor := descriptors.of(d, side)) is not None:
                protobuf.check_writes(await descriptors.message(ctx, descriptor), written)
                continue
            schema = await _registered(ctx, d, side, format_, written)
            sink = msgspec.structs.replace(sink, **{f"{side}_schema": schema})
    return sink


async def _registered(
    ctx: Context, d: Declared, side: str, format_: str, columns: Sequence[tuple[str, Type]]
) -> Schema:
    of = subject(d, side)
    async with connected(ctx, d.store) as registry:
        if format_ == "protobuf":
            return await messages.register(ctx, registry, of, _record_name(of), columns)
        old = await registry.latest(of)
        text = avro.schema_of(columns, _record_name(of), await _schema(old) if old is not None else None)
        return Schema(await registry.register(of, text), text)


def subject(d: Declared, side: str) -> str:
    """The subject of the value's or key's schemas: by the topic's name, unless the relation names one."""
    return d.get(f"{side}.subject") or f"{d.entity}-{side}"


def _record_name(of: str) -> str:
    """A subject's name as a name of Avro or Protobuf."""
    word = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in of)
    return word if word[:1].isalpha() or word[:1] == "_" else f"_{word}"


async def _latest(ctx: Context, d: Declared, side: str) -> Registered | None:
    check(d)
    async with connected(ctx, d.store) as registry:
        return await registry.latest(subject(d, side))


async def _schema(found: Registered) -> object:
    if found.kind != "AVRO":
        raise UnusableSchema(why=f"it is {found.kind}, not AVRO")
    return await asyncio.to_thread(avro.parsed, found.text, [r.text for r in flat(found.refers)])


def flat(found: Sequence[Registered]) -> list[Registered]:
    """Schemas that others refer to first."""
    return [r for one in found for r in (*flat(one.refers), one)]


@asynccontextmanager
async def connected(ctx: Context, store: StoreRecord) -> AsyncIterator[Registry]:
    """The registry of a store that has one."""
    name = store.options["schema_registry.name"]
    record = places.find(ctx, "schema_registry", name)
    if record is None:
        raise kinds.missing("schema_registry", name, None)
    options = {**record.options, **await ctx.catalog.inventory.secrets(record)}
    async with Registry(name, options) as registry:
        yield registry
