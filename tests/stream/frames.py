"""Frames of rows that a test holds, without Spark's Python workers: to start them takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

RECORD = StructType([StructField("key", BinaryType()), StructField("value", BinaryType()),
                     StructField("__time", TimestampType()), StructField("__partition", IntegerType()),
                     StructField("__offset", LongType())])  # fmt: skip
"""A record as a source gives it."""


def frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """The rows, in one partition, in their order."""
    made = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    arrow = to_arrow_schema(made)
    columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)], schema=arrow)
    return spark.createDataFrame(table, made).coalesce(1)
