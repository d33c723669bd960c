"""Decoding records of ten fields on one core, beside Spark's own from_json and from_avro in the same run.

``python -m benchmarks.formats [RECORDS]``. Ours knows no NULL for what is wrong: it refuses and says where. Spark's
Avro reads one schema without a registry's frame; its jar is fetched for this benchmark only. Spark's Protobuf is in no
repository that we reach: ours stands alone there. What is decoded is compared with what fastavro and Google's library
read of the same bytes. Each figure is the best of
three after two to warm up, from records in memory to nothing, with the reading of the records taken off.
Wanted: at least 200,000 records a second each.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import message_factory
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.avro.functions import from_avro, to_avro

from pgstream.config import load as configured
from pgstream.embedded.jars import fetch
from pgstream.embedded.java import find_java
from pgstream.embedded.maven import Jar, download
from pgstream.formats import avro, protobuf
from pgstream.formats.registry import java
from pgstream.spark import jvm
from pgstream.spark.session import open_session
from pgstream.spark.settings import Settings
from pgstream.types import from_spark

RECORDS = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
SPARK_AVRO = Jar.parse(
    "org.apache.spark:spark-avro_2.13:4.1.1", "6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d"
)
FIELDS = {
    "id": "id", "user_name": "concat('user_', id % 1000)", "page": "concat('/a/page/', id % 77, '.html')",
    "price": "cast(id % 9999 as decimal(9,2)) / 7", "amount": "cast(id % 100 as int)", "ratio": "id / 3",
    "ok": "id % 2 = 0", "at": "timestamp_millis(1700000000000 + id)", "note": "if(id % 5 = 0, null, 'some words here')",
    "total": "id * 1000",
}  # fmt: skip

MESSAGE = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Row { int64 id = 1; string user_name = 2; string page = 3; double price = 4; int32 amount = 5; double ratio = 6;
  bool ok = 7; google.protobuf.Timestamp at = 8; optional string note = 9; int64 total = 10; }"""
COMPARED = 5000


def spark(folder: Path) -> tuple[SparkSession, Any]:
    """A session with one core and Spark's Avro."""
    c = configured({}, os.environ)
    (avro_jar,) = download(find_java(c), [SPARK_AVRO], folder, c.jars_mirror, print)
    found = hashlib.sha256(avro_jar.file.read_bytes()).hexdigest()
    if found != SPARK_AVRO.sha256:
        raise SystemExit(f"{SPARK_AVRO.coordinates} has SHA-256 {found}")
    jars = [*fetch(c), avro_jar.file]
    settings = Settings(
        str(find_java(c)), [str(j) for j in jars], master="local[1]", memory_mb=3000, cache_dir=str(c.cache)
    )
    process = jvm.launch(settings, folder, ())
    return open_session(settings, folder), process


