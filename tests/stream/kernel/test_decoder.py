"""What a record without a value is: nothing to a stream, a delete to a changelog where its key can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pgstream.planner.plan import Column, Source
from pgstream.spark.sources import Sources

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

FORMATS = ("json", "primitive", "avro", "protobuf")


class Decoder:
    """The kernel's decoder of one source, and how many bad records it has counted."""

    def __init__(self, spark: SparkSession, **source: Any) -> None:
        jvm: Any = spark._jvm
        columns = [Column(n, t) for n, t in source.pop("columns", {"k": "VARCHAR", "n": "BIGINT"}).items()]
        made = Source("s", "main.public.s", entity="t", store="k", columns=columns, **source)
        self.bad = spark.sparkContext._jsc.sc().longAccumulator("bad")
        config = json.dumps(Sources(spark, None, {}).decoder(made))
        self.decoder = jvm.org.apache.spark.sql.pgstream.RecordDecoder(config, self.bad)

    def __call__(self, key: bytes | None, value: bytes | None) -> Any:
        """The row of the JVM; None for a record that is left out."""
        return self.decoder.decode(key, value, 0, 7, 1_000_000, None, None)


def removed(row: Any, keys: int = 1) -> list[str | None] | None:
    """The key of a delete, whose columns are the first, as text."""
    if row is None:
        return None
    assert row.getBoolean(row.numFields() - 1), "it is no delete"
    return [None if row.isNullAt(i) else str(row.get(i, None)) for i in range(keys)]


@pytest.mark.parametrize("mode", ["terminate", "ignore"])
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("key", [None, b"", b'{"k": "a"}'])
def test_a_stream_leaves_a_record_without_a_value_out(
    key: bytes | None, format_: str, mode: str, spark: SparkSession
) -> None:
    decode = Decoder(spark, kind="stream", value_format=format_, on_bad_record=mode)
    assert decode(key, None) is None
    assert decode.bad.value() == 0


def test_an_empty_value_is_a_bad_record(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError, match="the value is empty"):
        Decoder(spark, kind="stream", value_format="json")(None, b"")
    decode = Decoder(spark, kind="stream", value_format="json", on_bad_record="ignore")
    assert (decode(None, b""), decode.bad.value()) == (None, 1)


ONE, TWO = ["k"], ["k", "n"]


@pytest.mark.parametrize(
    "primary, key, gone",
    [
        (ONE, b'{"k":"a"}', ["a"]),
        (ONE, b'{"x": [1, {}], "k": "a"}', ["a"]),
        (ONE, b'{"k":null}', [None]),
        (TWO, b'{"k":"a","n":5}', ["a", "5"]),
        (TWO, b'{"k":"a"}', None),
        (TWO, b'{"k":"a","n":"5"}', None),
        (TWO, b'{"k":"a","n":5} x', None),
        (TWO, b'{"k":"a","n":5', None),
        (ONE, b'"a"', None),
        (ONE, b' {"k":"a"}', None),
        (ONE, b"a", None),
        (ONE, b'["a"]', None),
        (ONE, b"", None),
        (ONE, b"\0\0\0\0\1\2", None),
        (ONE, None, None),
    ],
)
def test_a_changelog_without_a_key_format_reads_what_insert_writes(
    primary: list[str], key: bytes | None, gone: list[str | None] | None, spark: SparkSession
) -> None:
    decode = Decoder(spark, kind="changelog", value_format="json", primary_key=primary)
    assert removed(decode(key, None), len(primary)) == gone


def test_an_empty_key_is_one_of_a_topic(spark: SparkSession) -> None:
    """Only a table can be emptied."""
    how = {"kind": "changelog", "value_format": "json", "primary_key": ONE, "key_format": "primitive"}
    assert removed(Decoder(spark, **how, key_type="VARCHAR")(b"", None)) == [""]
    with pytest.raises(Py4JJavaError, match="the table was truncated"):
        Decoder(spark, **how, key_type="VARCHAR", empties=True, watermark=True)(b"", None)
