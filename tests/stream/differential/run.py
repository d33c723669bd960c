"""Runs one case: planned, compiled and started as the worker does it, its records read from files, its rows written by
the view's own sink into PostgreSQL; then both sides are compared there.

Owns: the laboratory (a Spark session, a PostgreSQL, a folder), what is alike. Must not know: how cases are made.
Start reading at ``Laboratory.run``.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import shutil
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from pgstream import types
from pgstream.catalog.records import Snapshot, StoreRecord
from pgstream.engine.channel import Reader, StoreAccess
from pgstream.errors import PgStreamError
from pgstream.names import quote_always
from pgstream.planner.answers import Answers, Named, Unanswered
from pgstream.planner.plan import Plan, ResultSink, Source
from pgstream.planner.select import Planned, plan_select
from pgstream.spark.compile import Compiled, Compiler
from pgstream.spark.jdbc import jdbc
from pgstream.spark.sources import Sources
from pgstream.spark.step import Refused, columns
from pgstream.sql.cursor import Cursor
from pgstream.statements import postgres_queries
from tests.stream.conftest import INTERPRETED
from tests.stream.differential import data, queries
from tests.stream.differential.tree import Case

Row = tuple[Any, ...]
CASES_A_DATASET = 10
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Outcome:
    """What came of a case. ``wrong``: how it differs, or why it failed; ``refused``: why it cannot be planned."""

    number: str
    case: Case
    wrong: str = ""
    refused: str = ""

    def __str__(self) -> str:
        again = f"python -m tests.stream.differential --case {self.number}"
        return f"case {self.number} ({self.case.shape}, {self.case.want}): {self.wrong or self.refused}\n" \
            f"  {self.case.ours}\n  PostgreSQL: {self.case.pg}\n  again: {again}"  # fmt: skip


class FileSources(Sources):
    """Sources whose records are in files, of each partition one a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, {"k": StoreAccess("k", "KAFKA", {})}, {})
        self.folder = folder

    def _records(self, source: Source) -> DataFrame:
        schema = "key string, value string, time long, partition int, offset long"
        files = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", data.PARTITIONS)
        return files.json(str(self.folder / source.entity)).selectExpr(
            "CAST(key AS BINARY) AS key", "CAST(value AS BINARY) AS value", "timestamp_millis(time) AS __time",
            "partition AS __partition", "offset AS __offset",
        )  # fmt: skip


Made = tuple[FileSources, Compiled, Any]


