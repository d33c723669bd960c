package org.apache.spark.sql.pgstream

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.execution.streaming.state.pgstream.Sure
import org.apache.spark.sql.streaming._

import Json.Node

/**
 * Rows that are further ahead of the watermark than `ahead` (microseconds) wait until they no longer are.
 *
 * The pairs of an outer join come at once, its rows without a match when the watermark has passed them. While a backlog is
 * read the watermark moves by hours from batch to batch: the pairs of those hours would be written before the first of
 * their rows without a match, which a following query would then take for late.
 */
class Hold(ahead: Long) extends Changes.Processor {
  @transient private var held: ListState[Waiting] = _

  override def init(mode: OutputMode, time: TimeMode): Unit =
    held = getHandle.getListState[Waiting]("held", Waiting.encoder, TTLConfig.NONE)

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val (ready, more) = rows.toArray.partition(_.time <= until(timers))
    if (more.nonEmpty) {
      held.appendList(more.map(c => Waiting(c.time, c.row)))
      wake(more.map(_.time).min)
    }
    ready.sortBy(_.time).iterator
  }

  override def handleExpiredTimer(key: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Change] = {
    val (ready, more) = held.get().toArray.partition(_.time <= until(timers))
    if (more.isEmpty) held.clear()
    else {
      held.put(more)
      wake(more.map(_.time).min)
    }
    ready.sortBy(_.time).iterator.map(w => Change(null, w.row, 0, w.time, -1, -1L, delete = false))
  }

  private def until(timers: TimerValues): Long = timers.getCurrentWatermarkInMs() * 1000 + ahead
  private def wake(time: Long): Unit =
    Sure.timer(there = false)(getHandle.registerTimer(Math.floorDiv(time - ahead + 999, 1000L)))
}

object Hold {
  /** Rows of one `__key` are kept side by side. */
  def apply(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val schema = Changes.visible(df)
    val rows = Changes.pack(df, Seq("__key"), schema.fieldNames.toSeq)
    val out = Changes.run(rows, new Hold(c.get("ahead_ms").asLong * 1000), c.str("mode"), TimeMode.EventTime())
    // One writer, which writes a batch in the order of event time: who reads while it does sees none of them too early.
    Changes.unpack(out, schema, placed = false).drop("__delete").coalesce(1)
  }
}
