"""Sources of a plan: raw records of a store, decoded into rows with their hidden columns; changes of views.

Owns: the configuration of the kernel's ``RecordDecoder`` and ``ViewSource``, which store's face reads a source.
Must not know: what is done with the rows. Start reading at ``Sources.read``.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from pgstream import types
from pgstream.engine.channel import StoreAccess
from pgstream.names import quote_always, quote_spark, view_log
from pgstream.planner.plan import Source, ViewSource
from pgstream.spark.jdbc import jdbc
from pgstream.spark.records import reading
from pgstream.stores import find
from pgstream.stores.spec import KeepingInSpark, RealTimeInSpark, SparkFace, StoreType

Limits = Mapping[str, Mapping[int, int]]
CATCH_UP_ROWS = 200_000
"""Of a view's log in one batch, unless a transaction had more."""
_UNSENT = "__unsent"
_OLDER = "STRUCT<timestamp_type VARCHAR>"
_PROVIDER = "org.apache.spark.sql.pgstream.ViewSourceProvider"


def face(store_type: str) -> SparkFace:
    """A store type's face in the worker: class ``…Streams`` of ``pgstream.stores.<type>.spark``."""
    module, _, name = find(store_type).spark.partition(":")
    found: SparkFace = getattr(importlib.import_module(module), name)()
    return found


