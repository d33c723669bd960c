"""A plan to a streaming DataFrame.

Owns: what each step of ``planner.plan`` is in Spark, the hidden columns, the output mode.
Must not know: sinks, the channel, threads. A step that Spark refuses raises ``Refused`` with the position of the
expression that is at fault. Start reading at ``Compiler.compile``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from pgstream.engine.channel import Fault
from pgstream.names import quote_spark
from pgstream.planner.plan import (
    Aggregate,
    ChangeAggregate,
    ChangelogJoin,
    Expr,
    Filter,
    IntervalJoin,
    Node,
    Normalize,
    Plan,
    Project,
    Source,
    TemporalJoin,
    Union,
    walk,
)
from pgstream.spark import faults
from pgstream.spark.times import bounds, timed, windows

HIDDEN = ("__time", "__delete", "__partition", "__offset", "__key")
Read = Callable[[Source], DataFrame]


class Refused(Exception):
    """The plan cannot run; ``fault`` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Step:
    """A step's output: its rows, their mode (append, upsert, retract), whether they are out of operators with state."""

    df: DataFrame
    mode: str = "append"
    stateful: bool = False

    @property
    def upsert(self) -> bool:
        return self.mode == "upsert"

    @property
    def visible(self) -> list[str]:
        return [c for c in self.df.columns if c not in HIDDEN]

    @property
    def hidden(self) -> list[str]:
        return [c for c in self.df.columns if c in HIDDEN]

    def over(self, df: DataFrame) -> Step:
        return Step(df, self.mode, self.stateful)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plan as one DataFrame, and Spark's output mode for it."""

    step: Step
    output_mode: str


