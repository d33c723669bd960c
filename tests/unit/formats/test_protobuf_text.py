"""Fields added to a .proto text, as a sink does it to its subject's schema."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from pgstream.errors import TypeMismatch, UnusableSchema
from pgstream.formats import protobuf, protobuf_text
from pgstream.formats.protobuf_text import Addition
from pgstream.types import Type

TEXT = """/* message Row { */ syntax = "proto3"; package a; // {
import "google/type/date.proto";
message Other { message Row { int32 a = 1; } }
message Row { // message Row {
  int32 a = 1 [json_name = "}"]; message Inner { int32 x = 1; } Inner i = 3;
}
message Row2 { }
"""
WIDER = """/* message Row { */ syntax = "proto3"; package a; // {
import "google/type/date.proto";
import "google/protobuf/timestamp.proto";
message Other { message Row { int32 a = 1; } }
message Row { // message Row {
  int32 a = 1 [json_name = "}"]; message Inner { int32 x = 1;
    optional google.protobuf.Timestamp y = 2;
  } Inner i = 3;
  message Inner5 {
    optional google.type.Date day = 1;
  }
  optional Inner5 inner = 9;
  repeated int64 ns = 10;
}
message Row2 { }
"""
DAYS = Type("STRUCT", fields=(("day", Type("DATE")),))
NS = Type("ARRAY", args=(Type("BIGINT"),))


def test_fields_are_added_and_nothing_else_is_changed() -> None:
    row = Addition(("Row",), [9, 10], frozenset(["a", "i", "Inner"]), [("inner", DAYS), ("ns", NS)])
    inner = Addition(("Row", "Inner"), [2], frozenset("x"), [("y", Type("TIMESTAMP"))])
    assert protobuf_text.widened(TEXT, [row, inner]) == WIDER


def test_a_text_without_a_head() -> None:
    added = Addition(("G",), [2], frozenset(), [("at", Type("DATE"))])
    assert protobuf_text.widened("message G { }", [added]) == (
        'import "google/type/date.proto";\nmessage G {\n  optional google.type.Date at = 2;\n}'
    )


@pytest.mark.parametrize("text", ["CgphLnByb3Rv", "// message Row { }", "message Other { message Row { } }"])
def test_a_text_in_which_the_message_is_not_found(text: str) -> None:
    with pytest.raises(UnusableSchema, match="no message Row"):
        protobuf_text.widened(text, [Addition(("Row",), [1], frozenset(), [("a", NS)])])


def message(**parts: object) -> object:
    file = FileDescriptorProto(name="m.proto", syntax="proto2")
    file.message_type.append(DescriptorProto(name="M", **parts))  # type: ignore[arg-type]
    pool = DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName("M")


FIELD = {"name": "a", "number": 3, "type": 5, "label": 1}


@pytest.mark.parametrize(
    ("parts", "numbers"),
    [
        ({}, [1, 2]),
        ({"field": [FIELD]}, [4, 5]),
        ({"field": [FIELD], "reserved_range": [{"start": 5, "end": 9}], "extension_range": [{"start": 9, "end": 20}]},
         [4, 20]),
        ({"field": [FIELD | {"number": 18999}]}, [20000, 20001]),
    ],
)  # fmt: skip
def test_numbers_that_nobody_has(parts: dict[str, object], numbers: list[int]) -> None:
    found = protobuf.free(message(**parts), {"x": NS, "y": NS})  # type: ignore[arg-type]
    assert found[0] == numbers


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"reserved_name": ["x"]}, "is reserved there"),
        ({"enum_type": [{"name": "E", "value": [{"name": "x", "number": 0}]}]}, "is something else there"),
        ({"nested_type": [{"name": "x"}]}, "is something else there"),
        ({"field": [FIELD], "reserved_range": [{"start": 4, "end": 1 << 29}]}, "no numbers left"),
    ],
)
def test_what_cannot_get_a_field(parts: dict[str, object], why: str) -> None:
    with pytest.raises(TypeMismatch, match=why):
        protobuf.free(message(**parts), {"x": NS})  # type: ignore[arg-type]
