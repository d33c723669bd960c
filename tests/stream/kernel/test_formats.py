"""JSON and PRIMITIVE alone: what is written is what was read, and what is not as declared is refused, never NULL."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


class Format:
    """The kernel's reader and writer of one side, over plain arrays: no job runs."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm: Any = spark._jvm
        self.gateway: Any = spark.sparkContext._gateway
        self.kernel = self.jvm.org.apache.spark.sql.pgstream

    def open(self, ddl: str, **side: str) -> Callable[[bytes], Any]:
        """A function of the bytes of a value to a row of the JVM; it has a ``write`` for the way back."""
        columns = self.jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)
        config = self.kernel.Json.read(json.dumps(side))
        reader, width = self.kernel.Formats.reader(config, columns), columns.length()
        which = self.gateway.new_array(self.jvm.int, width)
        for i in range(width):
            which[i] = i
        writer = self.kernel.Formats.writer(config, columns, which)

        def read(data: bytes) -> Any:
            values = self.gateway.new_array(self.jvm.Object, width)
            reader.read(data, values)
            return self.jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(values)

        read.write = lambda row: bytes(writer.write(row))  # type: ignore[attr-defined]
        return read


@pytest.fixture(scope="module")
def format_(spark: SparkSession) -> Format:
    return Format(spark)


def moments(separator: str, zoned: bool) -> st.SearchStrategy[tuple[str, str]]:
    """Times as somebody writes them, with up to nine digits of a second, and as they come back: to the microsecond."""

    def texts(at: dt.datetime, digits: int, nanos: int, hours: int) -> tuple[str, str]:
        fraction = f"{at.microsecond:06}{nanos:03}"[:digits]
        kept = fraction[:6].rstrip("0")
        local = at + dt.timedelta(hours=hours)
        given_ = f"{local:%Y-%m-%d}{separator}{local:%H:%M:%S}" + (f".{fraction}" if digits else "")
        zone = "" if not zoned else f"{'+' if hours >= 0 else '-'}{abs(hours):02}:00" if hours else "Z"
        back = f"{at:%Y-%m-%d}{separator}{at:%H:%M:%S}" + (f".{kept}" if kept else "") + ("Z" if zoned else "")
        return given_ + zone, back

    return st.builds(
        texts,
        st.datetimes(dt.datetime(1583, 1, 2), dt.datetime(9999, 12, 30)),
        st.integers(0, 9),
        st.integers(0, 999),
        st.integers(-14, 14) if zoned else st.just(0),
    )


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return values.map(lambda v: (v, v))


def scalars(separator: str) -> dict[str, st.SearchStrategy[tuple[Any, Any]]]:
    """By Spark's type: a value of JSON as it is given, and as it comes back."""
    numbers = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
    special = st.sampled_from(["NaN", "Infinity", "-Infinity"])
    return {
        **{t: same(st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1)) for t, n in numbers.items()},
        "boolean": same(st.booleans()),
        "double": same(st.floats(allow_nan=False, allow_infinity=False) | special),
        "float": same(st.floats(width=32, allow_nan=False, allow_infinity=False) | special),
        "string": same(st.text(st.characters(codec="utf-8"), max_size=20)),
        "binary": same(st.binary(max_size=20).map(lambda b: base64.b64encode(b).decode())),
        "date": same(st.dates(dt.date(1583, 1, 1)).map(str)),
        "decimal(9,2)": same(st.decimals(-9999999, 9999999, places=2)),
        "decimal(38,18)": same(st.decimals(-(10**20) + 1, 10**20 - 1, places=18)),
        "time(6)": st.times().map(lambda t: (f"{t:%H:%M:%S.%f}", str(t).rstrip("0") if t.microsecond else str(t))),
        "timestamp_ntz": moments(separator, False),
        "timestamp": moments(separator, True),
    }


Typed = tuple[str, st.SearchStrategy[tuple[Any, Any]]]


