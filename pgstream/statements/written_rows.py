"""Rows as records: values that PostgreSQL computed, in the formats of a stream or changelog.

Owns: what a value of each type is in JSON, as queries write it (``docs/formats.md``), and its bytes by the sink's
schemas. Must not know: statements, where values come from. Start reading at ``Written``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pgstream.catalog.records import ColumnRecord
from pgstream.errors import InvalidText, NotYet, StringTooLong
from pgstream.formats import avro_values, protobuf, protobuf_values
from pgstream.formats.avro_values import fits
from pgstream.formats.columns import Unfit
from pgstream.planner.plan import RecordSink, Schema
from pgstream.statements import descriptors
from pgstream.statements.base import Context
from pgstream.statements.entity_bytes import WIRE, primitive
from pgstream.stores.spec import NewRecord
from pgstream.types import Type

_BITS = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}
_PROTOBUF = frozenset((*_BITS, "BOOLEAN", "FLOAT", "DOUBLE", "VARCHAR", "VARBINARY", "BYTES"))
_SHOWN = 200  # characters of a value in an error
_HALVES = re.compile("[\ud800-\udfff]")
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
Make = Callable[[Mapping[str, Any]], bytes | None]


@dataclass(frozen=True, slots=True)
class _Side:
    """A record's value or key, as the plan's sink says it."""

    format: str
    names: Sequence[str]
    schema: Schema | None
    descriptor: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """What records are made by. ``iso``: times are written with a T."""

    iso: bool
    sides: tuple[Make, Make | None]

    @classmethod
    async def of(cls, ctx: Context, sink: RecordSink, columns: Sequence[ColumnRecord], at: int | None) -> Written:
        """For a sink whose schemas are registered. ``at``: of the relation's name, for errors."""
        kinds = {c.name: c.type for c in columns}
        side = _Side(sink.value_format, sink.columns, sink.value_schema, sink.value_descriptor)
        value, key = await _made(ctx, side, kinds, at), None
        if sink.key_format is not None:
            side = _Side(sink.key_format, sink.key_columns, sink.key_schema, sink.key_descriptor)
            key = await _made(ctx, side, kinds, at)
        return cls(sink.timestamp_format.lower() == "iso8601", (value, key))

    def value(self, given: Any, column: ColumnRecord, at: int) -> Any:
        """A value that PostgreSQL gave as JSON, as the record has it in JSON. Errors: InvalidText, StringTooLong."""
        if given is not None and column.type.name in ("VARBINARY", "BYTES"):
            return base64.b64encode(bytes.fromhex(given)).decode()
        return self._fit(given, column.type, at, column.name)

    def record(self, row: Mapping[str, Any], at: int | None) -> NewRecord:
        """The record of a row. Errors: InvalidText."""
        try:
            value, key = (make(row) if make is not None else None for make in self.sides)
        except Unfit as e:
            raise InvalidText(type="record", at=at, detail=f"It does not fit the schema: {e}.") from None
        return NewRecord(value, key)

    def _fit(self, v: Any, type_: Type, at: int, path: str) -> Any:
        if v is None:
            return None
        made = _scalar(v, type_, self.iso) if type_.is_scalar else self._nested(v, type_, at, path)
        if made is None:
            text = json_text(v)
            detail = f'"{path}" cannot be {text if len(text) <= _SHOWN else text[:_SHOWN] + "…"}.'
            raise InvalidText(type=str(type_).lower(), at=at, detail=detail)
        if type_.name == "VARCHAR" and type_.params and len(made) > type_.params[0]:
            raise StringTooLong(most=type_.params[0], at=at)
        return made

    def _nested(self, v: Any, type_: Type, at: int, path: str) -> Any:
        match type_.name, v:
            case "ARRAY", list():
                return [self._fit(e, type_.args[0], at, f"{path}[{i}]") for i, e in enumerate(v, 1)]
            case "MAP", dict() if type_.args[0].name == "VARCHAR" and all(map(_is_text, v)):
                return {k: self._fit(e, type_.args[1], at, f"{path}['{k}']") for k, e in v.items()}
            case "STRUCT", dict() if v.keys() <= {n for n, _ in type_.fields}:
                return {n: self._fit(v.get(n), t, at, f"{path}->{n}") for n, t in type_.fields}
        return None


