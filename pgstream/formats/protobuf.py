"""Protobuf messages as columns, and the files of a descriptor set that a message needs.

Owns: the mapping from Protobuf's types to the language's, well-known messages included, and which columns a message can
be written from. Must not know: registries, the catalogue, bytes of records (``spark/kernel/formats``); how columns
become a message (``protobuf_text``).
Sources: protobuf.dev's "Language Guide" and "Well-Known Types"; the manual's "Serializing with Protobuf".
Start reading at ``message`` and ``columns_of``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from pgstream.errors import TypeMismatch, UnusableSchema
from pgstream.formats.columns import DECLARE, Field, Room, not_deep, within_reason
from pgstream.types import BOOLEAN, Type

_F = FieldDescriptor
INTEGERS = (_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32, _F.TYPE_UINT32, _F.TYPE_FIXED32)
BIGINTS = (_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64, _F.TYPE_UINT64, _F.TYPE_FIXED64)
_MESSAGES = (_F.TYPE_MESSAGE, _F.TYPE_GROUP)
_PLAIN = {
    _F.TYPE_BOOL: BOOLEAN,
    **dict.fromkeys(INTEGERS, Type("INTEGER")),
    **dict.fromkeys(BIGINTS, Type("BIGINT")),
    _F.TYPE_FLOAT: Type("FLOAT"),
    _F.TYPE_DOUBLE: Type("DOUBLE"),
    _F.TYPE_STRING: Type("VARCHAR"),
    _F.TYPE_ENUM: Type("VARCHAR"),
    _F.TYPE_BYTES: Type("VARBINARY"),
}
_ONE_VALUE = {
    "google.protobuf.Timestamp": Type("TIMESTAMP_LTZ", (6,)),
    "google.type.Date": Type("DATE"),
    "google.type.TimeOfDay": Type("TIME", (6,)),
    "google.protobuf.Struct": Type("VARCHAR"),
    "google.protobuf.Value": Type("VARCHAR"),
    "google.protobuf.ListValue": Type("VARCHAR"),
    **{m.full_name: _PLAIN[m.fields_by_number[1].type] for m in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()},
}
"""Messages that are one value and not a STRUCT."""
DECIMAL = "confluent.type.Decimal"
KNOWN: dict[str, bytes] = {
    f.DESCRIPTOR.name: f.DESCRIPTOR.serialized_pb
    for f in (any_pb2, source_context_pb2, type_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2,
              struct_pb2, timestamp_pb2, wrappers_pb2)
}  # fmt: skip
"""Files that a descriptor may import without carrying them, as the kernel has them."""
_HIGHEST = (1 << 29) - 1
"""The highest number that a field may have."""


def message(files: bytes, name: str) -> Descriptor:
    """A message of a descriptor set. UnusableSchema when it is not in it, or when an import is missing."""
    pool = DescriptorPool()
    for file in _ordered(_files(files)):
        try:
            pool.Add(file)
            pool.FindFileByName(file.name)
        except (TypeError, KeyError) as e:
            raise UnusableSchema(why=f'file "{file.name}" of the descriptor: {e}') from None
    try:
        found: Descriptor = pool.FindMessageTypeByName(name)
    except KeyError:
        raise UnusableSchema(why=f'it has no message "{name}"') from None
    return found


def pruned(files: bytes, name: str) -> bytes:
    """The set with the files that a message needs, and no more."""
    all_ = _files(files)
    wanted = message(files, name).file.name
    needed: set[str] = set()
    found = [wanted]
    while found:
        if (file := found.pop()) in all_ and file not in needed:
            needed.add(file)
            found.extend(all_[file].dependency)
    return FileDescriptorSet(file=[f for n, f in all_.items() if n in needed]).SerializeToString()


def last_file(files: bytes) -> FileDescriptorProto:
    """The file that the others of the set are there for."""
    return FileDescriptorSet.FromString(files).file[-1]


def _files(files: bytes) -> dict[str, FileDescriptorProto]:
    try:
        return {f.name: f for f in FileDescriptorSet.FromString(files).file}
    except DecodeError:
        raise UnusableSchema(why="it is not a descriptor set") from None


def _ordered(files: dict[str, FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    """Each file after those that it imports, well-known ones filled in."""
    seen: set[str] = set()
    # The files that import each other down to the one that is looked at, and what of their imports is left.
    under: list[tuple[FileDescriptorProto | None, Iterator[str]]] = [(None, iter(files))]
    while under:
        file, imports = under[-1]
        if (name := next((n for n in imports if n not in seen), None)) is not None:
            seen.add(name)
            found = _file(files, name)
            under.append((found, iter(found.dependency)))
        else:
            under.pop()
            if file is not None:
                yield file


def _file(files: dict[str, FileDescriptorProto], name: str) -> FileDescriptorProto:
    file = files.get(name) or (FileDescriptorProto.FromString(KNOWN[name]) if name in KNOWN else None)
    if file is None:
        raise UnusableSchema(
            why=f'file "{name}" is imported, and not there', hint="protoc --include_imports puts it in."
        )
    return file


def columns_of(m: Descriptor) -> tuple[Field, ...]:
    """The fields of a message. UnusableSchema for one that contains itself, that holds a message without fields, or
    that stands for too many types.
    """
    if not m.fields:
        raise UnusableSchema(why=f"message {m.full_name} has no fields")
    types = _Types()
    with within_reason():
        return tuple(
            Field(f.name, not_deep(types.of(f, (m.full_name,))), f.has_presence and not f.is_required) for f in m.fields
        )


def struct_of(m: Descriptor) -> Type:
    """The message as one type: the type of a key."""
    return not_deep(Type("STRUCT", fields=tuple((f.name, f.type) for f in columns_of(m))))


def is_map(f: FieldDescriptor) -> bool:
    return f.message_type is not None and bool(f.message_type.GetOptions().map_entry)


def message_of(f: FieldDescriptor) -> Descriptor:
    """The message that a field of such a type is of."""
    assert f.message_type is not None
    return f.message_type


def _owner(f: FieldDescriptor) -> Descriptor:
    assert f.containing_type is not None
    return f.containing_type


class _Types:
    """The types of fields, counted."""

    def __init__(self) -> None:
        self._room = Room()
        self._decimals: dict[str, tuple[int, int] | None] = {}

    def of(self, f: FieldDescriptor, within: tuple[str, ...]) -> Type:
        """A field's type. ``within``: the messages that it lies in."""
        self._room.take()
        if is_map(f):
            key, value = (message_of(f).fields_by_number[n] for n in (1, 2))
            return Type("MAP", args=(self._single(key, within), self._single(value, within)))
        one = self._single(f, within)
        return Type("ARRAY", args=(one,)) if f.is_repeated else one

    def _single(self, f: FieldDescriptor, within: tuple[str, ...]) -> Type:
        if f.type not in _MESSAGES:
            return _PLAIN[f.type]
        m = message_of(f)
        if m.full_name in _ONE_VALUE:
            return _ONE_VALUE[m.full_name]
        if m.full_name == DECIMAL and (said := self._precision(f)) is not None:
            return Type("DECIMAL", said)
        if m.full_name in within:
            raise UnusableSchema(
                why=f'field "{f.name}" is of message {m.full_name}, which contains itself', hint=DECLARE
            )
        if not m.fields:
            raise UnusableSchema(why=f'field "{f.name}" is of message {m.full_name}, which has no fields', hint=DECLARE)
        inner = (*within, m.full_name)
        return Type("STRUCT", fields=tuple((g.name, self.of(g, inner)) for g in m.fields))

    def _precision(self, f: FieldDescriptor) -> tuple[int, int] | None:
        """Looked up once for a field, whose options may be long, however often its message is in others."""
        if f.full_name not in self._decimals:
            self._decimals[f.full_name] = _precision(f)
        return self._decimals[f.full_name]


