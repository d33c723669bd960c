"""Statements run by the kernel over small inputs, without Kafka: each batch of a relation is a file.

``Feed`` holds the relations and their rows; ``run`` plans a select, runs it batch by batch and folds what a sink would
be told into the rows that are left, checking on the way that it makes sense; ``expected`` asks PostgreSQL the same.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from pgstream import types
from pgstream.catalog.records import ColumnRecord, RelationRecord, Snapshot, StoreRecord
from pgstream.names import FullName
from pgstream.planner.plan import Plan, ResultSink, Source
from pgstream.planner.select import plan_select
from pgstream.spark.compile import Compiler
from pgstream.spark.sources import ddl
from pgstream.sql.cursor import Cursor

Row = tuple[Any, ...]


@dataclass
class Record:
    """A record of a topic: the row (a changelog's deleted one has only its key), event time in ms, and its place."""

    values: Mapping[str, Any]
    time: int
    partition: int
    offset: int
    delete: bool = False


@dataclass
class Relation:
    """A stream, or with ``key`` a changelog, and its records batch by batch."""

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()
    batches: list[list[Record]] = field(default_factory=list)

    @property
    def record(self) -> RelationRecord:
        columns = tuple(ColumnRecord(n, types.parse(t)) for n, t in self.columns.items())
        kind = "changelog" if self.key else "stream"
        return RelationRecord(
            self.name, FullName("main", "public", self.name), kind, columns, "o", primary_key=self.key, store="k",
            entity=self.name,
        )  # fmt: skip


def snapshot(relations: Sequence[Relation]) -> Snapshot:
    """A catalogue of these relations, in one store."""
    return Snapshot(
        stores={"k": StoreRecord("k", "k", "KAFKA", {}, "o")},
        relations={("main", "public", r.name): r.record for r in relations},
    )


class Feed:
    """Relations whose batches Spark reads side by side."""

    def __init__(self, spark: SparkSession, folder: Path, relations: Sequence[Relation]) -> None:
        self.spark, self.folder, self.late, self.state_rows = spark, folder, 0, 0
        self.relations = {r.name: r for r in relations}
        for r in relations:
            self._write(r)

    def _write(self, r: Relation) -> None:
        (self.folder / r.name).mkdir(parents=True, exist_ok=True)
        for i, batch in enumerate(r.batches):
            lines = [
                json.dumps({**x.values, "__time": x.time / 1000, "__delete": x.delete, "__partition": x.partition,
                            "__offset": x.offset})
                for x in batch
            ]  # fmt: skip
            file = self.folder / r.name / f"{i:04}.json"
            file.write_text("\n".join(lines) + "\n")
            os.utime(file, (i + 1, i + 1))

    def read(self, source: Source) -> DataFrame:
        hidden = "__time double, __partition int, __offset bigint, __delete boolean"
        reader = self.spark.readStream.schema(f"{ddl(source)}, {hidden}").option("maxFilesPerTrigger", 1)
        rows = reader.json(str(self.folder / source.entity))
        columns = [c for c in rows.columns if c not in ("__time", "__delete")]
        changelog = ["__delete"] if source.kind == "changelog" else []
        return rows.selectExpr(*[f"`{c}`" for c in columns], *changelog, "timestamp_seconds(__time) AS __time")

    def run(
        self, sql: str, want: str = "view", ttl_ms: int | None = None, checkpoint: Path | None = None
    ) -> tuple[list[Row], list[Row]]:
        """Plan and run a select: the rows that a view would hold at the end, and every row that was ever added; on from
        a checkpoint, if it is given one that is there.
        """
        catalogue = snapshot(list(self.relations.values()))
        planned = plan_select(Cursor(sql).select(), catalogue, "main", "public", want, expires=ttl_ms is not None)
        # As the worker does it: with a time to live there would always be one more empty batch.
        empty = "spark.sql.streaming.noDataMicroBatches.enabled"
        self.spark.conf.set(empty, str(ttl_ms is None).lower())
        compiler = Compiler(self.spark, self.read)
        compiled = compiler.compile(Plan(planned.root, ResultSink(), state_ttl_ms=ttl_ms))
        folded = Folded(planned.mode, [planned.columns.index(k) for k in planned.key])
        checkpoint = checkpoint or self.folder / f"checkpoint{len(list(self.folder.iterdir()))}"

        def batch(df: DataFrame, _: int) -> None:
            compiler.operators.kernel.Passed.tell(self.spark.streams.active[0]._jsq)
            columns = [*planned.columns, *(["__delete"] if "__delete" in df.columns else [])]
            folded.add([tuple(r) for r in df.select(*[f"`{c}`" for c in columns]).collect()], len(planned.columns))

        writer = compiled.step.df.writeStream.foreachBatch(batch).outputMode(compiled.output_mode)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        self.spark.conf.unset(empty)
        assert query.awaitTermination(300)
        self.late = int(compiler.late.value())
        self.state_rows = sum(o["numRowsTotal"] for o in (query.lastProgress or {})["stateOperators"])
        return folded.rows(), folded.added


class Folded:
    """What is left of the rows of a step, as its mode says."""

    def __init__(self, mode: str, key: list[int]) -> None:
        self.mode, self.key = mode, key
        self.bag: Counter[Row] = Counter()
        self.held: dict[Row, Row] = {}
        self.appended: list[Row] = []
        self.added: list[Row] = []

    def add(self, rows: list[Row], width: int) -> None:
        if self.mode == "append":
            self.appended += [r[:width] for r in rows]
            self.added += [r[:width] for r in rows]
            return
        gone = [r[:width] for r in rows if len(r) > width and r[width]]
        come = [r[:width] for r in rows if not (len(r) > width and r[width])]
        self.added += come
        if self.mode == "retract" and not self.key:
            self.bag.update(come)
            self.bag.subtract(gone)
            assert min(self.bag.values(), default=0) >= 0, "more is taken back than was told"
            return
        for r in gone:
            old = self.held.pop(self._key(r), None)
            assert self.mode != "retract" or old == r, f"{r} is taken back, {old} was told"
        for r in come:
            assert self.mode != "retract" or self._key(r) not in self.held, f"{r} is told twice"
            self.held[self._key(r)] = r

    def _key(self, row: Row) -> Row:
        return tuple(row[i] for i in self.key)

    def rows(self) -> list[Row]:
        return in_order(self.appended if self.mode == "append" else [*self.held.values(), *self.bag.elements()])


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows sorted, floats rounded: a sum that was taken apart again ends a little beside."""
    shown = [tuple(round(v, 9) if isinstance(v, float) else v for v in r) for r in rows]
    return sorted(shown, key=lambda r: tuple((v is None, str(v)) for v in r))


class Oracle:
    """PostgreSQL, holding the same records: a stream is a table, a changelog a view of its last rows."""

    def __init__(self, url: str, relations: Sequence[Relation]) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        for r in relations:
            self._load(r)

    def _load(self, r: Relation) -> None:
        columns = {n: types.parse(t).pg for n, t in r.columns.items()}
        columns |= {"__time": "bigint", "__partition": "int", "__offset": "bigint", "__delete": "boolean"}
        self.connection.execute(f"DROP TABLE IF EXISTS log_{r.name} CASCADE")
        self.connection.execute(f"CREATE TABLE log_{r.name} ({', '.join(f'{n} {t}' for n, t in columns.items())})")
        records = [x for batch in r.batches for x in batch]
        rows = [(*(x.values.get(n) for n in r.columns), x.time, x.partition, x.offset, x.delete) for x in records]
        marks = ", ".join(["%s"] * len(columns))
        with self.connection.cursor() as c:
            c.executemany(f"INSERT INTO log_{r.name} VALUES ({marks})", rows)
        last = f"SELECT * FROM log_{r.name}"
        if r.key:
            by = ", ".join(r.key)
            last = f"SELECT DISTINCT ON ({by}) * FROM log_{r.name} ORDER BY {by}, __partition DESC, __offset DESC"
            last = f"SELECT * FROM ({last}) x WHERE NOT __delete"
        self.connection.execute(f"CREATE VIEW {r.name} AS {last}")

    def rows(self, sql: str) -> list[Row]:
        return in_order([tuple(_plain(v) for v in r) for r in self.connection.execute(sql.encode()).fetchall()])

    def close(self) -> None:
        self.connection.close()


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, list) else value
