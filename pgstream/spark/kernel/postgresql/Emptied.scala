package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.{LinkedHashMap => JLinked}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, GenericInternalRow, Literal, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming.{MapState, OutputMode, TimeMode, TimerValues}
import org.apache.spark.sql.types._

import Json.Node

/**
 * TRUNCATE of a table whose rows are upserts by key: a delete of every key that is there. Keys are kept in buckets, and
 * each bucket is told of a TRUNCATE; of a batch the last row of a key goes on.
 *
 * Rows that may come without their long values (`Unsent`) are kept whole, and get them from there: all in one bucket, as
 * a change of the key takes them along. `marked`: the rows have that column, behind those of `schema`.
 */
class Emptied(schema: StructType, keys: Seq[String], marked: Boolean, table: String) extends Changes.Processor {
  private val at = keys.map(schema.fieldIndex)
  private val width = schema.length + (if (marked) 1 else 0)
  @transient private var held: MapState[Array[Byte], Boolean] = _
  /** Rows by key, and under no key the one that was removed last. */
  @transient private var rows: MapState[Array[Byte], Array[Byte]] = _
  @transient private lazy val own = UnsafeProjection.create(schema.zipWithIndex.map { case (f, i) =>
    BoundReference(i, f.dataType, nullable = true): Expression
  })
  @transient private lazy val gone = UnsafeProjection.create(schema.zipWithIndex.map { case (f, i) =>
    if (keys.contains(f.name)) BoundReference(i, f.dataType, nullable = true): Expression else Literal(null, f.dataType)
  })

  override def init(mode: OutputMode, time: TimeMode): Unit = {
    held = getHandle.getMapState[Array[Byte], Boolean]("keys", Encoders.BINARY, Encoders.scalaBoolean, Changes.ttl(0))
    if (marked) rows = getHandle.getMapState[Array[Byte], Array[Byte]]("rows", Encoders.BINARY, Encoders.BINARY, Changes.ttl(0))
  }

  override def handleInputRows(bucket: Array[Byte], changes: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val told = new JLinked[ByteBuffer, Change]
    def tell(key: Array[Byte], c: Change): Unit = {
      if (c.delete) held.removeKey(key) else held.updateValue(key, true)
      told.put(ByteBuffer.wrap(key), c)
    }
    changes.toArray.sortBy(_.offset).foreach { c =>
      val row = Changes.row(c.row, width)
      val unsent = if (marked) row.getLong(width - 1) else Unsent.None
      if (c.delete && at.forall(row.isNullAt)) {
        held.keys().toArray.foreach(key => tell(key, c.copy(row = key)))
        if (unsent != Unsent.None) rows.clear()
      } else {
        val key = Changes.bytes(gone(row))
        if (unsent != Unsent.None && c.delete) remove(key)
        tell(key, if (c.delete) c.copy(row = key) else if (marked) c.copy(row = whole(key, row, unsent)) else c)
      }
    }
    told.values.asScala.iterator
  }

  /** What the next change may be moved from; of a row that is not known there is nothing, least of all another's. */
  private def remove(key: Array[Byte]): Unit =
    if (rows.containsKey(key)) {
      rows.updateValue(Emptied.NoKey, rows.getValue(key))
      rows.removeKey(key)
    } else if (rows.containsKey(Emptied.NoKey)) rows.removeKey(Emptied.NoKey)

  /** The row with what it had where nothing was sent. */
  private def whole(key: Array[Byte], row: UnsafeRow, unsent: Long): Array[Byte] = {
    val missing = if (unsent == Unsent.None) 0L else unsent & ~Unsent.Moved
    val full =
      if (missing == 0) Changes.bytes(own(row))
      else {
        val from = if ((unsent & Unsent.Moved) != 0) Emptied.NoKey else key
        if (!rows.containsKey(from)) throw TableText.notSent(schema(java.lang.Long.numberOfTrailingZeros(missing)).name, table)
        val old = Changes.row(rows.getValue(from), schema.length)
        Changes.bytes(own(new GenericInternalRow(schema.indices.map { i =>
          (if ((missing >> i & 1) != 0) old else row).get(i, schema(i).dataType)
        }.toArray[Any])))
      }
    if (unsent != Unsent.None) rows.updateValue(key, full)
    full
  }
}

object Emptied {
  private val NoKey = Array.emptyByteArray

  /** `keys`: the primary key. Rows come out without the partition that they were read in: tasks are others behind a shuffle. */
  def apply(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val keys = c.strings("keys")
    val schema = Changes.visible(df)
    val buckets = c.get("buckets").asInt
    val key = keys.map(k => col("`" + k.replace("`", "``") + "`"))
    val emptied = key.map(_.isNull).reduce(_ && _)
    val marked = df.columns.contains(Unsent.Column)
    val spread = pmod(hash(key: _*), lit(buckets))
    val own = if (marked) when(col(Unsent.Column) === Unsent.None, spread).otherwise(lit(0)) else spread
    val bucketed = df.withColumn("__bucket", explode(when(emptied, sequence(lit(0), lit(buckets - 1))).otherwise(array(own))))
    val changes = Changes.pack(bucketed, Seq("__bucket"), schema.fieldNames.toSeq ++ (if (marked) Seq(Unsent.Column) else Nil))
    val out = Changes.run(changes, new Emptied(schema, keys, marked, c.str("table")), c.str("mode"), Changes.time(0))
    Changes.unpack(out, schema, placed = true).withColumn("__partition", lit(null).cast(IntegerType))
  }
}
