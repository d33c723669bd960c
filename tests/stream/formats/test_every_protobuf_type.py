"""What random messages do not reach (``test_protobuf``): oneofs, large unsigned numbers, recursion, Google's types.

The files are .proto texts, compiled by the kernel; Google's own library writes and reads the bytes.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.internal import encoder
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pgstream.errors import UnusableSchema
from pgstream.formats import protobuf
from tests.stream.formats.test_protobuf import Codec, plain, side

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

TWO = """syntax = "proto2"; package two;
enum Closed { A = 1; B = 2; }
message Row {
  message Inner { optional int32 x = 1 [default = 5]; optional Inner next = 2; repeated Inner many = 3; }
  required int32 must = 1; optional int32 may = 2 [default = 7]; repeated sint64 packed = 3 [packed = true];
  repeated sint64 loose = 4; optional Closed one = 5; repeated Closed several = 6; optional Inner inner = 7;
  oneof either { string text = 8; Inner message = 9; bool flag = 10; }
  map<int32, Inner> inners = 11; repeated Inner many = 12; extensions 100 to 200;
  optional group Grouped = 13 { required int32 a = 1; repeated group Deep = 2 { optional string s = 1; } }
  repeated group Several2 = 14 { optional Closed one = 1; }
  oneof or { int32 number = 15; group Chosen = 16 { optional bool b = 1; } }
}"""
THREE = """syntax = "proto3"; package three;
import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto"; import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto"; import "google/type/date.proto"; import "google/type/timeofday.proto";
import "google/type/decimal.proto";
enum Open { ZERO = 0; ONE = 1; }
message Row {
  uint64 u64 = 1; fixed64 f64 = 2; uint32 u32 = 3; optional fixed32 f32 = 4; Open open = 5; repeated Open opens = 6;
  oneof either { int32 number = 7; google.protobuf.StringValue wrapped = 8; Open symbol = 9; Leaf leaf = 10; }
  map<string, Open> symbols = 11; map<bool, google.protobuf.Timestamp> times = 12; map<uint64, Leaf> leaves = 13;
  google.type.Date day = 14; google.type.TimeOfDay clock = 15; google.type.Decimal money = 16;
  google.protobuf.Duration span = 17; google.protobuf.FieldMask mask = 18; google.protobuf.Any any = 19;
  repeated google.protobuf.Int64Value counts = 20; google.protobuf.BoolValue sure = 21;
  repeated double doubles = 22 [packed = false]; bytes raw = 23;
}
message Leaf { string name = 1; bytes raw = 2; }
message Nothing { google.protobuf.Empty empty = 1; string s = 2; }"""
D = Decimal
# Columns, the message in Protobuf's terms, the row.
ROWS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("two", "must INT, may INT, packed ARRAY<BIGINT>, loose ARRAY<BIGINT>",
     {"must": 0, "packed": [-1, 2**40], "loose": [3, -4]},
     {"must": 0, "may": None, "packed": [-1, 2**40], "loose": [3, -4]}),
    ("two", "must INT, one STRING, several ARRAY<STRING>", {"must": 1, "one": 2, "several": [1, 2, 1]},
     {"must": 1, "one": "B", "several": ["A", "B", "A"]}),
    ("two", "must INT, inner STRUCT<x: INT, next: STRUCT<next: STRUCT<x: INT>>>",
     {"must": 1, "inner": {"x": 1, "next": {"next": {"x": 3}}}},
     {"must": 1, "inner": {"x": 1, "next": {"next": {"x": 3}}}}),
    ("two", "must INT, text STRING, message STRUCT<x: INT>, flag BOOLEAN", {"must": 1, "message": {}},
     {"must": 1, "text": None, "message": {"x": None}, "flag": None}),
    ("two", "must INT, text STRING, message STRUCT<x: INT>, flag BOOLEAN", {"must": 1, "flag": False},
     {"must": 1, "text": None, "message": None, "flag": False}),
    ("two", "must INT, inners MAP<INT, STRUCT<x: INT, many: ARRAY<STRUCT<x: INT>>>>",
     {"must": 1, "inners": {-1: {"x": 2, "many": [{"x": 4}]}, 0: {}}},
     {"must": 1, "inners": {-1: {"x": 2, "many": [{"x": 4}]}, 0: {"x": None, "many": []}}}),
    ("two", "must INT, grouped STRUCT<a: INT, deep: ARRAY<STRUCT<s: STRING>>>, several2 ARRAY<STRUCT<one: STRING>>, "
     "number INT, chosen STRUCT<b: BOOLEAN>",
     {"must": 1, "grouped": {"a": 1, "deep": [{"s": "x"}, {}]}, "several2": [{"one": 1}, {}], "chosen": {"b": False}},
     {"must": 1, "grouped": {"a": 1, "deep": [{"s": "x"}, {"s": None}]}, "several2": [{"one": "A"}, {"one": None}],
      "number": None, "chosen": {"b": False}}),
    ("three", "u64 DECIMAL(20,0), f64 DECIMAL(20,0), u32 BIGINT, f32 BIGINT",
     {"u64": 2**64 - 1, "f64": 2**63, "u32": 2**32 - 1, "f32": 2**31},
     {"u64": D(2**64 - 1), "f64": D(2**63), "u32": 2**32 - 1, "f32": 2**31}),
    ("three", "u64 BIGINT, u32 INT, f32 INT", {}, {"u64": 0, "u32": 0, "f32": None}),
    # A number that the enum has no symbol for.
    ("three", "open STRING, opens ARRAY<STRING>, symbols MAP<STRING, STRING>",
     {"open": 7, "opens": [0, -3, 1], "symbols": {"a": 1, "b": 9}},
     {"open": "7", "opens": ["ZERO", "-3", "ONE"], "symbols": {"a": "ONE", "b": "9"}}),
    *[("three", "number INT, wrapped STRING, symbol STRING, leaf STRUCT<name: STRING>", said,
       {"number": None, "wrapped": None, "symbol": None, "leaf": None} | row)
      for said, row in (({"number": 0}, {"number": 0}), ({"wrapped": {"value": ""}}, {"wrapped": ""}),
                        ({"symbol": 1}, {"symbol": "ONE"}), ({"leaf": {"name": "n"}}, {"leaf": {"name": "n"}}),
                        ({}, {}))],
    ("three", "times MAP<BOOLEAN, TIMESTAMP>, leaves MAP<DECIMAL(20,0), STRUCT<name: STRING, raw: BINARY>>",
     {"times": {True: {"seconds": -1, "nanos": 5000}}, "leaves": {2**64 - 1: {"raw": b"\0"}}},
     {"times": {True: dt.datetime(1969, 12, 31, 23, 59, 59, 5)}, "leaves": {D(2**64 - 1): {"name": "", "raw": b"\0"}}}),
    ("three", "day DATE, clock TIME, money DECIMAL(20,3)",
     {"day": {"year": 2026, "month": 1, "day": 2}, "clock": {"hours": 23, "nanos": 1000},
      "money": {"value": "-12.500"}},
     {"day": dt.date(2026, 1, 2), "clock": dt.time(23, 0, 0, 1), "money": D("-12.5")}),
    ("three", "day STRUCT<year: INT, month: INT, day: INT>, "
     "clock STRUCT<hours: INT, minutes: INT, seconds: INT, nanos: INT>",
     {"day": {"year": 2026}, "clock": {"hours": 24}},
     {"day": {"year": 2026, "month": 0, "day": 0}, "clock": {"hours": 24, "minutes": 0, "seconds": 0, "nanos": 0}}),
    ("three", "span STRUCT<seconds: BIGINT, nanos: INT>, mask STRUCT<paths: ARRAY<STRING>>, "
     "any STRUCT<type_url: STRING, value: BINARY>",
     {"span": {"seconds": -3, "nanos": -5}, "mask": {"paths": ["a.b", "c"]},
      "any": {"type_url": "t/x", "value": b"\1"}},
     {"span": {"seconds": -3, "nanos": -5}, "mask": {"paths": ["a.b", "c"]},
      "any": {"type_url": "t/x", "value": b"\1"}}),
    ("three", "counts ARRAY<BIGINT>, sure BOOLEAN, doubles ARRAY<DOUBLE>, raw BINARY",
     {"counts": [{"value": 0}, {"value": -1}], "sure": {}, "doubles": [0.5, -1.0], "raw": b"\xff\0"},
     {"counts": [0, -1], "sure": False, "doubles": [0.5, -1.0], "raw": b"\xff\0"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def codec(spark: SparkSession) -> Codec:
    return Codec(spark)


@pytest.fixture(scope="module")
def files(codec: Codec) -> dict[str, bytes]:
    def compiled(text: str) -> bytes:
        return base64.b64decode(codec.kernel.ProtobufText.compiled(json.dumps({"text": text, "refers": {}})))

    return {"two": compiled(TWO), "three": compiled(THREE)}


def put(message: Any, said: dict[str, Any]) -> Any:
    """Fields as Google's library names them, submessages as dictionaries."""
    message.SetInParent()
    for name, value in said.items():
        f = message.DESCRIPTOR.fields_by_name[name]
        if protobuf.is_map(f):
            for k, v in value.items():
                if isinstance(v, dict):
                    put(getattr(message, name)[k], v)
                else:
                    getattr(message, name)[k] = v
        elif f.is_repeated and f.message_type is not None:
            for v in value:
                put(getattr(message, name).add(), v)
        elif f.is_repeated:
            getattr(message, name).extend(value)
        elif f.message_type is not None:
            put(getattr(message, name), value)
        else:
            setattr(message, name, value)
    return message


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_to_columns_and_back(codec: Codec, files: dict[str, bytes], number: int) -> None:
    which, columns, said, row = ROWS[number]
    type_ = message_factory.GetMessageClass(protobuf.message(files[which], f"{which}.Row"))
    foreign = put(type_(), said)
    to = side(files[which], f"{which}.Row")
    df = codec.decoded(to, columns, [foreign.SerializeToString()])
    (got,) = [r.asDict(recursive=True) for r in df.collect()]
    assert plain(got) == row
    (written,) = codec.written(to, df)
    assert type_.FromString(written) == foreign


