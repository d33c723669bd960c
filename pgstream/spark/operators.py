"""The kernel's operators as steps of a DataFrame: what each is told, and which columns go in and come out.

Owns: the configuration of ``Emptied``, ``Hold``, ``Normalize``, ``ChangeAggregate``, ``ChangelogJoin``,
``StreamJoin``, ``IntervalJoin``, ``TemporalJoin``, ``Rank``, ``Over``, ``Recognize`` (``kernel``). Must not know: how
their inputs are compiled. Start at ``Operators.operate``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from pgstream import types
from pgstream.engine.channel import Fault
from pgstream.names import HIDDEN, FullName, quote_always, quote_spark, quote_text
from pgstream.planner.plan import (
    Call,
    ChangeAggregate,
    ChangelogJoin,
    Expr,
    IntervalJoin,
    Lookup,
    Normalize,
    Over,
    Rank,
    Read,
    Recognize,
    StreamJoin,
    TemporalJoin,
    Window,
    behind_ms,
    mode,
)
from pgstream.spark.step import KEYS, Refused, Step, attempt, named, type_text, where
from pgstream.spark.times import bounds, timed, windows

_BUCKETS = 64
"""Of keys: as many tasks at most can keep their rows. Fixed, for state lies in them."""


class Operators:
    """``mode``: Spark's output mode; ``ttl_ms``: how long state is kept, 0 for ever; ``late`` counts late rows."""

    def __init__(self, spark: SparkSession, late: Any, mode: str, ttl_ms: int) -> None:
        self.spark, self.late, self.mode, self.ttl_ms = spark, late, mode, ttl_ms
        jvm: Any = spark._jvm
        self.kernel = jvm.org.apache.spark.sql.pgstream

    def operate(self, operator: str, df: DataFrame, **config: Any) -> DataFrame:
        """One of the kernel's operators over the rows of ``df``."""
        told = json.dumps({"mode": self.mode, "ttl_ms": self.ttl_ms} | config)
        return DataFrame(getattr(self.kernel, operator).apply(df._jdf, told), self.spark)

    def on_time(
        self, step: Step, df: DataFrame, every: int = 0, until: str = "", window: Window | None = None
    ) -> DataFrame:
        """The rows that are not late; what comes out of operators with state has waited for this watermark already,
        and only for that, unless it was ``held`` or some of it comes from elsewhere (``mixed``).

        ``until``: the column of the end of the one window that a row is of, ``every``: how far apart those begin.
        """
        if step.stateful and not step.held and not step.mixed:
            return df
        span, cumulates = (window.size_ms, window.kind == "cumulate") if window is not None else (0, False)
        held = step.behind_ms if step.held or step.mixed else -1
        kept = self.kernel.Kernel.onTime(df._jdf, until, span, every, cumulates, held, self.late)
        return DataFrame(kept, self.spark)

    def windows(self, step: Step, window: Window) -> DataFrame:
        """The rows with their windows, but those that are late for all of them."""
        every = 0 if window.kind == "session" else window.advance_ms
        return windows(self.on_time(step, step.df, every, window=window), window)

    def emptied(self, df: DataFrame, key: Sequence[str], entity: str) -> DataFrame:
        """The rows of a changelog whose entity may be emptied as a whole."""
        return self.operate("Emptied", df, keys=list(key), buckets=_BUCKETS, table=entity)

    def normalize(self, node: Normalize, step: Step) -> Step:
        df = self.operate("Normalize", step.df, key=node.key, upserts=node.upserts)
        return Step(df, "upsert" if node.upserts else "retract", stateful=True)

    def change_aggregate(self, node: ChangeAggregate, step: Step) -> Step:
        every, calls = _calls(node.calls)
        hidden = [fn.col(c) for c in step.hidden if c not in KEYS]
        rows = step.df if node.window is None else self.windows(step, node.window)
        group = [*map(named, node.group), *([] if node.window is None else bounds())]
        df = attempt(lambda: rows.select(*group, *map(named, every), *hidden), step.df, [*node.group, *every])
        names = [*(e.name for e in node.group), *(["window_start", "window_end"] if node.window is not None else [])]
        if node.until is not None:
            end = Expr("__until", node.until)
            df = attempt(lambda: rows.select(*group, named(end), *map(named, every), *hidden), step.df, [end])
            df = self.on_time(step, df, node.every_ms, "__until")
        if node.by_time:
            df = df.withColumn("__partition", fn.lit(0)).withColumn("__offset", fn.unix_micros("__time"))
        made = self.operate(
            "ChangeAggregate", df, group=[*names, *(["__until"] if node.until is not None else [])],
            arguments=[a.name for a in every], calls=calls, window=node.window is not None or node.until is not None,
            final=node.final, drops=not step.stateful,
        )  # fmt: skip
        out = made.select(*_columns(names), *_values(node.calls), "__time", "__delete")
        if node.final and (node.window is not None or node.until is not None):
            return Step(timed(out.drop("__delete")), stateful=True)
        if node.final:
            # Rows that are told at once have waited for nothing: they may be as late as those that came in.
            held = not step.stateful or step.held or step.mixed
            return Step(timed(out.drop("__delete")), stateful=True, held=held, behind_ms=step.behind_ms)
        return Step(out, "upsert", stateful=True)

    def rank(self, node: Rank, step: Step) -> Step:
        keys = [Expr(f"__by_{i}", e.sql, e.at) for i, e in enumerate(node.partition)]
        keys += [Expr("__until", node.until)] if node.until is not None else []
        order = [Expr(f"__order_{i}", o.sql, o.at) for i, o in enumerate(node.order)]
        df = self.beside(step, [*keys, *order])
        if node.until is not None:
            df = self.on_time(step, df, node.every_ms, "__until")
        ranks = {node.name: node.function, **node.also}
        made = self.operate(
            "Rank", df, key=[k.name for k in keys], limit=node.limit,
            ranks=[{"name": n, "function": f} for n, f in ranks.items()],
            order=[
                {"column": e.name, "descending": o.descending, "nulls_first": o.nulls_first}
                for e, o in zip(order, node.order, strict=True)
            ],
            takes_back=step.mode != "append", window=node.until is not None, drops=not step.stateful,
        )  # fmt: skip
        out = made.select(*_columns([*step.visible, *ranks]), "__time", "__delete")
        if node.until is not None:
            return Step(timed(out.drop("__delete")), stateful=True)
        return Step(out, "retract", stateful=True)

    def over(self, node: Over, step: Step) -> Step:
        every, calls = _calls(node.calls)
        keys = [Expr(f"__by_{i}", e.sql, e.at) for i, e in enumerate(node.partition)]
        df = self.on_time(step, self.beside(step, [*keys, *every]))
        made = self.operate(
            "Over", df, key=[k.name for k in keys], calls=calls, rows=node.rows, range_ms=node.range_ms,
            peers=node.peers, ahead=node.ahead,
        )  # fmt: skip
        hidden = [c for c in ("__time", "__partition", "__offset") if c == "__time" or c in step.hidden]
        out = timed(made.select(*_columns(step.visible), *_values(node.calls), *hidden))
        return Step(out, "upsert" if node.versions else "append", stateful=True)

    def recognize(self, node: Recognize, step: Step) -> Step:
        df, conditions, told = self.recognizing(node, step)
        made = DataFrame(self.kernel.Recognize.apply(self.on_time(step, df)._jdf, conditions, told), self.spark)
        columns = [Expr(e.name, quote_spark(e.name)) for e in node.partition] + node.measures
        out = attempt(lambda: made.select(*map(named, columns), "__time"), made, node.measures)
        return Step(timed(out), stateful=True, held=not node.behind_ms, behind_ms=behind_ms(node.input))

    def recognizing(self, node: Recognize, step: Step) -> tuple[DataFrame, Any, str]:
        """The rows as the kernel is given them, the conditions over what is read of a match, and what it is told."""
        texts = [t for r in node.reads for t in _texts(r)]
        names = {t: f"__v{i}" for i, t in enumerate(dict.fromkeys(texts))}
        values = [Expr(names[t], t, _place(node, t)) for t in names]
        order = [Expr(f"__order_{i}", o.sql, o.at) for i, o in enumerate(node.order)]
        hidden = [c for c in step.hidden if c in ("__time", "__partition", "__offset")]
        parts = [*node.partition, *values, *order]
        df = attempt(lambda: step.df.select(*map(named, parts), *hidden), step.df, parts)
        if raising := [names[t] for t in dict.fromkeys(t for r in node.reads if r.raises for t in _texts(r))]:
            df = DataFrame(self.kernel.Tried.columns(df._jdf, raising), self.spark)
        extremes = [r for r in node.reads if r.call is not None and r.call.function in ("min", "max")]
        _check_ordered(df, [*order, *(Expr(names[t], t, r.at) for r in extremes for t in _texts(r))])
        told = json.dumps({
            "mode": self.mode, "ttl_ms": self.ttl_ms, "within_ms": node.within_ms, "behind_ms": node.behind_ms,
            "skip": node.skip, "to": node.to,
            "key": [e.name for e in node.partition], "pattern": msgspec.to_builtins(node.pattern),
            "reads": [_read(r, names) for r in node.reads],
            "tells": [r.name for r in node.reads if any(quote_spark(r.name) in m.sql for m in node.measures)],
            "order": [{"column": e.name, "descending": o.descending, "nulls_first": o.nulls_first}
                      for e, o in zip(order, node.order, strict=True)],
        })  # fmt: skip
        reads = DataFrame(self.kernel.Recognize.shape(df._jdf, told), self.spark)
        # A condition that is no condition is refused here, at its place.
        attempt(lambda: reads.select(*(fn.expr(f"({e.sql}) AND true") for e in node.define)), reads,
                [Expr(e.name, f"({e.sql}) AND true", e.at) for e in node.define])  # fmt: skip
        return df, reads.select(*map(named, node.define))._jdf, told

    def beside(self, step: Step, more: Sequence[Expr]) -> DataFrame:
        """The rows with more columns."""
        hidden = [fn.col(c) for c in step.hidden if c not in KEYS]
        return attempt(lambda: step.df.select(*_columns(step.visible), *map(named, more), *hidden), step.df, more)

    def sides(
        self, node: TemporalJoin | ChangelogJoin | StreamJoin | IntervalJoin, left: Step, right: Step
    ) -> tuple[list[str], DataFrame, DataFrame]:
        """The names of the key's columns, and both inputs with them."""
        keys = [(node.left_key, node.right_key), *node.more] if isinstance(node, IntervalJoin) else node.keys
        names = [f"__key_{i}" for i in range(len(keys))]
        a = self.keyed(left, [k for k, _ in keys], names, node.left_alias)
        b = self.keyed(right, [k for _, k in keys], names, node.right_alias)
        return names, *self.alike(a, b, names, [k for k, _ in keys])

    def interval_join(self, node: IntervalJoin, left: Step, right: Step) -> Step:
        names, a, b = self.sides(node, left, right)
        told = json.dumps({"mode": self.mode, "how": node.how, "keys": names, "within_ms": node.within_ms,
                           "behind_ms": node.behind_ms})  # fmt: skip
        meets = self.meets(node.condition, a, b, told)
        a, b = self.on_time(left, a), self.on_time(right, b)
        df = DataFrame(self.kernel.IntervalJoin.apply(a._jdf, b._jdf, meets, told), self.spark)
        columns = _columns([c for c in (*a.columns, *b.columns) if c not in HIDDEN and c not in names])
        if node.ahead_ms is None:
            return Step(timed(df.select(*columns, "__time")), stateful=True)
        return self.hold(timed(df.select(*columns, fn.hash("__time").alias("__key"), "__time")), node.ahead_ms)

    def meets(self, on: Expr | None, a: DataFrame, b: DataFrame, told: str) -> Any:
        """A further condition of ON as the one column of a DataFrame; None without any."""
        if on is None:
            return None
        rows = DataFrame(self.kernel.Pairing.shape(a._jdf, b._jdf, told), self.spark)
        meets = attempt(lambda: rows.select(fn.expr(f"({on.sql}) AND true").alias("on")), rows, [on])
        # As a join's own condition: one by chance is refused.
        attempt(lambda: rows.join(self.spark.range(0).toDF("__other"), fn.expr(on.sql), "left"), None, [on])
        return meets._jdf

    def stream_join(self, node: StreamJoin, left: Step, right: Step) -> Step:
        names, a, b = self.sides(node, left, right)
        told = json.dumps({"mode": self.mode, "how": node.how, "keys": names, "ttl_ms": self.ttl_ms})
        meets = self.meets(node.condition, a, b, told)
        df = DataFrame(self.kernel.StreamJoin.apply(a._jdf, b._jdf, meets, told), self.spark)
        return self.joined(df, a, b, names, append=mode(node) == "append")

    def joined(self, df: DataFrame, a: DataFrame, b: DataFrame, names: list[str], *, append: bool) -> Step:
        """The rows of a join that waits for no watermark; those of ``append`` only come."""
        columns = _columns([c for c in (*a.columns, *b.columns) if c not in HIDDEN and c not in names])
        if append:
            # These pairs have waited for no watermark: above they may be late.
            return Step(timed(df.select(*columns, "__time")))
        return Step(df.select(*columns, "__time", "__delete"), "retract", stateful=True)

    def changelog_join(self, node: ChangelogJoin, left: Step, right: Step) -> Step:
        names, a, b = self.sides(node, left, right)
        told = json.dumps({"mode": self.mode, "how": node.how, "keys": names, "ttl_ms": self.ttl_ms})
        df = DataFrame(self.kernel.ChangelogJoin.apply(a._jdf, b._jdf, told), self.spark)
        return self.joined(df, a, b, names, append=node.append)

    def temporal_join(self, node: TemporalJoin, left: Step, right: Step) -> Step:
        names, a, b = self.sides(node, left, right)
        present = " AND ".join(f"{n} IS NOT NULL" for n in names)
        told = {"mode": self.mode, "how": node.how, "keys": names, "ttl_ms": self.ttl_ms}
        a = self.on_time(left, a)
        made = self.kernel.TemporalJoin.apply(a._jdf, b.where(present)._jdf, json.dumps(told))
        columns = [c for c in (*a.columns, *b.columns) if c not in HIDDEN and c not in names]
        df = DataFrame(made, self.spark)
        return Step(timed(df.select(*_columns(columns), "__time")), stateful=True)

    def hold(self, df: DataFrame, ahead_ms: int) -> Step:
        """The rows, of which column ``__key`` is left out; those that are so far ahead of the watermark wait for it."""
        rows = df.withColumn("__key", fn.pmod("__key", fn.lit(_BUCKETS)))
        return Step(timed(self.operate("Hold", rows, ahead_ms=ahead_ms)), stateful=True)

    def lookup(self, node: Lookup, step: Step, asked: dict[str, Any] | None) -> Step:
        """``asked``: the connection. Without it there is nobody to ask, which is enough for the analyzer."""
        kinds = [(c.name, types.parse(c.type)) for c in node.columns]
        prefix = f"{node.right_alias}." if node.right_alias else ""
        sql, given = _question(node)
        names = [f"__key_{i}" for i in range(len(given))]
        df = self.keyed(step, given, names, node.left_alias)
        if asked is None:
            nulls = [fn.expr(f"cast(null as {t.spark})").alias(prefix + n) for n, t in kinds]
            return step.over(df.select("*", *nulls).drop(*names))
        told = asked | {
            "key": names,
            "arguments": [types.TABLE[types.parse(a.type).name].pg for a in node.arguments],
            "sql": sql, "how": node.how,
            "types": [t.pg for _, t in kinds],
            "ddl": ", ".join(f"c{i} {t.spark}" for i, (_, t) in enumerate(kinds, 1)),
            "names": [prefix + n for n, _ in kinds],
        }  # fmt: skip
        if not node.sql:
            told["arguments"] = [types.TABLE[dict(kinds)[column].name].pg for _, column in node.keys]
        out = DataFrame(self.kernel.Lookup.apply(df._jdf, json.dumps(told)), self.spark)
        hidden = [c for c in step.hidden if c in out.columns]
        visible = [c for c in df.columns if c not in HIDDEN and c not in names]
        return step.over(timed(out.select(*_columns([*visible, *(prefix + n for n, _ in kinds)]), *hidden)))

    def keyed(self, step: Step, keys: Sequence[Expr], names: Sequence[str], alias: str) -> DataFrame:
        """An input of a join: its columns prefixed, its key under the given names, its hidden columns."""
        prefix = f"{alias}." if alias else ""
        visible = [fn.col(quote_spark(c)).alias(prefix + c) for c in step.visible]
        made = [fn.expr(k.sql).alias(n) for k, n in zip(keys, names, strict=True)]
        hidden = [fn.col(c) for c in step.hidden if c not in KEYS]
        return attempt(lambda: step.df.select(*visible, *made, *hidden), step.df, keys)

    def alike(
        self, a: DataFrame, b: DataFrame, names: Sequence[str], keys: Sequence[Expr]
    ) -> tuple[DataFrame, DataFrame]:
        """Both inputs with keys of common types: packed keys are compared as bytes. What has no equality is refused."""
        for name, key in zip(names, keys, strict=True):
            attempt(partial(a.where, fn.col(name) == fn.col(name)), None, [key])
            one, two = a.schema[name].dataType, b.schema[name].dataType
            if one != two:
                nulls = f"coalesce(cast(null as {one.simpleString()}), cast(null as {two.simpleString()}))"
                try:
                    wide = self.spark.range(0).select(fn.expr(nulls).alias("x"))
                except (AnalysisException, ParseException):
                    left, right = (types.from_spark(type_text(t)) for t in (one, two))
                    message, hint = f"operator does not exist: {left} = {right}", "Write CAST(value AS type)."
                    raise Refused(Fault("user", "42883", message, None, hint, key.at)) from None
                to = wide.schema["x"].dataType
                a, b = a.withColumn(name, fn.col(name).cast(to)), b.withColumn(name, fn.col(name).cast(to))
        return a, b


