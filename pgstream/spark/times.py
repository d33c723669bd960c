"""Event time in Spark's terms: windows as columns, and which column is the event time.

Owns: what each kind of ``plan.Window`` is in Spark, the bounds that users see. Must not know: plans, operators.
Start reading at ``windows``.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from pgstream.planner.plan import Window

# What Spark knows a column of event time by.
_EVENT_TIME = {"spark.watermarkDelayMs": 0}


def windows(df: DataFrame, window: Window) -> DataFrame:
    """The rows with the windows that they fall into, one row a window, as column ``__window``."""
    size, advance = (f"{ms} milliseconds" for ms in (window.size_ms, window.advance_ms))
    match window.kind:
        case "session":
            return df.withColumn("__window", fn.session_window("__time", size))
        case "cumulate":
            start = f"(unix_millis(`__time`) - pmod(unix_millis(`__time`), {window.size_ms}))"
            first = f"pmod(unix_millis(`__time`), {window.size_ms}) div {window.advance_ms} + 1"
            ends = (
                f"sequence({start} + ({first}) * {window.advance_ms}, {start} + {window.size_ms}, {window.advance_ms}l)"
            )
            pair = f"struct(timestamp_millis({start}) AS start, timestamp_millis(e) AS end)"
            df = df.withColumn("__window", fn.explode(fn.expr(f"transform({ends}, e -> {pair})")))
            return df.withColumn("__window", fn.col("__window").alias("__window", metadata=_EVENT_TIME))
        case _:
            return df.withColumn("__window", fn.window("__time", size, advance))


def bounds() -> list[Any]:
    """The columns ``window_start`` and ``window_end`` of ``__window``."""
    return [fn.expr(f"CAST(`__window`.`{e}` AS TIMESTAMP_NTZ)").alias(f"window_{e}") for e in ("start", "end")]


def timed(df: DataFrame) -> DataFrame:
    """Out of an operator of the kernel Spark no longer knows which column is the event time."""
    return df.withColumn("__time", fn.col("__time").alias("__time", metadata=_EVENT_TIME))


def just_after() -> Any:
    """The event time a moment later, and still before the next millisecond; Spark takes it for the event time."""
    return fn.expr("`__time` + INTERVAL 999 MICROSECONDS").alias("__time", metadata=_EVENT_TIME)


def plain_time() -> Any:
    """The event time as a column like any other."""
    return fn.expr("timestamp_micros(unix_micros(`__time`))")


def near(column: str, within_ms: int) -> list[str]:
    """That ``column`` of the left side (``__l…``) and of the right one are so near."""
    interval = f"INTERVAL {within_ms} MILLISECONDS"
    left, right = f"`__l{column}`", f"`__r{column}`"
    return [f"{right} >= {left} - {interval}", f"{right} <= {left} + {interval}"]
