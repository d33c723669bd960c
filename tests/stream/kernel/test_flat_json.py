"""The reader of plain records agrees with the parser: it reads the same or gives up."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

TYPES = {
    "a": "bigint", "b": "int", "c": "smallint", "d": "tinyint", "e": "double", "f": "float", "g": "boolean",
    "h": "string", "i": "decimal(10,2)", "j": "decimal(38,18)", "k": "timestamp", "l": "timestamp_ntz", "m": "date",
    "né": "string",
}  # fmt: skip
NUMBERS = [
    "0", "-0", "7", "-7", "007", "127", "128", "-129", "32768", "2147483647", "2147483648", "-2147483648",
    "999999999999999999", "1000000000000000000", "9223372036854775807", "9223372036854775808", "1.5", "-1.5", "-0.5",
    "-0.0", "0.1", "0.30000000000000004", "123456789.123456", "12345678.12", "123456789.12", "1.005", "1.", ".5", "1e3",
    "1E-3", "+1", "--1", "1a", "NaN", "0x10",
    "1e999999999", "-1e999999999", "1e-999999999", "0e999999999", "1" * 900, "1" * 5000, "1e2147483648",
]  # fmt: skip
TEXTS = [
    '""', '"x"', '"1"', '"NaN"', '"a\\"b"', '"tab\\t"', '"\t"', '"é"', '"€ 𝄞"', '"2024-02-30"', '"2024-02-29"',
    '"2024-02-29 12:00:00"', '"2024-02-29T12:00:00"', '"2024-02-29 12:00:00.123456789"', '"2024-02-29 12:00:00+02:00"',
    '"2024-02-29 12:00:00Z"', '"open', '"\\u0041"',
]  # fmt: skip
OTHERS = ["null", "true", "false", "nul", "nullx", "True", "{}", "[]", '{"x": 1}', "[1, 2]", "", "'x'"]
RECORDS = [
    b"", b" ", b"{}", b" { } ", b"{} x", b"[]", b"null", b"1", b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,',
    b'{"a":1,}', b'{"a":1}}', b'{"a":1}{"a":2}', b'{"a":1,"a":2}', b'{"a":1,"a":null}', b'{a:1}', b'{"A":1}',
    b'{"\\u0061":1}', b'{"x":[1,{"y":"}"}],"a":1}', b'\xef\xbb\xbf{"a":1}', '{"a":1}'.encode("utf-16"),
    b'{"h":"\xff"}', b'{"h":"\xed\xa0\x80"}', b'{"h":"\xc0\x80"}', b'{"n\xff":1}', b'{"a" : 1 ,\n"b"\t:2\r}',
    b'{"a":1 "b":2}', b'{"a":1;"b":2}', b'{"zz":1.5,"a":1}', b'{"a":1}\x00',
    b'{"h":"\\u0000"}', b'{"h":"a\x00"}', b'{"h":' + b"[" * 100_000, b'{"x":' + b'{"a":' * 100_000, b"[" * 100_000,
    b'{"h":' + b'{"a":' * 900 + b"1" + b"}" * 901, b'{"h":"\\ud800"}',
]  # fmt: skip


class Readers:
    def __init__(self, spark: SparkSession, types: dict[str, str]) -> None:
        jvm: Any = spark._jvm
        kernel = jvm.org.apache.spark.sql.pgstream
        ddl = ", ".join(f"`{n}` {t}" for n, t in types.items())
        self.schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)
        self.fields = kernel.Fields(self.schema, " ")
        # Each of these names is looked up once: Py4J tries every part of one in every jar.
        self.new, self.parse, self.equal = kernel.FlatJson, kernel.JsonBytes.read, jvm.java.util.Arrays.equals
        gateway: Any = spark.sparkContext._gateway
        self.array = functools.partial(gateway.new_array, jvm.Object, len(types))
        self.renew()

    def renew(self) -> None:
        """A plain reader that has not given up yet."""
        self.flat = self.new(self.schema, " ")

    def both(self, record: bytes) -> tuple[bool, bool, bool]:
        """Whether the plain reader read the record, whether the parser did, and whether the values are the same."""
        one, two = self.array(), self.array()
        plain = self.flat.read(record, one)
        try:
            self.parse(record, self.fields, two)
        except Py4JJavaError as e:
            refusals = ("pgstream.Malformed", "jackson.core", "java.io.CharConversionException")
            assert any(r in str(e.java_exception) for r in refusals), record
            return plain, False, False
        return plain, True, self.equal(one, two)


@pytest.fixture(scope="module")
def readers(spark: SparkSession) -> Readers:
    return Readers(spark, TYPES)


def _agree(readers: Readers, record: bytes) -> bool:
    readers.renew()
    plain, parsed, same = readers.both(record)
    assert not plain or (parsed and same), record
    return plain


def test_reads_what_the_parser_reads(readers: Readers) -> None:
    for record in RECORDS:
        _agree(readers, record)
    read = sum(
        _agree(readers, f'{{"{name}": {value}, "h": "x"}}'.encode())
        for name in (*TYPES, "unknown")
        for value in (*NUMBERS, *TEXTS, *OTHERS)
    )
    assert read > 150
    assert _agree(readers, b'{"a": 1, "h": "x", "unknown": 2.5, "e": -0.25}')


def test_agrees_on_records_broken_at_random(readers: Readers) -> None:
    draw = random.Random(7)
    names = [*TYPES, "unknown", ""]
    for _ in range(500):
        chosen = draw.sample(names, draw.randint(0, len(names)))
        record = json.dumps(
            {n: draw.choice([draw.randint(-200, 200), draw.random(), "x", "2024-01-01", None, True]) for n in chosen},
            ensure_ascii=draw.random() < 0.5,
        ).encode()
        if draw.random() < 0.5:
            at = draw.randrange(len(record))
            record = record[:at] + bytes([draw.choice(b'{}[]",:-.0e\\ \x00\xc3')]) + record[at + draw.randint(0, 1) :]
        _agree(readers, record)


def test_stops_trying_where_records_are_not_plain(spark: SparkSession) -> None:
    readers = Readers(spark, {"a": "bigint", "h": "string"})
    assert readers.both(b'{"a": 1}') == (True, True, True)
    for _ in range(1000):
        assert readers.both(b'{"x": {"y": 1}, "a": 1}')[:2] == (False, True)
    assert readers.both(b'{"a": 1}') == (False, True, False)