class Compiler:
    """``read`` gives a source's rows with their hidden columns (``sources.Sources``)."""

    def __init__(self, spark: SparkSession, read: Read) -> None:
        self.spark, self.read = spark, read
        self.mode, self.ttl_ms = "append", 0
        jvm: Any = spark._jvm
        self.kernel = jvm.org.apache.spark.sql.pgstream
        self.late = self.kernel.Kernel.counter(spark.range(0)._jdf, "late rows")

    def compile(self, plan: Plan) -> Compiled:
        """The whole plan, checked for what Spark can run as a stream."""
        self.ttl_ms = plan.state_ttl_ms or 0
        self.mode = "update" if any(_is_updating(n) for n in walk(plan.root)) else "append"
        step = self.node(plan.root)
        self.check(step.df, self.mode)
        return Compiled(step, self.mode)

    def check(self, df: DataFrame, mode: str) -> None:
        try:
            self.kernel.Kernel.check(df._jdf, mode)
        except PySparkException as e:
            raise Refused(faults.from_analysis(None, e.getMessage() or str(e))) from None

    def node(self, node: Node) -> Step:
        match node:
            case Source():
                return self.source(node)
            case Filter():
                return self.filter(node)
            case Project():
                return self.project(node)
            case Aggregate():
                return self.aggregate(node)
            case Normalize():
                return self.normalize(node)
            case ChangeAggregate():
                return self.change_aggregate(node)
            case IntervalJoin():
                return self.join(node)
            case ChangelogJoin():
                return self.changelog_join(node)
            case TemporalJoin():
                return self.temporal_join(node)
            case Union():
                return self.union(node)

    def source(self, node: Source) -> Step:
        df = self.read(node)
        if node.watermark:
            if node.idle_ms is not None:
                df = df.withColumn("__time", fn.col("__time").alias("__time", metadata={"pgstream.idle": node.idle_ms}))
            df = df.withWatermark("__time", f"{node.lateness_ms} milliseconds")
        return Step(df, "upsert" if node.kind == "changelog" else "append")

    def filter(self, node: Filter) -> Step:
        step = self.node(node.input)
        if not step.upsert:
            return step.over(
                self.attempt(lambda: step.df.where(fn.expr(node.condition.sql)), step.df, [node.condition])
            )
        # A row that is out of the result now may have been in it before: its key is removed.
        deleted = "coalesce(`__delete`, false) OR " if "__delete" in step.df.columns else ""
        gone = fn.expr(f"{deleted}NOT coalesce(({node.condition.sql}), false)")
        return step.over(self.attempt(lambda: step.df.withColumn("__delete", gone), step.df, [node.condition]))

    def project(self, node: Project) -> Step:
        step = self.node(node.input)
        hidden = [fn.col(c) for c in step.hidden]
        df = self.attempt(lambda: step.df.select(*map(_named, node.columns), *hidden), step.df, node.columns)
        return step.over(df)

    def aggregate(self, node: Aggregate) -> Step:
        step = self.node(node.input)
        by = [_named(e) for e in node.group]
        values = [_named(e) for e in node.aggregates]
        df = step.df
        if node.window is not None:
            df = windows(df, node.window)
            by.append(fn.col("__window"))
            values = values or [fn.count(fn.lit(1)).alias("__rows")]
        else:
            values.append(fn.max("__time").alias("__time"))
        grouped = self.attempt(lambda: df.groupBy(*by).agg(*values), step.df, [*node.group, *node.aggregates])
        names = [fn.col(quote_spark(e.name)) for e in (*node.group, *node.aggregates)]
        if node.window is None:
            return Step(grouped.select(*names, "__time"), "upsert", stateful=True)
        time = fn.expr("`__window`.`end` - INTERVAL 1 MILLISECOND").alias("__time")
        return Step(grouped.select(*names, *bounds(), time), "append" if node.final else "upsert", stateful=True)

    def operate(self, operator: str, df: DataFrame, **config: Any) -> DataFrame:
        """One of the kernel's operators over the rows of ``df``."""
        told = json.dumps({"mode": self.mode, "ttl_ms": self.ttl_ms} | config)
        return DataFrame(getattr(self.kernel, operator).apply(df._jdf, told, self.late), self.spark)

    def normalize(self, node: Normalize) -> Step:
        step = self.node(node.input)
        df = self.operate("Normalize", step.df, key=node.key, upserts=node.upserts)
        return Step(df, "upsert" if node.upserts else "retract", stateful=True)

    def change_aggregate(self, node: ChangeAggregate) -> Step:
        step = self.node(node.input)
        arguments = [
            [Expr(f"__{i}_{j}", _where(a, c.where), c.at) for j, a in enumerate(c.arguments)]
            for i, c in enumerate(node.calls)
        ]
        every = [a for list_ in arguments for a in list_]
        parts = [*node.group, *every]
        hidden = [fn.col(c) for c in step.hidden if c != "__key"]
        rows = step.df if node.window is None else windows(step.df, node.window)
        group = [*map(_named, node.group), *([] if node.window is None else bounds())]
        df = self.attempt(lambda: rows.select(*group, *map(_named, every), *hidden), step.df, parts)
        calls = [
            {"name": c.name, "function": c.function, "arguments": [a.name for a in list_], "distinct": c.distinct,
             "separator": c.separator}
            for c, list_ in zip(node.calls, arguments, strict=True)
        ]  # fmt: skip
        names = [*(e.name for e in node.group), *(["window_start", "window_end"] if node.window is not None else [])]
        told = {"group": names, "arguments": [a.name for a in every], "calls": calls, "window": node.window is not None,
                "final": node.final, "drops": not step.stateful}  # fmt: skip
        made = self.operate("ChangeAggregate", df, **told)
        values = [fn.col(c.name).cast(c.cast).alias(c.name) if c.cast else fn.col(c.name) for c in node.calls]
        out = made.select(*[fn.col(quote_spark(n)) for n in names], *values, "__time", "__delete")
        if node.final:
            return Step(timed(out.drop("__delete")), stateful=True)
        return Step(out, "upsert", stateful=True)

    def join(self, node: IntervalJoin) -> Step:
        left, right = self.node(node.left), self.node(node.right)
        for side, step in ((node.left, left), (node.right, right)):
            if step.stateful or step.mode != "append":
                raise Refused(faults.not_yet("a join over a join, an aggregate or a changelog", at=_position(side)))
        a = self.side(left, node.left_key, node.left_alias, "l")
        b = self.side(right, node.right_key, node.right_alias, "r")
        interval = f"INTERVAL {node.within_ms} MILLISECONDS"
        near = f"`__rtime` >= `__ltime` - {interval} AND `__rtime` <= `__ltime` + {interval}"
        on = fn.expr(f"`__lkey` = `__rkey` AND {near}")
        joined = self.attempt(lambda: a.join(b, on, node.how), None, [node.left_key])
        names = [fn.col(quote_spark(c)) for c in joined.columns if c not in ("__lkey", "__rkey", "__ltime", "__rtime")]
        return Step(joined.select(*names, fn.greatest("__ltime", "__rtime").alias("__time")), stateful=True)

    def side(self, step: Step, key: Expr, alias: str, mark: str) -> DataFrame:
        prefix = f"{alias}." if alias else ""
        names = [fn.col(quote_spark(c)).alias(prefix + c) for c in step.visible]
        time = fn.col("__time").alias(f"__{mark}time")
        return self.attempt(
            lambda: step.df.select(*names, fn.expr(key.sql).alias(f"__{mark}key"), time), step.df, [key]
        )

    def sides(
        self, node: TemporalJoin | ChangelogJoin, left: Step, right: Step
    ) -> tuple[list[str], DataFrame, DataFrame]:
        """The names of the key's columns, and both inputs with them."""
        names = [f"__key_{i}" for i in range(len(node.keys))]
        a = self.keyed(left, [k for k, _ in node.keys], names, node.left_alias)
        b = self.keyed(right, [k for _, k in node.keys], names, node.right_alias)
        return names, *self.alike(a, b, names)

    def changelog_join(self, node: ChangelogJoin) -> Step:
        names, a, b = self.sides(node, self.node(node.left), self.node(node.right))
        told = json.dumps({"mode": self.mode, "how": node.how, "keys": names, "ttl_ms": self.ttl_ms})
        df = DataFrame(self.kernel.ChangelogJoin.apply(a._jdf, b._jdf, told), self.spark)
        columns = [c for c in (*a.columns, *b.columns) if c not in HIDDEN and c not in names]
        return Step(
            df.select(*[fn.col(quote_spark(c)) for c in columns], "__time", "__delete"), "retract", stateful=True
        )

    def temporal_join(self, node: TemporalJoin) -> Step:
        left, right = self.node(node.left), self.node(node.right)
        names, a, b = self.sides(node, left, right)
        present = " AND ".join(f"{n} IS NOT NULL" for n in names)
        # What comes out of operators with state has waited for this watermark already: it is not late.
        told = {"mode": self.mode, "how": node.how, "keys": names, "drops": not left.stateful}
        made = self.kernel.TemporalJoin.apply(a._jdf, b.where(present)._jdf, json.dumps(told), self.late)
        columns = [c for c in (*a.columns, *b.columns) if c not in HIDDEN and c not in names]
        df = DataFrame(made, self.spark)
        return Step(timed(df.select(*[fn.col(quote_spark(c)) for c in columns], "__time")), stateful=True)

    def keyed(self, step: Step, keys: Sequence[Expr], names: Sequence[str], alias: str) -> DataFrame:
        """An input of a join: its columns prefixed, its key under the given names, its hidden columns."""
        prefix = f"{alias}." if alias else ""
        visible = [fn.col(quote_spark(c)).alias(prefix + c) for c in step.visible]
        made = [fn.expr(k.sql).alias(n) for k, n in zip(keys, names, strict=True)]
        hidden = [fn.col(c) for c in step.hidden if c != "__key"]
        return self.attempt(lambda: step.df.select(*visible, *made, *hidden), step.df, keys)

    def alike(self, a: DataFrame, b: DataFrame, names: Sequence[str]) -> tuple[DataFrame, DataFrame]:
        """Both inputs with keys of common types: packed keys are compared as bytes."""
        for name in names:
            one, two = a.schema[name].dataType, b.schema[name].dataType
            if one != two:
                nulls = f"coalesce(cast(null as {one.simpleString()}), cast(null as {two.simpleString()}))"
                wide = self.attempt(lambda n=nulls: self.spark.range(0).select(fn.expr(n).alias("x")), None, [])  # type: ignore[misc]
                to = wide.schema["x"].dataType
                a, b = a.withColumn(name, fn.col(name).cast(to)), b.withColumn(name, fn.col(name).cast(to))
        return a, b

    def branch(self, step: Step, number: int, of: int) -> DataFrame:
        """An input of a union; ``__partition`` stays the name of the task that read it, now within all inputs."""
        place = f"`__partition` * {of} + {number}" if "__partition" in step.df.columns else "CAST(NULL AS INT)"
        names = (fn.col(quote_spark(c)) for c in (*step.visible, "__time"))
        return step.df.select(*names, fn.expr(place).alias("__partition"))

    def union(self, node: Union) -> Step:
        steps = [self.node(i) for i in node.inputs]
        first = steps[0]
        rows = [self.branch(s, i, len(steps)) for i, s in enumerate(steps)]
        df = rows[0]
        for other in rows[1:]:
            df = self.attempt(lambda a=df, b=other: a.union(b), None, [])  # type: ignore[misc]
        return Step(df, stateful=any(s.stateful for s in steps), mode=first.mode)

    def attempt(self, build: Callable[[], DataFrame], over: DataFrame | None, parts: Sequence[Expr]) -> DataFrame:
        """Build a step; when the analyzer refuses it, find the expression at fault by trying them one by one."""
        try:
            return build()
        except (AnalysisException, ParseException) as e:
            error: PySparkException = e
        if over is not None and len(parts) > 1:
            for part in parts:
                try:
                    over.select(_named(part))
                except (AnalysisException, ParseException) as e:
                    raise Refused(_fault(e, part.at)) from None
        raise Refused(_fault(error, parts[0].at if len(parts) == 1 else None)) from None


