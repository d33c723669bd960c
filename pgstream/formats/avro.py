"""Avro schemas as columns, and columns as an Avro schema.

Owns: the mapping between the types of the language and Avro's, logical types included; how a schema of ours follows one
that is there already. Must not know: registries, bytes (``spark/kernel/formats``).
Sources: Avro's specification, "Schema Declaration" and "Logical Types"; the manual's "Data formats".
Start reading at ``columns_of`` and ``schema_of``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fastavro
import fastavro.schema

from pgstream.errors import NotSupported, TypeMismatch, UnusableSchema
from pgstream.formats.columns import DECLARE, MOST, Field, Room, not_deep, within_reason
from pgstream.types import BOOLEAN, CLOCKS, Type

_DEEPER = ("type", "items", "values", "fields")
_LONGEST = 2 << 20
"""Characters of a schema and of those that it refers to: the library takes them apart at one stroke."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PLAIN = {
    "boolean": BOOLEAN,
    "int": Type("INTEGER"),
    "long": Type("BIGINT"),
    "float": Type("FLOAT"),
    "double": Type("DOUBLE"),
    "string": Type("VARCHAR"),
    "bytes": Type("VARBINARY"),
    "fixed": Type("VARBINARY"),
    "enum": Type("VARCHAR"),
}
_LOGICAL = {
    ("int", "date"): Type("DATE"),
    ("int", "time-millis"): Type("TIME", (3,)),
    ("long", "time-micros"): Type("TIME", (6,)),
    ("long", "timestamp-millis"): Type("TIMESTAMP_LTZ", (3,)),
    ("long", "timestamp-micros"): Type("TIMESTAMP_LTZ", (6,)),
    ("long", "timestamp-nanos"): Type("TIMESTAMP_LTZ", (9,)),
    ("long", "local-timestamp-millis"): Type("TIMESTAMP", (3,)),
    ("long", "local-timestamp-micros"): Type("TIMESTAMP", (6,)),
    ("long", "local-timestamp-nanos"): Type("TIMESTAMP", (9,)),
}
_WRITTEN: dict[str, Any] = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INTEGER": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "VARBINARY": "bytes",
    "BYTES": "bytes",
    "DATE": {"type": "int", "logicalType": "date"},
}


def parsed(text: str, refers: Sequence[str] = ()) -> Any:
    """A schema with the names that it refers to put in. UnusableSchema when it is none."""
    schema, names = named(text, refers)
    with within_reason():
        return _Expansion(names).of(schema, ())


def named(text: str, refers: Sequence[str] = ()) -> tuple[Any, dict[str, Any]]:
    """A schema as the library wants it, and the named types in it and in those that it refers to, which come first.
    UnusableSchema when it is none.
    """
    names: dict[str, Any] = {}
    if len(text) + sum(map(len, refers)) > _LONGEST:
        raise UnusableSchema(why=f"it has more than {_LONGEST} characters", hint=DECLARE)
    try:
        for other in refers:
            fastavro.parse_schema(_strict(json.loads(other)), names)
        return fastavro.parse_schema(_strict(json.loads(text)), names), names
    except RecursionError:
        raise UnusableSchema(why="it is nested without end") from None
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as e:
        raise UnusableSchema(why=str(e) or type(e).__name__) from None


def _strict(schema: Any) -> Any:
    """Without what Avro's own library takes and fastavro does not: types in types, decimals that are none."""
    if isinstance(schema, list):
        return [_strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("type"), (dict, list)) and "name" not in schema:
        return _strict(schema["type"])
    out = {k: _strict(v) if k in _DEEPER else v for k, v in schema.items()}
    if out.get("logicalType") == "decimal" and not _is_decimal(out):
        del out["logicalType"]
    return out


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    match schema.get("precision"), schema.get("scale", 0), schema.get("size", MOST):
        case int(precision), int(scale), int(size):
            return precision >= 1 and 0 <= scale <= precision <= math.log10(2) * (8 * size - 1)
    return False