def _scalar(v: Any, type_: Type, iso: bool) -> Any:
    """The value as it is written; None when it is none of the type."""
    number = isinstance(v, (int, Decimal)) and not isinstance(v, bool)
    match type_.name:
        case "BOOLEAN":
            return v if isinstance(v, bool) else None
        # A number of few characters may have very many digits: how large it is comes first.
        case "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT" if number:
            most = 2 ** _BITS[type_.name]
            return int(v) if -most <= v < most and v == int(v) else None
        case "FLOAT" | "DOUBLE":
            return _double(v) if number else v if v in _NO_NUMBERS else None
        case "DECIMAL" if number:
            precision, scale = (*type_.params, 0)[:2] if type_.params else (10, 0)
            return v if fits(v, precision, scale) else None
        case "VARCHAR":
            return v if isinstance(v, str) and _is_text(v) else None
        case "VARBINARY" | "BYTES" if isinstance(v, str):
            return v if _is_base64(v) else None
        case "DATE" | "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ" if isinstance(v, str):
            return _time(v, type_.name, iso)
    return None


def _double(number: Decimal) -> Decimal | None:
    made = float(number)
    return Decimal(repr(made)) if math.isfinite(made) else None


def _time(text: str, kind: str, iso: bool) -> str | None:
    try:
        if kind == "DATE":
            return dt.date.fromisoformat(text).isoformat()
        if kind == "TIME":
            return _short(dt.time.fromisoformat(text).isoformat())
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            if kind == "TIMESTAMP":
                return None
            moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None  # also before the year 1, and infinity
    return _short(moment.isoformat("T" if iso else " ")) + ("Z" if kind == "TIMESTAMP_LTZ" else "")


def _short(text: str) -> str:
    """A time without zeros at the end of its fraction."""
    return text.rstrip("0") if "." in text else text


def _is_text(text: str) -> bool:
    """Half of a surrogate pair, which JSON can write, is no character."""
    return text.isascii() or not _HALVES.search(text)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


async def _made(ctx: Context, side: _Side, kinds: Mapping[str, Type], at: int | None) -> Make:
    """What makes a side's bytes of a row. Errors: NotYet."""
    names, schema = side.names, side.schema
    match side.format:
        case "primitive":
            (name,) = names
            return lambda row: _primitive(row[name], kinds[name], at)
        case "json":
            return lambda row: json_text({n: row[n] for n in names}).encode()
        case "avro" if schema is not None:
            readable, id_ = await asyncio.to_thread(avro_values.readable, schema.text), schema.id
            return lambda row: WIRE.pack(0, id_) + avro_values.written({n: row[n] for n in names}, readable)
    for name in names:
        if not _leaves(kinds[name]) <= _PROTOBUF:
            raise NotYet(
                what=f'INSERT INTO … VALUES with column "{name}" of type {kinds[name]} in PROTOBUF', at=at,
                hint="INSERT INTO … SELECT writes it.",
            )  # fmt: skip
    if side.descriptor is not None:
        message, head = await descriptors.message(ctx, side.descriptor), b""
    else:
        assert schema is not None  # registered for every format that has schemas
        message = protobuf.message(base64.b64decode(schema.text), schema.message)
        head = WIRE.pack(0, schema.id) + protobuf_values.FIRST
    return lambda row: head + protobuf_values.written({n: row[n] for n in names}, message)


def _primitive(value: Any, type_: Type, at: int | None) -> bytes | None:
    if value is None:
        return None
    if type_.name in ("VARBINARY", "BYTES"):
        return base64.b64decode(value)
    return primitive(str(value), str(type_), at)


def _leaves(type_: Type) -> set[str]:
    inner = (*type_.args, *(t for _, t in type_.fields))
    return set().union(*map(_leaves, inner)) if inner else {type_.name}


def json_text(value: Any) -> str:
    """Compact JSON, in which a Decimal is a number with all its digits."""
    match value:
        case dict():
            return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{json_text(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=False)