def registry(schema: str) -> str:
    """A registry of one schema, number 1; its URL."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"schema": schema}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def kept(df: DataFrame) -> DataFrame:
    """In memory, so that neither making nor reading the records is measured with them."""
    df = df.coalesce(1).persist(StorageLevel.MEMORY_ONLY)
    df.count()
    return df


def best(df: DataFrame) -> float:
    """Seconds, the best of three."""
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        df.write.format("noop").mode("overwrite").save()
        took.append(time.perf_counter() - begin)
    return min(took[2:])


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="pgstream-formats-"))
    session, process = spark(folder)
    try:
        measure(session)
    finally:
        session.stop()
        with process:
            process.kill()


def measure(session: SparkSession) -> None:
    rows = session.range(RECORDS).selectExpr(*(f"{sql} AS {name}" for name, sql in FIELDS.items()))
    columns = [(f.name, from_spark(f.dataType.simpleString())) for f in rows.schema.fields]
    schema = avro.schema_of(columns, "row")
    written_by = fastavro.parse_schema(json.loads(schema))
    ddl = ", ".join(f"`{n}` {t.spark}" for n, t in columns)
    every = fn.struct(*FIELDS)
    times = {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSX"}
    raw = {
        "JSON": kept(rows.select(fn.to_json(every, times).cast("binary").alias("value"))),
        "AVRO": kept(rows.select(fn.concat(fn.unhex(fn.lit("0000000001")), to_avro(every, schema)).alias("value"))),
    }
    access = java("r", {"uris": registry(schema)})
    theirs: dict[str, Callable[[DataFrame], DataFrame]] = {
        "JSON": lambda df: df.select(fn.from_json(df.value.cast("string"), ddl, times).alias("r")),
        "AVRO": lambda df: df.select(from_avro(fn.expr("substring(value, 6)"), schema).alias("r")),
    }
    kernel: Any = session._jvm.org.apache.spark.sql.pgstream  # type: ignore[union-attr]
    files = base64.b64decode(kernel.ProtobufText.compiled(json.dumps({"text": MESSAGE, "refers": {}})))
    foreign = message_factory.GetMessageClass(protobuf.message(files, "Row"))
    for name, df in raw.items():
        side = {"format": name.lower()} | ({"registry": access} if name == "AVRO" else {})
        ours = decoded(df, ddl, side)
        assert ours.where("r IS NULL OR r.id IS NULL").count() == 0 == theirs[name](df).where("r.id IS NULL").count()
        idle = best(df)
        mine, spark_s = (best(d.select("r.*")) - idle for d in (ours, theirs[name](df)))
        if name == "AVRO":
            compare(ours, df, lambda b: unpacked(b, written_by))
        show(name, mine, spark_s)
    packed = kept(session.createDataFrame(messages(foreign), "value binary"))
    side = {"format": "protobuf", "descriptors": base64.b64encode(files).decode(), "message": "Row"}
    ours = decoded(packed, re.sub(r"decimal\(.*?\)", "double", ddl), side)
    compare(ours, packed, lambda b: fields(foreign.FromString(b)))
    show("PROTOBUF", best(ours.select("r.*")) - best(packed), None)


def messages(foreign: Any) -> Iterator[tuple[bytes]]:
    """The same rows, by Google's library."""
    for i in range(RECORDS):
        m = foreign(id=i, user_name=f"user_{i % 1000}", page=f"/a/page/{i % 77}.html", price=i % 9999 / 7)
        m.amount, m.ratio, m.ok, m.total = i % 100, i / 3, i % 2 == 0, i * 1000
        m.at.FromMilliseconds(1700000000000 + i)
        if i % 5:
            m.note = "some words here"
        yield (m.SerializeToString(),)


def fields(m: Any) -> list[Any]:
    """A message as a row is collected."""
    at = m.at.ToDatetime()
    note = m.note if m.HasField("note") else None
    return [m.id, m.user_name, m.page, m.price, m.amount, m.ratio, m.ok, at, note, m.total]


def unpacked(value: bytes, schema: Any) -> list[Any]:
    row: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema)
    return [v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for v in row.values()]


def compare(ours: DataFrame, raw: DataFrame, theirs: Callable[[bytes], list[Any]]) -> None:
    """The first rows against the foreign decoder's."""
    rows = ours.select("r.*").drop("__time").limit(COMPARED).collect()
    for row, (value,) in zip(rows, raw.limit(COMPARED).collect(), strict=True):
        mine = [v.astimezone(dt.UTC).replace(tzinfo=None) if isinstance(v, dt.datetime) else v for v in row]
        if mine != theirs(bytes(value)):
            raise SystemExit(f"not the same: {mine} and {theirs(bytes(value))}")


def decoded(df: DataFrame, ddl: str, side: dict[str, str]) -> DataFrame:
    """The kernel's rows of values, as column ``r``."""
    nothing = fn.lit(None).cast("binary")
    whole = df.select(
        nothing.alias("key"),
        "value",
        fn.current_timestamp().alias("__time"),
        fn.lit(0).alias("__partition"),
        fn.lit(0).cast("bigint").alias("__offset"),
    )
    config = {"columns": ddl, "kind": "stream", "topic": "t", "timestamp": None, "watermark": False, "value": side,
              "on_bad_record": "terminate", "primary_key": [], "key": None, "key_type": None, "limits": {}}  # fmt: skip
    kernel: Any = df.sparkSession._jvm.org.apache.spark.sql.pgstream.Kernel  # type: ignore[union-attr]
    bad = kernel.counter(whole._jdf, "bad")
    return DataFrame(kernel.decode(whole._jdf, json.dumps(config), bad), df.sparkSession)


def show(what: str, ours: float, theirs: float | None) -> None:
    a, b = RECORDS / ours / 1000, RECORDS / theirs / 1000 if theirs else 0.0
    print(f"{what:14} {a:6.0f}k records/s" + (f"   Spark's own {b:6.0f}k   {a / b:5.2f}" if b else ""), flush=True)


if __name__ == "__main__":
    main()