def _where(sql: str, condition: str | None) -> str:
    return f"if({condition}, {sql}, null)" if condition else sql


def _named(e: Expr) -> Any:
    return fn.expr(e.sql).alias(e.name)


def _fault(e: PySparkException, at: int | None) -> Fault:
    return faults.from_analysis(e.getCondition(), e.getMessage() or str(e), at)


def _position(node: Node) -> int | None:
    return next((s.at for s in walk(node) if isinstance(s, Source)), None)


def _is_updating(node: Node) -> bool:
    return isinstance(node, Aggregate) and not node.final


def columns(step: Step) -> list[tuple[str, str, bool]]:
    """The user's columns: name, Spark type text (field names quoted), nullable."""
    return [(f.name, type_text(f.dataType), f.nullable) for f in step.df.schema.fields if f.name not in HIDDEN]


def type_text(t: Any) -> str:
    """A type as Spark's ``catalogString``, with field names quoted so that any name can be read back."""
    name: str = t.typeName()
    if name == "struct":
        return "struct<" + ",".join(f"{quote_spark(f.name)}:{type_text(f.dataType)}" for f in t.fields) + ">"
    if name == "array":
        return f"array<{type_text(t.elementType)}>"
    if name == "map":
        return f"map<{type_text(t.keyType)},{type_text(t.valueType)}>"
    return str(t.simpleString())
