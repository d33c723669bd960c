package org.apache.spark.sql.pgstream

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.{DataFrame, Encoder}
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoders._
import org.apache.spark.sql.execution.streaming.state.pgstream.Sure
import org.apache.spark.sql.streaming._

import Json.Node

/** A row of the changelog from its event time on, until the next; `delete`: from then on there is none. */
case class Version(time: Long, row: Array[Byte], place: Int, offset: Long, delete: Boolean) {
  def before(o: Version): Boolean =
    if (time != o.time) time < o.time else if (place != o.place) place < o.place else offset < o.offset
}

object Version {
  val encoder: Encoder[Version] = CaseClass.encoder[Version](
    "time" -> PrimitiveLongEncoder, "row" -> BinaryEncoder, "place" -> PrimitiveIntEncoder, "offset" -> PrimitiveLongEncoder, "delete" -> PrimitiveBooleanEncoder)
}

/** A row of the stream that waits until no change up to its event time can come any more. */
case class Waiting(time: Long, row: Array[Byte])

object Waiting {
  val encoder: Encoder[Waiting] = CaseClass.encoder[Waiting]("time" -> PrimitiveLongEncoder, "row" -> BinaryEncoder)
}

/**
 * Stream (side 0) with changelog (side 1): each row of the stream meets the version that was valid at its event time.
 *
 * A row waits until the watermark, which is that of the slowest source, has reached its time. Of the versions up to the
 * watermark only the newest is kept, a delete too: late changes are taken, and one that is older must not bring the row
 * back. With a time to live (`ttl`, microseconds) it is kept no longer than that in event time.
 */
class TemporalJoin(left: Boolean, ttl: Long) extends Changes.Processor {
  @transient private var versions: ListState[Version] = _
  @transient private var waiting: ListState[Waiting] = _

  override def init(mode: OutputMode, time: TimeMode): Unit = {
    versions = getHandle.getListState[Version]("versions", Version.encoder, TTLConfig.NONE)
    waiting = getHandle.getListState[Waiting]("waiting", Waiting.encoder, TTLConfig.NONE)
  }

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val watermark = timers.getCurrentWatermarkInMs() * 1000
    val fresh = new ArrayBuffer[Waiting]
    val changes = new ArrayBuffer[Version]
    rows.foreach { c =>
      if (c.side == 1) changes += Version(c.time, c.row, c.place, c.offset, c.delete)
      else fresh += Waiting(c.time, c.row)
    }
    settle(watermark, fresh, changes, None)
  }

  override def handleExpiredTimer(key: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Change] =
    settle(timers.getCurrentWatermarkInMs() * 1000, Nil, Nil, Some(expired.getExpiryTimeInMs()))

  /** Release what the watermark has reached, in event-time order; keep the rest. `fired`: the timer that has woken us. */
  private def settle(watermark: Long, fresh: Iterable[Waiting], changes: Iterable[Version], fired: Option[Long]): Iterator[Change] = {
    val held = waiting.get().toArray
    val before = versions.get().toArray
    val known = (before ++ changes).sortWith(_.before(_))
    val (ready, more) = (held ++ fresh).partition(_.time <= watermark)
    val out = ready.sortBy(_.time).map(w => w -> at(known, w.time)).collect {
      case (w, Some(v)) => Change(v.row, w.row, 0, w.time, -1, -1L, delete = false)
      case (w, None) if left => Change(null, w.row, 0, w.time, -1, -1L, delete = false)
    }
    val valid = prune(known, watermark, changes.nonEmpty)
    if (ready.nonEmpty || fresh.nonEmpty) keep(held, more)
    wake(alarm(held, before).filterNot(fired.contains), alarm(more, valid))
    out.iterator
  }

  private def at(known: Array[Version], time: Long): Option[Version] =
    known.reverseIterator.find(_.time <= time).filterNot(v => v.delete || over(v, time))

  private def over(v: Version, time: Long): Boolean = ttl > 0 && time - v.time > ttl

  private def keep(held: Array[Waiting], rows: Array[Waiting]): Unit =
    if (rows.nonEmpty) waiting.put(rows) else if (held.nonEmpty) waiting.clear()

  /**
   * One timer a key: for the earliest row that waits, with a time to live else to forget the last version. The one that has
   * fired Spark removes by itself.
   */
  private def alarm(rows: Array[Waiting], valid: Array[Version]): Option[Long] =
    if (rows.nonEmpty) Some(Math.floorDiv(rows.map(_.time).min + 999, 1000L))
    else if (ttl > 0) valid.lastOption.map(v => Math.floorDiv(v.time + ttl, 1000L) + 1)
    else None

  private def wake(set: Option[Long], next: Option[Long]): Unit =
    if (set != next) {
      set.foreach(t => Sure.timer(there = true)(getHandle.deleteTimer(t)))
      next.foreach(t => Sure.timer(there = false)(getHandle.registerTimer(t)))
    }

  private def prune(known: Array[Version], watermark: Long, changed: Boolean): Array[Version] = {
    val past = known.lastIndexWhere(_.time <= watermark)
    val from = if (past < 0) 0 else if (over(known(past), watermark)) past + 1 else past
    val valid = known.drop(from)
    if (from > 0 || changed) { if (valid.isEmpty) versions.clear() else versions.put(valid) }
    valid
  }
}

object TemporalJoin {
  /** Both inputs have columns of unlike names; `key_0` … are the names of the key's columns on either side. */
  def apply(left: DataFrame, right: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val keys = c.strings("keys")
    def kept(df: DataFrame) = org.apache.spark.sql.types.StructType(Changes.visible(df).filterNot(f => keys.contains(f.name)))
    val (l, r) = (kept(left), kept(right))
    val both = Changes.pack(left, keys, l.fieldNames.toSeq).union(Changes.pack(right, keys, r.fieldNames.toSeq, 1))
    val p = new TemporalJoin(c.str("how") == "left", c.get("ttl_ms").asLong * 1000)
    val out = Changes.run(both, p, c.str("mode"), TimeMode.EventTime())
    Changes.unpack(out, l, placed = false, r).drop("__delete")
  }
}
