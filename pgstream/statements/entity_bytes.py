"""The bytes of single records as text that a person reads, and such text as bytes.

Owns: which format a record of an entity has when nobody says it: that of the descriptor attached to the entity; its
schema's, if it carries a schema's id and the store's registry knows it; else text, else bytes.
Must not know: statements, how records are read or written.
A format with schemas adds its two functions to ``_SHOWN`` and ``_WRITTEN``. Start reading at ``Shown`` and ``encoded``.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor

from pgstream import types
from pgstream.catalog.records import StoreRecord
from pgstream.errors import DocumentTooLong, InvalidOption, InvalidText, RegistryUnreachable, TooDeep, UnusableSchema
from pgstream.formats import avro_values, protobuf_values
from pgstream.formats.avro_values import Readable
from pgstream.formats.columns import Unfit
from pgstream.formats.registry import Registered, Registry
from pgstream.statements import descriptors, messages
from pgstream.statements.base import Context
from pgstream.statements.registered import connected, flat

_REGISTRY = "schema_registry.name"
WIRE = struct.Struct(">bI")
_NUMBERS = {"TINYINT": ">b", "SMALLINT": ">h", "INTEGER": ">i", "BIGINT": ">q", "FLOAT": ">f", "DOUBLE": ">d"}
_LONG = 1000
"""Digits of a whole number that is read as one: of very many, reading takes long, and is refused by Python."""
_SHORT = 4 << 10
"""Bytes of a record that is shown at once. While a longer one is made into text others are served."""
_DOCUMENT = 8 << 20
"""Characters of a document that is taken apart, which happens at one stroke."""
_CONTROL = {c: None for c in range(32) if chr(c) not in "\t\n\r"}


S = TypeVar("S")
Reader = Callable[[bytes], Awaitable[str]]


def _avro(found: Registered) -> Readable:
    return avro_values.readable(found.text, [r.text for r in flat(found.refers)])


async def _avro_shown(_: Context, found: Registered) -> Reader:
    schema = await asyncio.to_thread(_avro, found)

    async def shown(data: bytes) -> str:
        return await _beside(avro_values.shown, data, schema)

    return shown


async def _avro_written(_: Context, found: Registered, value: Any) -> bytes:
    return await asyncio.to_thread(lambda: avro_values.written(value, _avro(found)))


async def _protobuf_shown(ctx: Context, found: Registered) -> Reader:
    known: dict[tuple[int, ...], Descriptor] = {}

    async def shown(data: bytes) -> str:
        place, message = protobuf_values.indexes(data)
        if place not in known:
            known[place] = await messages.of_schema(ctx, found, place)
        return await _beside(protobuf_values.shown, message, known[place])

    return shown


async def _protobuf_written(ctx: Context, found: Registered, value: Any) -> bytes:
    message = await messages.of_schema(ctx, found)
    return protobuf_values.FIRST + await asyncio.to_thread(protobuf_values.written, value, message)


async def _beside(make: Callable[[bytes, S], str], data: bytes, schema: S) -> str:
    """The text of a record, made in a thread where it is long."""
    return make(data, schema) if len(data) <= _SHORT else await asyncio.to_thread(make, data, schema)


# What a registry's kind of schema makes of the bytes behind the id.
_SHOWN: Mapping[str, Callable[[Context, Registered], Awaitable[Reader]]] = {
    "AVRO": _avro_shown,
    "PROTOBUF": _protobuf_shown,
}
_WRITTEN: Mapping[str, Callable[[Context, Registered, Any], Awaitable[bytes]]] = {
    "AVRO": _avro_written,
    "PROTOBUF": _protobuf_written,
}


@asynccontextmanager
async def showing(ctx: Context, store: StoreRecord, entity: str) -> AsyncIterator[Shown]:
    """What shows the records of an entity, with its store's registry, if it has one."""
    described = {}
    for side in descriptors.SIDES:
        if (name := descriptors.attached(ctx, store.name, entity, side)) is not None:
            described[side] = await descriptors.message(ctx, name)
    if _REGISTRY not in store.options:
        yield Shown(ctx, None, described)
        return
    async with connected(ctx, store) as registry:
        yield Shown(ctx, registry, described)


