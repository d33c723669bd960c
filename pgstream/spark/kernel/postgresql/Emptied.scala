package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.{LinkedHashMap => JLinked}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, Literal, UnsafeProjection}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming.{MapState, OutputMode, TimeMode, TimerValues}
import org.apache.spark.sql.types._

import Json.Node

/**
 * TRUNCATE of a table whose rows are upserts by key: a delete of every key that is there. Keys are kept in buckets, and
 * each bucket is told of a TRUNCATE; of a batch the last row of a key goes on.
 */
class Emptied(schema: StructType, keys: Seq[String]) extends Changes.Processor {
  private val at = keys.map(schema.fieldIndex)
  @transient private var held: MapState[Array[Byte], Boolean] = _
  @transient private lazy val gone = UnsafeProjection.create(schema.zipWithIndex.map { case (f, i) =>
    if (keys.contains(f.name)) BoundReference(i, f.dataType, nullable = true): Expression else Literal(null, f.dataType)
  })

  override def init(mode: OutputMode, time: TimeMode): Unit =
    held = getHandle.getMapState[Array[Byte], Boolean]("keys", Encoders.BINARY, Encoders.scalaBoolean, Changes.ttl(0))

  override def handleInputRows(bucket: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val told = new JLinked[ByteBuffer, Change]
    def tell(key: Array[Byte], c: Change): Unit = {
      if (c.delete) held.removeKey(key) else held.updateValue(key, true)
      told.put(ByteBuffer.wrap(key), c)
    }
    rows.toArray.sortBy(_.offset).foreach { c =>
      val row = Changes.row(c.row, schema.length)
      if (c.delete && at.forall(row.isNullAt)) held.keys().toArray.foreach(key => tell(key, c.copy(row = key)))
      else {
        val key = Changes.bytes(gone(row))
        tell(key, if (c.delete) c.copy(row = key) else c)
      }
    }
    told.values.asScala.iterator
  }
}

object Emptied {
  /** `keys`: the primary key. Rows come out without the partition that they were read in: tasks are others behind a shuffle. */
  def apply(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val keys = c.strings("keys")
    val schema = Changes.visible(df)
    val buckets = c.get("buckets").asInt
    val key = keys.map(k => col("`" + k.replace("`", "``") + "`"))
    val emptied = key.map(_.isNull).reduce(_ && _)
    val own = pmod(hash(key: _*), lit(buckets))
    val spread = df.withColumn("__bucket", explode(when(emptied, sequence(lit(0), lit(buckets - 1))).otherwise(array(own))))
    val changes = Changes.pack(spread, Seq("__bucket"), schema.fieldNames.toSeq)
    val out = Changes.run(changes, new Emptied(schema, keys), c.str("mode"), Changes.time(0))
    Changes.unpack(out, schema, placed = true).withColumn("__partition", lit(null).cast(IntegerType))
  }
}
