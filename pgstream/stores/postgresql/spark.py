"""PostgreSQL in the worker: the changes of a table as a streaming DataFrame of raw records, a table as a sink.

Owns: what the kernel's ``TableSource`` is told. Must not know: formats, SQL, the checkpoint. The only file of this
store that imports pyspark. Start reading at ``TableChanges``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pgstream import types
from pgstream.stores.postgresql.client import OWN_NAMES, jdbc
from pgstream.stores.postgresql.columns import SOURCES, quote_pg
from pgstream.stores.postgresql.values import database, own_prefix, several, split

_PROVIDER = "org.apache.spark.sql.pgstream.TableSourceProvider"
_RAW = "key binary, value binary, __time timestamp, __partition int, __offset bigint, __unsent bigint"
CATCH_UP_RECORDS = "100000"
"""Of a batch: the driver holds the changes of some batches, until they are written."""

WARN_MB = "1024"


class TableChanges:
    """A PostgreSQL store seen from Spark."""

    def read(self, spark: SparkSession, source: Any, access: Any, query: str) -> DataFrame:
        """The rows that a table has, then its changes by commit, as records (``TableSource.scala``)."""
        own = database(access.options["uris"])
        slot = source.options.get("postgresql.slot.name") or own_slot(source, query)
        declared = {c.name: types.parse(c.type) for c in source.columns}
        columns, row = declared, declared.get("after", declared.get("before"))
        if source.kind == "stream":
            columns = dict(row.fields) if row is not None else {}
        config = {
            "store": source.store, "kind": source.kind, "database": own, "slot": slot, "entity": source.entity,
            "tables": [".".join(split(t, own)) for t in several(source.entity)],
            "sources": [n for n in SOURCES if n in declared],
            "bytes": row is not None and row.spark == "binary",
            "publication": source.options.get("postgresql.publication.name", slot),
            "snapshot": source.starting_position == "earliest",
            "most": int(source.options.get("source.max.records.per.trigger", CATCH_UP_RECORDS)),
            "warn_mb": int(source.options.get("postgresql.slot.warning.mb", WARN_MB)),
            "keys": source.primary_key,
            "fills": source.follows,
            "columns": list(columns),
            "nested": [n for n, t in columns.items() if not t.is_scalar],
        }  # fmt: skip
        reader = spark.readStream.format(_PROVIDER).schema(_RAW).option("config", json.dumps(config))
        return reader.option("secret", json.dumps(jdbc(access.options) | OWN_NAMES)).load()

    def write(self, sink: Any, access: Any) -> dict[str, Any]:
        """A table, by the ledger in its own database (``TableSink.scala``)."""
        path = split(sink.entity, database(access.options["uris"]))
        return {
            "type": "org.apache.spark.sql.pgstream.TableSink",
            **_reached(jdbc(access.options)),  # its triggers find what they find for everybody
            "table": ".".join(map(quote_pg, path)),
            "store": access.name,
        }

    def ask(self, access: Any) -> dict[str, Any]:
        """See ``stores.spec.AskedInSpark``."""
        return _reached(jdbc(access.options) | OWN_NAMES)

    def forget(self, spark: SparkSession, source: Any, access: Any, checkpoint: str) -> None:
        """Drop the slot and the publication that were made for a query's source."""
        jvm: Any = spark._jvm
        tables = jvm.org.apache.spark.sql.pgstream.TableSource
        tables.forget(checkpoint, json.dumps(jdbc(access.options) | OWN_NAMES), source.entity)


def _reached(settings: Mapping[str, str]) -> dict[str, Any]:
    own = ("url", "user", "password")
    return {n: settings[n] for n in own} | {"properties": {n: v for n, v in settings.items() if n not in own}}


def own_slot(source: Any, query: str) -> str:
    """The name of a slot that is a query's own: its id, and which of its sources this is."""
    which = hashlib.sha256(f"{source.store}/{source.entity}/{source.kind}".encode()).hexdigest()[:6]
    return own_prefix(query) + which