class _Expansion:
    """Names replaced by what they are the names of, but inside themselves."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names, self.room = names, Room()

    def of(self, schema: Any, within: tuple[str, ...]) -> Any:
        self.room.take()
        if isinstance(schema, list):
            return [self.of(s, within) for s in schema]
        if isinstance(schema, str):
            return schema if schema in within or schema not in self.names else self.of(self.names[schema], within)
        if "fields" in schema:
            inside = (*within, schema["name"])
            fields = [{**f, "type": self.of(f["type"], inside)} for f in schema["fields"]]
            return {**schema, "fields": fields}
        return {k: self.of(v, within) if k in ("items", "values") else v for k, v in schema.items()}


def columns_of(schema: Any) -> tuple[Field, ...]:
    """The fields of a record schema, or the records of a union. UnusableSchema for any other, or for a type that the
    language has not.
    """
    body = _body(schema)
    if isinstance(body, list) and all(_word(b) in ("record", "null") for b in body):
        return tuple(Field(name, type_, nullable=True) for name, type_ in type_of(body).fields)
    if not isinstance(body, Mapping) or body.get("type") != "record":
        raise UnusableSchema(why="it is not a record, so it has no columns", hint="Declare the one column that it is.")
    if not body["fields"]:
        raise UnusableSchema(why=f"record {body['name']} has no fields")
    return tuple(_fields(body))


def type_of(schema: Any) -> Type:
    """The one type that a schema is: a STRUCT, if it is a record."""
    return _whole(schema, "")


def _whole(schema: Any, path: str) -> Type:
    with within_reason():
        return not_deep(_type(schema, path))


def _fields(record: Mapping[str, Any]) -> Iterator[Field]:
    for f in record["fields"]:
        yield Field(f["name"], _whole(f["type"], f["name"]), _nullable(f["type"]))


def _nullable(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in [_word(b) for b in schema])


def _word(schema: Any) -> str:
    """The kind of a schema: ``record``, ``long`` …; the name of one that was said before."""
    return str(schema["type"] if isinstance(schema, Mapping) else schema)


def _body(schema: Any) -> Any:
    """What a union with null is besides null."""
    if isinstance(schema, list):
        others = [b for b in schema if _word(b) != "null"]
        return others[0] if len(others) == 1 else schema
    return schema


def _type(schema: Any, path: str) -> Type:
    s = _body(schema)
    if isinstance(s, list):
        if not (branches := [b for b in s if _word(b) != "null"]):
            return Type("VARCHAR")
        named = {_branch(b): b for b in branches}
        if len(named) < len(branches):
            raise UnusableSchema(why=f'field "{path}" is a union of which two branches have one name', hint=DECLARE)
        return Type("STRUCT", fields=tuple((name, _type(b, path)) for name, b in named.items()))
    word, details = _word(s), s if isinstance(s, Mapping) else {}
    if isinstance(s, Mapping) and isinstance(s["type"], (Mapping, list)):
        return _type(s["type"], path)
    match word:
        case "record" | "error" if not s["fields"]:
            raise UnusableSchema(why=f'field "{path}" is of record {s["name"]}, which has no fields', hint=DECLARE)
        case "record" | "error":
            return Type(
                "STRUCT", fields=tuple((f["name"], _type(f["type"], f"{path}.{f['name']}")) for f in s["fields"])
            )
        case "array":
            return Type("ARRAY", args=(_type(s["items"], path),))
        case "map":
            return Type("MAP", args=(Type("VARCHAR"), _type(s["values"], path)))
        case "null":
            return Type("VARCHAR")
    logical = str(details.get("logicalType"))
    if logical == "decimal" and word in ("bytes", "fixed") and details.get("precision", 99) <= 38:
        return Type("DECIMAL", (int(details["precision"]), int(details.get("scale", 0))))
    if (word, logical) in _LOGICAL:
        return _LOGICAL[word, logical]
    if word not in _PLAIN:
        raise UnusableSchema(why=f'field "{path}" is of type {word}, which contains itself', hint=DECLARE)
    return _PLAIN[word]


def _branch(schema: Any) -> str:
    """The field of a STRUCT that a branch of a union is, as the kernel names it (``AvroValue.branch``)."""
    word = _word(schema)
    named = isinstance(schema, Mapping) and word in ("record", "error", "enum", "fixed")
    return (str(schema["name"]).rpartition(".")[2] if named else word).lower()


def schema_of(columns: Sequence[tuple[str, Type]], name: str, base: Any = None) -> str:
    """A record schema for columns, every new field nullable.

    ``base``: the schema that the subject has already; its names, documentation and every field that is of a column's
    type are copied as they are (the manual's "base schema"). TypeMismatch for what Avro cannot hold.
    """
    body = _body(base) if base is not None else None
    old = body if isinstance(body, Mapping) and body.get("type") == "record" else {}
    kept = {f["name"]: f for f in old.get("fields", ())}
    fields = []
    full = str(old.get("name") or name)
    for column, type_ in columns:
        _check_name(column)
        if column in kept and _same(kept[column]["type"], type_):
            fields.append(kept[column])
        else:
            fields.append({"name": column, "type": ["null", _written(type_, f"{full}_{column}")], "default": None})
    described = {"doc": old["doc"]} if "doc" in old else {}
    with within_reason():
        return json.dumps(_named_once({"type": "record", "name": full, **described, "fields": fields}, set()))


def _named_once(schema: Any, seen: set[str]) -> Any:
    """A schema whose names are put in everywhere, as Avro has it: said in full the first time, then by name."""
    match schema:
        case list():
            return [_named_once(s, seen) for s in schema]
        case {"type": "record" | "error" | "enum" | "fixed", "name": str(name)}:
            if name in seen:
                return name
            seen.add(name)
    if not isinstance(schema, Mapping):
        return schema
    plain = {k: v for k, v in schema.items() if not k.startswith("__")}
    return {k: _named_once(v, seen) if k in _DEEPER else v for k, v in plain.items()}


def _same(schema: Any, type_: Type) -> bool:
    try:
        found = _whole(schema, "")
    except UnusableSchema:
        return False
    narrow = {"TINYINT": "INTEGER", "SMALLINT": "INTEGER", "BYTES": "VARBINARY"}
    wanted = Type(narrow.get(type_.name, type_.name), type_.params, type_.args, type_.fields)
    if found.name in (*CLOCKS, "VARCHAR"):
        return found.name == wanted.name
    return found == wanted


def _written(type_: Type, name: str) -> Any:
    match type_.name:
        case "DECIMAL":
            precision, scale = (*type_.params, 0)[:2] if type_.params else (10, 0)
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case "TIME" if type_.params and type_.params[0] <= 3:
            return {"type": "int", "logicalType": "time-millis"}
        case "TIME":
            return {"type": "long", "logicalType": "time-micros"}
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            unit = "millis" if type_.params and type_.params[0] <= 3 else "micros"
            local = "local-" if type_.name == "TIMESTAMP" else ""
            return {"type": "long", "logicalType": f"{local}timestamp-{unit}"}
        case "ARRAY":
            return {"type": "array", "items": ["null", _written(type_.args[0], name)]}
        case "MAP":
            if type_.args[0].name != "VARCHAR":
                raise TypeMismatch(what=f"{type_} cannot be written as Avro", hint="A map of Avro has VARCHAR keys.")
            return {"type": "map", "values": ["null", _written(type_.args[1], name)]}
        case "STRUCT":
            for field, _ in type_.fields:
                _check_name(field)
            return {
                "type": "record",
                "name": name,
                "fields": [
                    {"name": f, "type": ["null", _written(t, f"{name}_{f}")], "default": None} for f, t in type_.fields
                ],
            }
    return _WRITTEN[type_.name]


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise NotSupported(
            what=f'column "{name}" in Avro',
            detail="A name of Avro has letters, digits and _, and begins with a letter or _.",
            hint="Give the column another name with AS.",
        )
