"""The bytes of single records as text that a person reads, and such text as bytes.

Owns: which format a record of an entity has when nobody says it: its schema's, if it carries a schema's id and the
store's registry knows it, else text, else bytes. Must not know: statements, how records are read or written.
A format with schemas adds its two functions to ``_SHOWN`` and ``_WRITTEN``. Start reading at ``Shown`` and ``encoded``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pgstream import types
from pgstream.catalog.records import StoreRecord
from pgstream.errors import InvalidOption, InvalidText, RegistryUnreachable, UnusableSchema
from pgstream.formats import avro_values
from pgstream.formats.avro_values import Readable, Unfit
from pgstream.formats.registry import Registered, Registry
from pgstream.statements.base import Context
from pgstream.statements.registered import connected, flat

_REGISTRY = "schema_registry.name"
_WIRE = struct.Struct(">bI")
_NUMBERS = {"TINYINT": ">b", "SMALLINT": ">h", "INTEGER": ">i", "BIGINT": ">q", "FLOAT": ">f", "DOUBLE": ">d"}
_CONTROL = {c: None for c in range(32) if chr(c) not in "\t\n\r"}


def _avro(found: Registered) -> Readable:
    return avro_values.readable(found.text, [r.text for r in flat(found.refers)])


def _avro_shown(found: Registered) -> Callable[[bytes], str]:
    schema = _avro(found)
    return lambda data: avro_values.shown(data, schema)


def _avro_written(found: Registered, value: Any) -> bytes:
    return avro_values.written(value, _avro(found))


# What a registry's kind of schema makes of the bytes behind the id.
_SHOWN: Mapping[str, Callable[[Registered], Callable[[bytes], str]]] = {"AVRO": _avro_shown}
_WRITTEN: Mapping[str, Callable[[Registered, Any], bytes]] = {"AVRO": _avro_written}


@asynccontextmanager
async def showing(ctx: Context, store: StoreRecord) -> AsyncIterator[Shown]:
    """What shows the records of a store, with its registry, if it has one."""
    if _REGISTRY not in store.options:
        yield Shown(ctx, None)
        return
    async with connected(ctx, store) as registry:
        yield Shown(ctx, registry)


class Shown:
    """Bytes of keys, values and headers as text. Schemas are asked for once."""

    def __init__(self, ctx: Context, registry: Registry | None) -> None:
        self._ctx, self._registry = ctx, registry
        self._readers: dict[int, Callable[[bytes], str] | None] = {}

    async def text(self, data: bytes | None) -> str | None:
        """A schema's value as JSON, text as it is, other bytes as ``\\x…``."""
        if data is None:
            return None
        if self._registry is not None and len(data) >= _WIRE.size and data[0] == 0:
            reader = await self._reader(_WIRE.unpack_from(data)[1])
            if reader is not None:
                try:
                    return reader(data[_WIRE.size :])
                except Unfit:
                    pass  # five bytes that only look like a schema's id
        return plain(data)

    async def _reader(self, id_: int) -> Callable[[bytes], str] | None:
        if id_ not in self._readers:
            self._readers[id_] = await self._asked(id_)
        return self._readers[id_]

    async def _asked(self, id_: int) -> Callable[[bytes], str] | None:
        assert self._registry is not None
        try:
            found = await self._registry.schema(id_)
            return _SHOWN[found.kind](found) if found is not None and found.kind in _SHOWN else None
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
    """A value or key as given: the text and where it stands, its format (None: as the subject says), a type's name."""

    text: str
    at: int | None
    format: str | None
    type: str
    subject: str


async def encoded(ctx: Context, store: StoreRecord, t: Text) -> bytes:
    """The bytes of a value or key. Without a format they are by its subject's schema, or the text as it is.

    Errors: InvalidText at the text, UnusableSchema when AVRO has no schema, RegistryUnreachable.
    """
    if t.format == "PRIMITIVE":
        return primitive(t.text, t.type, t.at)
    if t.format == "JSON":
        document(t.text, t.at)
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
        return _WIRE.pack(0, found.id) + _WRITTEN[found.kind](found, document(t.text, t.at))
    except Unfit as e:
        raise InvalidText(type=found.kind.lower(), at=t.at, detail=f'By subject "{t.subject}": {e}.') from None


def document(text: str, at: int | None) -> Any:
    """A JSON document; InvalidText at its place when it is none."""
    try:
        return json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError as e:
        raise InvalidText(type="json", at=at, detail=f"{e.msg} at character {e.pos + 1}.") from None


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
