package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.{LinkedHashMap => JLinked}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types._

/** What a task made of its rows: COPY text for the driver, or the tag under which it staged them itself. */
case class TaskRows(copy: Array[Byte], rows: Long, deletes: Long, nullKeyDeletes: Boolean, staged: Boolean, attempt: Long)

/** The layout of a view's rows as COPY text: the view's columns, then (in staging) the hidden ones. */
case class ViewLayout(schema: StructType, key: Seq[String], mode: String, repeats: Boolean = false) {
  val upsert: Boolean = mode == "upsert"
  /** Whether rows may be deleted, so that the hidden columns are needed. */
  val changes: Boolean = mode != "append"
  val visible: Array[Int] = schema.indices.filterNot(i => PgText.Hidden(schema(i).name)).toArray
  val keyAt: Array[Int] = key.map(schema.fieldIndex).toArray
  val deleteAt: Int = schema.fieldNames.indexOf("__delete")
  val timeAt: Int = schema.fieldNames.indexOf("__time")
  val offsetAt: Int = schema.fieldNames.indexOf("__offset")
  val names: Seq[String] = visible.toSeq.map(i => schema(i).name)
  /** One row a key in a batch: the output of an aggregate. Rows that still have a source position may repeat keys, and so may rows that only come. */
  val unique: Boolean = offsetAt < 0 && !repeats

  def deleted(row: InternalRow): Boolean = deleteAt >= 0 && !row.isNullAt(deleteAt) && row.getBoolean(deleteAt)
}

/** Renders rows; in upsert mode keeps the last row per key, which within a task is that of the greatest offset. */
class ViewRows(layout: ViewLayout) {
  private val text = new PgText(copy = true)
  private val types = layout.schema.fields.map(_.dataType)
  private val line = new Bytes(512)
  private val keyBytes = new Bytes(64)
  private val latest = if (layout.upsert && !layout.unique) new JLinked[ByteBuffer, Array[Byte]] else null
  private val plain = new Bytes(64 * 1024)
  private var held = 0L
  var rows = 0L
  var deletes = 0L
  var nullKeyDeletes = false

  def size: Long = if (latest == null) plain.size.toLong else held

  private def field(out: Bytes, row: InternalRow, i: Int): Unit =
    if (i < 0 || row.isNullAt(i)) out.ascii("\\N") else text.write(out, row, i, types(i))

  def add(row: InternalRow): Unit = {
    val out = if (latest == null) plain else { line.clear(); line }
    val at = layout.visible
    var n = 0
    while (n < at.length) {
      if (n > 0) out.put('\t')
      field(out, row, at(n))
      n += 1
    }
    if (layout.changes) hidden(out, row)
    out.put('\n')
    rows += 1
    if (latest != null) keep(row)
  }

  private def hidden(out: Bytes, row: InternalRow): Unit = {
    val deleted = layout.deleted(row)
    out.ascii(if (deleted) "\tt\t" else "\tf\t")
    field(out, row, layout.timeAt)
    out.put('\t')
    field(out, row, layout.offsetAt)
    if (deleted) {
      deletes += 1
      if (layout.keyAt.exists(row.isNullAt)) nullKeyDeletes = true
    }
  }

  private def keep(row: InternalRow): Unit = {
    keyBytes.clear()
    layout.keyAt.foreach { i => field(keyBytes, row, i); keyBytes.put('\t') }
    val bytes = line.toArray
    held += bytes.length
    val old = latest.put(ByteBuffer.wrap(keyBytes.toArray), bytes)
    if (old != null) held -= old.length
  }

  /** Give the text away and begin again. */
  def take(out: java.io.OutputStream): Unit = {
    if (latest == null) { plain.writeTo(out); plain.clear() }
    else { latest.values.forEach(b => out.write(b)); latest.clear(); held = 0 }
  }
}
