"""What Spark SQL could do beside a query of ours, if a client's text ever became part of it."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

pytestmark = pytest.mark.stream

QUERY = "a query in an expression"
METHOD = "a call of a Java method|Non-deterministic expression .* in the arguments of an aggregate"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(SELECT 1)", QUERY),
        ("'a' || (SELECT max(id) FROM range(3))", QUERY),
        ("EXISTS (SELECT 1)", QUERY),
        ("id IN (SELECT 1)", QUERY),
        ("(SELECT first(value) FROM text.`/etc/hostname`)", "text"),
        ("reflect('java.lang.System', 'getProperty', 'user.dir')", METHOD),
        ("java_method('java.lang.System', 'getProperty', 'user.dir')", METHOD),
        ("try_reflect('java.lang.System', 'getProperty', 'user.dir')", METHOD),
        ("transform(array(id), x -> reflect('java.lang.System', 'getProperty', 'user.dir'))", METHOD),
    ],
)
@pytest.mark.parametrize("place", ["{} AS x", "max({}) AS x", "named_struct('a', {}).a AS x"])
def test_no_plan_reaches_out(spark: SparkSession, text: str, why: str, place: str) -> None:
    with pytest.raises(PySparkException, match=why):
        spark.range(2).selectExpr(place.format(text))


def test_not_as_a_condition_either(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=METHOD):
        spark.range(2).where("reflect('java.lang.System', 'getProperty', 'user.dir') = 'x'")
