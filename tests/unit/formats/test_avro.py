"""Schemas as columns, and columns as a schema that follows the one that is there."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from pgstream.errors import NotSupported, TypeMismatch, UnusableSchema
from pgstream.formats import avro
from pgstream.types import Type, parse


def record(*fields: Any, name: str = "shop.order", **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields), **more})


def columns(schema: str, *refers: str) -> list[tuple[str, str, bool]]:
    return [(f.name, str(f.type), f.nullable) for f in avro.columns_of(avro.parsed(schema, refers))]


def written(base: str, *wanted: tuple[str, str]) -> dict[str, Any]:
    """The fields of the schema that columns get beside a base schema; it is one that Avro takes."""
    text = avro.schema_of([(n, parse(t)) for n, t in wanted], "new", avro.parsed(base))
    fastavro.parse_schema(json.loads(text))
    return {f["name"]: f for f in json.loads(text)["fields"]}


ADDRESS = {"type": "record", "name": "shop.address", "fields": [{"name": "town", "type": "string"}]}


def test_fields_are_columns() -> None:
    schema = record(
        {"name": "a", "type": "int"},
        {"name": "b", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "c", "type": {"type": "fixed", "name": "f", "size": 4}},
        {"name": "d", "type": ["null", "string", "long"]},
        {"name": "from", "type": ADDRESS},
        {"name": "to", "type": "shop.address"},
    )
    assert columns(schema) == [
        ("a", "INTEGER", False), ("b", "TIMESTAMP_LTZ(3)", True), ("c", "VARBINARY", False),
        ("d", "STRUCT<string VARCHAR, long BIGINT>", True), ('from', "STRUCT<town VARCHAR>", False),
        ('to', "STRUCT<town VARCHAR>", False),
    ]  # fmt: skip


def test_a_schema_may_refer_to_another() -> None:
    assert columns(record({"name": "to", "type": "shop.address"}), json.dumps(ADDRESS)) == [
        ("to", "STRUCT<town VARCHAR>", False)
    ]


def test_schemas_refer_to_each_other_at_any_depth() -> None:
    street = {"type": "record", "name": "geo.street", "fields": [{"name": "no", "type": "int"}]}
    house = {"type": "record", "name": "geo.house", "fields": [{"name": "on", "type": ["null", "street"]}]}
    found = columns(record({"name": "at", "type": "geo.house"}, {"name": "was", "type": ["null", "geo.house"]}),
                    json.dumps(street), json.dumps(house))  # fmt: skip
    assert found == [("at", "STRUCT<on STRUCT<no INTEGER>>", False), ("was", "STRUCT<on STRUCT<no INTEGER>>", True)]


DECIMAL = {"type": "bytes", "logicalType": "decimal"}
FIXED = {"type": "fixed", "name": "f", "logicalType": "decimal", "precision": 9}


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ({"type": {"type": {"type": "enum", "name": "e", "symbols": ["A"]}}}, "VARCHAR"),
        ({"type": ["null", {"type": "long"}]}, "BIGINT"),
        # A logical type that is none is not there, says Avro's specification.
        (DECIMAL, "VARBINARY"),
        (DECIMAL | {"precision": 3, "scale": 5}, "VARBINARY"),
        (DECIMAL | {"precision": 0}, "VARBINARY"),
        (DECIMAL | {"precision": 10**9}, "VARBINARY"),
        (FIXED | {"size": 3}, "VARBINARY"),
        (FIXED | {"size": 4}, "DECIMAL(9, 0)"),
        ({"type": "string", "logicalType": "date"}, "VARCHAR"),
        ({"type": "int", "logicalType": "timestamp-millis"}, "INTEGER"),
    ],
)
def test_what_libraries_take_in_their_stride(type_: object, column: str) -> None:
    assert columns(record({"name": "a", "type": type_}))[0][1] == column


def test_a_union_of_records_has_a_column_for_each() -> None:
    paid = {"type": "record", "name": "shop.Paid", "fields": [{"name": "cents", "type": "long"}]}
    found = [("address", "STRUCT<town VARCHAR>", True), ("paid", "STRUCT<cents BIGINT>", True)]
    assert columns(json.dumps(["null", "shop.address", "shop.Paid"]), json.dumps(ADDRESS), json.dumps(paid)) == found
    assert columns(json.dumps(["null", ADDRESS])) == [("town", "VARCHAR", False)]
    with pytest.raises(UnusableSchema, match="not a record"):
        columns(json.dumps([ADDRESS, "string"]))


def deep(levels: int) -> str:
    inner: object = "int"
    for _ in range(levels):
        inner = {"type": "array", "items": inner}
    return record({"name": "a", "type": inner})


def bomb() -> str:
    inner: object = {"type": "record", "name": "b39", "fields": [{"name": "x", "type": "int"}]}
    for n in reversed(range(39)):
        inner = {"type": "record", "name": f"b{n}", "fields": [{"name": "l", "type": inner},
                 {"name": "r", "type": f"b{n + 1}"}]}  # fmt: skip
    return json.dumps(inner)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (bomb(), "more than 20000 types"),
        (deep(101), "nested more than 100 deep"),
        (deep(300), "nested more than 100 deep"),
        (record(), "has no fields"),
        (record({"name": "a", "type": {"type": "record", "name": "e", "fields": []}}), "has no fields"),
        ('"string"', "it is not a record"),
        ("{", "Expecting property name"),
        (record({"name": "a", "type": "nothing"}), "nothing"),
        (record({"name": "next", "type": ["null", "shop.order"]}), "contains itself"),
    ],
)
def test_what_cannot_be_columns_is_said(schema: str, why: str) -> None:
    with pytest.raises(UnusableSchema) as e:
        columns(schema)
    assert why in e.value.text


def test_schemas_that_refer_to_each_other_deeper_than_anything_can_follow_are_refused() -> None:
    links = [record({"name": "to", "type": f"l{i - 1}" if i else "int"}, name=f"l{i}") for i in range(2000)]
    with pytest.raises(UnusableSchema, match="nested more than 100 deep"):
        columns('"l1999"', *links)


def test_a_schema_is_of_a_length_that_is_taken_apart_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "_LONGEST", 100)
    assert avro.parsed('"int"', ['"int"']) == "int"
    for text, refers in ((" " * 100 + '"int"', ()), ('"int"', ['"int"'] * 20)):
        with pytest.raises(UnusableSchema, match="more than 100 characters"):
            avro.parsed(text, refers)


def test_the_deepest_type_can_be_read_again() -> None:
    ((_, type_, _),) = columns(deep(100))
    assert str(parse(type_)) == type_


def test_fields_of_a_columns_type_stay_as_they_are() -> None:
    state = {"type": "enum", "name": "shop.state", "symbols": ["NEW", "PAID"]}
    base = record(
        {"name": "id", "type": "long", "doc": "Its number."},
        {"name": "state", "type": state},
        {"name": "was", "type": ["null", "string"], "default": None},
        {"name": "gone", "type": "int"},
    )
    fields = written(base, ("state", "VARCHAR"), ("id", "BIGINT"), ("was", "BIGINT"), ("more", "DOUBLE"))
    assert list(fields) == ["state", "id", "was", "more"]
    assert fields["id"] == {"name": "id", "type": "long", "doc": "Its number."}
    assert fields["state"]["type"] == state
    assert fields["was"] == {"name": "was", "type": ["null", "long"], "default": None}
    assert fields["more"] == {"name": "more", "type": ["null", "double"], "default": None}


def test_a_named_type_is_said_once() -> None:
    base = record({"name": "from", "type": ADDRESS}, {"name": "to", "type": ["null", "shop.address"], "default": None})
    fields = written(base, ("from", "STRUCT<town VARCHAR>"), ("to", "STRUCT<town VARCHAR>"))
    assert fields["from"]["type"] == ADDRESS
    assert fields["to"]["type"] == ["null", "shop.address"]
    # Whichever comes first says it.
    assert written(base, ("to", "STRUCT<town VARCHAR>"))["to"]["type"] == ["null", ADDRESS]


def test_what_avro_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeMismatch):
        avro.schema_of([("m", parse("MAP<BIGINT, VARCHAR>"))], "r")
    with pytest.raises(NotSupported):
        avro.schema_of([("größe", Type("BIGINT"))], "r")
