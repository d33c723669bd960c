"""A plan to a streaming DataFrame.

Owns: what each step of ``planner.plan`` is in Spark, the hidden columns, the output mode.
Must not know: sinks, the channel, threads. A step that Spark refuses raises ``Refused`` with the position of the
expression that is at fault. Start reading at ``Compiler.compile``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from pgstream.engine.channel import Reader, StoreAccess
from pgstream.names import quote_always, quote_spark
from pgstream.planner.plan import (
    WINDOW_BOUNDS,
    Aggregate,
    ChangeAggregate,
    ChangelogJoin,
    Expand,
    Expr,
    Filter,
    IntervalJoin,
    Lookup,
    Node,
    Normalize,
    Outputs,
    Over,
    Plan,
    Project,
    Rank,
    Recognize,
    Source,
    StreamJoin,
    TemporalJoin,
    Union,
    Unnest,
    ViewSource,
    Windows,
    behind_ms,
    mode,
    output_mode,
    outputs,
)
from pgstream.spark import faults
from pgstream.spark.jdbc import jdbc
from pgstream.spark.operators import Operators
from pgstream.spark.sources import face
from pgstream.spark.step import Refused, Step, attempt, named, texts_for_nulls
from pgstream.spark.times import bounds, just_after, near, plain_time, timed, windows
from pgstream.stores.spec import AskedInSpark

Read = Callable[[Source | ViewSource], DataFrame]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plan as one DataFrame, and Spark's output mode for it. ``steps``: those whose rows go to its sinks."""

    step: Step
    output_mode: str
    steps: Sequence[Step] = ()


