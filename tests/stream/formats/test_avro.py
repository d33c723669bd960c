"""Avro of random schemas, beside fastavro: bytes that it wrote are read alike, and it reads what the kernel wrote."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from pgstream.formats import avro
from pgstream.formats.registry import java
from pgstream.types import Type
from tests.stream.frames import RECORD, frame

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)


def since_epoch(ms: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=ms)


# Values as fastavro takes and gives them, by type of the language.
SCALARS: dict[str, tuple[Type, st.SearchStrategy[Any]]] = {
    "boolean": (Type("BOOLEAN"), st.booleans()),
    "integer": (Type("INTEGER"), st.integers(-(2**31), 2**31 - 1)),
    "bigint": (Type("BIGINT"), st.integers(-(2**63), 2**63 - 1)),
    "float": (Type("FLOAT"), st.floats(width=32, allow_nan=False)),
    "double": (Type("DOUBLE"), st.floats(allow_nan=False)),
    "varchar": (Type("VARCHAR"), st.text(st.characters(codec="utf-8"), max_size=20)),
    "varbinary": (Type("VARBINARY"), st.binary(max_size=20)),
    "date": (Type("DATE"), st.dates(dt.date(1583, 1, 1))),
    "time": (Type("TIME", (6,)), st.times()),
    "timestamp": (Type("TIMESTAMP", (6,)), st.datetimes(dt.datetime(1583, 1, 1), dt.datetime(9999, 1, 1))),
    "instant": (Type("TIMESTAMP_LTZ", (3,)), st.integers(0, 7 * 10**12).map(since_epoch)),
    "decimal": (Type("DECIMAL", (38, 9)), st.decimals(-(10**28), 10**28, allow_nan=False, places=9)),
    "small": (Type("DECIMAL", (5, 2)), st.decimals(-999, 999, allow_nan=False, places=2)),
}  # fmt: skip

Typed = tuple[Type, st.SearchStrategy[Any]]


def nullable(inner: Typed) -> Typed:
    return inner[0], st.none() | inner[1]


def arrays(inner: Typed) -> Typed:
    return Type("ARRAY", args=(inner[0],)), st.lists(nullable(inner)[1], max_size=4)


def maps(inner: Typed) -> Typed:
    keys = st.text("abcdefß ", max_size=4)
    return Type("MAP", args=(Type("VARCHAR"), inner[0])), st.dictionaries(keys, nullable(inner)[1], max_size=4)


def structs(fields: list[Typed]) -> Typed:
    named = {f"f{i}": f for i, f in enumerate(fields)}
    return (Type("STRUCT", fields=tuple((n, t) for n, (t, _) in named.items())),
            st.fixed_dictionaries({n: nullable(f)[1] for n, f in named.items()}))  # fmt: skip


TYPES = st.recursive(
    st.sampled_from(list(SCALARS.values())),
    lambda inner: inner.map(arrays) | inner.map(maps) | st.lists(inner, min_size=1, max_size=3).map(structs),
    max_leaves=6,
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[str, Type]], list[dict[str, Any]]]:
    """Columns, and rows of them."""
    fields = draw(st.lists(TYPES, min_size=1, max_size=5))
    columns = [(f"c{i}", t) for i, (t, _) in enumerate(fields)]
    row = st.fixed_dictionaries({f"c{i}": nullable(f)[1] for i, f in enumerate(fields)})
    return columns, draw(st.lists(row, min_size=1, max_size=5))


class Codec:
    """The kernel's reader and writer, with a real registry behind."""

    def __init__(self, spark: SparkSession, registry: str) -> None:
        self.spark, self.url = spark, registry
        self.access = java("r", {"uris": registry})
        self.jvm: Any = spark._jvm
        self.kernel = self.jvm.org.apache.spark.sql.pgstream
        self.count = 0

    def register(self, schema: Any) -> int:
        self.count += 1
        body = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        answer = httpx2.post(f"{self.url}/subjects/t{self.count}-{id(self)}-value/versions", json=body)
        assert answer.is_success, answer.text
        return int(answer.json()["id"])

    def decoded(self, columns: str, values: list[bytes], mode: str = "terminate") -> DataFrame:
        now = dt.datetime(2026, 1, 1, tzinfo=UTC)
        rows = [(None, v, now, 0, i) for i, v in enumerate(values)]
        raw = frame(self.spark, rows, RECORD)
        config = {"columns": columns, "kind": "stream", "topic": "t", "timestamp": None, "watermark": False,
                  "on_bad_record": mode, "primary_key": [], "key": None, "key_type": None, "limits": {},
                  "value": {"format": "avro", "registry": self.access}}  # fmt: skip
        bad = self.kernel.Kernel.counter(raw._jdf, "bad")
        decoded = DataFrame(self.kernel.Kernel.decode(raw._jdf, json.dumps(config), bad), self.spark)
        return decoded.where("r IS NOT NULL").select("r.*").drop("__time")

    def read(self, columns: str, values: list[bytes], mode: str = "terminate") -> list[dict[str, Any]]:
        """The rows that the kernel makes of values."""
        return [r.asDict(recursive=True) for r in self.decoded(columns, values, mode).collect()]

    def write(self, df: DataFrame, schema: str, id_: int) -> list[bytes]:
        """The values that the kernel makes of rows."""
        config = {"topic": "t", "mode": "append", "columns": df.columns, "key_columns": [],
                  "value": {"format": "avro", "schema": schema, "schema_id": id_}}  # fmt: skip
        jdf: Any = df._jdf
        format_ = self.kernel.RecordFormat(self.kernel.Json.read(json.dumps(config)), jdf.schema())
        rows = jdf.queryExecution().executedPlan().executeCollect()
        return [bytes(format_.record(row).value()) for row in rows]


