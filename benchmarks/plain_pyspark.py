"""The jobs, hand-written in PySpark as a careful user would: what pgstream is measured against.

Started with one JSON argument (``engines.Program``); prints START when it begins to read, and ends when it is killed.
``position`` (earliest, latest) is where it begins. Tables are updated in one transaction with the batch's number,
exactly once; topics are written at least once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import DataStreamWriter

a: dict[str, Any] = json.loads(sys.argv[1])
p = "spark.sql.streaming."
manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
state = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g")
    .config("spark.driver.extraClassPath", ":".join(a["jars"]))
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC")
    .config(p + "stateStore.providerClass", state)
    .config(p + "stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    .config(p + "checkpointFileManagerClass", manager)
    .config("spark.sql.execution.arrow.pyspark.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


def read(topic: str) -> DataFrame:
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", a["kafka"])
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", a["position"])
        .option("maxOffsetsPerTrigger", "500000")
        .load()
    )
    fields = "n BIGINT, ts BIGINT, k1 BIGINT, k2 BIGINT, v BIGINT"
    return raw.select(F.from_json(F.col("value").cast("string"), fields).alias("r")).select("r.*")


def timed(df: DataFrame, time: str) -> DataFrame:
    return df.withColumn(time, F.timestamp_millis("ts")).withWatermark(time, "10 seconds")


def to_topic(df: DataFrame) -> DataStreamWriter:
    return (
        df.select(F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", a["kafka"])
        .option("kafka.linger.ms", "5")
        .option("kafka.batch.size", "131072")
        .option("topic", a["out"])
    )


def to_table(df: DataFrame, key: list[str]) -> DataStreamWriter:
    connection, table, columns = psycopg.connect(a["dsn"]), a["out"], ", ".join(df.columns)
    connection.execute(f"CREATE TEMP TABLE stage (LIKE {table})".encode())
    connection.execute("CREATE TABLE IF NOT EXISTS batches (of text PRIMARY KEY, batch bigint)")
    connection.commit()
    others = ", ".join(f"{c} = excluded.{c}" for c in df.columns if c not in key)
    merge = (
        f"INSERT INTO {table} ({columns}) SELECT {columns} FROM stage "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {others}"
    )

    def upsert(df: DataFrame, batch: int) -> None:
        rows = df.toArrow()
        if rows.num_rows == 0:
            return
        if connection.execute("SELECT batch FROM batches WHERE of = %s", [table]).fetchone() == (batch,):
            connection.rollback()
            return
        out = pa.BufferOutputStream()
        pc.write_csv(rows, out, pc.WriteOptions(include_header=False))
        with connection.cursor() as cursor:
            with cursor.copy(f"COPY stage ({columns}) FROM STDIN (FORMAT csv)".encode()) as copy:
                copy.write(out.getvalue().to_pybytes())
            cursor.execute(merge.encode())
            cursor.execute("TRUNCATE stage")
            cursor.execute(
                "INSERT INTO batches VALUES (%s, %s) ON CONFLICT (of) DO UPDATE SET batch = excluded.batch",
                [table, batch],
            )
        connection.commit()

    return df.writeStream.outputMode("update").foreachBatch(upsert)


def sums(df: DataFrame, *keys: Column) -> DataFrame:
    return df.groupBy(*keys).agg(F.count("*").alias("c"), F.sum("v").alias("s"))


def job(name: str) -> DataStreamWriter:
    events = read(a["topics"][0])
    if name == "J1":
        return to_topic(events.where("v % 2 = 0").select("n", "k2", (F.col("v") * 2).alias("w")))
    if name == "J2":
        windows = sums(timed(events, "t"), F.window("t", "10 seconds").alias("window"), F.col("k1").alias("k"))
        return to_table(windows.select("k", F.unix_seconds("window.start").alias("w"), "c", "s"), ["k", "w"])
    if name == "J3":
        return to_table(sums(events, F.col("k2").alias("k")), ["k"])
    left = timed(events, "ta").select(F.col("n").alias("a"), F.col("k2").alias("k"), "ta")
    right = timed(read(a["topics"][1]), "tb").select(F.col("n").alias("b"), F.col("k2").alias("kb"), "tb")
    within = F.expr("k = kb AND tb BETWEEN ta - INTERVAL 10 SECONDS AND ta + INTERVAL 10 SECONDS")
    return to_topic(left.join(right, within).select("a", "b", "k"))


query = job(a["job"]).trigger(processingTime="0 seconds").option("checkpointLocation", tempfile.mkdtemp())
print("START", flush=True)
query.start().awaitTermination()
