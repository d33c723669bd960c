"""Single records as text and back: Avro's values as JSON, primitives, patterns of names."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstream.errors import DocumentTooLong, InvalidOption, PgStreamError
from pgstream.formats import avro_values
from pgstream.formats.avro_values import fits, readable, shown, written
from pgstream.formats.columns import Unfit
from pgstream.formats.registry import Registered
from pgstream.sql.cursor import Cursor
from pgstream.statements import entity_bytes
from pgstream.statements.entities import ListEntities, _pattern
from pgstream.statements.entity_bytes import document, plain, primitive

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
WHEN = {"type": "long", "logicalType": "timestamp-millis"}
ORDER = json.dumps({
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": "int", "default": 1},
        {"name": "price", "type": ["null", MONEY]},
        {"name": "at", "type": ["null", WHEN], "default": None},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "default": "NEW"},
        {"name": "who", "type": ["null", "long", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"},
                                                         {"name": "next", "type": ["null", "shop.Line"]}]}}},
        {"name": "tags", "type": {"type": "map", "values": "double"}, "default": {}},
    ],
})  # fmt: skip
LINES: dict[str, Any] = {"lines": []}


def through(value: Any, schema: str = ORDER) -> Any:
    s = readable(schema)
    return json.loads(shown(written(json.loads(json.dumps(value), parse_float=Decimal), s), s))


def test_what_is_written_is_shown() -> None:
    full = {"id": 7, "n": 2, "price": 1.25, "at": "2026-01-02 03:04:05.678000Z", "day": "2026-01-02", "raw": "AAE=",
            "state": "PAID", "who": "ann", "lines": [{"sku": "a", "next": {"sku": "b", "next": None}}],
            "tags": {"x": 1.5}}  # fmt: skip
    assert through(full) == full
    few = through({"id": 7, **LINES})
    assert (few["n"], few["price"], few["state"], few["tags"]) == (1, None, "NEW", {})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"id": "x", **LINES}, 'field "id" must be long, found the string "x"'),
        ({"id": 2**63, **LINES}, 'field "id" must be long, found the number 9223372036854775808'),
        ({"id": True, **LINES}, 'field "id" must be long, found a boolean'),
        ({"id": 1, "n": 2**31, **LINES}, 'field "n" must be int, found the number 2147483648'),
        ({"id": 1, "price": 1.255, **LINES}, 'field "price" must be decimal(9, 2), found the number 1.255'),
        ({"id": 1, "price": 12345678.5, **LINES}, 'field "price" must be decimal(9, 2), found the number 12345678.5'),
        ({"id": 1, "at": "soon", **LINES}, 'field "at" must be timestamp-millis, found the string "soon"'),
        ({"id": 1, "raw": "é", **LINES}, 'field "raw" must be bytes, found the string "é"'),
        ({"id": 1, "state": "OLD", **LINES}, 'field "state" must be one of NEW, PAID, found the string "OLD"'),
        ({"id": 1, "who": 1.5, **LINES}, 'field "who" must be null or long or string, found the number 1.5'),
        ({"id": 1, "lines": [{"sku": 1}]}, 'field "lines[0].sku" must be string, found the number 1'),
        ({"id": 1}, 'field "lines" is missing, and the schema has no default for it'),
        ({"id": 1, "extra": 1, **LINES}, 'the schema has no field "extra"'),
        ({"id": 1, "tags": {"a": "b"}, **LINES}, 'field "tags.a" must be double, found the string "b"'),
        ([], "it must be shop.Order, found an array"),
    ],
)
def test_what_does_not_fit_names_its_field(value: Any, said: str) -> None:
    with pytest.raises(Unfit) as e:
        through(value)
    assert str(e.value) == said


@pytest.mark.parametrize("number", ["1e9", "1e999990", "1e999999999", "1e-3", "1e-999999999"])
def test_a_number_of_few_characters_is_not_written_out(number: str) -> None:
    assert not fits(Decimal(number), 9, 2)


def test_numbers_fit_with_all_their_digits() -> None:
    for number in ("9999999.99", "-9999999.99", "1e6", "1.50000", "0e-50"):
        assert fits(Decimal(number), 9, 2)
    assert fits(Decimal("9" * 38), 38, 0)
    assert not fits(Decimal("1" + "0" * 38), 38, 0)
    assert not fits(Decimal("9" * 20 + "." + "9" * 19), 38, 18)


def test_a_branch_can_be_named() -> None:
    union = json.dumps(["null", "int", "long", {"type": "record", "name": "a.R", "fields": []}])
    s = readable(union)
    assert written({"long": 5}, s) == written(5, readable(json.dumps(["null", "string", "long"])))
    assert through({"R": {}}, union) == {}


@given(
    st.fixed_dictionaries({
        "id": st.integers(-(2**63), 2**63 - 1), "n": st.integers(-(2**31), 2**31 - 1),
        "price": st.none() | st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: n / 100),
        "who": st.none() | st.text() | st.integers(-(2**63), 2**63 - 1),
        "state": st.sampled_from(["NEW", "PAID"]), "tags": st.dictionaries(st.text(), st.floats(-1e9, 1e9)),
        "lines": st.lists(st.fixed_dictionaries({"sku": st.text(), "next": st.none()})),
    })
)  # fmt: skip
def test_json_and_back(value: dict[str, Any]) -> None:
    got = through(value)
    assert {k: got[k] for k in value} == value


def test_others_bytes_are_no_value() -> None:
    s = readable(ORDER)
    for data in (b"", b"\x02", b"\xff" * 12, written({"id": 1, **LINES}, s) + b"x"):
        with pytest.raises(Unfit):
            shown(data, s)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long", "logicalType": "timestamp-micros"}, 2**62)
    with pytest.raises(Unfit):  # a moment that Python has not
        shown(out.getvalue(), readable(json.dumps({"type": "long", "logicalType": "timestamp-micros"})))


def test_a_value_is_tried_by_the_branches_of_unions_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_values, "_MOST", 5000)
    ways = [{"type": "record", "name": n, "fields": [{"name": "x", "type": ["A", "B", "null"]}]} for n in "AB"]
    ways[0]["fields"] = [{"name": "x", "type": ["A", ways[1], "null"]}]
    value: dict[str, Any] = {"x": 1}
    for _ in range(60):
        value = {"x": value}
    with pytest.raises(Unfit, match="more than 5000 values"):
        written(value, readable(json.dumps(ways[0])))


def test_a_value_deeper_than_anything_can_follow_is_refused() -> None:
    deep = readable(json.dumps({"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}))
    value: dict[str, Any] = {"n": None}
    for _ in range(700):
        value = {"n": value}
    with pytest.raises(Unfit, match="nested too deeply"):
        written(value, deep)


def test_of_an_enum_some_symbols_are_named() -> None:
    many = readable(json.dumps({"type": "enum", "name": "E", "symbols": [f"s{i}" for i in range(1000)]}))
    with pytest.raises(Unfit, match=r"one of s0, .*, s19, …, found") as e:
        written("x", many)
    assert len(str(e.value)) < 200


def test_a_document_is_of_a_length_that_is_taken_apart_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert document("[1]", 3) == [1]
    monkeypatch.setattr(entity_bytes, "_DOCUMENT", 2)
    with pytest.raises(DocumentTooLong) as e:
        document("[1]", 3)
    assert e.value.at == 3


def test_primitives() -> None:
    assert primitive("42", "BIGINT", 0) == struct.pack(">q", 42)
    assert primitive("-1", "SMALLINT", 0) == b"\xff\xff"
    assert primitive("1.5", "DOUBLE", 0) == struct.pack(">d", 1.5)
    assert primitive("TRUE", "BOOLEAN", 0) == b"\1"
    assert primitive("\\x00ff", "BYTES", 0) == b"\x00\xff"
    assert primitive("é", "VARCHAR", 0) == "é".encode()
    for text, type_, state in (
        ("2147483648", "INTEGER", "22P02"), ("x", "DOUBLE", "22P02"), ("yes", "BOOLEAN", "22P02"),
        ("00", "VARBINARY", "22P02"), ("1", "ARRAY<BIGINT>", "22023"), ("1", "DATE", "22023"),
    ):  # fmt: skip
        with pytest.raises(PgStreamError) as e:
            primitive(text, type_, 3)
        assert (e.value.sqlstate, e.value.at) == (state, 3)


async def test_records_that_say_more_than_they_are_are_shown_as_bytes() -> None:
    links = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}

    async def schema(id_: int) -> Registered:
        return Registered(id_, "AVRO", json.dumps(links))

    shown = entity_bytes.Shown(None, SimpleNamespace(schema=schema), {})  # type: ignore[arg-type]
    record = struct.pack(">bI", 0, 1) + b"\x02" * 50_000 + b"\0"
    assert await shown.text(record, "value") == "\\x" + record.hex()
    assert await shown.text(b"\0\0\0\0\1\2\0", "value") == '{"n": {"n": null}}'


def test_bytes_that_are_no_text() -> None:
    assert [plain(b) for b in (b"a\tb\n", b"\0\0\0\x05", b"\xff", b"\x1b[2J")] == [
        "a\tb\n", "\\x00000005", "\\xff", "\\x1b5b324a",
    ]  # fmt: skip


def test_patterns_of_names() -> None:
    assert [bool(_pattern(p).fullmatch("a.b_c%")) for p in ("a%", "a.b_c_", "%b\\_c\\%", "a.b", "A%", "a_b%")] == [
        True, True, True, False, False, True,
    ]  # fmt: skip
    for like, well in (
        ("%", True), ("%%_%", True), ("%.b%c%", True), ("%b%b%", False), ("a%%%c\\%", True), ("%\\", False),
        ("a.b_c%a.b_c%", False), ("______", True), ("_%______", False),
    ):  # fmt: skip
        assert bool(_pattern(like).fullmatch("a.b_c%")) == well, like


def test_a_pattern_of_names_that_fits_in_many_ways() -> None:
    """Python's own would try them one by one, for days."""
    assert _pattern("%a" * 40 + "%b").fullmatch("a" * 200) is None
    assert _pattern("%a" * 40 + "%").fullmatch("a" * 200) is not None
    with pytest.raises(InvalidOption, match="at most 1000 characters"):
        ListEntities.parse(Cursor("LIST ENTITIES IN STORE s LIKE '%s'" % ("%" * 1001)))
