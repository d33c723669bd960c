"""Protobuf messages as JSON and back, and their place in a file as Confluent's serializers say it."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as P
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pgstream.formats import protobuf
from pgstream.formats.columns import Unfit
from pgstream.formats.protobuf_values import indexes, shown, written


def order() -> Descriptor:
    out = FileDescriptorSet()
    file = out.file.add(name="o.proto", syntax="proto2", package="shop")
    file.dependency.append("google/protobuf/struct.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    m = file.message_type.add(name="Order")
    m.field.add(name="order_id", number=1, type=P.TYPE_INT64, label=P.LABEL_REQUIRED)
    m.field.add(name="state", number=2, type=P.TYPE_ENUM, type_name=".shop.State", label=P.LABEL_OPTIONAL)
    m.field.add(name="price", number=3, type=P.TYPE_DOUBLE, label=P.LABEL_OPTIONAL)
    m.field.add(name="raw", number=4, type=P.TYPE_BYTES, label=P.LABEL_REPEATED)
    m.field.add(name="any", number=5, type=P.TYPE_MESSAGE, type_name=".google.protobuf.Value", label=P.LABEL_OPTIONAL)
    return protobuf.message(out.SerializeToString(), "shop.Order")


ORDER = order()


def test_there_and_back() -> None:
    value = {"order_id": 7, "state": "NEW", "price": 1.5, "raw": ["AAE=", ""], "any": {"größe": [1, None]}}
    data = written(json.loads(json.dumps(value), parse_float=Decimal), ORDER)
    assert json.loads(shown(data, ORDER)) == value
    assert "größe" in shown(data, ORDER)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"order_id": 1, "sttae": "NEW"}, "sttae"),
        ({"order_id": "x"}, "order_id"),
        ({"order_id": 2**63}, "order_id"),
        ({"order_id": 1, "state": "GONE"}, "GONE"),
        ({"order_id": 1, "raw": "AAE="}, "raw"),
        ({}, "order_id"),
        ([1], "shop.Order is a JSON object"),
        ("text", "shop.Order is a JSON object"),
        ({"order_id": 1, "price": Decimal("1e400")}, "price"),
    ],
)
def test_what_does_not_fit_is_said(value: object, why: str) -> None:
    with pytest.raises(Unfit) as e:
        written(value, ORDER)
    assert why in str(e.value)


@pytest.mark.parametrize("data", [b"\x08", b"\xff\xff", b"\x22\x7fshort", b"\x0b" * 200, b"\x2a\x04\x32\x02\x0a\x7f"])
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(Unfit):
        shown(data, ORDER)


@pytest.mark.parametrize("kind", [P.TYPE_MESSAGE, P.TYPE_ENUM])
def test_bytes_that_stand_for_very_long_names(kind: P.Type.ValueType) -> None:
    out, long = FileDescriptorSet(), "n" * 100_000
    file = out.file.add(name="o.proto", syntax="proto2")
    file.enum_type.add(name="E").value.add(name=long, number=1)
    file.message_type.add(name="N").field.add(name=long, number=1, type=P.TYPE_BOOL, label=P.LABEL_OPTIONAL)
    many = file.message_type.add(name="M").field.add(name="many", number=1, type=kind, label=P.LABEL_REPEATED)
    many.type_name = ".N" if kind == P.TYPE_MESSAGE else ".E"
    one = b"\x0a\x02\x08\x01" if kind == P.TYPE_MESSAGE else b"\x08\x01"
    m = protobuf.message(out.SerializeToString(), "M")
    assert long in shown(one, m)
    with pytest.raises(Unfit, match="longer than is shown"):
        shown(one * 2000, m)


def test_places_in_a_file() -> None:
    assert indexes(b"\x00rest") == ((0,), b"rest")
    assert indexes(b"\x02\x06rest") == ((3,), b"rest")
    assert indexes(b"\x04\x02\x80\x02") == ((1, 128), b"")
    for wrong in (b"", b"\x02", b"\x01", b"\xff\xff\xff\xff\xff\xff", b"\x80\x08" + bytes(600)):
        with pytest.raises(Unfit):
            indexes(wrong)
