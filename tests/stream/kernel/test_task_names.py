"""What a sink that writes task by task goes by: which partition of a source a task has read, if it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pgstream.planner.plan import Plan, ResultSink
from pgstream.planner.select import plan_select
from pgstream.spark.compile import Compiler
from pgstream.sql.cursor import Cursor
from tests.stream.kernel.feed import Feed, Record, Relation, snapshot

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]
READ, COUNTED = "SELECT v FROM s", "SELECT count(*) OVER (PARTITION BY v ORDER BY rowtime()) + 100 AS v FROM s"


@pytest.mark.parametrize(
    "sql, told",
    [
        (READ, {(1, 3), (2, 4)}),
        (COUNTED, None),
        (f"{READ} UNION ALL {READ}", {(1, 6), (1, 7), (2, 8), (2, 9)}),
        (f"{READ} UNION ALL {COUNTED}", {(1, 6), (2, 8), (101, None)}),
        (f"{COUNTED} UNION ALL {COUNTED}", None),
    ],
)
def test_a_partition_names_the_tasks_that_read_it(
    sql: str, told: set[object] | None, spark: SparkSession, tmp_path: Path
) -> None:
    s = Relation("s", {"v": "BIGINT"})
    s.batches = [[Record({"v": v}, v, v + 2, 0) for v in (1, 2)], [Record({"v": 3}, 900_000, 5, 0)]]
    feed = Feed(spark, tmp_path, [s])
    planned = plan_select(Cursor(sql).select(), snapshot([s]), "main", "public", "stream")
    step = Compiler(spark, feed.read).compile(Plan(planned.root, ResultSink())).step
    found: set[object] = set()

    def batch(df: DataFrame, _: int) -> None:
        rows = df.collect()
        if "__partition" in df.columns:
            found.update((r["v"], r["__partition"]) for r in rows if r["v"] != 3)

    writer = step.df.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert found == (told or set())
