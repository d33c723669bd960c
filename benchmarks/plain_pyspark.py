"""The windowed view, hand-written in PySpark as a careful user would: the thing pgstream is measured against.

``python benchmarks/plain_pyspark.py '{"kafka": …, "topic": …, "dsn": …, "jars": […], "position": …}'`` prints START
when its stream runs, and ends when it is killed.
"""

from __future__ import annotations

import json
import sys
import tempfile

import psycopg
import pyarrow as pa
import pyarrow.csv as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

a = json.loads(sys.argv[1])
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
connection = psycopg.connect(a["dsn"])


def upsert(df: DataFrame, batch: int) -> None:
    table = df.toArrow()
    if table.num_rows == 0:
        return
    out = pa.BufferOutputStream()
    pc.write_csv(table, out, pc.WriteOptions(include_header=False))
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE IF NOT EXISTS stage (w timestamptz, k bigint, c bigint, s bigint)")
        cursor.execute("TRUNCATE stage")
        with cursor.copy("COPY stage FROM STDIN (FORMAT csv)") as copy:
            copy.write(out.getvalue().to_pybytes())
        cursor.execute(
            "INSERT INTO plain SELECT * FROM stage ON CONFLICT (w, k) DO UPDATE SET c = excluded.c, s = excluded.s"
        )
    connection.commit()


raw = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", a["kafka"])
    .option("kafka.isolation.level", "read_committed")
    .option("subscribe", a["topic"])
    .option("startingOffsets", a["position"])
    .option("maxOffsetsPerTrigger", "500000")
    .load()
)
rows = raw.select(
    F.from_json(F.col("value").cast("string"), "n BIGINT, ts BIGINT, k1 BIGINT, k2 BIGINT, v BIGINT").alias("r")
)
windows = (
    rows.select("r.*")
    .withColumn("t", F.timestamp_millis("ts"))
    .withWatermark("t", "10 seconds")
    .groupBy(F.window("t", "10 seconds"), "k1")
    .agg(F.count("*").alias("c"), F.sum("v").alias("s"))
    .select(F.col("window.start").alias("w"), F.col("k1").alias("k"), "c", "s")
)
query = (
    windows.writeStream.outputMode("update")
    .foreachBatch(upsert)
    .trigger(processingTime="100 milliseconds")
    .option("checkpointLocation", tempfile.mkdtemp())
    .start()
)
print("START", flush=True)
query.awaitTermination()
