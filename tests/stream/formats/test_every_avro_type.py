"""Every type of Avro's specification, as fastavro writes and reads it: to columns, and back by the same schema."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro
import pytest
from pyspark.sql import SparkSession

from pgstream.errors import UnusableSchema
from pgstream.formats import avro
from tests.stream.formats.test_avro import Codec, ddl, framed, plain, unframed

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


class Case(NamedTuple):
    """A field's schema, the column that it is, and values: as fastavro has them, and as the column has."""

    schema: Any
    column: str
    values: list[tuple[Any, Any]]


def same(*values: Any) -> list[tuple[Any, Any]]:
    return [(v, v) for v in values]


def logical(base: Any, name: str, **more: Any) -> dict[str, Any]:
    return (
        {"type": base, "logicalType": name, **more} if isinstance(base, str) else {**base, "logicalType": name, **more}
    )


def fixed(name: str, size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


UTC = dt.UTC
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
OLD = dt.datetime(1583, 1, 1)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
COLOURS = {"type": "enum", "name": "colour", "symbols": ["RED", "green", "_x1"], "default": "RED"}
POINT = {"type": "record", "name": "point", "namespace": "geo", "fields": [{"name": "x", "type": "int"},
         {"name": "y", "type": ["null", "int"], "default": None}]}  # fmt: skip
CASES: dict[str, Case] = {
    "boolean": Case("boolean", "BOOLEAN", same(True, False)),
    "int": Case("int", "INTEGER", same(0, -1, 2**31 - 1, -(2**31))),
    "long": Case("long", "BIGINT", same(0, 2**63 - 1, -(2**63))),
    "float": Case("float", "FLOAT", same(0.0, 1.5, float("inf"))),
    "double": Case("double", "DOUBLE", same(0.1, -5e-324, float("-inf"))),
    "bytes": Case("bytes", "VARBINARY", same(b"", b"\0\xff")),
    "string": Case("string", "VARCHAR", same("", "ünïcødé 日本 😀")),
    "null": Case("null", "VARCHAR", same(None)),
    "enum": Case(COLOURS, "VARCHAR", same("RED", "green", "_x1")),
    "fixed": Case(fixed("four", 4), "VARBINARY", same(b"\0\1\2\xff")),
    "array": Case({"type": "array", "items": "int"}, "ARRAY<INTEGER>", same([], [1, -2])),
    "array_of_unions": Case({"type": "array", "items": ["null", "string"]}, "ARRAY<VARCHAR>", same([None, "a"])),
    "map": Case({"type": "map", "values": "long"}, "MAP<VARCHAR, BIGINT>", same({}, {"": 1, "k": -1})),
    "deep": Case({"type": "map", "values": {"type": "array", "items": {"type": "map", "values": POINT}}},
                 "MAP<VARCHAR, ARRAY<MAP<VARCHAR, STRUCT<x INTEGER, y INTEGER>>>>",
                 same({"a": [{"b": {"x": 1, "y": None}}, {}]})),
    "again": Case("geo.point", "STRUCT<x INTEGER, y INTEGER>", same({"x": 1, "y": 2})),
    "nested": Case({"type": "record", "name": "outer", "fields": [{"name": "inside", "type": ["null", "geo.point"]}]},
                   'STRUCT<inside STRUCT<x INTEGER, y INTEGER>>', same({"inside": {"x": 1, "y": 2}}, {"inside": None})),
    "null_last": Case(["int", "null"], "INTEGER", same(7, None)),
    "one_branch": Case(["string"], "VARCHAR", same("only")),
    "decimal": Case(logical("bytes", "decimal", precision=9, scale=2), "DECIMAL(9, 2)",
                    same(Decimal("1.25"), Decimal("-9999999.99"), Decimal(0))),
    "decimal_whole": Case(logical("bytes", "decimal", precision=38), "DECIMAL(38, 0)", same(Decimal(10**38 - 1))),
    "decimal_fixed": Case(logical(fixed("money", 8), "decimal", precision=18, scale=4), "DECIMAL(18, 4)",
                          same(Decimal("-1.0001"), Decimal("99999999999999.9999"))),
    # More digits than a DECIMAL has: the bytes as they stand.
    "decimal_wide": Case(logical("bytes", "decimal", precision=60, scale=2), "VARBINARY",
                         [(Decimal("1.28"), b"\0\x80")]),
    "date": Case(logical("int", "date"), "DATE", same(dt.date(1970, 1, 1), dt.date(1583, 1, 1), dt.date(9999, 12, 31))),
    "time_millis": Case(logical("int", "time-millis"), "TIME(3)",
                        same(dt.time(0), dt.time(23, 59, 59, 999000))),
    "time_micros": Case(logical("long", "time-micros"), "TIME(6)", same(dt.time(0), dt.time(23, 59, 59, 999999))),
    "ts_millis": Case(logical("long", "timestamp-millis"), "TIMESTAMP_LTZ(3)",
                      same(MOMENT.replace(microsecond=678000, tzinfo=UTC), OLD.replace(tzinfo=UTC))),
    "ts_micros": Case(logical("long", "timestamp-micros"), "TIMESTAMP_LTZ(6)", same(MOMENT.replace(tzinfo=UTC))),
    "ts_nanos": Case(logical("long", "timestamp-nanos"), "TIMESTAMP_LTZ(9)",
                     [(1_000_000_123_000, dt.datetime(1970, 1, 1, 0, 16, 40, 123, UTC))]),
    "local_millis": Case(logical("long", "local-timestamp-millis"), "TIMESTAMP(3)", same(OLD)),
    "local_micros": Case(logical("long", "local-timestamp-micros"), "TIMESTAMP(6)", same(MOMENT)),
    "local_nanos": Case(logical("long", "local-timestamp-nanos"), "TIMESTAMP(9)",
                        [(-1000, dt.datetime(1969, 12, 31, 23, 59, 59, 999999))]),
    "uuid": Case(logical("string", "uuid"), "VARCHAR", [(ID, str(ID))]),
    "uuid_fixed": Case(logical(fixed("id", 16), "uuid"), "VARBINARY", same(ID.bytes)),
    "duration": Case(logical(fixed("span", 12), "duration"), "VARBINARY", same(bytes(range(12)))),
    "unknown": Case(logical("int", "no-such-thing"), "INTEGER", same(5)),
    "several": Case(["null", "string", "long", "boolean", "double", "bytes", {"type": "array", "items": "int"},
                     {"type": "map", "values": "int"}, "colour", "four", "geo.point", logical("int", "date")],
                    "STRUCT<string VARCHAR, long BIGINT, boolean BOOLEAN, double DOUBLE, bytes VARBINARY, "
                    "array ARRAY<INTEGER>, map MAP<VARCHAR, INTEGER>, colour VARCHAR, four VARBINARY, "
                    "point STRUCT<x INTEGER, y INTEGER>, int DATE>",
                    [(None, None), ("s", {"string": "s"}), (2**40, {"long": 2**40}), (True, {"boolean": True}),
                     (1.5, {"double": 1.5}), (b"\1", {"bytes": b"\1"}), ([1], {"array": [1]}),
                     ({"k": 1}, {"map": {"k": 1}}), (("all.colour", "green"), {"colour": "green"}),
                     (("all.four", b"abcd"), {"four": b"abcd"}),
                     (("geo.point", {"x": 1, "y": None}), {"point": {"x": 1, "y": None}}),
                     (dt.date(2026, 1, 2), {"int": dt.date(2026, 1, 2)})]),
    "no_null": Case(["int", "string"], "STRUCT<int INTEGER, string VARCHAR>",
                    [(1, {"int": 1}), ("a", {"string": "a"})]),
    "several_in_array": Case({"type": "array", "items": ["int", "string"]},
                             "ARRAY<STRUCT<int INTEGER, string VARCHAR>>", [([1, "a"], [{"int": 1}, {"string": "a"}])]),
}  # fmt: skip
RECORD = {"type": "record", "name": "row", "namespace": "all", "doc": "d", "fields": [
    {"name": name, "type": case.schema} for name, case in CASES.items()]}  # fmt: skip


@pytest.fixture(scope="module")
def codec(spark: SparkSession, registry: str) -> Codec:
    return Codec(spark, registry)


def given(i: int) -> dict[str, Any]:
    """One record: of each field its i-th value, or its last."""
    return {name: c.values[min(i, len(c.values) - 1)][0] for name, c in CASES.items()}


def wanted(i: int) -> dict[str, Any]:
    return {name: c.values[min(i, len(c.values) - 1)][1] for name, c in CASES.items()}


def lean(value: Any) -> Any:
    """Without the fields of a STRUCT that are NULL; of unions that is what is left."""
    match value:
        case dict():
            return {k: lean(v) for k, v in value.items() if v is not None}
        case list():
            return [lean(v) for v in value]
    return value


def test_to_columns_and_back(codec: Codec) -> None:
    text = json.dumps(RECORD)
    fields = avro.columns_of(avro.parsed(text))
    assert {f.name: str(f.type) for f in fields} == {n: c.column for n, c in CASES.items()}
    columns = [(f.name, f.type) for f in fields]
    count = max(len(c.values) for c in CASES.values())
    schema, id_ = fastavro.parse_schema(json.loads(text)), codec.register(text)
    values = [framed(schema, id_, given(i)) for i in range(count)]
    assert lean(plain(codec.read(ddl(columns), values))) == lean(plain([wanted(i) for i in range(count)]))
    # By the schema that a sink over the subject has: each field as it was.
    own = avro.schema_of(columns, "row", avro.parsed(text))
    assert fastavro.schema.expand_schema(json.loads(own)) == fastavro.schema.expand_schema(json.loads(text))
    written = codec.write(codec.decoded(ddl(columns), values), own, id_)
    assert [plain(unframed(schema, v)) for v in written] == [plain(unframed(schema, v)) for v in values]


A = {"type": "record", "name": "e.A", "fields": [{"name": "x", "type": "int"}, {"name": "both", "type": "string"}]}
B = {"type": "record", "name": "e.B", "fields": [{"name": "both", "type": "string"}, {"name": "y", "type": "long"}]}
IN_A, IN_B = ("e.A", {"x": 1, "both": "a"}), ("e.B", {"both": "b", "y": 2})
# The schema of a whole value, the columns, values, and rows of them.
WHOLE: dict[str, tuple[Any, str, list[Any], list[dict[str, Any]]]] = {
    "a number": ({"type": "long"}, "v BIGINT", [5], [{"v": 5}]),
    "a list": ({"type": "array", "items": ["null", "int"]}, "v ARRAY<INT>", [[1, None]], [{"v": [1, None]}]),
    "a record or null": (["null", A], "x INT, both STRING", [IN_A, None],
                         [{"x": 1, "both": "a"}, {"x": None, "both": None}]),
    "a record or null, of which one field": ([A, "null"], "x INT", [IN_A, None], [{"x": 1}, {"x": None}]),
    "a record or null, in one column": (["null", A], "v STRUCT<x: INT>", [IN_A, None], [{"v": {"x": 1}}, {"v": None}]),
    "records, a column each": ([A, B], "b STRUCT<y: BIGINT>, a STRUCT<x: INT>", [IN_A, IN_B],
                               [{"b": None, "a": {"x": 1}}, {"b": {"y": 2}, "a": None}]),
    "records, a column for one": ([A, B], "b STRUCT<y: BIGINT>", [IN_A, IN_B], [{"b": None}, {"b": {"y": 2}}]),
    "records, their fields": ([A, "null", B], "both STRING, y BIGINT", [IN_A, IN_B, None],
                              [{"both": "a", "y": None}, {"both": "b", "y": 2}, {"both": None, "y": None}]),
    "records, in one column": ([A, B], "v STRUCT<a: STRUCT<x: INT>, b: STRUCT<y: BIGINT>>", [IN_B],
                               [{"v": {"a": None, "b": {"y": 2}}}]),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_whole_values(codec: Codec, name: str) -> None:
    schema, columns, values, rows = WHOLE[name]
    id_ = codec.register(schema)
    assert codec.read(columns, [framed(fastavro.parse_schema(schema), id_, v) for v in values]) == rows


def test_what_has_no_column() -> None:
    def columns(type_: Any) -> Any:
        return avro.columns_of(
            avro.parsed(json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": type_}]}))
        )

    inside = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
    with pytest.raises(UnusableSchema, match="contains itself"):
        columns(inside)
    twins = [{"type": "enum", "name": f"{n}.twin", "symbols": ["A"]} for n in "ab"]
    with pytest.raises(UnusableSchema, match="two branches"):
        columns(twins)