def _question(node: Lookup) -> tuple[str, list[Expr]]:
    """The query for PostgreSQL, and a row's arguments as the text that PostgreSQL reads them from."""
    if node.sql:
        return node.sql, [Expr("", _text(a.sql, types.parse(a.type)), a.at) for a in node.arguments]
    kinds = {c.name: types.parse(c.type) for c in node.columns}
    table = ".".join(quote_always(p) for p in FullName.read(node.relation).path[1:])
    wanted = " AND ".join(f't.{quote_always(c)} = "__row".p{i}' for i, (_, c) in enumerate(node.keys, 1))
    # What the column cannot hold is not in it.
    held = [Expr("", _text(f"try_cast({e.sql} as {kinds[c].spark})", kinds[c]), e.at) for e, c in node.keys]
    return f"SELECT t.* FROM {table} t WHERE {wanted}", held


def _text(sql: str, type_: types.Type) -> str:
    return f"concat({quote_text(chr(92) + 'x')}, hex({sql}))" if type_.spark == "binary" else f"cast({sql} as string)"


def _check_ordered(df: DataFrame, columns: Sequence[Expr]) -> None:
    """What has no order, as a MAP, is refused."""
    for column in columns:
        try:
            df.where(fn.col(column.name) < fn.col(column.name))
        except AnalysisException:
            kind = types.from_spark(type_text(df.schema[column.name].dataType))
            message = f"could not identify an ordering operator for type {kind}"
            raise Refused(Fault("user", "42883", message, None, None, column.at)) from None


