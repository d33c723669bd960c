"""A step's output while a plan becomes a DataFrame, and what is said when Spark refuses an expression.

Owns: ``Step``, the names of hidden columns, finding the expression at fault. Must not know: the kinds of steps.
Start reading at ``Step`` and ``attempt``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructField, StructType

from pgstream.engine.channel import Fault
from pgstream.names import HIDDEN, quote_spark
from pgstream.planner.plan import Expr
from pgstream.spark import faults

KEYS = ("__key", "__rowkey", "__metadata", "__timestamp_type")


class Refused(Exception):
    """The plan cannot run; ``fault`` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Step:
    """A step's output: its rows, their mode (append, upsert, retract), whether they are out of operators with state,
    and ``held`` there for longer than the watermark asks: then they may be late for what stands above. ``behind_ms``:
    how far the watermark of what was held is behind that of the sources. ``mixed``: a union's, where some are out of
    operators and others are not; those have no ``__partition``.
    """

    df: DataFrame
    mode: str = "append"
    stateful: bool = False
    held: bool = False
    behind_ms: int = 0
    mixed: bool = False

    @property
    def upsert(self) -> bool:
        return self.mode == "upsert"

    @property
    def visible(self) -> list[str]:
        return [c for c in self.df.columns if c not in HIDDEN]

    @property
    def hidden(self) -> list[str]:
        return [c for c in self.df.columns if c in HIDDEN]

    @property
    def shuffled(self) -> bool:
        """Whether the tasks that have the rows are others than those that read a partition."""
        return self.stateful and not self.mixed

    def over(self, df: DataFrame) -> Step:
        return replace(self, df=df)


def attempt(build: Callable[[], DataFrame], over: DataFrame | None, parts: Sequence[Expr]) -> DataFrame:
    """Build a step; when the analyzer refuses it, find the expression at fault by trying them one by one."""
    try:
        return build()
    except (AnalysisException, ParseException) as e:
        error: PySparkException = e
    if over is not None and len(parts) > 1:
        for part in parts:
            try:
                over.select(named(part))
            except (AnalysisException, ParseException) as e:
                raise Refused(_fault(e, part.at)) from None
    raise Refused(_fault(error, parts[0].at if len(parts) == 1 else None)) from None


def named(e: Expr) -> Any:
    return fn.expr(e.sql).alias(e.name)


def where(sql: str, condition: str | None) -> str:
    return f"if({condition}, {sql}, null)" if condition else sql


def _fault(e: PySparkException, at: int | None) -> Fault:
    return faults.from_analysis(e.getCondition(), e.getMessage() or str(e), at)


def columns(step: Step) -> list[tuple[str, str, bool]]:
    """The user's columns: name, Spark type text (field names quoted), nullable."""
    return [(f.name, type_text(f.dataType), f.nullable) for f in step.df.schema.fields if f.name not in HIDDEN]


def texts_for_nulls(df: DataFrame) -> DataFrame:
    """The rows with VARCHAR where Spark knows of no type, as of NULL: neither sinks nor clients have one like that."""
    wanted = {f.name: filled for f in df.schema.fields if (filled := _filled(f.dataType)) != f.dataType}
    names = {c: fn.col(quote_spark(c)) for c in df.columns}
    return df.select(*(n.cast(wanted[c]).alias(c) if c in wanted else n for c, n in names.items())) if wanted else df


def _filled(t: DataType) -> DataType:
    match t:
        case NullType():
            return StringType()
        case StructType():
            return StructType([StructField(f.name, _filled(f.dataType), f.nullable) for f in t.fields])
        case ArrayType():
            return ArrayType(_filled(t.elementType), t.containsNull)
        case MapType():
            return MapType(_filled(t.keyType), _filled(t.valueType), t.valueContainsNull)
        case _:
            return t


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
