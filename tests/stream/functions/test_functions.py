"""Every row of the function table, executed by Spark with the worker's SQL settings.

``values``: one expression a line over one row; ``aggregates``: over five rows. Output: value and Spark type. Row values
stand in ``ROWS``; the relation is ``t``.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord, Snapshot, StoreRecord
from pgstream.names import FullName
from pgstream.planner.functions import FUNCTIONS
from pgstream.planner.plan import Aggregate, Project
from pgstream.planner.select import plan_select
from pgstream.spark import faults
from pgstream.sql.cursor import Cursor
from pgstream.stores.kafka import STORE
from tests.datadriven import Case, cases, check
from tests.stream.frames import frame
from tests.stream.functions.row import COLUMNS, FIRST, NOW

# Spark's own client leaves a socket to the collector of garbage after collect().
pytestmark = [pytest.mark.stream, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

REST = [("a", 2, 20, 1.5, "b1"), ("b", 4, 40, 25000000.0, "b2"), ("b", None, None, None, None), ("b", 5, 50, 0.5, "b3")]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    names = list(COLUMNS)
    data = [(*FIRST, NOW, 0, 0, ("topic", 0, 0, "CreateTime"))]
    for at, (k, n, b, d, s) in enumerate(REST, start=1):
        given = {"k": k, "n": n, "b": b, "d": d, "s": s}
        data.append((*(given.get(c) for c in names), NOW + dt.timedelta(seconds=at), 0, at, ("topic", 0, at, None)))
    declared = ", ".join(f"{n} {types.parse(t).spark}" for n, t in COLUMNS.items())
    metadata = types.parse(STORE.metadata or "").spark
    hidden = f"__time timestamp, __partition int, __offset bigint, __metadata {metadata}"
    return frame(spark, data, f"{declared}, {hidden}").cache()


def _snapshot() -> Snapshot:
    columns = tuple(ColumnRecord(n, types.parse(t)) for n, t in COLUMNS.items())
    relation = RelationRecord("t", FullName("main", "public", "t"), "stream", columns, "o", store="k", entity="topic")
    return Snapshot(
        stores={"k": StoreRecord("k", "k", "KAFKA", {}, "o")}, relations={("main", "public", "t"): relation}
    )


def _project(expressions: list[str]) -> Project:
    select = Cursor("SELECT " + ", ".join(expressions) + " FROM t").select()
    root = plan_select(select, _snapshot(), "main", "public", "result").root
    assert isinstance(root, Project)
    return root


def _values(rows: DataFrame, expressions: list[str]) -> list[str]:
    """Each expression's value and type, all in one Spark job."""
    project = _project(expressions)
    frame = rows.where("__offset = 0")
    if isinstance(project.input, Aggregate):
        inner = project.input
        calls = [f"{e.sql} AS `{e.name}`" for e in inner.aggregates]
        frame = rows.selectExpr(*calls) if not inner.group else frame
    shown = [f"concat_ws(' : ', coalesce(cast(({e.sql}) as string), 'NULL'), typeof({e.sql}))" for e in project.columns]
    row = frame.selectExpr(*shown).collect()[0]
    return list(row)


@pytest.mark.parametrize("case", cases(Path(__file__).parent / "functions.test"), ids=str)
def test_functions(case: Case, rows: DataFrame) -> None:
    lines = case.input.split("\n")
    check(case, "\n".join(f"{line}  =>  {value}" for line, value in zip(lines, _values(rows, lines), strict=True)))


