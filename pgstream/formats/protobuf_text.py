"""Columns as a message: the .proto text of a schema that a registry is given.

Owns: which field a column becomes. Every field is ``optional``, so that NULL is told from the default.
Must not know: registries; how such a text is read again (``protobuf``, after the kernel has compiled it).
Source: protobuf.dev's "Language Guide (proto3)". Start reading at ``schema_of``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pgstream.errors import NotSupported, TypeMismatch
from pgstream.types import Type

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_WORDS = {
    "BOOLEAN": "bool", "TINYINT": "int32", "SMALLINT": "int32", "INTEGER": "int32", "BIGINT": "int64",
    "FLOAT": "float", "DOUBLE": "double", "VARCHAR": "string", "VARBINARY": "bytes", "BYTES": "bytes",
    "DATE": "google.type.Date", "TIME": "google.type.TimeOfDay", "TIMESTAMP": "google.protobuf.Timestamp",
    "TIMESTAMP_LTZ": "google.protobuf.Timestamp", "DECIMAL": "confluent.type.Decimal",
}  # fmt: skip
_IMPORTS = {
    "google.type.Date": ("google/type/date.proto",),
    "google.type.TimeOfDay": ("google/type/timeofday.proto",),
    "google.protobuf.Timestamp": ("google/protobuf/timestamp.proto",),
    "confluent.type.Decimal": ("confluent/meta.proto", "confluent/type/decimal.proto"),
}
_KEYS = ("VARCHAR", "INTEGER", "SMALLINT", "TINYINT", "BIGINT", "BOOLEAN")


def schema_of(columns: Sequence[tuple[str, Type]], name: str) -> str:
    """A proto3 file with one message. TypeMismatch and NotSupported for what Protobuf cannot hold."""
    body = "".join(f"  {line}\n" for line in _message(columns))
    used = {word for word in _IMPORTS if re.search(rf"\b{re.escape(word)}\b", body)}
    imports = "".join(f'import "{file}";\n' for word in sorted(used) for file in _IMPORTS[word])
    return f'syntax = "proto3";\n{imports}\nmessage {name} {{\n{body}}}\n'


def _message(columns: Sequence[tuple[str, Type]]) -> Iterator[str]:
    taken: set[str] = set()
    for number, (column, type_) in enumerate(columns, 1):
        _check_name(column)
        nested = _nested(column, type_, taken)
        if nested is not None:
            inner = next(t for t in (type_, *type_.args) if t.name == "STRUCT")
            yield f"message {nested} {{"
            yield from (f"  {line}" for line in _message(inner.fields))
            yield "}"
        yield f"{_field(type_, nested)} {column} = {number}{_options(type_)};"


def _nested(column: str, type_: Type, taken: set[str]) -> str | None:
    """The name of the message that a column's STRUCT is."""
    if not any(t.name == "STRUCT" for t in (type_, *type_.args)):
        return None
    name = base = "".join(part[:1].upper() + part[1:] for part in column.split("_")) or "Inner"
    while name in taken or name == column:
        name = f"{base}{len(taken) + 2}"
    taken.add(name)
    return name


def _field(type_: Type, nested: str | None) -> str:
    match type_.name:
        case "ARRAY":
            return f"repeated {_word(type_.args[0], nested)}"
        case "MAP":
            key, value = type_.args
            if key.name not in _KEYS:
                raise TypeMismatch(
                    what=f"{type_} cannot be written as Protobuf",
                    hint="A map of Protobuf has VARCHAR, INTEGER, BIGINT or BOOLEAN keys.",
                )
            return f"map<{_word(key, None)}, {_word(value, nested)}>"
    return f"optional {_word(type_, nested)}"


def _word(type_: Type, nested: str | None) -> str:
    if type_.name == "STRUCT" and nested is not None:
        return nested
    if type_.name not in _WORDS:
        raise TypeMismatch(
            what=f"{type_} in an ARRAY or MAP cannot be written as Protobuf", hint="Put it into a STRUCT there."
        )
    return _WORDS[type_.name]


def _options(type_: Type) -> str:
    decimal = next((t for t in (type_, *type_.args) if t.name == "DECIMAL"), None)
    if decimal is None:
        return ""
    precision, scale = (*decimal.params, 0)[:2] if decimal.params else (10, 0)
    params = f'{{key: "precision", value: "{precision}"}}, {{key: "scale", value: "{scale}"}}'
    return f" [(confluent.field_meta) = {{params: [{params}]}}]"


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise NotSupported(
            what=f'column "{name}" in Protobuf',
            detail="A name of Protobuf has letters, digits and _, and begins with a letter or _.",
            hint="Give the column another name with AS.",
        )