def _columns(names: Sequence[str]) -> list[Any]:
    return [fn.col(quote_spark(n)) for n in names]


def _calls(calls: Sequence[Call]) -> tuple[list[Expr], list[dict[str, Any]]]:
    """The arguments of aggregate calls as columns, and the calls as the kernel is told them."""
    arguments = [
        [Expr(f"__{i}_{j}", where(a, c.where), c.at) for j, a in enumerate(c.arguments)] for i, c in enumerate(calls)
    ]
    told = [
        {"name": c.name, "function": c.function, "arguments": [a.name for a in list_], "distinct": c.distinct,
         "separator": c.separator, "offset": c.offset}
        for c, list_ in zip(calls, arguments, strict=True)
    ]  # fmt: skip
    return [a for list_ in arguments for a in list_], told


def _arguments(call: Call) -> list[str]:
    return [where(a, call.where) for a in call.arguments]


def _read(r: Read, names: dict[str, str]) -> dict[str, Any]:
    """A read as the kernel is told it; ``names``: of the columns that hold values."""
    told = {"name": r.name, "variable": r.variable}
    if r.call is None:
        return told | {"at": names[r.value], "last": r.last, "offset": r.offset, "shift": r.shift}
    (call,) = _calls([r.call])[1]
    return told | {"call": call | {"arguments": [names[a] for a in _arguments(r.call)]}}


def _place(node: Recognize, text: str) -> int | None:
    """Where a value that is read stands in the statement."""
    return next((r.at for r in node.reads if text in _texts(r)), None)


def _texts(r: Read) -> list[str]:
    """What it is of each row, in Spark SQL."""
    return [r.value] if r.call is None else _arguments(r.call)


def _values(calls: Sequence[Call]) -> list[Any]:
    """The results of aggregate calls, cast where the function's own type is not wanted."""
    return [fn.col(c.name).cast(c.cast).alias(c.name) if c.cast else fn.col(c.name) for c in calls]
