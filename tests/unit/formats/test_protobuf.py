"""Messages as columns: what a descriptor of few bytes may stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as P
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pgstream.errors import UnusableSchema
from pgstream.formats import protobuf
from pgstream.types import Type, parse


def chain(levels: int, width: int = 1) -> bytes:
    """Messages M0, M1, …, each with ``width`` fields of the next; the last has texts."""
    out = FileDescriptorSet()
    file = out.file.add(name="m.proto", package="m", syntax="proto3")
    for i in range(levels):
        m = file.message_type.add(name=f"M{i}")
        for n in range(width):
            f = m.field.add(name=f"f{n}", number=n + 1, label=P.LABEL_OPTIONAL, type=P.TYPE_STRING)
            if i < levels - 1:
                f.type, f.type_name = P.TYPE_MESSAGE, f".m.M{i + 1}"
    return out.SerializeToString()


def test_a_message_in_others_is_a_type_each_time() -> None:
    (a, b) = protobuf.columns_of(protobuf.message(chain(3, 2), "m.M0"))
    assert str(a.type) == str(b.type) == "STRUCT<f0 STRUCT<f0 VARCHAR, f1 VARCHAR>, f1 STRUCT<f0 VARCHAR, f1 VARCHAR>>"


@pytest.mark.parametrize("of", [protobuf.columns_of, protobuf.struct_of])
def test_a_few_messages_that_stand_for_very_many_types_are_refused(of: Callable[..., object]) -> None:
    with pytest.raises(UnusableSchema, match="more than 20000 types in each other"):
        of(protobuf.message(chain(40, 2), "m.M0"))


@pytest.mark.parametrize("levels", [103, 3000])
def test_messages_deeper_in_each_other_than_types_may_be_are_refused(levels: int) -> None:
    with pytest.raises(UnusableSchema, match="nested more than 100 deep"):
        protobuf.columns_of(protobuf.message(chain(levels), "m.M0"))


def test_the_deepest_type_can_be_read_again() -> None:
    (column,) = protobuf.columns_of(protobuf.message(chain(101), "m.M0"))
    assert parse(str(column.type)) == column.type
    with pytest.raises(UnusableSchema):
        protobuf.struct_of(protobuf.message(chain(102), "m.M0"))


def test_files_import_each_other_at_any_depth() -> None:
    out = FileDescriptorSet()
    for i in range(3000):
        out.file.add(name=f"{i}.proto", syntax="proto3").dependency.extend([f"{i + 1}.proto"] if i < 2999 else [])
    out.file[0].message_type.add(name="M").field.add(name="a", number=1, label=P.LABEL_OPTIONAL, type=P.TYPE_STRING)
    files = out.SerializeToString()
    assert protobuf.columns_of(protobuf.message(files, "M"))[0].type == Type("VARCHAR")
    assert FileDescriptorSet.FromString(protobuf.pruned(files, "M")) == out


def test_files_that_import_each_other_in_a_circle_are_refused() -> None:
    out = FileDescriptorSet()
    out.file.add(name="a", syntax="proto3").dependency.append("b")
    out.file.add(name="b", syntax="proto3").dependency.append("a")
    with pytest.raises(UnusableSchema):
        protobuf.message(out.SerializeToString(), "M")
