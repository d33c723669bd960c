package org.apache.spark.sql.pgstream

import org.apache.spark.sql.{DataFrame, Encoder}
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoders._
import org.apache.spark.sql.streaming._

import Json.Node

/** What is kept of a key: its row, and where the row came from. */
case class Latest(row: Array[Byte], time: Long, place: Int, offset: Long)

object Latest {
  val encoder: Encoder[Latest] = CaseClass.encoder[Latest](
    "row" -> BinaryEncoder, "time" -> PrimitiveLongEncoder, "place" -> PrimitiveIntEncoder, "offset" -> PrimitiveLongEncoder)
}

/**
 * Upserts by key to retractions: the row that a key had is taken back before the new one is added.
 *
 * Rows of one key are taken in the source's order: of a batch only the last by partition and offset counts. Rows without
 * a position are retractions themselves: of those one that is added counts. A delete of a key that is not there, and a row
 * equal to the one before, tell nothing. `upserts`: a row that is replaced is not taken back first.
 */
class Normalize(upserts: Boolean, ttlMs: Long) extends Changes.Processor {
  @transient private var latest: ValueState[Latest] = _

  override def init(mode: OutputMode, time: TimeMode): Unit =
    latest = getHandle.getValueState[Latest]("latest", Latest.encoder, Changes.ttl(ttlMs))

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val last = rows.reduce((a, b) => if (a.later(b) || (b.delete && !b.later(a))) a else b)
    val old = Option(latest.get())
    val taken = old.map(o => Change(key, o.row, 0, math.max(o.time, last.time), o.place, o.offset, delete = true))
    if (last.delete) {
      latest.clear()
      taken.iterator
    } else if (old.exists(o => Changes.same(o.row, last.row))) Iterator.empty
    else {
      latest.update(Latest(last.row, last.time, last.place, last.offset))
      (if (upserts) Iterator.empty else taken.iterator) ++ Iterator.single(last)
    }
  }
}

object Normalize {
  def apply(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val schema = Changes.visible(df)
    val ttl = c.get("ttl_ms").asLong
    val changes = Changes.pack(df, c.strings("key"), schema.fieldNames.toSeq)
    val out = Changes.run(changes, new Normalize(c.get("upserts").asBoolean, ttl), c.str("mode"), Changes.time(ttl))
    Changes.unpack(out, schema, df.columns.contains("__offset"))
  }
}