def test_columns(files: dict[str, bytes]) -> None:
    found = {
        f.name: (str(f.type), f.nullable) for f in protobuf.columns_of(protobuf.message(files["three"], "three.Row"))
    }
    assert found["clock"] == ("TIME(6)", True) and found["day"] == ("DATE", True)
    assert found["span"] == ("STRUCT<seconds BIGINT, nanos INTEGER>", True)
    assert found["mask"] == ("STRUCT<paths ARRAY<VARCHAR>>", True) and found["open"] == ("VARCHAR", False)
    assert (
        found["counts"][0] == "ARRAY<BIGINT>"
        and found["leaves"][0] == "MAP<BIGINT, STRUCT<name VARCHAR, raw VARBINARY>>"
    )
    for files_, name, why in (
        (files["two"], "two.Row", "contains itself"),
        (files["three"], "three.Nothing", "has no fields"),
    ):
        with pytest.raises(UnusableSchema, match=why):
            protobuf.columns_of(protobuf.message(files_, name))


def tag(number: int, wire: int) -> bytes:
    return encoder.TagBytes(number, wire)


def varint(n: int) -> bytes:
    out: list[bytes] = []
    encoder._VarintEncoder()(out.append, n, False)
    return b"".join(out)


MUST = tag(1, 0) + b"\1"
# Bytes of two.Row that its own library takes in its stride: the columns, and the row that it is.
ODD: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "the last of several": (MUST + tag(2, 0) + b"\1" + tag(2, 0) + b"\2", "may INT", {"may": 2}),
    "pieces of a message": (MUST + tag(7, 2) + b"\2\x08\1" + tag(7, 2) + b"\4\x12\2\x08\2",
                            "inner STRUCT<x: INT, next: STRUCT<x: INT>>", {"inner": {"x": 1, "next": {"x": 2}}}),
    "the last of a oneof": (MUST + tag(8, 2) + b"\1t" + tag(10, 0) + b"\1", "text STRING, flag BOOLEAN",
                            {"text": None, "flag": True}),
    "packed that is declared loose": (MUST + tag(4, 2) + b"\2\2\4", "loose ARRAY<BIGINT>", {"loose": [1, 2]}),
    "loose that is declared packed": (MUST + tag(3, 0) + b"\2" + tag(3, 2) + b"\1\4" + tag(3, 0) + b"\6",
                                      "packed ARRAY<BIGINT>", {"packed": [1, 2, 3]}),
    "a number that a closed enum has not": (MUST + tag(5, 0) + b"\7" + tag(6, 2) + b"\3\1\7\2",
                                            "one STRING, several ARRAY<STRING>", {"one": None, "several": ["A", "B"]}),
    "fields that nobody knows": (tag(150, 0) + b"\1" + tag(999, 3) + tag(1, 5) + b"abcd" + tag(999, 4) + MUST
                                 + tag(77, 2) + b"\2zz" + tag(78, 1) + b"12345678", "must INT", {"must": 1}),
    "a number in more bytes than it needs": (tag(1, 0) + b"\x81\x80\x80\0", "must INT", {"must": 1}),
    "minus one, in ten bytes": (tag(1, 0) + varint(2**64 - 1), "must INT", {"must": -1}),
    "an entry without a key": (MUST + tag(11, 2) + b"\4\x12\2\x08\3", "inners MAP<INT, STRUCT<x: INT>>",
                               {"inners": {0: {"x": 3}}}),
    "an entry twice": (MUST + (tag(11, 2) + b"\6\x08\1\x12\2\x08\2") + (tag(11, 2) + b"\6\x08\1\x12\2\x08\4"),
                       "inners MAP<INT, STRUCT<x: INT>>", {"inners": {1: {"x": 4}}}),
}  # fmt: skip
HOSTILE: dict[str, tuple[str, bytes]] = {
    "nothing": ("must INT", b""),
    "a required field that is missing": ("may INT", tag(2, 0) + b"\1"),
    "a text of two gigabytes": ("text STRING", MUST + tag(8, 2) + varint(2**31 - 1)),
    "a text of minus one byte": ("text STRING", MUST + tag(8, 2) + varint(2**64 - 1)),
    "a text that ends too early": ("text STRING", MUST + tag(8, 2) + b"\5abc"),
    "a text that is not UTF-8": ("text STRING", MUST + tag(8, 2) + b"\1\xff"),
    "a text with NUL": ("text STRING", MUST + tag(8, 2) + b"\1\0"),
    "numbers packed to two gigabytes": ("packed ARRAY<BIGINT>", MUST + tag(3, 2) + varint(2**31 - 1)),
    "a number of eleven bytes": ("must INT", tag(1, 0) + b"\xff" * 10 + b"\1"),
    "a number cut off": ("must INT", tag(1, 0) + b"\x80"),
    "field number zero": ("must INT", MUST + b"\0\0"),
    "a wire type that there is not": ("must INT", MUST + b"\x0f"),
    "another wire type": ("must INT", tag(1, 5) + b"abcd"),
    "a group that does not end": ("must INT", MUST + tag(99, 3) + tag(1, 0) + b"\1"),
    "an end of no group": ("must INT", MUST + tag(99, 4)),
    "messages a thousand deep": ("inner STRUCT<x: INT>",
                                 MUST + (tag(7, 2) + b"\xff\x7f") + (tag(2, 2) + b"\xff\x7f") * 5000),
    "groups a hundred thousand deep": ("must INT", MUST + tag(99, 3) * 100_000),
    "a message longer than its own": ("inner STRUCT<x: INT>", MUST + tag(7, 2) + b"\2\x12\x7f"),
    "a million messages without a byte": (f"many ARRAY<STRUCT<{', '.join(f'x{i}: INT' for i in range(99))}, x: INT>>",
                                          MUST + (tag(12, 2) + b"\0") * 500_000),
    "a list in a hundred thousand pieces": ("inner STRUCT<many: ARRAY<STRUCT<x: INT>>>",
                                            MUST + (tag(7, 2) + b"\2\x1a\0") * 100_000),
    "a map's entry cut off": ("inners MAP<INT, STRUCT<x: INT>>", MUST + tag(11, 2) + b"\6\x08\1"),
    "a map's entry that is a number": ("inners MAP<INT, STRUCT<x: INT>>", MUST + tag(11, 0) + b"\1"),
}  # fmt: skip


def test_odd_bytes_are_what_the_library_says(codec: Codec, files: dict[str, bytes]) -> None:
    to = side(files["two"], "two.Row")
    type_ = message_factory.GetMessageClass(protobuf.message(files["two"], "two.Row"))
    for name, (data, columns, row) in ODD.items():
        type_.FromString(data)
        assert codec.read(to, columns, data) == [row], name


def test_hostile_bytes_are_bad_records(codec: Codec, files: dict[str, bytes]) -> None:
    """Each ends as one bad record, and the good one after it is read."""
    to = side(files["two"], "two.Row")
    for name, (columns, data) in HOSTILE.items():
        rows = codec.decoded(to, f"{columns}, flag BOOLEAN", [data, MUST + tag(10, 0) + b"\1"], "ignore").collect()
        assert [r.flag for r in rows] == [True], name
    with pytest.raises(Py4JJavaError, match='field "must" must be TINYINT, found 300'):
        codec.read(to, "must TINYINT", tag(1, 0) + varint(300))
