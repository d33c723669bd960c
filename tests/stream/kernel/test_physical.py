"""What DESCRIBE says of who runs a step is what Spark is given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgstream.planner.explain import physical
from pgstream.planner.plan import Plan, ResultSink, output_mode
from pgstream.planner.select import plan_select
from pgstream.spark.compile import Compiler
from pgstream.sql.cursor import Cursor
from tests.stream.kernel.feed import Feed, Relation, snapshot

pytestmark = [pytest.mark.stream]

_WINDOW = "SELECT window_start, window_end, k, count(*) AS n FROM {} GROUP BY window_start, window_end, k"
STATEMENTS = [
    ("SELECT k, v FROM s WHERE v > 1", {}),
    ("SELECT k FROM s UNION ALL SELECT k FROM s", {}),
    ("SELECT window_start, k FROM HOP(s, SIZE 10 SECONDS, ADVANCE BY 5 SECONDS)", {}),
    (_WINDOW.format("TUMBLE(s, SIZE 5 SECONDS)"), {"Aggregate": 1}),
    (_WINDOW.format("SESSION(s, GAP 5 SECONDS)"), {"Aggregate": 1}),
    ("SELECT k, count(*) AS n FROM s GROUP BY k", {"Aggregate": 1}),
    ("SELECT k, count(DISTINCT v) AS n FROM s GROUP BY k", {"ChangeAggregate": 1}),
    ("SELECT c, count(*) AS n FROM c GROUP BY c", {"Normalize": 1, "ChangeAggregate": 1}),
    ("SELECT DISTINCT k FROM s", {"ChangeAggregate": 1}),
    ("SELECT a.k, b.v FROM s a JOIN s b WITHIN 5 SECONDS ON a.k = b.k", {"IntervalJoin": 1}),
    ("SELECT s.k, c.c FROM s JOIN c ON s.k = c.k", {"TemporalJoin": 1}),
    ("SELECT a.k, d.d FROM c a JOIN d ON a.k = d.k", {"Normalize": 2, "ChangelogJoin": 1}),
    ("SELECT k, v FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM s) x WHERE n <= 2",
     {"Rank": 1}),
    ("SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY rowtime()) AS t FROM s", {"Over": 1}),
    ("SELECT m.k, m.w FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime() MEASURES A.v AS w PATTERN (A B)"
     " DEFINE A AS v > 1) m", {"Recognize": 1}),
]  # fmt: skip


def walked(node: Any) -> Iterator[Any]:
    yield node
    for i in range(node.children().size()):
        yield from walked(node.children().apply(i))


@pytest.mark.parametrize(("sql", "wanted"), STATEMENTS)
def test_who_runs_a_step(sql: str, wanted: dict[str, int], spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path, [
        Relation("s", {"k": "VARCHAR", "v": "INTEGER"}),
        *(Relation(n, {"k": "VARCHAR", n: "INTEGER"}, ("k",)) for n in "cd"),
    ])  # fmt: skip
    root = plan_select(Cursor(sql).select(), snapshot([*feed.relations.values()]), "main", "public", "view").root
    compiled = Compiler(spark, feed.read).compile(Plan(root, ResultSink()))
    assert compiled.output_mode == output_mode(root)
    nodes = [*walked(compiled.step.df._jdf.queryExecution().analyzed())]
    ours = [n.statefulProcessor().getClass().getSimpleName() for n in nodes if n.nodeName() == "TransformWithState"]
    spark_own = [n.nodeName() for n in nodes if n.nodeName() in ("Aggregate", "Join")]
    told = re.findall(r"^ *(?:kernel|Spark) (?:Session)?(\w+).*, state", physical(root), re.MULTILINE)
    assert Counter(told) == wanted
    assert Counter([*ours, *spark_own]) == wanted