class Laboratory:
    """``url`` is PostgreSQL's, over TCP. Cases may run side by side."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark, self.url, self.folder = spark, url, folder
        self.kernel: Any = spark._jvm.org.apache.spark.sql.pgstream
        self.made: set[str] = set()
        self.readings = 0
        self.lock = threading.Lock()
        with psycopg.connect(url, autocommit=True) as c:
            self.role = c.info.user
            c.execute("""SET allow_system_table_mods = on; CREATE SCHEMA IF NOT EXISTS pg_pgstream;
                CREATE TABLE IF NOT EXISTS pg_pgstream.ledger (query uuid PRIMARY KEY, batch bigint, attempt int)""")

    def dataset(self, seed: str, without: frozenset[int] = frozenset()) -> tuple[str, Path, Snapshot]:
        """The records of a seed, in PostgreSQL and in files: schema, folder, catalogue. ``without``: their offsets."""
        schema = f"d_{seed}" + (f"_{len(self.made)}" if without else "")
        folder, made = self.folder / schema, data.relations(seed)
        for relation in made:
            relation.batches = [[r for r in batch if r.offset not in without] for batch in relation.batches]
        with self.lock:
            if schema not in self.made:
                with psycopg.connect(self.url, autocommit=True) as c:
                    data.load(c, schema, made)
                for relation in made:
                    write(relation, folder / relation.name)
                self.made.add(schema)
        snapshot = Snapshot(
            stores={"k": StoreRecord("k", "k", "KAFKA", {}, "o")},
            relations={("main", schema, r.name): r.record for r in made}
            | {("main", schema, "look"): data.view(schema)},
        )
        return schema, folder, snapshot

    def run(self, number: str, case: Case | None = None, without: frozenset[int] = frozenset()) -> Outcome:
        """One case by its number; its records are those of its dataset, or some of them."""
        case = case or queries.case(number)
        schema, folder, snapshot = self.dataset(dataset_of(number), without)
        try:
            with psycopg.connect(self.url, autocommit=True) as c:
                c.execute(f"SET search_path = {schema}, public")
                planned = plan(case, snapshot, schema, c)
                got = self.rows(case, planned, folder, c)
                wanted = c.execute(case.pg.encode()).fetchall()
                if not got and case.input and c.execute(case.input.encode()).fetchone() == (0,):
                    wanted = []
        except (PgStreamError, Refused) as e:
            text = e.fault.message + " " + (e.fault.detail or "") if isinstance(e, Refused) else e.text
            return Outcome(number, case, refused=text)
        except psycopg.Error as e:
            return Outcome(number, case, wrong=f"PostgreSQL: {e}")
        except Exception as e:  # Py4J's: the stream has failed
            return Outcome(number, case, wrong=str(e)[:3000])
        return Outcome(number, case, wrong=difference(got, wanted))

    def rows(self, case: Case, planned: Planned, folder: Path, c: psycopg.Connection[Any]) -> list[Row]:
        """The rows of the view once all files are read."""
        query = str(uuid.uuid4())
        table = f"t_{query}"
        compiled = self.compiled(case, planned, folder)
        self.table(c, table, compiled[1], planned)
        try:
            if case.restarts:
                self.begin(query, 1, planned, folder, compiled)
                self.interrupt(query)
                compiled = self.compiled(case, planned, folder)
            self.begin(query, 2, planned, folder, compiled)
            run = self.kernel.Watch.find(query).get()
            try:
                run.stream().processAllAvailable()
                self.readings = len(run.stream().lastProgress().sources())
            finally:
                self.kernel.Kernel.stop(query, 0)
            return c.execute(f'SELECT * FROM "{table}"'.encode()).fetchall()
        finally:
            self.kernel.Kernel.forget(query)
            self.kernel.Watch.poll(0)
            c.execute(f'DROP TABLE "{table}"')
            shutil.rmtree(self.folder / "checkpoints" / query, ignore_errors=True)

    def compiled(self, case: Case, planned: Planned, folder: Path) -> Made:
        """The plan as a DataFrame, its sources, its counter of late rows."""
        session = self.spark.newSession()
        # What comes late is late by the latest event time of all partitions, in the batch that the data say.
        session.conf.set("spark.pgstream.silentPartitionMs", "0")
        # Three cases in four: the compiler takes longer than all else in a case.
        for name, value in ({} if case.generated else INTERPRETED).items():
            session.conf.set(name, value)
        sources = FileSources(session, folder)
        compiler = Compiler(session, sources.read, {"main": Reader(self.url, self.role)})
        if case.expires:
            # As the worker does it: there would always be one more empty batch.
            session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        ttl_ms = DAY_MS if case.expires else None
        return sources, compiler.compile(Plan(planned.root, ResultSink(), state_ttl_ms=ttl_ms)), compiler.late

    def begin(self, query: str, attempt: int, planned: Planned, folder: Path, made: Made) -> None:
        """Start the query, or start it again from its checkpoint."""
        sources, compiled, late = made
        sink = {
            "query": query, "attempt": attempt, "checkpoint": str(self.folder / "checkpoints" / query),
            "output_mode": compiled.output_mode, "trigger_ms": 0, "type": "view", "mode": planned.mode,
            "key": list(planned.key), **jdbc(self.url), "table": f"{folder.name}.{quote_always('t_' + query)}",
            "staging": f"pg_pgstream.{quote_always('s_' + query)}",
        }  # fmt: skip
        self.kernel.Kernel.start(compiled.step.df._jdf, sources.bad, late, json.dumps(sink))

    def interrupt(self, query: str) -> None:
        """End the stream in the midst of a batch, after its first.

        Not before the second is planned: a source of files that has taken its next file and did not get to tell it,
        takes one more the next time, and rows that come late would come before there was a watermark.
        """
        found = self.kernel.Watch.find(query)
        if found.isEmpty():
            return
        stream = found.get().stream()
        planned = self.folder / "checkpoints" / query / "offsets" / "1"
        while stream.isActive() and not planned.exists():
            time.sleep(0.002)
        self.kernel.Kernel.stop(query, 0)

    def table(self, c: psycopg.Connection[Any], table: str, compiled: Compiled, planned: Planned) -> None:
        """The view's table and its key, as the catalogue makes them."""
        made = ", ".join(f"{quote_always(n)} {types.from_spark(t).pg}" for n, t, _ in columns(compiled.step))
        c.execute(f'CREATE TABLE "{table}" ({made})'.encode())
        if planned.mode == "upsert" and planned.key:
            key = ", ".join(map(quote_always, planned.key))
            c.execute(f'CREATE UNIQUE INDEX ON "{table}" ({key}) NULLS NOT DISTINCT'.encode())