class Shown:
    """Bytes of keys, values and headers as text. Schemas are asked for once. ``described``: by side, a descriptor's."""

    def __init__(self, ctx: Context, registry: Registry | None, described: Mapping[str, Descriptor]) -> None:
        self._ctx, self._registry, self._described = ctx, registry, described
        self._readers: dict[int, Reader | None] = {}

    async def text(self, data: bytes | None, side: str) -> str | None:
        """A schema's value as JSON, text as it is, other bytes as ``\\x…``."""
        if data is None:
            return None
        try:
            if side in self._described:
                return await _beside(protobuf_values.shown, data, self._described[side])
            if self._registry is not None and len(data) >= WIRE.size and data[0] == 0:
                reader = await self._reader(WIRE.unpack_from(data)[1])
                if reader is not None:
                    return await reader(data[WIRE.size :])
        except (Unfit, UnusableSchema):
            pass  # bytes that only look like a schema's id, or that are not as described
        return plain(data)

    async def _reader(self, id_: int) -> Reader | None:
        if id_ not in self._readers:
            self._readers[id_] = await self._asked(id_)
        return self._readers[id_]

    async def _asked(self, id_: int) -> Reader | None:
        assert self._registry is not None
        try:
            found = await self._registry.schema(id_)
            return await _SHOWN[found.kind](self._ctx, found) if found is not None and found.kind in _SHOWN else None
        except UnusableSchema:
            return None
        except RegistryUnreachable as e:
            self._registry = None
            self._ctx.notice(f"{e.text}; records with a schema's id are shown as bytes")
            return None


def plain(data: bytes) -> str:
    """Bytes as text; those that no text of PostgreSQL's can hold, or that are none, in its form of bytea."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "\\x" + data.hex()
    return text if text.translate(_CONTROL) == text else "\\x" + data.hex()


@dataclass(frozen=True, slots=True)
class Text:
    """A value or key as given: the text and where it stands, its format (None: as its descriptor or subject says), a
    type's name. ``descriptor``: the name of one that was given or is attached, and ``described``, where it was given.
    """

    text: str
    at: int | None
    format: str | None
    type: str
    subject: str
    descriptor: str | None = None
    described: int | None = None


async def encoded(ctx: Context, store: StoreRecord, t: Text) -> bytes:
    """The bytes of a value or key. Without a format they are by its descriptor or its subject's schema, or the text as
    it is. Errors: InvalidText at the text, UnusableSchema when a format has no schema, RegistryUnreachable.
    """
    if t.format == "PRIMITIVE":
        return primitive(t.text, t.type, t.at)
    if t.format == "JSON":
        document(t.text, t.at)
    if t.descriptor is not None and t.format in (None, "PROTOBUF"):
        message = await descriptors.message(ctx, t.descriptor, t.described)
        try:
            return await asyncio.to_thread(protobuf_values.written, document(t.text, t.at), message)
        except Unfit as e:
            raise InvalidText(type="protobuf", at=t.at, detail=f'By descriptor "{t.descriptor}": {e}.') from None
    if t.format == "JSON" or _REGISTRY not in store.options:
        return t.text.encode()
    async with connected(ctx, store) as registry:
        found = await registry.latest(t.subject)
    if found is None and t.format is None:
        return t.text.encode()
    if found is None or found.kind not in _WRITTEN or t.format not in (None, found.kind):
        kind = "none" if found is None else f"one of {found.kind}"
        raise UnusableSchema(why=f'subject "{t.subject}" has {kind}', hint="Format JSON writes the text as it is.")
    try:
        return WIRE.pack(0, found.id) + await _WRITTEN[found.kind](ctx, found, document(t.text, t.at))
    except Unfit as e:
        raise InvalidText(type=found.kind.lower(), at=t.at, detail=f'By subject "{t.subject}": {e}.') from None


def _whole(text: str) -> int | Decimal:
    return int(text) if len(text) < _LONG else Decimal(text)


def document(text: str, at: int | None) -> Any:
    """A JSON document; InvalidText at its place when it is none."""
    if len(text) > _DOCUMENT:
        raise DocumentTooLong(most=_DOCUMENT, at=at)
    try:
        return json.loads(text, parse_float=Decimal, parse_int=_whole)
    except json.JSONDecodeError as e:
        raise InvalidText(type="json", at=at, detail=f"{e.msg} at character {e.pos + 1}.") from None
    except RecursionError:
        raise TooDeep(what="a JSON document", at=at) from None


def primitive(text: str, type_: str, at: int | None) -> bytes:
    """One value of a scalar type as the PRIMITIVE format has it: numbers big-endian, bytes given as ``\\x…``."""
    name = types.parse(type_).name
    try:
        match name:
            case "VARCHAR":
                return text.encode()
            case "VARBINARY" | "BYTES" if text.startswith("\\x"):
                return bytes.fromhex(text[2:])
            case "BOOLEAN" if text.lower() in ("true", "false"):
                return b"\1" if text.lower() == "true" else b"\0"
            case "FLOAT" | "DOUBLE":
                return struct.pack(_NUMBERS[name], float(text))
            case _ if name in _NUMBERS:
                return struct.pack(_NUMBERS[name], int(text))
    except (ValueError, struct.error, OverflowError):
        pass
    if name not in (*_NUMBERS, "BOOLEAN", "VARBINARY", "BYTES"):
        raise InvalidOption(what=f"type {type_} has no PRIMITIVE form", at=at)
    raise InvalidText(type=name.lower(), at=at, detail=f'The text is "{text}".')
