package org.apache.spark.sql.pgstream

import java.io.{DataInput, DataOutput}

import scala.collection.mutable.ArrayDeque

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * One aggregate over a frame that rows enter at the end and leave at the beginning. `frame` holds the rows that are in it;
 * it is empty where a frame has no beginning, and what is needed of the rows is then written and read.
 */
abstract class FrameCall {
  def add(row: UnsafeRow): Unit
  def remove(row: UnsafeRow, frame: ArrayDeque[Kept]): Unit
  def result(frame: ArrayDeque[Kept]): Any
  def reset(): Unit
  def write(out: DataOutput): Unit
  def read(in: DataInput): Unit
}

/** COUNT, SUM, AVG and the variances: rows are added and taken away. */
private final class Summed(inner: Accumulator, at: Int) extends FrameCall {
  override def add(row: UnsafeRow): Unit = inner.add(row, at, 1)
  override def remove(row: UnsafeRow, frame: ArrayDeque[Kept]): Unit = inner.add(row, at, -1)
  override def result(frame: ArrayDeque[Kept]): Any = inner.result
  override def reset(): Unit = inner.reset()
  override def write(out: DataOutput): Unit = inner.write(out)
  override def read(in: DataInput): Unit = inner.read(in)
}

/** MIN, MAX, FIRST_VALUE, LAST_VALUE: one of the values, as the bytes of a row; `better` says when another takes its place. */
private final class Picked(t: DataType, at: Int, width: Int, better: (Any, Any) => Boolean) extends FrameCall {
  private val pack = UnsafeProjection.create(Seq(BoundReference(at, t, nullable = true)))
  private var best: Array[Byte] = _
  private def value(b: Array[Byte]): Any = Changes.row(b, 1).get(0, t)

  override def add(row: UnsafeRow): Unit =
    if (!row.isNullAt(at) && (best == null || better(row.get(at, t), value(best)))) best = Changes.bytes(pack(row))
  override def remove(row: UnsafeRow, frame: ArrayDeque[Kept]): Unit =
    if (!row.isNullAt(at) && Changes.same(Changes.bytes(pack(row)), best)) {
      best = null
      frame.foreach(r => add(r.read(width)))
    }
  override def result(frame: ArrayDeque[Kept]): Any = if (best == null) null else value(best)
  override def reset(): Unit = best = null
  override def write(out: DataOutput): Unit =
    if (best == null) out.writeInt(-1) else { out.writeInt(best.length); out.write(best) }
  override def read(in: DataInput): Unit = {
    val n = in.readInt()
    best = if (n < 0) null else { val b = new Array[Byte](n); in.readFully(b); b }
  }
}

/** What needs every value of the frame: distinct ones, LISTAGG, ARRAY_AGG. The frame has a beginning. */
private final class Listed(of: Iterator[UnsafeRow] => Any, width: Int) extends FrameCall {
  override def add(row: UnsafeRow): Unit = ()
  override def remove(row: UnsafeRow, frame: ArrayDeque[Kept]): Unit = ()
  override def result(frame: ArrayDeque[Kept]): Any = of(frame.iterator.map(_.read(width)))
  override def reset(): Unit = ()
  override def write(out: DataOutput): Unit = ()
  override def read(in: DataInput): Unit = ()
}

/** ROW_NUMBER, RANK, DENSE_RANK of rows that come in their order: rows of one value of the argument stand together. */
private final class Numbered(function: String, at: Int) extends FrameCall {
  private var (rows, rank, dense, last) = (0L, 0L, 0L, 0L)
  override def add(row: UnsafeRow): Unit = {
    val value = row.getLong(at)
    rows += 1
    if (rows == 1 || value != last) { rank = rows; dense += 1 }
    last = value
  }
  override def remove(row: UnsafeRow, frame: ArrayDeque[Kept]): Unit = throw new IllegalStateException("a rank has no frame")
  override def result(frame: ArrayDeque[Kept]): Any =
    function match { case "row_number" => rows; case "rank" => rank; case "dense_rank" => dense }
  override def reset(): Unit = { rows = 0; rank = 0; dense = 0; last = 0 }
  override def write(out: DataOutput): Unit = Seq(rows, rank, dense, last).foreach(out.writeLong)
  override def read(in: DataInput): Unit = { rows = in.readLong(); rank = in.readLong(); dense = in.readLong(); last = in.readLong() }
}

/** LAG and LEAD: the value of a row of the frame, or what the second argument is for the last one. */
private final class Neighbour(t: DataType, at: Seq[Int], width: Int, of: ArrayDeque[Kept] => Option[Kept]) extends FrameCall {
  private def value(r: Kept, i: Int): Any = { val row = r.read(width); if (row.isNullAt(i)) null else row.get(i, t) }
  override def add(row: UnsafeRow): Unit = ()
  override def remove(row: UnsafeRow, frame: ArrayDeque[Kept]): Unit = ()
  override def result(frame: ArrayDeque[Kept]): Any =
    of(frame).map(value(_, at.head)).getOrElse(if (at.length > 1) value(frame.last, at(1)) else null)
  override def reset(): Unit = ()
  override def write(out: DataOutput): Unit = ()
  override def read(in: DataInput): Unit = ()
}

object FrameCall {
  def apply(c: Call, schema: StructType, bounded: Boolean): FrameCall = {
    val (at, width) = (c.at.head, schema.length)
    val t = schema(at).dataType
    val order = if (c.function == "min" || c.function == "max") Accumulator.ordering(t) else null
    c.function match {
      case "min" => new Picked(t, at, width, order.lt)
      case "max" => new Picked(t, at, width, order.gt)
      case "first_value" => new Picked(t, at, width, (_, _) => false)
      case "last_value" => new Picked(t, at, width, (_, _) => true)
      case "row_number" | "rank" | "dense_rank" => new Numbered(c.function, at)
      case "lag" => new Neighbour(t, c.at, width, f => f.lift(f.length - 1 - c.offset))
      case "lead" => new Neighbour(t, c.at, width, f => f.lift(c.offset))
      case "listagg" | "array_agg" => new Listed(all(c, t, _), width)
      case f if c.distinct => new Listed(distinct(c, schema, Accumulator.of(f, t), _), width)
      case f => new Summed(Accumulator.of(f, t), at)
    }
  }

  private def distinct(c: Call, schema: StructType, inner: Accumulator, rows: Iterator[UnsafeRow]): Any = {
    val pack = Bag.packing(c.at.map(i => i -> schema(i).dataType))
    inner.reset()
    rows.filterNot(r => c.at.exists(r.isNullAt)).map(r => Changes.wrap(Changes.bytes(pack(r)))).toSet
      .foreach((b: java.nio.ByteBuffer) => inner.add(Changes.row(b.array, c.at.length), 0, 1))
    inner.result
  }

  private def all(c: Call, t: DataType, rows: Iterator[UnsafeRow]): Any = {
    val at = c.at.head
    if (c.function == "array_agg") {
      val items = rows.filter(OrderedBag.counts(_, c.counts)).map(r => if (r.isNullAt(at)) null else r.get(at, t)).toArray[Any]
      if (items.isEmpty) null else new GenericArrayData(if (c.distinct) OrderedBag.distinct(items, t) else items)
    } else {
      val texts = rows.filterNot(_.isNullAt(at)).map(_.getUTF8String(at)).toIndexedSeq
      if (texts.isEmpty) null
      else UTF8String.concatWs(UTF8String.fromString(c.separator), (if (c.distinct) texts.distinct else texts): _*)
    }
  }
}
