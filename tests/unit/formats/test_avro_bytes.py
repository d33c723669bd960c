"""Bytes that say more than they are: refused before native code reads them, which they would end the process in."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from pgstream.formats import avro_bytes
from pgstream.formats.avro_values import readable, shown
from pgstream.formats.columns import Unfit


def number(n: int) -> bytes:
    n, out = (n << 1) ^ (n >> 63), b""
    while n > 0x7F:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def record(*types: Any, name: str = "L") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]}


LIST = record(["null", "L"])
EMPTY = {"type": "array", "items": record()}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
LONG_NAME = {
    "type": "array",
    "items": {"type": "record", "name": "R", "fields": [{"name": "n" * 50_000, "type": "int"}]},
}
LONG_SYMBOL = {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["s" * 50_000]}}


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        (LIST, b"\x02" * 50_000 + b"\0", "nested more than 250 deep"),
        (LIST, b"\x02" * 100, "no number"),
        ({"type": "array", "items": "null"}, number(10**7) + b"\0", "more than its bytes can"),
        ({"type": "array", "items": "null"}, number(2**62) + b"\0", "more than its bytes can"),
        ({"type": "array", "items": "null"}, number(-(2**63)) + b"\0\0", "more than its bytes can"),
        (EMPTY, number(10**6) + b"\0", "more than its bytes can"),
        ({"type": "map", "values": EMPTY}, (number(3) + b"\0" + number(6000)) * 3, "more than its bytes can"),
        ("bytes", number(2**40), "are left"),
        ("string", number(-1) + b"x", "are left"),
        ({"type": "fixed", "name": "F", "size": 2**40}, b"x", "are left"),
        (MONEY, number(20_001) + bytes(20_001), "a decimal of 20001 bytes"),
        ({"type": "array", "items": MONEY}, number(50) + (number(19_000) + bytes(19_000)) * 50, "longer than is shown"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, number(-1), "no symbol -1"),
        (["null", "int"], number(-1) + b"\2", "no branch -1"),
        ("long", b"\xff" * 10, "no number of 64 bits"),
        ("long", b"\xff" * 9 + b"\x02", "no number of 64 bits"),
        (LONG_NAME, number(1000) + bytes(1001), "longer than is shown"),
        (LONG_SYMBOL, number(1000) + bytes(1001), "longer than is shown"),
        ("int", b"\0\0", "bytes after the end"),
    ],
)
def test_what_is_not_as_it_says_is_refused(schema: Any, data: bytes, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        shown(data, readable(json.dumps(schema)))


def test_a_value_has_a_million_values_in_it_at_most() -> None:
    schema, many = {"type": "array", "items": "boolean"}, 600_000
    with pytest.raises(Unfit, match="more than is shown"):
        avro_bytes.check(number(many) + bytes(many + 1), schema, {})
    avro_bytes.check(number(500_000) + bytes(500_001), schema, {})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (LIST, {"f0": {"f0": {"f0": None}}}),
        (EMPTY, [{}] * 2000),
        ({"type": "map", "values": ["string", "double"]}, {"a": "é", "b": 1.5}),
        (record({"type": "fixed", "name": "F", "size": 3}, "F", "boolean", "float", "bytes"),
         {"f0": b"abc", "f1": b"def", "f2": True, "f3": 0.5, "f4": b""}),
        ({"type": "array", "items": ["null", LIST]}, [None, {"f0": None}]),
        ({"type": "array", "items": "long"}, [0, -1, 2**63 - 1, -(2**63)] * 1000),
    ],
)  # fmt: skip
def test_what_the_library_writes_is_passed_over_to_its_end(schema: Any, value: Any) -> None:
    s = readable(json.dumps(schema))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, s.body, value)
    avro_bytes.check(out.getvalue(), s.body, s.names)
    with pytest.raises(Unfit):
        avro_bytes.check(out.getvalue()[:-1], s.body, s.names)


def test_blocks_may_say_their_bytes() -> None:
    s = readable(json.dumps({"type": "array", "items": "int"}))
    assert shown(number(-2) + number(2) + b"\2\4" + number(1) + b"\6" + b"\0", s) == "[1, 2, 3]"


def test_lists_as_deep_as_a_value_may_be_are_shown() -> None:
    assert shown(b"\x02" * 124 + b"\0", readable(json.dumps(LIST))).count('{"f0"') == 125
