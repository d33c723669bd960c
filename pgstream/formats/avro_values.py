"""Avro values as JSON that a person reads or writes: PRINT ENTITY and INSERT INTO ENTITY.

Owns: a value's bytes as JSON text, and JSON fitted to a schema, with the field that does not fit.
Must not know: registries, the wire format, statements. The hot path is the kernel's (``spark/kernel/formats``).
Start reading at ``shown`` and ``written``.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import io
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro

from pgstream.formats import avro, avro_bytes
from pgstream.formats.columns import Unfit

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNITS = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_RANGES = {"int": 2**31, "long": 2**63}
_MOST = 200_000
"""Values that are written in one, tried ones too."""
_LISTED = 20
"""Symbols of an enum that an error names."""
_SPECIAL = ("NaN", "Infinity", "-Infinity")
_BROKEN = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError,
           decimal.DecimalException)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Readable:
    """A schema as the library wants it, with the named types in it."""

    body: Any
    names: dict[str, Any] = field(default_factory=dict)


def readable(text: str, refers: Sequence[str] = ()) -> Readable:
    """A schema after those that it refers to. UnusableSchema when it is none."""
    return Readable(*avro.named(text, refers))


def shown(data: bytes, schema: Readable) -> str:
    """A value as JSON text: bytes as base64, times in SQL's layout. Unfit for what is no value of the schema."""
    try:
        avro_bytes.check(data, schema.body, schema.names)
        return _text(fastavro.schemaless_reader(io.BytesIO(data), schema.body))
    except _BROKEN as e:
        raise Unfit(str(e) or type(e).__name__) from None


def written(value: Any, schema: Readable) -> bytes:
    """The bytes of a value of JSON (read with ``parse_float=Decimal``). Unfit, naming the field, if it does not fit."""
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, schema.body, _Fitting(schema.names).fit(value, schema.body, ""))
    except RecursionError:
        raise Unfit("it is nested too deeply") from None
    return out.getvalue()


