"""What a relation's WITH says, once checked: store, entity, formats, key and event time.

Owns: validation of ``statements.md`` "Relations: DDL" and ``semantics.md`` "Keys", with the position of the value at
fault; the properties as the catalogue keeps them (words in lower case).
Must not know: which options a store type has (its ``relation_options``), the catalogue's rows, any client library.
Start reading at ``declare``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pgstream import types
from pgstream.catalog.records import ColumnRecord, StoreRecord
from pgstream.errors import InvalidOption, MissingOption, PgStreamError, TypeMismatch, UndefinedColumn
from pgstream.names import Name, quote
from pgstream.properties import Given, Options
from pgstream.statements import places
from pgstream.statements.base import Context
from pgstream.stores.spec import Can, Kind, StoreType

PRIMITIVE_KEYS = ("SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR")
PRIMITIVE_VALUES = ("BOOLEAN", "TINYINT", *PRIMITIVE_KEYS, "FLOAT", "VARBINARY", "BYTES")
_EVENT_TIMES = ("BIGINT", "TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True, slots=True)
class Declared:
    """A relation's place and parameters. ``properties`` have canonical names; entity options are apart."""

    store: StoreRecord
    kind: StoreType
    entity: str
    properties: Mapping[str, str]
    entity_options: Mapping[str, str]
    given: Options

    def at(self, name: str) -> int | None:
        """Where the value of a parameter stands, however the parameter was spelled."""
        return next((g.value_at for g in self.given.values() if self._canonical(g) == name), None)

    def get(self, name: str) -> str | None:
        return self.properties.get(name)

    def also(self, **properties: str | None) -> Declared:
        """With these properties too (``value_format`` is ``value.format``); None changes nothing."""
        more = {k.replace("_", "."): v for k, v in properties.items() if v is not None}
        return replace(self, properties={**self.properties, **more})

    def _canonical(self, g: Given) -> str:
        option = self.kind.relation_options.find(g.name)
        return g.name if option is None or option.prefix else option.name


def declare(
    ctx: Context, given: Options, default_entity: str, can: Can | None = None, at: int | None = None
) -> Declared:
    """Check a relation's WITH against its store's options; ``can``: what the store type must be able to do.

    Errors: as ``OptionTable.check`` and ``StoreType.require``, UndefinedStore.
    """
    named = given.get("store")
    name = Name(named.value, named.value_at) if named is not None and named.value is not None else None
    store = places.store(ctx, name)
    kind = places.store_type(store)
    if can is not None:
        kind.require(can, at)
    checked = kind.relation_options.check(given)
    checked.pop("store", None)
    log = given.get("source.deserialization.error.log.store")
    if log is not None and log.value is not None:
        places.store(ctx, Name(log.value, log.value_at))
    properties: dict[str, str] = {}
    entity_options: dict[str, str] = {}
    for key, value in checked.items():
        option, of_entity = kind.relation_options.find(key), kind.entity_options.find(key)
        if of_entity is not None:
            entity_options[key if of_entity.prefix else of_entity.name] = value
        else:
            properties[key] = value.lower() if option is not None and option.kind is Kind.WORD else value
    entity = kind.names(properties, default_entity, store.options)
    return Declared(store, kind, entity, properties, entity_options, given)


def check_timestamp(d: Declared, columns: Sequence[ColumnRecord]) -> Declared:
    """'timestamp' names a column of a type that can be event time."""
    name = d.get("timestamp")
    if name is None:
        return d
    column = _column(d, columns, name, "timestamp")
    if column.type.name not in _EVENT_TIMES:
        raise TypeMismatch(
            what=f'timestamp column "{column.name}" is of type {column.type}',
            at=d.at("timestamp"),
            hint="An event time is BIGINT (epoch milliseconds), TIMESTAMP or TIMESTAMP_LTZ.",
        )
    return d.also(timestamp=column.name)


def check_value(d: Declared, columns: Sequence[ColumnRecord], at: int | None = None) -> None:
    """A PRIMITIVE value is one column of a type that is text, bytes or a number (``semantics.md`` "PRIMITIVE")."""
    if d.get("value.format") != "primitive":
        return
    left_out = excluded(d)
    kept = [c for c in columns if c.name not in left_out]
    if len(kept) != 1 or kept[0].type.name not in PRIMITIVE_VALUES:
        made_of = ", ".join(f"{c.name} {c.type}" for c in kept) or "no column"
        raise InvalidOption(
            what=f"a PRIMITIVE value cannot be made of {made_of}",
            at=d.at("value.format") or at,
            hint=f"It is one column of type {', '.join(PRIMITIVE_VALUES)}; use 'value.format' = 'json' for more.",
        )


