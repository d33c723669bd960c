package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Ascending, BoundReference, Descending, NullsFirst, NullsLast, SortOrder, UnsafeRow}
import org.apache.spark.sql.types.StructType

/** A row that an operator keeps, with its event time and the position of its record. */
final class Kept(val row: Array[Byte], val time: Long, val place: Int, val offset: Long) {
  def this(c: Change) = this(c.row, c.time, c.place, c.offset)

  @transient private var unpacked: UnsafeRow = _
  def read(width: Int): UnsafeRow = {
    if (unpacked == null) unpacked = Changes.row(row, width)
    unpacked
  }
  def size: Int = Kept.Head + row.length
  def write(b: ByteBuffer): Unit = b.putLong(time).putInt(place).putLong(offset).putInt(row.length).put(row)
}

/** Rows of one key as one value of the state, which costs less than a state of many values. */
object Kept {
  private val Head = 24

  def read(b: ByteBuffer): Kept = {
    val (time, place, offset) = (b.getLong(), b.getInt(), b.getLong())
    val row = new Array[Byte](b.getInt())
    b.get(row)
    new Kept(row, time, place, offset)
  }

  def readAll(b: ByteBuffer): ArrayBuffer[Kept] = {
    val out = new ArrayBuffer[Kept]
    while (b.hasRemaining) out += read(b)
    out
  }

  /** By position, and where there is none by the row's bytes: the order in which equals stand is always the same. */
  val byPlace: Ordering[Kept] = (a: Kept, b: Kept) => {
    val p = Integer.compare(a.place, b.place)
    val o = if (p != 0) p else java.lang.Long.compare(a.offset, b.offset)
    if (o != 0) o else java.util.Arrays.compareUnsigned(a.row, b.row)
  }

  val byTime: Ordering[Kept] = (a: Kept, b: Kept) => {
    val t = java.lang.Long.compare(a.time, b.time)
    if (t != 0) t else byPlace.compare(a, b)
  }

  /** By columns of the row, then by position. */
  def by(order: Ordering[InternalRow], width: Int): Ordering[Kept] = (a: Kept, b: Kept) => {
    val o = order.compare(a.read(width), b.read(width))
    if (o != 0) o else byPlace.compare(a, b)
  }

  def sortOrder(schema: StructType, column: String, descending: Boolean, nullsFirst: Boolean): SortOrder = {
    val i = schema.fieldIndex(column)
    SortOrder(BoundReference(i, schema(i).dataType, nullable = true), if (descending) Descending else Ascending,
      if (nullsFirst) NullsFirst else NullsLast, Seq.empty)
  }
}