class Sources:
    """Reads sources. Without ``stores`` the records are empty stand-ins, which is enough for the analyzer.

    ``query`` is the id of the query that reads, ``attempt`` which start of it this is.
    ``limits`` maps topic → partition (-1: all others) → the offset from which on nothing counts, be it that of a known
    bad record. A topic that a query
    reads more than once is one source of Spark's, so that each batch ends at one place in it; ``apart``: it is not, in
    queries of older plans, whose checkpoints count every reading. ``databases``: libpq URLs of those whose views
    ``query`` reads. ``shared``: the places (``place``) of those whose records are fetched once for all their readings.
    """

    def __init__(
        self,
        spark: SparkSession,
        stores: Mapping[str, StoreAccess] | None,
        limits: Limits,
        apart: bool = False,
        *,
        real_time: bool = False,
        query: str = "",
        attempt: int = 0,
        databases: Mapping[str, str] = MappingProxyType({}),
        shared: Collection[tuple[Any, ...]] = (),
    ) -> None:
        self.spark, self.stores, self.limits, self.apart, self.real_time = spark, stores, limits, apart, real_time
        self.query, self.attempt, self.databases, self.shared = query, attempt, databases, shared
        self.raw: dict[Any, DataFrame] = {}
        jvm: Any = spark._jvm
        self.kernel = jvm.org.apache.spark.sql.pgstream.Kernel
        self.bad = self.kernel.counter(spark.range(0)._jdf, "bad records")

    def read(self, source: Source | ViewSource) -> DataFrame:
        return self._changes(source) if isinstance(source, ViewSource) else self._decoded(source)

    def _changes(self, source: ViewSource) -> DataFrame:
        """The changes of a view. Names of their own: the same rows may be on both sides of a join."""
        if (same := place(source)) not in self.raw:
            self.raw[same] = self._log(source)
        raw = self.raw[same]
        time = fn.expr(_time(source)).alias("__time")
        return raw.select(*(time if c == "__time" else fn.col(quote_spark(c)).alias(c) for c in raw.columns))

    def _log(self, source: ViewSource) -> DataFrame:
        hidden = "__time timestamp" + ", __delete boolean" * (source.mode != "append")
        hidden += ", __partition int, __offset bigint" * (source.mode != "retract")
        schema = f"{ddl(source)}, {hidden}"
        if self.stores is None:
            empty = self.spark.readStream.format("rate").load()
            return empty.select(*(fn.lit(None).cast(f.dataType).alias(f.name) for f in StructType.fromDDL(schema)))
        access = jdbc(self.databases[source.database])
        config = {
            "url": access["url"], "user": access["user"], "view": source.relation, "mode": source.mode,
            "log": f"pg_pgstream.{quote_always(view_log(self.query, source.view))}", "most": CATCH_UP_ROWS,
            "names": [quote_always(c.name) for c in source.columns],
            "types": [types.parse(c.type).pg for c in source.columns],
        }  # fmt: skip
        reader = self.spark.readStream.format(_PROVIDER).schema(schema)
        return reader.option("config", json.dumps(config)).option("password", access["password"]).load()

    def _decoded(self, source: Source) -> DataFrame:
        raw = self._raw(source)
        decoded = DataFrame(self.kernel.decode(raw._jdf, json.dumps(self.decoder(source)), self.bad), self.spark)
        wanted = ["r.*", "__partition", "__offset"]
        if "key" in source.wants:
            wanted.append("key AS __key")
        if "metadata" in source.wants:
            wanted.append("__metadata")
        if "timestamp_type" in source.wants:
            wanted.append("__metadata.timestamp_type AS __timestamp_type")
        if source.follows and _UNSENT in decoded.columns:
            wanted.append(_UNSENT)
        return decoded.where("r IS NOT NULL").selectExpr(*wanted)

    def _raw(self, source: Source) -> DataFrame:
        if self.stores is None:
            return self._stand_in(source)
        if self.apart:
            return self._records(source)
        if (same := place(source)) not in self.raw:
            found = self._records(source)
            self.raw[same] = self._once(found) if same in self.shared else found
        return self.raw[same]

    def _once(self, records: DataFrame) -> DataFrame:
        """Fetched once a batch, however many places of the plan read them."""
        return DataFrame(self.kernel.readOnce(records._jdf), self.spark)

    def _records(self, source: Source) -> DataFrame:
        assert self.stores is not None
        access = self.stores[source.store]
        if self.real_time:
            return cast(RealTimeInSpark, face(access.type)).follow(self.spark, source, access, self.query)
        return face(access.type).read(self.spark, source, access, self.query)

    def _stand_in(self, source: Source) -> DataFrame:
        empty = self.spark.readStream.format("rate").load()
        nothing = fn.lit(None)
        return empty.select(nothing.cast("binary").alias("key"), nothing.cast("binary").alias("value"),
                            fn.col("timestamp").alias("__time"), fn.lit(0).alias("__partition"),
                            fn.col("value").alias("__offset"),
                            nothing.cast(types.parse(source.metadata or _OLDER).spark).alias("__metadata"))  # fmt: skip

    def decoder(self, source: Source) -> dict[str, Any]:
        """What ``RecordDecoder`` is told."""
        access = self.stores[source.store] if self.stores is not None else None
        registry, descriptors = (access.registry, access.descriptors) if access is not None else ("", {})
        value, key = descriptors.get(source.value_descriptor or ""), descriptors.get(source.key_descriptor or "")
        config: dict[str, Any] = {
            "columns": ddl(source),
            "kind": source.kind,
            "topic": source.entity,
            "value": reading(source.value_format, source.timestamp_format, registry, value),
            "timestamp": source.timestamp,
            "watermark": source.watermark,
            "on_bad_record": source.on_bad_record,
            "needs": source.needs,
            "primary_key": source.primary_key,
            "key": reading(source.key_format or "json", source.timestamp_format, registry, key),
            "key_said": source.key_format is not None,
            "row_key": "rowkey" in source.wants,
            "empties": source.empties,
            "follows": source.follows,
            "key_type": types.parse(source.key_type).spark if source.key_type else None,
            "placed": {} if access is None else _placed(find(access.type)),
            "limits": {str(p): o for p, o in self.limits.get(source.entity, {}).items()},
        }
        if source.on_bad_record == "log" and self.stores is not None:
            config["log"] = json.dumps(self._bad_records(source, config))
        return config

    def _bad_records(self, source: Source, config: Mapping[str, Any]) -> dict[str, Any]:
        """What ``BadRecordLog`` is told. Readers of a topic that differ in what they take have their own records."""
        assert self.stores is not None
        access = self.stores[source.bad_record_store or source.store]
        takes = [source.store, *(config[k] for k in ("columns", "kind", "topic", "timestamp", "key_type")),
                 source.value_format, source.key_format, source.timestamp_format, *source.needs]  # fmt: skip
        reader = hashlib.sha256(json.dumps(takes).encode()).hexdigest()[:12]
        keeping = cast(KeepingInSpark, face(access.type))
        return {"query": self.query, "attempt": self.attempt, "reader": reader, "topic": source.bad_record_topic,
                "properties": keeping.bad_records(access)}  # fmt: skip


def _placed(kind: StoreType) -> dict[str, int]:
    """Where in its metadata a store's record says its place."""
    names = [n for n, _ in types.parse(kind.metadata).fields] if kind.metadata else []
    return {n: names.index(n) for n in kind.placed}


def place(source: Source | ViewSource) -> tuple[Any, ...]:
    """What two readings of one topic or view have in common when they are one source."""
    if isinstance(source, ViewSource):
        return (source.view,)
    kind = (source.kind, source.follows) if source.apart else ()
    return source.store, source.entity, source.starting_position, *kind, *sorted(source.options.items())


def _time(source: ViewSource) -> str:
    """The event time of a view's row, in Spark SQL."""
    if source.timestamp is None:
        return "`__time`"
    column = quote_spark(source.timestamp)
    told = {c.name: types.parse(c.type).name for c in source.columns}[source.timestamp]
    own = f"timestamp_millis({column})" if told == "BIGINT" else f"cast({column} as timestamp)"
    return f"coalesce({own}, `__time`)"


def ddl(source: Source | ViewSource) -> str:
    """The declared columns as Spark's DDL text."""
    return ", ".join(f"{quote_spark(c.name)} {types.parse(c.type).spark}" for c in source.columns)