def check_key(d: Declared, columns: Sequence[ColumnRecord], default: Sequence[str] = ()) -> Declared:
    """Settle key.format, key.type and key.columns. ``default`` columns make the key when the WITH names none."""
    if d.get("key.type") is not None and d.get("key.columns") is not None:
        raise InvalidOption(
            what='parameters "key.type" and "key.columns" exclude each other',
            at=d.at("key.columns"),
            hint="key.columns says the type by itself.",
        )
    if d.get("value.columns.exclude") is not None and d.get("key.columns") is None:
        raise InvalidOption(
            what='parameter "value.columns.exclude" needs "key.columns"', at=d.at("value.columns.exclude")
        )
    if d.get("key.type") is not None:
        return _key_type(d)
    named = _names(d.get("key.columns")) or tuple(default)
    if named:
        return _key_columns(d, [_column(d, columns, n, "key.columns") for n in named])
    if d.get("key.format") is not None:
        raise MissingOption(name="key.type", hint="key.format needs key.type, as in 'key.type' = 'VARCHAR'.")
    return d


def excluded(d: Declared) -> tuple[str, ...]:
    """Columns that stand in the key only."""
    key = _names(d.get("key.columns"))
    for name in _names(d.get("value.columns.exclude")):
        if name not in key:
            raise InvalidOption(
                what=f'column "{name}" of "value.columns.exclude" is not one of "key.columns"',
                at=d.at("value.columns.exclude"),
            )
    return _names(d.get("value.columns.exclude"))


def key_columns(d: Declared) -> tuple[str, ...]:
    """The columns that make the record key."""
    return _names(d.get("key.columns"))


def _key_type(d: Declared) -> Declared:
    format_, text, at = d.get("key.format"), d.get("key.type"), d.at("key.type")
    if format_ is None:
        raise MissingOption(name="key.format", hint="key.type needs key.format: PRIMITIVE, JSON, AVRO or PROTOBUF.")
    try:
        type_ = types.parse(text or "")
    except PgStreamError as e:
        e.at = at
        raise
    if format_ == "primitive" and type_.name not in PRIMITIVE_KEYS:
        raise InvalidOption(
            what=f"key.type {type_} cannot be a PRIMITIVE key", at=at, hint=f"Use one of {', '.join(PRIMITIVE_KEYS)}."
        )
    bare = format_ == "avro" and type_.name in PRIMITIVE_KEYS
    if type_.name != "STRUCT" and format_ != "primitive" and not bare:
        raise InvalidOption(
            what=f"key.type {type_} cannot be a {format_.upper()} key", at=at, hint="Use STRUCT<name type, …>."
        )
    return d.also(key_type=str(type_))


def _key_columns(d: Declared, columns: Sequence[ColumnRecord]) -> Declared:
    format_, at = d.get("key.format") or d.get("value.format") or "json", d.at("key.columns") or d.at("key.format")
    if format_ == "primitive":
        if len(columns) != 1 or columns[0].type.name not in PRIMITIVE_KEYS:
            made_of = ", ".join(f"{c.name} {c.type}" for c in columns)
            raise InvalidOption(
                what=f"a PRIMITIVE key cannot be made of {made_of}",
                at=at,
                hint=f"It is one column of type {', '.join(PRIMITIVE_KEYS)}; use 'key.format' = 'json' for more.",
            )
        type_ = columns[0].type
    else:
        type_ = types.Type("STRUCT", fields=tuple((c.name, c.type) for c in columns))
    return d.also(key_format=format_, key_type=str(type_), key_columns=",".join(quote(c.name) for c in columns))


def _column(d: Declared, columns: Sequence[ColumnRecord], name: str, option: str) -> ColumnRecord:
    for wanted in (name, name.lower()):
        for column in columns:
            if column.name == wanted:
                return column
    raise UndefinedColumn(name=name, at=d.at(option))


def _names(text: str | None) -> tuple[str, ...]:
    """A comma-separated list of column names, each quotable."""
    out = []
    for part in (text or "").split(","):
        name = part.strip()
        if len(name) > 1 and name[0] == name[-1] and name[0] in '"`':
            name = name[1:-1].replace(name[0] * 2, name[0])
        if name:
            out.append(name)
    return tuple(out)
