"""What a record without a value is to a stream: nothing."""

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
