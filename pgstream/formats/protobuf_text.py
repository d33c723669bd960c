"""Columns as a message: the .proto text of a schema that a registry is given, new or with fields added to one.

Owns: which field a column becomes. Every field is ``optional``, so that NULL is told from the default.
Must not know: registries; how such a text is read again (``protobuf``, after the kernel has compiled it).
Source: protobuf.dev's "Language Guide (proto3)". Start reading at ``schema_of`` and ``widened``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pgstream.errors import NotSupported, TypeMismatch, UnusableSchema
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
    body = "".join(f"  {line}\n" for line in _message(columns, itertools.count(1), set()))
    imports = "".join(f'import "{file}";\n' for file in _imports(body))
    return f'syntax = "proto3";\n{imports}\nmessage {name} {{\n{body}}}\n'


@dataclass(frozen=True, slots=True)
class Addition:
    """Fields that a message of a text gets: the message's names from the outside in, numbers that are free in it, names
    that it has, and the columns that the fields are for.
    """

    path: tuple[str, ...]
    numbers: Sequence[int]
    taken: frozenset[str]
    columns: Sequence[tuple[str, Type]]


def widened(text: str, additions: Sequence[Addition]) -> str:
    """A file with fields added at the end of messages, and otherwise as it was. Errors: as ``schema_of``;
    UnusableSchema for a text in which a message is not found, such as a compiled one.
    """
    for a in additions:
        end, indent = _end(_code(text), a.path), "  " * len(a.path)
        lines = _message(a.columns, iter(a.numbers), set(a.taken))
        # On lines of their own, also when the brace stands behind other fields.
        body = "".join(f"\n{indent}{line}" for line in lines)
        text = f"{text[:end].rstrip()}{body}\n{indent[2:]}{text[end:]}"
        code = _code(text)
        there = {text[m.start() : m.end()].split('"')[1] for m in re.finditer(r'\bimport\b[^;"]*"[^";]*"', code)}
        head = re.match(r"\s*(?:(?:syntax|package|import|option)\b[^{};]*;\s*)*", code)
        assert head is not None
        at = len(text[: head.end()].rstrip())
        new = [f'import "{file}";' for file in _imports(body) if file not in there]
        text = "\n".join([*[text[:at]] * bool(at), *new, text[at:].removeprefix("\n")]) if new else text
    return text


def _code(text: str) -> str:
    """The text with blanks for its comments and for what is in quotes."""
    aside = r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]++|\\.)*+\"|'(?:[^'\\\n]++|\\.)*+'"
    blank = '"{}"'
    return re.sub(
        aside,
        lambda m: blank.format(" " * (len(m[0]) - 2)) if m[0][0] in "\"'" else " " * len(m[0]),
        text,
        flags=re.DOTALL,
    )


def _end(code: str, path: Sequence[str]) -> int:
    """The place of the brace that closes a message."""
    start, stop = 0, len(code)
    for name in path:
        depth = 0
        for m in re.finditer(rf"[{{}}]|\b(?:message|group)\s+{name}\b[^{{}};]*{{", code[start:stop]):
            if m[0] != "}" and m[0] != "{" and depth == 0:
                start += m.end()
                stop = start + _closing(code[start:])
                break
            depth += -1 if m[0] == "}" else 1
        else:
            raise UnusableSchema(why=f"its text has no message {'.'.join(path)} that fields can be added to")
    return stop


def _closing(inside: str) -> int:
    depth = 1
    for m in re.finditer("[{}]", inside):
        depth += 1 if m[0] == "{" else -1
        if depth == 0:
            return m.start()
    return len(inside)


def _imports(body: str) -> Iterator[str]:
    for word in sorted(_IMPORTS):
        if re.search(rf"\b{re.escape(word)}\b", body):
            yield from _IMPORTS[word]


def _message(columns: Sequence[tuple[str, Type]], numbers: Iterable[int], taken: set[str]) -> Iterator[str]:
    for number, (column, type_) in zip(numbers, columns, strict=False):
        _check_name(column)
        nested = _nested(column, type_, taken)
        if nested is not None:
            inner = next(t for t in (type_, *type_.args) if t.name == "STRUCT")
            yield f"message {nested} {{"
            yield from (f"  {line}" for line in _message(inner.fields, itertools.count(1), set()))
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