def plan(case: Case, snapshot: Snapshot, schema: str, c: psycopg.Connection[Any]) -> Planned:
    """The plan of a case; what a lookup gives, the connection's PostgreSQL says."""
    answers = Answers()
    while True:
        try:
            return plan_select(
                Cursor(case.ours).select(), snapshot, "main", schema, case.want, answers=answers, expires=case.expires
            )
        except Unanswered as e:
            question = e.question
        if isinstance(question, Named):
            answers.relations[question] = None
        else:
            sql, _ = postgres_queries.probe(question)
            answers.queries[question] = postgres_queries.columns(c.execute(sql.encode(), binary=True))


def dataset_of(number: str) -> str:
    """The dataset of a case."""
    return str(int(number) // CASES_A_DATASET)


def write(relation: data.Relation, folder: Path) -> None:
    """A relation's batches as files, one a partition, in the order of their time."""
    folder.mkdir(parents=True)
    for i, batch in enumerate(relation.batches):
        for partition in range(data.PARTITIONS):
            lines = []
            for r in batch:
                key, value = relation.message(r)
                if r.partition == partition:
                    lines.append(json.dumps({"key": key, "value": value, "time": r.time, "partition": r.partition,
                                             "offset": r.offset}))  # fmt: skip
            file = folder / f"{i:04}-{partition}.json"
            file.write_text("\n".join(lines) + "\n")
            os.utime(file, (i + 1, i + 1))


# What is alike

_MANY_DIGITS = 10**12
"""What is greater has no fractions that were rounded, but more digits than a DOUBLE: it is compared as it is."""


def difference(got: Sequence[Row], wanted: Sequence[Row]) -> str:
    """How two bags of rows differ; empty when they do not. Fractions may end a rounding beside each other."""
    left, right = _by_exact(got), _by_exact(wanted)
    extra = [r for k, rows in left.items() for r in _unmatched(rows, right.get(k, []))]
    missing = [r for k, rows in right.items() for r in _unmatched(rows, left.get(k, []))]
    if not extra and not missing:
        return ""
    shown = "".join(f"\n    {sign} {row}" for sign, rows in (("+", extra), ("-", missing)) for row in rows[:8])
    return f"{len(got)} rows, {len(wanted)} expected; {len(extra)} too many (+), {len(missing)} missing (-){shown}"


def _exact(v: Any) -> Any:
    if isinstance(v, bool | str | dt.datetime) or v is None:
        return type(v).__name__, v
    if isinstance(v, list | tuple):
        return "list", tuple(_exact(x) for x in v)
    if isinstance(v, dict):
        return "map", tuple((k, _exact(x)) for k, x in sorted(v.items()))
    return "number", None


def _by_exact(rows: Sequence[Row]) -> dict[Any, list[Row]]:
    out: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        out[tuple(_exact(v) for v in row)].append(row)
    return out


def _unmatched(rows: Sequence[Row], others: Sequence[Row]) -> Iterator[Row]:
    left = list(others)
    for row in rows:
        found = next((o for o in left if all(_close(a, b) for a, b in zip(row, o, strict=True))), None)
        if found is None:
            yield row
        else:
            left.remove(found)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, list | dict):
        return bool(a == b)
    if not isinstance(a, int | float | Decimal) or isinstance(a, bool):
        return True
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if isinstance(a, Decimal) and isinstance(b, Decimal) and abs(a) > _MANY_DIGITS:
        return a == b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)
