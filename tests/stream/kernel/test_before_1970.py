"""Event time of before 1970: windows have none of it, and say so; what takes rows in order has."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.stream.kernel.feed import Feed, Record, Relation

pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


def feed(spark: SparkSession, folder: Path) -> Feed:
    """Six rows whose windows of five seconds are over by 1970, three of later ones, and one that closes these."""
    s = Relation("s", {"k": "VARCHAR", "t": "BIGINT"})
    for i, batch in enumerate([[-12, -11, -10], [-6, -4, -1, 0, 1, 6], [100], [101]]):
        s.batches.append([Record({"k": "a", "t": t}, t * 1000, 0, 10 * i + n) for n, t in enumerate(batch)])
    return Feed(spark, folder, [s])


WINDOW = "window_start, window_end"


@pytest.mark.parametrize(
    "sql, counts, late",
    [
        (f"SELECT {WINDOW}, count(*) AS n FROM TUMBLE(s, SIZE 5 SECONDS) GROUP BY {WINDOW}", [1, 2], 6),
        (f"SELECT {WINDOW}, count(DISTINCT t) AS n FROM TUMBLE(s, SIZE 5 SECONDS) GROUP BY {WINDOW}", [1, 2], 6),
        (f"SELECT {WINDOW}, count(*) AS n FROM HOP(s, SIZE 10 SECONDS, ADVANCE BY 5 SECONDS) GROUP BY {WINDOW}",
         [1, 3, 4], 6),
        (f"SELECT {WINDOW}, count(*) AS n FROM CUMULATE(s, SIZE 10 SECONDS, ADVANCE BY 5 SECONDS) GROUP BY {WINDOW}",
         [2, 3], 6),
        (f"SELECT {WINDOW}, count(*) AS n FROM SESSION(s, GAP 3 SECONDS) GROUP BY {WINDOW}", [1, 3], 5),
    ],
)  # fmt: skip
def test_windows_that_are_over_by_1970_have_late_rows(
    sql: str, counts: list[int], late: int, spark: SparkSession, tmp_path: Path
) -> None:
    made = feed(spark, tmp_path)
    rows, _ = made.run(sql, "stream")
    assert (sorted(n for _, _, n in rows), made.late) == (counts, late)


def test_a_frame_takes_rows_of_before_1970(spark: SparkSession, tmp_path: Path) -> None:
    made = feed(spark, tmp_path)
    rows, _ = made.run("SELECT t, count(*) OVER (ORDER BY rowtime()) AS n FROM s WHERE t < 50", "stream")
    assert (sorted(rows), made.late) == ([(t, i + 1) for i, t in enumerate((-12, -11, -10, -6, -4, -1, 0, 1, 6))], 0)
