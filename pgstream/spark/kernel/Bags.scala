package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.{HashMap => JMap}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.streaming.MapState
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * How often each value stands in a group: what DISTINCT, MIN, MAX and the functions of all values need to take a row back.
 *
 * Changes of a batch are added up in memory first, so that the state is touched once a value.
 */
abstract class Bag(val state: () => MapState[Array[Byte], Long]) {
  private val deltas = new JMap[ByteBuffer, Long]

  protected def value(row: InternalRow, change: Change): Array[Byte]
  /** A value has come into the group, or is gone from it. */
  protected def turned(value: Array[Byte], in: Boolean): Unit
  def result: Any

  def add(row: InternalRow, change: Change): Unit = {
    val v = value(row, change)
    if (v != null) deltas.merge(ByteBuffer.wrap(v), if (change.delete) -1L else 1L, (a, b) => a + b)
  }

  def flush(): Unit = {
    val bag = state()
    deltas.asScala.foreach { case (k, d) =>
      if (d != 0) {
        val v = k.array
        val old = if (bag.containsKey(v)) bag.getValue(v) else 0L
        if (old + d == 0) bag.removeKey(v) else bag.updateValue(v, old + d)
        if (old <= 0 && old + d > 0) turned(v, in = true)
        if (old > 0 && old + d <= 0) turned(v, in = false)
      }
    }
    deltas.clear()
  }

  protected def values: Iterator[Array[Byte]] = state().iterator().filter(_._2 > 0).map(_._1)
}

object Bag {
  /** Columns as the bytes by which values are told apart: 0.0 and -0.0 are equal, as are all NaN. */
  def packing(columns: Seq[(Int, DataType)]): UnsafeProjection =
    UnsafeProjection.create(columns.map { case (i, t) => NormalizeFloatingNumbers.normalize(BoundReference(i, t, nullable = true)) })
}

/** An aggregate of each value once; a row with a NULL argument counts for nothing. */
final class DistinctBag(inner: Accumulator, types: Seq[DataType], s: () => MapState[Array[Byte], Long], at: Seq[Int])
    extends Bag(s) {
  private val pack = Bag.packing(at.zip(types))

  override protected def value(row: InternalRow, change: Change): Array[Byte] =
    if (at.exists(row.isNullAt)) null else Changes.bytes(pack(row))
  override protected def turned(v: Array[Byte], in: Boolean): Unit =
    inner.add(Changes.row(v, types.length), 0, if (in) 1 else -1)
  override def result: Any = inner.result
}

/** MIN and MAX. */
final class ExtremeBag(t: DataType, s: () => MapState[Array[Byte], Long], at: Int, greatest: Boolean) extends Bag(s) {
  private val pack = UnsafeProjection.create(Seq(BoundReference(at, t, nullable = true)))
  private val order = if (greatest) Accumulator.ordering(t) else Accumulator.ordering(t).reverse
  /** The extreme as it is kept with the group; null when there is no value. */
  var best: Array[Byte] = _
  private var lost = false

  private def read(v: Array[Byte]): Any = Changes.row(v, 1).get(0, t)

  override protected def value(row: InternalRow, change: Change): Array[Byte] =
    if (row.isNullAt(at)) null else Changes.bytes(pack(row))
  override protected def turned(v: Array[Byte], in: Boolean): Unit =
    if (in) { if (best == null || order.gt(read(v), read(best))) best = v }
    else if (best != null && order.equiv(read(v), read(best))) lost = true

  override def flush(): Unit = {
    lost = false
    super.flush()
    if (lost) {
      best = null
      values.foreach(v => if (best == null || order.gt(read(v), read(best))) best = v)
    }
  }
  override def result: Any = if (best == null) null else read(best)
}

/**
 * Functions of all values in the order of arrival: LISTAGG, ARRAY_AGG, FIRST_VALUE, LAST_VALUE. With `distinct` each value
 * stands where it came first; `counts`, if any, is the column that says which rows count.
 */
final class OrderedBag(
    function: String, t: DataType, s: () => MapState[Array[Byte], Long], at: Int, counts: Int, distinct: Boolean, separator: UTF8String
) extends Bag(s) {
  private val pack = UnsafeProjection.create(
    Seq(BoundReference(0, IntegerType, nullable = false), BoundReference(1, LongType, nullable = false), BoundReference(2, t, nullable = true)))
  private val skipsNull = function != "array_agg"
  private lazy val order = Accumulator.ordering(t)

  override protected def value(row: InternalRow, c: Change): Array[Byte] =
    if (skipsNull && row.isNullAt(at) || !OrderedBag.counts(row, counts)) null
    else Changes.bytes(pack(InternalRow(c.place, c.offset, if (row.isNullAt(at)) null else row.get(at, t))))
  override protected def turned(v: Array[Byte], in: Boolean): Unit = ()

  override def result: Any = {
    val rows = state().iterator().filter(_._2 > 0).flatMap { case (v, n) => Iterator.fill(n.toInt)(Changes.row(v, 3)) }.toArray
    // Of one place are elements of one row, and rows that have no place.
    val sorted = rows.sortWith { (a, b) =>
      val c = if (a.getInt(0) != b.getInt(0)) Integer.compare(a.getInt(0), b.getInt(0)) else java.lang.Long.compare(a.getLong(1), b.getLong(1))
      if (c != 0) c < 0 else !b.isNullAt(2) && (a.isNullAt(2) || order.lt(a.get(2, t), b.get(2, t)))
    }
    def item(r: UnsafeRow): Any = if (r.isNullAt(2)) null else r.get(2, t)
    function match {
      case _ if sorted.isEmpty => null
      case "array_agg" => new GenericArrayData(if (distinct) OrderedBag.distinct(sorted.map(item), t) else sorted.map(item))
      case "first_value" => item(sorted.head)
      case "last_value" => item(sorted.last)
      case "listagg" =>
        val texts = sorted.map(_.getUTF8String(2)).toIndexedSeq
        UTF8String.concatWs(separator, (if (distinct) texts.distinct else texts): _*)
    }
  }
}

object OrderedBag {
  /** Whether a row counts by its column `at`, -1 where all do. */
  def counts(row: InternalRow, at: Int): Boolean = at < 0 || !row.isNullAt(at) && row.getBoolean(at)

  /** Each value once, where it came first. */
  def distinct(values: Array[Any], t: DataType): Array[Any] = {
    val pack = Bag.packing(Seq(0 -> t))
    val seen = new java.util.HashSet[ByteBuffer]
    values.filter(v => seen.add(ByteBuffer.wrap(Changes.bytes(pack(InternalRow(v))))))
  }
}
