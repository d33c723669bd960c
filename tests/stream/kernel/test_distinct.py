"""Distinct values are told apart as equality does it: 0.0 and -0.0 are one, and all NaN are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Record, Relation

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

VALUES = [0.0, -0.0, 1.5, float("nan"), -0.0, float("nan")]


def relation(kind: str) -> Relation:
    """Values in two batches; of a changelog two rows go again, a zero of either sign."""
    made = Relation(kind, {"k": "BIGINT", "d": "DOUBLE", "f": "FLOAT"}, ("k",) if kind == "c" else ())
    rows = [Record({"k": i, "d": d, "f": d}, 1000 + i, 0, i) for i, d in enumerate(VALUES)]
    made.batches = [rows[:1], rows[1:]]
    if kind == "c":
        made.batches.append([Record({"k": k}, 2000 + k, 0, 10 + k, delete=True) for k in (0, 4)])
    return made


@pytest.mark.parametrize("of", ["s", "c"])
@pytest.mark.parametrize("value", ["d", "f", "ARRAY[d]", "ROW(d, f)"])
def test_zeros_of_either_sign_are_one_value(value: str, of: str, spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path, [relation(of)])
    sql = f"SELECT count(DISTINCT {value}) AS n, array_agg(DISTINCT {value}) AS a FROM {of}"
    ((n, array),) = feed.run(sql)[0]
    assert (n, len(array)) == (3, 3)


def test_a_zero_stays_until_the_last_of_either_sign_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    c = relation("c")
    c.batches.append([Record({"k": 1}, 3000, 0, 20, delete=True)])
    assert Feed(spark, tmp_path, [c]).run("SELECT count(DISTINCT d) AS n, sum(DISTINCT d) > 0 AS s FROM c")[0] == [
        (2, True)
    ]


def test_in_a_frame_they_are_one_too(spark: SparkSession, tmp_path: Path) -> None:
    s = relation("s")
    s.batches.append([Record({"k": 99, "d": 9.0, "f": 9.0}, 9_000_000, 0, 99)])
    over = "OVER (ORDER BY rowtime() ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
    rows: list[Any] = Feed(spark, tmp_path, [s]).run(f"SELECT k, count(DISTINCT d) {over} AS n FROM s", "stream")[0]
    assert rows == [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3), (5, 3)]