class Compiler:
    """``read`` gives a source's rows with their hidden columns (``sources.Sources``). ``readers``: of the databases
    that are asked, ``stores``: those that may be; none where only the analyzer is.
    """

    def __init__(
        self,
        spark: SparkSession,
        read: Read,
        readers: Mapping[str, Reader] = MappingProxyType({}),
        stores: Mapping[str, StoreAccess] = MappingProxyType({}),
    ) -> None:
        self.spark, self.read, self.readers, self.stores = spark, read, readers, stores
        jvm: Any = spark._jvm
        self.kernel = jvm.org.apache.spark.sql.pgstream.Kernel
        self.late = self.kernel.counter(spark.range(0)._jdf, "late rows")
        self.operators = Operators(spark, self.late, "append", 0)

    def compile(self, plan: Plan) -> Compiled:
        """The whole plan, checked for what Spark can run as a stream."""
        mode = output_mode(plan.root)
        self.operators = Operators(self.spark, self.late, mode, plan.state_ttl_ms or 0)
        steps = [self.whole(node) for node, _ in outputs(plan)]
        step = several(steps) if isinstance(plan.root, Outputs) else steps[0]
        self.check(step.df, mode)
        return Compiled(step, mode, steps)

    def whole(self, node: Node) -> Step:
        """The rows that a sink is given."""
        step = self.node(node)
        step = step.over(texts_for_nulls(step.df))
        # Sinks take it for the name of the task that has the rows.
        return step.over(step.df.drop("__partition", "__offset")) if step.shuffled else step

    def check(self, df: DataFrame, mode: str) -> None:
        try:
            self.kernel.check(df._jdf, mode)
        except PySparkException as e:
            raise Refused(faults.from_analysis(None, e.getMessage() or str(e))) from None

    def node(self, node: Node) -> Step:
        match node:
            case Source() | ViewSource():
                return self.source(node)
            case Filter():
                return self.filter(node)
            case Project():
                return self.project(node)
            case Aggregate():
                return self.aggregate(node)
            case Windows():
                return self.windows(node)
            case Expand():
                return self.expand(node)
            case Unnest():
                return self.unnest(node)
            case Lookup():
                return self.operators.lookup(node, self.node(node.input), self.asked(node))
            case IntervalJoin():
                return self.join(node)
            case Union():
                return self.union(node)
            case Outputs():
                return several([self.whole(n) for n in node.inputs])
            case _:
                return self.operator(node)

    def asked(self, node: Lookup) -> dict[str, Any] | None:
        """How the kernel reaches who answers a lookup; None where nobody is asked."""
        if node.store:
            access = self.stores.get(node.store)
            return None if access is None else {"store": node.store} | cast(AskedInSpark, face(access.type)).ask(access)
        reader = self.readers.get(node.database)
        if reader is None:
            return None
        own = {"role": quote_always(reader.role), "schema": quote_always(node.schema or "pg_catalog")}
        return jdbc(reader.url) | own

    def operator(
        self, node: Normalize | ChangeAggregate | Rank | Over | Recognize | ChangelogJoin | StreamJoin | TemporalJoin
    ) -> Step:
        """A step of the kernel's."""
        match node:
            case Normalize():
                return self.operators.normalize(node, self.node(node.input))
            case ChangeAggregate():
                return self.operators.change_aggregate(node, self.node(node.input))
            case Rank():
                return self.operators.rank(node, self.node(node.input))
            case Over():
                return self.operators.over(node, self.node(node.input))
            case Recognize():
                return self.operators.recognize(node, self.node(node.input))
            case ChangelogJoin():
                return self.operators.changelog_join(node, self.node(node.left), self.node(node.right))
            case StreamJoin():
                return self.operators.stream_join(node, self.node(node.left), self.node(node.right))
            case TemporalJoin():
                return self.operators.temporal_join(node, self.node(node.left), self.node(node.right))

    def source(self, node: Source | ViewSource) -> Step:
        df = self.read(node)
        if node.watermark:
            if node.idle_ms is not None:
                df = df.withColumn("__time", fn.col("__time").alias("__time", metadata={"pgstream.idle": node.idle_ms}))
            df = DataFrame(self.kernel.eventTime(df._jdf, f"{node.lateness_ms} milliseconds"), self.spark)
        if isinstance(node, Source) and node.follows:
            df = self.operators.emptied(df, node.primary_key, node.entity)
        return Step(df, mode(node))

    def filter(self, node: Filter) -> Step:
        step = self.node(node.input)
        if not step.upsert:
            return step.over(attempt(lambda: step.df.where(fn.expr(node.condition.sql)), step.df, [node.condition]))
        # A row that is out of the result now may have been in it before: its key is removed.
        deleted = "coalesce(`__delete`, false) OR " if "__delete" in step.df.columns else ""
        gone = fn.expr(f"{deleted}NOT coalesce(({node.condition.sql}), false)")
        return step.over(attempt(lambda: step.df.withColumn("__delete", gone), step.df, [node.condition]))

    def project(self, node: Project) -> Step:
        step = self.node(node.input)
        hidden = [fn.col(c) for c in step.hidden]
        df = attempt(lambda: step.df.select(*map(named, node.columns), *hidden), step.df, node.columns)
        return step.over(df)

    def windows(self, node: Windows) -> Step:
        step = self.node(node.input)
        names = [fn.col(quote_spark(c)) for c in step.visible if c not in WINDOW_BOUNDS]
        hidden = [fn.col(c) for c in step.hidden]
        return step.over(windows(step.df, node.window).select(*names, *bounds(), *hidden))

    def expand(self, node: Expand) -> Step:
        step = self.node(node.input)
        mark, last = quote_spark(node.mark), len(node.columns) - 1
        rows = step.df.withColumn(node.mark, fn.explode(fn.expr(f"array({', '.join(map(str, node.marks))})")))
        copies = [Expr(e.name, f"if(({mark} & {1 << (last - i)}) = 0, {e.sql}, null)", e.at)
                  for i, e in enumerate(node.columns)]  # fmt: skip
        kept = [fn.col(quote_spark(c)) for c in rows.columns]
        return step.over(attempt(lambda: rows.select(*kept, *map(named, copies)), step.df, node.columns))

    def unnest(self, node: Unnest) -> Step:
        step = self.node(node.input)
        explode = ("pos" if node.numbered else "") + ("explode_outer" if node.outer else "explode")
        names = ("__place", "__item") if node.numbered else ("__item",)
        items = fn.expr(f"{explode}({node.item.sql})").alias(*names)
        rows = attempt(lambda: step.df.select("*", items), step.df, [node.item])
        kept = [fn.col(quote_spark(c)) for c in step.df.columns]
        return step.over(rows.select(*kept, *map(named, node.columns)))

    def aggregate(self, node: Aggregate) -> Step:
        step = self.node(node.input)
        by = [named(e) for e in node.group]
        values = [named(e) for e in node.aggregates]
        df = step.df
        if node.window is not None:
            df = self.operators.windows(step, node.window)
            if not by and node.window.kind == "session":
                # Spark refuses sessions without a key, and takes a constant for none.
                by.append(fn.col("__time").isNull().alias("__whole"))
            by.append(fn.col("__window"))
            values = values or [fn.count(fn.lit(1)).alias("__rows")]
        else:
            values.append(fn.max("__time").alias("__time"))
        grouped = attempt(lambda: df.groupBy(*by).agg(*values), step.df, [*node.group, *node.aggregates])
        names = [fn.col(quote_spark(e.name)) for e in (*node.group, *node.aggregates)]
        if node.window is None:
            return Step(grouped.select(*names, "__time"), "upsert", stateful=True)
        time = fn.expr("`__window`.`end` - INTERVAL 1 MILLISECOND").alias("__time")
        return Step(grouped.select(*names, *bounds(), time), "append" if node.final else "upsert", stateful=True)

    def join(self, node: IntervalJoin) -> Step:
        left, right = self.node(node.left), self.node(node.right)
        if node.by_key:
            return self.operators.interval_join(node, left, right)
        pairs = [(node.left_key, node.right_key), *node.more]
        # Rows of operators come when the watermark has reached their time, to the millisecond: for the join they are
        # just after it. How far apart two rows are is then compared by their own times.
        exact = left.stateful or right.stateful
        a = self.side(left, [x for x, _ in pairs], node.left_alias, "l", exact)
        b = self.side(right, [y for _, y in pairs], node.right_alias, "r", exact)
        on = [f"`__lkey_{i}` = `__rkey_{i}`" for i in range(len(pairs))]
        if node.how == "full":
            # Spark looks keys up by their bytes: NULL would meet NULL. Its optimizer sees to inner and left joins.
            on += [f"`__{side}key_{i}` IS NOT NULL" for i in range(len(pairs)) for side in "lr"]
        on += near("time", node.within_ms + exact)
        on += near("exact", node.within_ms) if exact else []
        on += [f"({node.condition.sql})"] if node.condition is not None else []
        made = [f"__{side}{c}" for side in "lr" for c in ("time", "exact", *(f"key_{i}" for i in range(len(pairs))))]
        joined = attempt(lambda: a.join(b, fn.expr(" AND ".join(on)), node.how), None, [node.left_key])
        names = [fn.col(quote_spark(c)) for c in joined.columns if c not in made]
        times = ("__lexact", "__rexact") if exact else ("__ltime", "__rtime")
        time = fn.greatest(*times).alias("__time")
        if node.ahead_ms is None:
            return Step(timed(joined.select(*names, time)), stateful=True)
        keys = [fn.coalesce(f"__lkey_{i}", f"__rkey_{i}") for i in range(len(pairs))]
        return self.operators.hold(timed(joined.select(*names, fn.hash(*keys).alias("__key"), time)), node.ahead_ms)

    def side(self, step: Step, keys: Sequence[Expr], alias: str, mark: str, exact: bool) -> DataFrame:
        """An input of an interval join: its columns prefixed, its keys and its event time under names of their own."""
        prefix = f"{alias}." if alias else ""
        names = [fn.col(quote_spark(c)).alias(prefix + c) for c in step.visible]
        by = [fn.expr(k.sql).alias(f"__{mark}key_{i}") for i, k in enumerate(keys)]
        time = just_after() if step.stateful else fn.col("__time")
        times = [time.alias(f"__{mark}time"), *([plain_time().alias(f"__{mark}exact")] if exact else [])]
        rows = self.operators.on_time(step, step.df) if step.held else step.df
        return attempt(lambda: rows.select(*names, *by, *times), rows, keys)

    def branch(self, step: Step, number: int, of: int, retract: bool) -> DataFrame:
        """An input of a union; ``__partition`` stays the name of the task that read it, now within all inputs."""
        named = "__partition" in step.df.columns and not step.shuffled
        place = f"`__partition` * {of} + {number}" if named else "CAST(NULL AS INT)"
        names = (fn.col(quote_spark(c)) for c in (*step.visible, "__time"))
        taken = [fn.expr("`__delete`" if step.mode == "retract" else "false").alias("__delete")] if retract else []
        return step.df.select(*names, fn.expr(place).alias("__partition"), *taken)

    def union(self, node: Union) -> Step:
        steps = [self.node(i) for i in node.inputs]
        retract = any(s.mode == "retract" for s in steps)
        rows = [self.branch(s, i, len(steps), retract) for i, s in enumerate(steps)]
        df = rows[0]
        for other in rows[1:]:
            df = attempt(lambda a=df, b=other: a.union(b), None, [])  # type: ignore[misc]
        stateful, held = any(s.stateful for s in steps), any(s.held for s in steps)
        mixed = stateful and not all(s.shuffled for s in steps)
        return Step(df, "retract" if retract else "append", stateful, held, behind_ms(node), mixed)


def several(steps: Sequence[Step]) -> Step:
    """The rows of all: the number of the step that a row is of, and a struct for each step (``OutputsSink.scala``)."""
    shapes = [s.df.schema for s in steps]
    rows = [
        s.df.select(fn.lit(i).alias("__output"), *(
            (fn.struct(*(fn.col(quote_spark(c)) for c in s.df.columns)) if i == j else fn.lit(None).cast(shape))
            .alias(f"__row_{j}") for j, shape in enumerate(shapes)
        ))
        for i, s in enumerate(steps)
    ]  # fmt: skip
    return Step(reduce(DataFrame.union, rows), stateful=any(s.stateful for s in steps))