def _precision(f: FieldDescriptor) -> tuple[int, int] | None:
    """Precision and scale, as the option ``confluent.field_meta`` gives them for a decimal."""
    pool = _owner(f).file.pool
    try:
        options = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
    except KeyError:
        return None
    for option, value in options.FromString(f.GetOptions().SerializeToString()).ListFields():
        if option.full_name == "confluent.field_meta":
            # A map, or the list of entries that it is to the kernel's compiler.
            params = dict(value.params) if hasattr(value.params, "keys") else {p.key: p.value for p in value.params}
            try:
                said = int(params["precision"]), int(params.get("scale", "0"))
            except (KeyError, ValueError):
                return None
            return said if 1 <= said[0] <= 38 and 0 <= said[1] <= said[0] else None
    return None


def missing(m: Descriptor, columns: Sequence[tuple[str, Type]]) -> dict[str, tuple[Descriptor, dict[str, Type]]]:
    """The columns that have no field, by the messages of this file that would hold them, the deeper ones too."""
    out: dict[str, tuple[Descriptor, dict[str, Type]]] = {}

    def look(within: Descriptor, columns: Sequence[tuple[str, Type]]) -> None:
        for name, type_ in columns:
            f = within.fields_by_name.get(name)
            struct = next((t for t in (type_, *type_.args) if t.name == "STRUCT"), None)
            if f is None:
                out.setdefault(within.full_name, (within, {}))[1][name] = type_
            elif struct is not None and f.message_type is not None:
                inner = message_of(f).fields_by_number[2].message_type if is_map(f) else f.message_type
                if inner is not None and inner.file.name == m.file.name:
                    look(inner, struct.fields)

    look(m, columns)
    return out