@pytest.fixture(scope="module")
def codec(spark: SparkSession, registry: str) -> Codec:
    return Codec(spark, registry)


def ddl(columns: list[tuple[str, Type]]) -> str:
    return ", ".join(f"`{n}` {t.spark}" for n, t in columns)


def framed(schema: Any, id_: int, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return b"\0" + struct.pack(">I", id_) + out.getvalue()


def unframed(schema: Any, data: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data[5:]), schema)


def plain(value: Any) -> Any:
    """A value as both libraries give it: bytes, times with a zone in UTC, structs as dictionaries."""
    match value:
        case bytearray():
            return bytes(value)
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
        case dict():
            return {k: plain(v) for k, v in value.items()}
        case list():
            return [plain(v) for v in value]
        case Decimal():
            return value.normalize() + 0
    return value


CAREFUL = settings(max_examples=40, deadline=None, derandomize=True,
                   suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip


@CAREFUL
@given(table=tables())
def test_foreign_values_are_read(codec: Codec, table: tuple[list[tuple[str, Type]], list[dict[str, Any]]]) -> None:
    columns, rows = table
    schema = json.loads(avro.schema_of(columns, "row"))
    id_ = codec.register(schema)
    values = [framed(fastavro.parse_schema(schema), id_, row) for row in rows]
    assert plain(codec.read(ddl(columns), values)) == plain(rows)
    assert [(f.name, f.type.spark) for f in avro.columns_of(avro.parsed(json.dumps(schema)))] == [
        (n, t.spark) for n, t in columns
    ]


@CAREFUL
@given(table=tables())
def test_what_is_written_is_read_elsewhere(
    codec: Codec, table: tuple[list[tuple[str, Type]], list[dict[str, Any]]]
) -> None:
    columns, rows = table
    text = avro.schema_of(columns, "row")
    id_ = codec.register(text)
    # Rows of these values come out of the kernel's own reader, which the test above trusts to fastavro.
    schema = fastavro.parse_schema(json.loads(text))
    decoded = codec.decoded(ddl(columns), [framed(schema, id_, r) for r in rows])
    written = codec.write(decoded, text, id_)
    assert all(v[:5] == b"\0" + struct.pack(">I", id_) for v in written)
    assert [plain(unframed(schema, v)) for v in written] == plain(rows)


def long(v: int) -> bytes:
    """Avro's zigzag number."""
    u, out = (v << 1) ^ (v >> 63), b""
    u &= (1 << 64) - 1
    while u > 0x7F:
        out += bytes([u & 0x7F | 0x80])
        u >>= 7
    return out + bytes([u])


def bombs() -> str:
    """Forty records in each other, each two of the next: no bytes, a million million values."""
    inner: Any = {"type": "record", "name": "b39", "fields": []}
    for n in reversed(range(39)):
        names = ({"name": "l", "type": inner}, {"name": "r", "type": f"b{n + 1}"})
        inner = {"type": "record", "name": f"b{n}", "fields": list(names)}
    return json.dumps({"type": "record", "name": "bomb", "fields": [{"name": "x", "type": inner}]})


NODE = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
HOSTILE: dict[str, tuple[Any, str, bytes]] = {
    "a text of two gigabytes": ("string", "STRING", long(2**31 - 10)),
    "a text of eight exabytes": ("string", "STRING", long(2**63 - 1)),
    "a text of minus one byte": ("string", "STRING", long(-1)),
    "bytes of two gigabytes": ("bytes", "BINARY", long(2**31 - 10)),
    "a text that is not UTF-8": ("string", "STRING", long(1) + b"\xff"),
    "a text with NUL": ("string", "STRING", long(1) + b"\0"),
    "an array of nothing, without end": ({"type": "array", "items": "null"}, "ARRAY<STRING>", long(2**62)),
    "an array of nothing, again and again": ({"type": "array", "items": "null"}, "ARRAY<STRING>", long(90000) * 9),
    "an array of a block of no size": ({"type": "array", "items": "long"}, "ARRAY<BIGINT>", long(-(2**63)) + long(1)),
    "a map without end": ({"type": "map", "values": "null"}, "MAP<STRING, STRING>", long(2**62)),
    "an array to pass over, without end": ({"type": "array", "items": "null"}, "", long(2**62)),
    "structs without a byte": ({"type": "array", "items": {"type": "record", "name": "none", "fields": []}},
                               f"ARRAY<STRUCT<{', '.join(f'x{i}: INT' for i in range(99))}>>", long(90_000) + long(0)),
    "a list that is a million deep": (NODE, "", long(1) * 1_000_000),
    "a branch that is not there": (["null", "string"], "STRING", long(7)),
    "a branch of minus one": (["null", "string"], "STRING", long(-1)),
    "a symbol that is not there": ({"type": "enum", "name": "e", "symbols": ["A"]}, "STRING", long(9)),
    "a number of eleven bytes": ("long", "BIGINT", b"\xff" * 10 + b"\x01"),
    "an int of 64 bits": ("int", "INT", long(2**40)),
    "a time beyond all": ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP", long(2**62)),
    "a time of a day that is longer": ({"type": "int", "logicalType": "time-millis"}, "TIME", long(86_400_000)),
    "a time before the day": ({"type": "long", "logicalType": "time-micros"}, "TIME", long(-1)),
    "a decimal of a kilobyte": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                                "DECIMAL(9,2)", long(1024) + b"\x7f" * 1024),
    "a decimal with a billion places": ({"type": "bytes", "logicalType": "decimal", "precision": 2 * 10**9,
                                         "scale": 10**9}, "DECIMAL(9,2)", long(1) + b"\x01"),
    "a fixed of a gigabyte": ({"type": "fixed", "name": "f", "size": 2**30}, "BINARY", b"x"),
    "nothing": ("long", "BIGINT", b""),
}  # fmt: skip