def nullable(values: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.just((None, None)) | values


def arrays(inner: Typed) -> Typed:
    both = st.lists(nullable(inner[1]), max_size=4).map(lambda vs: ([v[0] for v in vs], [v[1] for v in vs]))
    return f"array<{inner[0]}>", both


def maps(inner: Typed) -> Typed:
    both = st.dictionaries(st.text(max_size=4), nullable(inner[1]), max_size=4)
    return f"map<string,{inner[0]}>", both.map(lambda m: _halves(m))


def structs(fields: list[Typed]) -> Typed:
    made = st.fixed_dictionaries({f"f {i}": nullable(v) for i, (_, v) in enumerate(fields)})
    return f"struct<{','.join(f'`f {i}`:{t}' for i, (t, _) in enumerate(fields))}>", made.map(_halves)


def _halves(pairs: dict[str, tuple[Any, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    return {k: v[0] for k, v in pairs.items()}, {k: v[1] for k, v in pairs.items()}


def types(separator: str) -> st.SearchStrategy[Typed]:
    return st.recursive(
        st.sampled_from(list(scalars(separator).items())),
        lambda inner: inner.map(arrays) | inner.map(maps) | st.lists(inner, min_size=1, max_size=3).map(structs),
        max_leaves=8,
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, str, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """A layout of times, columns, and rows as given and as they come back."""
    layout = draw(st.sampled_from(["sql", "iso8601"]))
    fields = draw(st.lists(types("T" if layout == "iso8601" else " "), min_size=1, max_size=5))
    row = st.fixed_dictionaries({f"c{i}": nullable(v) for i, (_, v) in enumerate(fields)}).map(_halves)
    return (
        layout,
        ", ".join(f"c{i} {t}" for i, (t, _) in enumerate(fields)),
        draw(st.lists(row, min_size=1, max_size=3)),
    )


def text_of(value: Any) -> str:
    """JSON with decimals as they are."""
    match value:
        case dict():
            return "{" + ",".join(f"{json.dumps(k)}:{text_of(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(text_of, value)) + "]"
        case Decimal():
            return format(value, "f")
    return json.dumps(value, ensure_ascii=False)


def numbers(value: Any, like: Any) -> Any:
    """What was written with its numbers as those of the given value: floats are compared as floats."""
    match value, like:
        case dict(), dict():
            return {k: numbers(v, like.get(k)) for k, v in value.items()}
        case list(), list():
            return [numbers(v, w) for v, w in zip(value, like, strict=True)]
        case ((Decimal() | int()), float()) if not isinstance(value, bool):
            return _short(float(value)) if _short(like) == like else float(value)
    return value


def _short(value: float) -> float:
    """As four bytes hold it: the digits of a FLOAT are those that tell it from other FLOATs."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf")


@settings(max_examples=60, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip
@given(table=tables())
def test_json_is_written_as_it_was_read(format_: Format, table: tuple[str, str, Any]) -> None:
    layout, ddl, rows = table
    read: Any = format_.open(ddl, format="json", timestamp_format=layout)
    for given_, back in rows:
        written = read.write(read(text_of(given_).encode()))
        assert numbers(json.loads(written, parse_float=Decimal), back) == back
        assert read.write(read(written)) == written


WRONG = {
    "bigint": ['"1"', "1.5", "true", "9223372036854775808", "[1]", "{}", "1e-2", "9.3e18", "1e999999999"],
    "int": ['"1"', "2147483648", "2147483648.0", "1.0000000000000000001", "false"],
    "smallint": ["32768", "3.3e4", '""'],
    "tinyint": ["-129", '"x"'],
    "double": ['"1.5"', "true", '"inf"', "[]"],
    "float": ['"1"', "false", "{}"],
    "boolean": ["1", '"true"', "0", "[]"],
    "decimal(5,2)": ["1000.5", '"1.5"', "true", "{}"],
    "date": ["20000", '"2026-02-30"', '"2026-1-1"', '"2026-01-01 00:00:00"', '""', "true"],
    "time(6)": ['"24:00:00"', '"1:02:03"', '"10:11"', '"10:11:12Z"', '"10:11:60"', '"10:11:12."', '""', "36000"],
    "timestamp_ntz": ['"2026-01-01"', '"2026-01-01T00:00:00"', '"2026-01-01 00:00:00Z"', "0", '"2026-01-01 24:00:00"'],
    "timestamp": ['"2026-01-01T00:00:00Z"', "1767225600000", '"soon"', '"2026-01-01 00:00:00.1234567890Z"'],
    "binary": ["1", '"é"', '"A"', "[0]"],
    "array<int>": ['"[1"', '"{}"', '"e30"', '"[true]"', "{}", '["1"]', "[1.5]", "1"],
    "map<string,int>": ["[]", '{"a": "1"}', '"[]"', '"text"', '"null"'],
    "map<int,int>": ['{"a": 1}'],
    "struct<x:int>": ["[]", "1", '""', '"1"', '"{"', '"e3"', '"eA=="', '"{\\"x\\": true}"', '{"x": "1"}'],
    "array<struct<x:array<boolean>>>": ['[{"x": [1]}]', '[{"x": true}]', "[[]]"],
}


@pytest.mark.parametrize(("type_", "value"), [(t, v) for t, vs in WRONG.items() for v in vs])
def test_json_of_another_type_is_refused(format_: Format, type_: str, value: str) -> None:
    read = format_.open(f"a {type_}, b string", format="json", timestamp_format="sql")
    with pytest.raises(Py4JJavaError) as e:
        read(f'{{"b": "x", "a": {value}}}'.encode())
    said = e.value.java_exception.getMessage()
    assert 'field "a' in said and "must be" in said and "found" in said


@pytest.mark.parametrize("type_", ["tinyint", "smallint", "int", "bigint"])
def test_a_whole_number_may_be_written_with_a_point_or_an_exponent(format_: Format, type_: str) -> None:
    read: Any = format_.open(f"a array<{type_}>, b {type_}", format="json", timestamp_format="sql")
    row = read(b'{"a": [8.0, -0.0, 1e2, 1.20e1, 0e999, 100000e-4], "b": -128.000}')
    assert json.loads(read.write(row)) == {"a": [8, 0, 100, 12, 0, 10], "b": -128}


@pytest.mark.parametrize("type_, value", [("array<struct<x:int>>", [{"x": 1}, None]), ("map<string,bigint>", {"a": 1}),
                                          ("struct<x:string,y:array<int>>", {"x": "é", "y": [1]})])  # fmt: skip
def test_nested_values_are_read_out_of_text_too(format_: Format, type_: str, value: Any) -> None:
    """Of JSON, and of its base64: bytes in JSON."""
    read: Any = format_.open(f"a {type_}, b string", format="json", timestamp_format="sql")
    text = json.dumps(value)
    for given_ in (text, base64.b64encode(text.encode()).decode()):
        row = read(json.dumps({"a": given_, "b": text}).encode())
        assert json.loads(read.write(row)) == {"a": value, "b": text}


PRIMITIVES: dict[str, tuple[bytes, list[bytes]]] = {
    "bigint": (struct.pack(">q", -5), [b"", b"1", b"1" * 7, b"1" * 9]),
    "int": (struct.pack(">i", 123), [b"", b"123", b"12345"]),
    "smallint": (struct.pack(">h", -1), [b"1", b"123"]),
    "tinyint": (b"\x80", [b"", b"12"]),
    "double": (struct.pack(">d", 1.5), [b"1.5", b""]),
    "float": (struct.pack(">f", 1.5), [b"1.50a"]),
    "boolean": (b"\1", [b"", b"true"]),
    "string": ("é \0".encode(), [b"\xff", b"\xc3"]),
    "binary": (b"\0\xff", []),
}


@pytest.mark.parametrize("type_", PRIMITIVES)
def test_primitives_come_back_or_are_refused(format_: Format, type_: str) -> None:
    read: Any = format_.open(f"a {type_}", format="primitive")
    good, bad = PRIMITIVES[type_]
    assert read.write(read(good)) == good
    for data in bad:
        with pytest.raises(Py4JJavaError) as e:
            read(data)
        assert "Malformed" in str(e.value.java_exception)
