"""Protobuf of random messages, beside Google's own library: its bytes are read alike, and it reads what is written."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any

import pytest
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from pgstream.formats import protobuf
from tests.stream.frames import RECORD, frame

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

UTC = dt.UTC
NOW = dt.datetime(2026, 1, 1, tzinfo=UTC)
P = descriptor_pb2.FieldDescriptorProto
IMPORTS = [m.DESCRIPTOR for m in (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)]
I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
U31, U63 = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    P.TYPE_INT32: I32, P.TYPE_SINT32: I32, P.TYPE_SFIXED32: I32, P.TYPE_UINT32: U31, P.TYPE_FIXED32: U31,
    P.TYPE_INT64: I64, P.TYPE_SINT64: I64, P.TYPE_SFIXED64: I64, P.TYPE_UINT64: U63, P.TYPE_FIXED64: U63,
    P.TYPE_FLOAT: st.floats(width=32, allow_nan=False), P.TYPE_DOUBLE: st.floats(allow_nan=False),
    P.TYPE_BOOL: st.booleans(), P.TYPE_STRING: TEXT, P.TYPE_BYTES: st.binary(max_size=12),
    P.TYPE_ENUM: st.sampled_from(["ZERO", "ONE", "MINUS"]),
}  # fmt: skip
WRAPPED = {"Bool": P.TYPE_BOOL, "Int32": P.TYPE_INT32, "UInt32": P.TYPE_UINT32, "Int64": P.TYPE_INT64,
           "UInt64": P.TYPE_UINT64, "Float": P.TYPE_FLOAT, "Double": P.TYPE_DOUBLE, "String": P.TYPE_STRING,
           "Bytes": P.TYPE_BYTES}  # fmt: skip


class Made:
    """A file of random messages, and the values that their fields take as rows of Spark."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.proto3 = draw, draw(st.booleans())
        self.file = descriptor_pb2.FileDescriptorProto(name="made.proto", package="made")
        self.file.syntax = "proto3" if self.proto3 else "proto2"
        self.file.dependency.extend(i.name for i in IMPORTS)
        symbols = self.file.enum_type.add(name="Symbol").value
        for name, number in (("ZERO", 0), ("ONE", 1), ("MINUS", -7)):
            symbols.add(name=name, number=number)
        self.count = 0
        self.row = self.message("Row", 2)

    def message(self, name: str, depth: int) -> st.SearchStrategy[dict[str, Any]]:
        m = descriptor_pb2.DescriptorProto(name=name)
        numbers = self.draw(st.lists(st.integers(1, 18000), min_size=1, max_size=6, unique=True))
        fields = {}
        for i, number in enumerate(numbers):
            f = m.field.add(name=f"f{i}", number=number if number < 19000 else 1)
            fields[f.name] = self.field(m, f, depth)
        # proto3's own oneofs of one come after the others.
        for f in m.field:
            if f.proto3_optional:
                f.oneof_index = len(m.oneof_decl)
                m.oneof_decl.add(name=f"_{f.name}")
        self.file.message_type.append(m)
        return st.fixed_dictionaries(fields)

    def field(self, m: Any, f: Any, depth: int) -> st.SearchStrategy[Any]:
        shape = self.draw(st.sampled_from(["one", "one", "optional", "list", "map", "known", "message", "group"]))
        if shape == "map" and depth:
            return self.map(m, f, depth)
        if shape == "known":
            return st.none() | self.known(f)
        if shape in ("message", "group") and depth:
            return self.nested(m, f, shape, depth)
        f.type = self.draw(st.sampled_from(list(SCALARS)))
        if f.type == P.TYPE_ENUM:
            f.type_name = ".made.Symbol"
        values = SCALARS[f.type]
        f.label = P.LABEL_REPEATED if shape == "list" else P.LABEL_OPTIONAL
        if shape == "list":
            if f.type not in (P.TYPE_STRING, P.TYPE_BYTES):
                f.options.packed = self.draw(st.booleans())
            return st.lists(values, max_size=4)
        if self.proto3 and shape != "optional":
            return values
        f.proto3_optional = self.proto3
        return st.none() | values

    def nested(self, m: Any, f: Any, shape: str, depth: int) -> st.SearchStrategy[Any]:
        self.count += 1
        name = f"Inner{self.count}"
        group = shape == "group" and not self.proto3
        values = self.message(name, depth - 1)
        f.type, f.type_name = (P.TYPE_GROUP if group else P.TYPE_MESSAGE), f".made.{name}"
        f.label = P.LABEL_REPEATED if self.draw(st.booleans()) else P.LABEL_OPTIONAL
        return st.lists(values, max_size=3) if f.label == P.LABEL_REPEATED else st.none() | values

    def map(self, m: Any, f: Any, depth: int) -> st.SearchStrategy[Any]:
        entry = m.nested_type.add(name=f"{f.name.upper()}Entry")
        entry.options.map_entry = True
        key = self.draw(st.sampled_from([P.TYPE_STRING, P.TYPE_INT32, P.TYPE_SINT64, P.TYPE_FIXED32, P.TYPE_BOOL]))
        entry.field.add(name="key", number=1, type=key, label=P.LABEL_OPTIONAL)
        value = entry.field.add(name="value", number=2, label=P.LABEL_OPTIONAL)
        if self.draw(st.booleans()):
            value.type = self.draw(st.sampled_from(list(SCALARS)))
            if value.type == P.TYPE_ENUM:
                value.type_name = ".made.Symbol"
            values = SCALARS[value.type]
        else:
            self.count += 1
            value.type, value.type_name = P.TYPE_MESSAGE, f".made.Inner{self.count}"
            values = self.message(f"Inner{self.count}", 0)
        f.type, f.label = P.TYPE_MESSAGE, P.LABEL_REPEATED
        f.type_name = f".made.{m.name}.{entry.name}"
        return st.dictionaries(SCALARS[key], values, max_size=3)

    def known(self, f: Any) -> st.SearchStrategy[Any]:
        f.type, f.label = P.TYPE_MESSAGE, P.LABEL_OPTIONAL
        which = self.draw(st.sampled_from([*WRAPPED, "Timestamp", "Duration", "Struct", "Value", "ListValue", "Any"]))
        f.type_name = f".google.protobuf.{which}{'Value' if which in WRAPPED else ''}"
        leaves = st.none() | st.booleans() | st.integers(-(2**50), 2**50) | TEXT
        json_ = st.recursive(leaves, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXT, v, max_size=3))
        match which:
            case "Timestamp":
                return st.datetimes(dt.datetime(1583, 1, 1), dt.datetime(9999, 1, 1))
            case "Duration":
                return st.fixed_dictionaries({"seconds": U31, "nanos": st.integers(0, 999_999_999)})
            case "Struct":
                return st.dictionaries(TEXT, json_, max_size=3).map(json.dumps)
            case "ListValue":
                return st.lists(json_, max_size=3).map(json.dumps)
            case "Value":
                return json_.map(json.dumps)
            case "Any":
                return st.fixed_dictionaries({"type_url": TEXT, "value": st.binary(max_size=5)})
        return SCALARS[WRAPPED[which]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[bytes, list[dict[str, Any]]]:
    """A descriptor set whose message is made.Row, and rows of it."""
    made = Made(draw)
    files = descriptor_pb2.FileDescriptorSet(file=[made.file])
    return files.SerializeToString(), draw(st.lists(made.row, min_size=1, max_size=4))


def put(message: Any, row: dict[str, Any]) -> Any:
    """A message of Google's library, of a row."""
    for name, value in row.items():
        f = message.DESCRIPTOR.fields_by_name[name]
        if value is None:
            continue
        if protobuf.is_map(f):
            inner = protobuf.message_of(f).fields_by_number[2]
            for k, v in value.items():
                if inner.message_type is not None:
                    put(getattr(message, name)[k], v)
                else:
                    getattr(message, name)[k] = number(inner, v)
        elif f.is_repeated and f.message_type is not None:
            for v in value:
                put(getattr(message, name).add(), v)
        elif f.is_repeated:
            getattr(message, name).extend(number(f, v) for v in value)
        elif f.message_type is not None:
            one(getattr(message, name), value)
        else:
            setattr(message, name, number(f, value))
    return message


def number(f: Any, value: Any) -> Any:
    return f.enum_type.values_by_name[value].number if f.enum_type is not None else value


def one(message: Any, value: Any) -> None:
    message.SetInParent()
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        message.FromDatetime(value)
    elif name in ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"):
        json_format.Parse(value, message)
    elif name.startswith("google.protobuf.") and name.endswith("Value"):
        message.value = value
    else:
        put(message, value)


class Codec:
    """The kernel's reader and writer of one message."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark, self.jvm = spark, spark._jvm
        self.kernel: Any = self.jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]

    def decoded(self, side: dict[str, Any], columns: str, values: list[bytes], mode: str = "terminate") -> DataFrame:
        raw = frame(self.spark, [(None, v, NOW, 0, i) for i, v in enumerate(values)], RECORD)
        config = {"columns": columns, "kind": "stream", "topic": "t", "timestamp": None, "watermark": False,
                  "on_bad_record": mode, "primary_key": [], "key": None, "key_type": None, "limits": {},
                  "value": side}  # fmt: skip
        bad = self.kernel.Kernel.counter(raw._jdf, "bad")
        found = DataFrame(self.kernel.Kernel.decode(raw._jdf, json.dumps(config), bad), self.spark)
        return found.where("r IS NOT NULL").select("r.*").drop("__time")

    def read(self, side: dict[str, Any], columns: str, *values: bytes) -> list[dict[str, Any]]:
        return [r.asDict(recursive=True) for r in self.decoded(side, columns, list(values)).collect()]

    def written(self, side: dict[str, Any], df: DataFrame) -> list[bytes]:
        config = {"topic": "t", "mode": "append", "columns": df.columns, "key_columns": [], "value": side}
        jdf: Any = df._jdf
        format_ = self.kernel.RecordFormat(self.kernel.Json.read(json.dumps(config)), jdf.schema())
        return [bytes(format_.record(row).value()) for row in jdf.queryExecution().executedPlan().executeCollect()]


@pytest.fixture(scope="module")
def codec(spark: SparkSession) -> Codec:
    return Codec(spark)


def side(files: bytes, message: str) -> dict[str, Any]:
    return {"format": "protobuf", "descriptors": base64.b64encode(files).decode(), "message": message}


def ddl(files: bytes, message: str) -> str:
    fields = protobuf.columns_of(protobuf.message(files, message))
    return ", ".join(f"`{f.name}` {f.type.spark}" for f in fields)


def plain(value: Any) -> Any:
    match value:
        case bytearray():
            return bytes(value)
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
        case dict():
            return {k: plain(v) for k, v in value.items()}
        case list():
            return [plain(v) for v in value]
        case str() if value[:1] in '{["' or value in ("null", "true", "false"):
            # Of JSON its meaning.
            try:
                return json.loads(value)
            except ValueError:
                return value
    return value


CAREFUL = settings(max_examples=20, deadline=None, derandomize=True,
                   suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip


@CAREFUL
@given(table=tables())
def test_foreign_messages_are_read_and_what_is_written_is_read_elsewhere(
    codec: Codec, table: tuple[bytes, list[dict[str, Any]]]
) -> None:
    files, rows = table
    type_ = message_factory.GetMessageClass(protobuf.message(files, "made.Row"))
    foreign = [put(type_(), row) for row in rows]
    said = side(files, "made.Row")
    df = codec.decoded(said, ddl(files, "made.Row"), [m.SerializeToString() for m in foreign])
    assert plain([r.asDict(recursive=True) for r in df.collect()]) == plain(rows)
    assert [type_.FromString(v) for v in codec.written(said, df)] == foreign