def test_hostile_bytes_are_bad_records(codec: Codec) -> None:
    """Whatever the bytes and the schema say: each ends as one bad record, and soon; the good one after it is read."""
    for name, (type_, column, data) in HOSTILE.items():
        fields = [{"name": "v", "type": type_}, {"name": "n", "type": "long"}]
        id_ = codec.register({"type": "record", "name": "row", "fields": fields})
        columns = f"v {column}, n BIGINT" if column else "n BIGINT"
        head = b"\0" + struct.pack(">I", id_)
        good = codec.register({"type": "record", "name": "row", "fields": [{"name": "n", "type": "long"}]})
        values = [head + data, b"\0" + struct.pack(">I", good) + long(7)]
        assert [r["n"] for r in codec.read(columns, values, "ignore")] == [7], name
    id_, good = codec.register(bombs()), codec.register({"type": "record", "name": "row", "fields": []})
    values = [b"\0" + struct.pack(">I", i) for i in (id_, good)]
    assert codec.read("v STRING", values, "ignore") == [{"v": None}]


LOGICAL = {
    "date": {"type": "int", "logicalType": "date"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "ints": {"type": "array", "items": "int"},
    "map": {"type": "map", "values": "string"},
    "record": {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "string"}]},
    "enum": {"type": "enum", "name": "e", "symbols": ["A"]},
}
# By what the schema says: a value, and columns that it is no value of.
REFUSED: dict[str, tuple[Any, list[str]]] = {
    "string": ("1", ["bigint", "int", "double", "boolean", "date", "timestamp", "decimal(9,2)", "array<string>"]),
    "long": (1, ["int", "smallint", "boolean", "string", "timestamp", "date", "binary", "struct<x:bigint>"]),
    "int": (40000, ["smallint", "tinyint", "boolean", "string", "date", "timestamp"]),
    "double": (1.5, ["float", "bigint", "decimal(9,2)", "string", "boolean"]),
    "float": (1.5, ["bigint", "decimal(9,2)", "string"]),
    "boolean": (True, ["int", "string", "double"]),
    "bytes": (b"\xff", ["string", "bigint", "decimal(9,2)", "array<tinyint>"]),
    "date": (1, ["timestamp", "string", "boolean"]),
    "millis": (1, ["date", "string", "int"]),
    "decimal": (b"\x03\xe8", ["decimal(3,2)", "double", "bigint", "string"]),
    "ints": ([1], ["int", "array<string>", "array<boolean>", "map<string,int>", "struct<x:int>"]),
    "map": ({"a": "b"}, ["map<string,int>", "map<int,string>", "struct<a:string>", "string"]),
    "record": ({"x": "y"}, ["struct<x:bigint>", "map<string,string>", "string"]),
    "enum": ("A", ["bigint", "boolean", "binary"]),
}


@pytest.mark.parametrize("word", REFUSED)
def test_values_of_another_type_are_refused(codec: Codec, word: str) -> None:
    """Each pair of a schema's field and a column, with the field named."""
    value, columns = REFUSED[word]
    field = {"name": "a", "type": LOGICAL.get(word, word)}
    schema = {"type": "record", "name": "row", "fields": [field]}
    bare = json.loads(json.dumps(schema).replace('"logicalType"', '"was"'))
    id_ = codec.register(schema)
    data = framed(fastavro.parse_schema(bare), id_, {"a": value})
    for type_ in columns:
        made = codec.jvm.org.apache.spark.sql.types.StructType.fromDDL(f"a {type_}, b string")
        reader = codec.kernel.AvroReader(made, codec.kernel.Registry.open(codec.access))
        with pytest.raises(Py4JJavaError) as e:
            reader.read(data, codec.spark.sparkContext._gateway.new_array(codec.jvm.Object, 2))
        said = e.value.java_exception.getMessage()
        assert 'field "a' in said and ("the schema says" in said or "found" in said or "UTF-8" in said), (word, type_)