def free(m: Descriptor, columns: Mapping[str, Type]) -> tuple[list[int], frozenset[str]]:
    """A number for a field of each of these columns, behind all that the message has, and the names that it has.
    TypeMismatch for a name that something else has, or that is reserved.
    """
    said = descriptor_pb2.DescriptorProto()
    m.CopyToProto(said)
    symbols = [v.name for e in said.enum_type for v in e.value]
    parts = (said.field, said.nested_type, said.enum_type, said.oneof_decl)
    taken = frozenset([*(x.name for part in parts for x in part), *symbols])
    for name in columns:
        if name in taken or name in said.reserved_name:
            why = "is reserved" if name in said.reserved_name else "is something else"
            raise TypeMismatch(
                what=f'message {m.full_name} cannot get a field for column "{name}", which {why} there',
                hint="Give the column another name with AS.",
            )
    closed = [(r.start, r.end) for r in said.reserved_range] + [(r.start, r.end) for r in said.extension_range]
    closed = sorted([*closed, (19000, 20000)])
    numbers: list[int] = []
    number = max((f.number for f in said.field), default=0)
    for _ in columns:
        number += 1
        for start, end in closed:
            number = end if start <= number < end else number
        numbers.append(number)
    if numbers[-1] > _HIGHEST:
        raise TypeMismatch(what=f"message {m.full_name} has no numbers left for more fields")
    return numbers, taken


def place(m: Descriptor) -> tuple[str, ...]:
    """The names of a message and of those around it, from the outside in."""
    return (*(place(m.containing_type) if m.containing_type is not None else ()), m.name)


def check_writes(m: Descriptor, columns: Sequence[tuple[str, Type]]) -> None:
    """TypeMismatch for a column that no field of its name can take, and for a required field without a column."""
    _Writes().check(m, columns, "")


class _Writes:
    """What columns are written to; the fields of a message are gone through once, however many columns are of it."""

    def __init__(self) -> None:
        self._required: dict[str, list[str]] = {}

    def check(self, m: Descriptor, columns: Sequence[tuple[str, Type]], path: str) -> None:
        names = {name for name, _ in columns}
        if m.full_name not in self._required:
            self._required[m.full_name] = [f.name for f in m.fields if f.is_required]
        for required in self._required[m.full_name]:
            if required not in names:
                raise TypeMismatch(what=f'required field "{path}{required}" of message {m.full_name} is no column')
        for name, type_ in columns:
            if (found := m.fields_by_name.get(name)) is None:
                raise TypeMismatch(
                    what=f'message {m.full_name} has no field for column "{path}{name}"',
                    hint="Leave the column out, or name it with AS as the field is.",
                )
            if not self._takes(found, type_, path + name):
                raise TypeMismatch(what=f'column "{path}{name}" of type {type_} cannot be written to {_said(found)}')

    def _takes(self, f: FieldDescriptor, type_: Type, path: str) -> bool:
        """Whether a column of this type can be written to a field (as ``ProtobufWriter.scala`` does it)."""
        if is_map(f):
            fields = message_of(f).fields_by_number
            return type_.name == "MAP" and all(self._one(fields[n], t, path) for n, t in enumerate(type_.args, 1))
        if f.is_repeated:
            return type_.name == "ARRAY" and self._one(f, type_.args[0], path)
        return self._one(f, type_, path)

    def _one(self, f: FieldDescriptor, t: Type, path: str) -> bool:
        whole = t.name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
        match f.type:
            case _F.TYPE_ENUM:
                return whole or t.name == "VARCHAR"
            case _F.TYPE_UINT64 | _F.TYPE_FIXED64:
                return whole or (t.name == "DECIMAL" and (*t.params, 0, 0)[1] == 0)
            case n if n in INTEGERS or n in BIGINTS:
                return whole
            case _F.TYPE_DOUBLE:
                return t.name in ("DOUBLE", "FLOAT", "INTEGER", "SMALLINT", "TINYINT")
            case _F.TYPE_BYTES:
                return t.name in ("VARBINARY", "BYTES")
            case n if n not in _MESSAGES:
                return t.name == _PLAIN[n].name
        m = message_of(f)
        if t.name == "STRUCT":
            self.check(m, t.fields, f"{path}.")
            return True
        if m.full_name in (DECIMAL, "google.type.Decimal"):
            return t.name == "DECIMAL"
        if m.full_name == "google.protobuf.Timestamp":
            return t.name in ("TIMESTAMP", "TIMESTAMP_LTZ")
        if m.full_name in _ONE_VALUE and m.file.name == "google/protobuf/wrappers.proto":
            return self._one(m.fields_by_number[1], t, path)
        return m.full_name in _ONE_VALUE and t.name == _ONE_VALUE[m.full_name].name


def _said(f: FieldDescriptor) -> str:
    kind = f.message_type or f.enum_type
    word = kind.full_name if kind is not None else _word(f.type)
    return f'field "{f.name}", which is {"repeated " if f.is_repeated else ""}{word}'


def _word(number: int) -> str:
    return descriptor_pb2.FieldDescriptorProto.Type.Name(number).removeprefix("TYPE_").lower()  # type: ignore[arg-type]