def _text(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {_text(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_text, value)) + "]"
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case Decimal():
            return format(value, "f")
        case float() if not math.isfinite(value):
            return json.dumps(json.dumps(value))
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
            return f'"{text}{"Z" if value.tzinfo is not None else ""}"'
        case dt.date() | dt.time() | uuid.UUID():
            return f'"{value}"'
    return json.dumps(value, ensure_ascii=False)


_NO = object()


class _Endless(Unfit):
    """What no other branch makes good."""


class _Fitting:
    """Values as the library writes them. Logical types are brought to what lies below them.

    A value is tried by the branches of a union one after another, and so are those in it by the branches below: how
    often is bounded.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names, self._left = names, _MOST
        self._symbols: dict[str, frozenset[str]] = {}

    def fit(self, value: Any, schema: Any, path: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _Endless(f"it has more than {_MOST} values, each counted for every branch that it is tried by")
        if isinstance(schema, str) and schema in self._names:
            schema = self._names[schema]
        if isinstance(schema, list):
            return self._union(value, schema, path)
        s: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {"type": schema}
        word = s["type"]
        if isinstance(word, (Mapping, list)):
            return self.fit(value, word, path)
        match word:
            case "record" | "error" if isinstance(value, dict):
                return self._record(value, s, path)
            case "array" if isinstance(value, list):
                return [self.fit(v, s["items"], f"{path}[{i}]") for i, v in enumerate(value)]
            case "map" if isinstance(value, dict):
                return {k: self.fit(v, s["values"], f"{path}.{k}".lstrip(".")) for k, v in value.items()}
            case "enum" if isinstance(value, str) and self._is_symbol(value, s):
                return value
        found = _scalar(value, word, s)
        if found is _NO:
            raise Unfit(f"{_place(path)} must be {_name(s)}, found {_found(value)}")
        return found

    def _is_symbol(self, value: str, s: Mapping[str, Any]) -> bool:
        if s["name"] not in self._symbols:
            self._symbols[s["name"]] = frozenset(s["symbols"])
        return value in self._symbols[s["name"]]

    def _record(self, value: dict[str, Any], s: Mapping[str, Any], path: str) -> dict[str, Any]:
        fields = {f["name"]: f for f in s["fields"]}
        for name in value:
            if name not in fields:
                raise Unfit(f'the schema has no field "{_below(path, name)}"')
        out: dict[str, Any] = {}
        for name, f in fields.items():
            if name in value:
                out[name] = self.fit(value[name], f["type"], _below(path, name))
            elif "default" in f:
                continue
            elif isinstance(f["type"], list) and "null" in f["type"]:
                out[name] = None
            else:
                raise Unfit(f'field "{_below(path, name)}" is missing, and the schema has no default for it')
        return out

    def _union(self, value: Any, branches: Sequence[Any], path: str) -> Any:
        """The first branch that takes the value; with a branch's name around it (``{"long": 1}``), that one."""
        others = [b for b in branches if b != "null"]
        if value is None and len(others) < len(branches):
            return None
        if isinstance(value, dict) and len(value) == 1:
            for b in others:
                if _branch(b).lower() == next(iter(value)).lower():
                    return _said(b, self.fit(next(iter(value.values())), b, path))
        failures = []
        for b in others:
            try:
                return _said(b, self.fit(value, b, path))
            except _Endless:
                raise
            except Unfit as e:
                failures.append(e)
        if len(failures) == 1:
            raise failures[0]
        raise Unfit(f"{_place(path)} must be {' or '.join(map(_name, branches))}, found {_found(value)}")


def _scalar(value: Any, word: str, s: Mapping[str, Any]) -> Any:
    logical = str(s.get("logicalType", ""))
    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    match word:
        case "null" if value is None:
            return None
        case "boolean" if isinstance(value, bool):
            return value
        case "int" | "long":
            ticks = _ticks(value, logical) if isinstance(value, str) else value if number else None
            if isinstance(ticks, int) and -_RANGES[word] <= ticks < _RANGES[word]:
                return ticks
        case "float" | "double" if number or value in _SPECIAL:
            return float(value)
        case "string" if isinstance(value, str):
            return value
        case "bytes" | "fixed" if logical == "decimal":
            return _decimal(value, s) if number else _NO
        case "bytes" | "fixed" if isinstance(value, str):
            data = _base64(value)
            if data is not None and len(data) == s.get("size", len(data)):
                return data
    return _NO


def _branch(schema: Any) -> str:
    """A branch's name without its namespace."""
    s = schema if isinstance(schema, Mapping) else {"type": schema}
    return str(s.get("name") or s["type"]).rpartition(".")[2]


def _said(branch: Any, value: Any) -> Any:
    """A union's value with its branch, where the library takes one: the name of a record or of a plain type."""
    if isinstance(branch, str):
        return (branch, value)
    return (branch["name"], value) if branch["type"] in ("record", "error") else value


def _ticks(text: str, logical: str) -> int | None:
    """A date or time in text as the count that its logical type is; None when it is none."""
    try:
        if logical == "date":
            return (dt.date.fromisoformat(text) - _EPOCH.date()).days
        kind, _, unit = logical.rpartition("-")
        if unit not in _UNITS:
            return None
        whole = dt.datetime.fromisoformat(f"1970-01-01 {text}" if kind == "time" else text)
    except ValueError:
        return None
    if kind.startswith(("local", "time")) and not kind.startswith("timestamp") and whole.tzinfo is not None:
        return None
    since = (whole if whole.tzinfo is not None else whole.replace(tzinfo=dt.UTC)) - _EPOCH
    return since // dt.timedelta(microseconds=1) * _UNITS[unit] // 1_000_000


def _decimal(value: Any, s: Mapping[str, Any]) -> Any:
    wide = Decimal(value)
    return wide if fits(wide, s["precision"], s.get("scale", 0)) else _NO


def fits(number: Decimal, precision: int, scale: int) -> bool:
    """Whether a number has no more digits than that, ``scale`` of them behind the point.

    How large it is comes first: a number of few characters may have very many digits.
    """
    if number.copy_abs() >= Decimal((0, (1,), precision - scale)):
        return False
    return number == number.quantize(Decimal((0, (1,), -scale)), context=decimal.Context(prec=precision + 1))


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _place(path: str) -> str:
    return f'field "{path}"' if path else "it"


def _name(schema: Any) -> str:
    """A schema as a person calls it: its name, or its type with what it means."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return " or ".join(map(_name, schema))
    if schema.get("logicalType") == "decimal":
        return f"decimal({schema['precision']}, {schema.get('scale', 0)})"
    if schema["type"] == "enum":
        more = ", …" * (len(schema["symbols"]) > _LISTED)
        return f"one of {', '.join(schema['symbols'][:_LISTED])}{more}"
    return str(schema.get("name") or schema.get("logicalType") or schema["type"])


def _found(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | Decimal():
            return f"the number {value}"
        case str():
            return f'the string "{value if len(value) <= 40 else value[:40] + "…"}"'
        case list():
            return "an array"
    return "an object"