@pytest.mark.parametrize(
    "expression, code",
    [
        ("cast(s as integer)", "22P02"),
        ("b / (n - 7)", "22012"),
        ("x % (x - x)", "22012"),
        ("mod(n, n - n)", "22012"),
        ("b / n / (n - n)", "22012"),
        ("b / n % (n - n)", "22012"),
        ("x / n / (x - x)", "22012"),
        ("b / (n - n) / n", "22012"),
        ("CAST(ROW(s, f) AS STRUCT<a INT, b VARCHAR>)", "22P02"),
        ("CAST(ARRAY['1', s] AS ARRAY<INTEGER>)", "22P02"),
        ("CAST(MAP['1', s] AS MAP<VARCHAR, DATE>)", "22P02"),
        ("JSON_VALUE(j, '$.zzz' ERROR ON ERROR)", "22035"),
        ("JSON_VALUE(j, 'lax $.zzz' ERROR ON EMPTY)", "22035"),
        ("JSON_VALUE(j, '$.s' RETURNING INTEGER ERROR ON ERROR)", "22035"),
        ("JSON_QUERY(j, '$.n' ERROR ON ERROR)", "22035"),
    ],
)
def test_what_cannot_be_done_is_an_error(expression: str, code: str, rows: DataFrame) -> None:
    with pytest.raises(PySparkException) as e:
        _values(rows, [expression])
    fault = faults.from_chain([{"class": "org.apache.spark.SparkRuntimeException", "message": str(e.value)}])
    assert (fault.kind, fault.sqlstate) == ("data", code)
    assert "SQLSTATE" not in fault.message and fault.hint


@pytest.mark.parametrize(
    "expression, code",
    [
        ("DATE_FORMAT(ts, '#' || k)", "22007"),
        ("TO_TIMESTAMP(s, 'MMMMM' || k)", "22007"),
        ("REGEXP_EXTRACT_ALL(s, '(' || k)", "2201B"),
        ("REGEXP_REPLACE(s, '(' || k, 'x')", "2201B"),
        ("REGEXP_EXTRACT(s, '(H)', 5)", "22023"),
        ("REGEXP_EXTRACT(s, '(' || k)", "2201B"),
        ("MAP_FROM_ARRAYS(arr, ARRAY[n])", "22023"),
        ("JSON_VALUE(j, '$.a[*].' || k)", "22023"),
    ],
)
def test_a_pattern_that_only_a_row_shows_to_be_wrong(expression: str, code: str, rows: DataFrame) -> None:
    with pytest.raises(PySparkException) as e:
        _values(rows, [expression])
    fault = faults.from_chain([{"class": "org.apache.spark.SparkRuntimeException", "message": str(e.value)}])
    assert (fault.kind, fault.sqlstate) == ("data", code)


def test_every_function_is_called() -> None:
    text = "\n".join(c.input.upper() for c in cases(Path(__file__).parent / "functions.test"))
    random = {"RAND", "RAND_INTEGER", "UUID", "NOW", "CURRENT_TIMESTAMP", "CURRENT_ROW_TIMESTAMP", "LOCALTIMESTAMP",
              "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME"}  # fmt: skip
    words = {"SIMILAR": "SIMILAR TO", "IS_JSON": "IS JSON", "JSON_QUERY_ARRAY": "RETURNING ARRAY",
             "JSON_ERROR": "ERROR ON ERROR"}  # fmt: skip
    spelled = {name: words.get(name, name.replace("TRIM_", "TRIM(")) for name in FUNCTIONS}
    assert [n for n, s in spelled.items() if n not in random and s not in text] == []


def test_what_changes_from_call_to_call(rows: DataFrame) -> None:
    calls = ["RAND()", "RAND(1)", "RAND_INTEGER(5)", "RAND_INTEGER(1, 5)", "UUID()", "NOW()", "CURRENT_TIMESTAMP",
             "CURRENT_ROW_TIMESTAMP()", "LOCALTIMESTAMP", "CURRENT_DATE", "UNIX_TIMESTAMP()"]  # fmt: skip
    kinds = [v.split(" : ")[-1] for v in _values(rows, calls)]
    assert kinds == ["double", "double", "int", "int", "string", "timestamp", "timestamp", "timestamp", "timestamp_ntz",
                     "date", "bigint"]  # fmt: skip
