"""Random queries against PostgreSQL, ten a block. ``PGSTREAM_SEED=7`` tries others, ``PGSTREAM_BLOCKS=2`` fewer.

A failure says how to run its case again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pgstream.config import Config
from pgstream.embedded.postgres import open_postgres
from tests.stream.differential.run import CASES_A_DATASET, Laboratory
from tests.stream.differential.tree import Case

FIRST = int(os.environ.get("PGSTREAM_SEED", "1")) * 1000
BLOCKS = int(os.environ.get("PGSTREAM_BLOCKS", "21"))
pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


@pytest.fixture(scope="module")
def laboratory(spark: SparkSession, workspace: Path) -> Iterator[Laboratory]:
    folder = workspace / "differential"
    p = asyncio.run(open_postgres(Config(data_dir=folder / "pg")))
    yield Laboratory(spark, p.url("postgres", tcp=True), folder)
    asyncio.run(p.stop())


_PAIR = "SELECT a.id FROM {} a JOIN {} b {} ON a.id = b.id"


@pytest.mark.parametrize(
    "sources, ours, pg",
    [
        (1, _PAIR.format("s", "s", "WITHIN 1 SECONDS"), "SELECT a.id FROM s_early a JOIN s_early b USING (id)"),
        (1, "SELECT id FROM s UNION ALL SELECT v FROM s", "SELECT id FROM s_all UNION ALL SELECT v FROM s_all"),
        (1, "SELECT c.k, d.g FROM c JOIN c d ON c.k = d.k", "SELECT k, g FROM c_all"),
        (2, "SELECT s.id, c.v FROM s JOIN c ON s.k = c.k WHERE s.id < 0", "SELECT 1, 1 WHERE false"),
    ],
)
def test_a_topic_is_one_source(sources: int, ours: str, pg: str, laboratory: Laboratory) -> None:
    outcome = laboratory.run(str(FIRST), Case("", "view", ours, pg))
    assert not outcome.wrong and not outcome.refused, outcome
    assert laboratory.readings == sources


@pytest.mark.parametrize("how", ["", "LEFT", "FULL"])
def test_null_meets_no_null_in_an_interval_join(how: str, laboratory: Laboratory) -> None:
    ours = f"SELECT x.g AS o, q.id AS a, q.g AS b FROM q {how} JOIN s x WITHIN 3 SECONDS ON q.k = x.g"
    pg = f"SELECT x.g, q.id, q.g FROM q_ok q {how} JOIN s_ok x ON q.k = x.g AND abs(q.__time - x.__time) <= 3000"
    outcome = laboratory.run("1079", Case("", "view", ours, pg))
    assert not outcome.wrong and not outcome.refused, outcome


@pytest.mark.parametrize("block", range(FIRST, FIRST + BLOCKS * CASES_A_DATASET, CASES_A_DATASET))
def test_results_are_those_of_the_whole(block: int, laboratory: Laboratory) -> None:
    with ThreadPoolExecutor(3) as threads:
        outcomes = list(threads.map(laboratory.run, (str(block + i) for i in range(CASES_A_DATASET))))
    wrong = [str(o) for o in outcomes if o.wrong]
    assert not wrong, "\n".join(wrong)
    refused = [str(o) for o in outcomes if o.refused]
    assert len(refused) <= 1, "\n".join(refused)
