package org.apache.spark.sql.pgstream

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.streaming._

import Json.Node

/**
 * Stream with stream: rows of one key whose event times are at most `within` (microseconds) apart. Pairs come at once, with
 * the later of both times; rows of a side that `pads` and that meet none come when the watermark has left no row for them.
 */
class IntervalJoin(pads: Seq[Boolean], within: Long, key: Int, condition: Option[Expression], widths: Seq[Int])
    extends Pairing(pads, within, condition, widths, IntervalJoin.Most) {
  override protected def age(r: Near): Long = r.time
  override protected def waits(r: Near): Boolean = !r.met

  override def handleInputRows(k: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val come = rows.map(c => new Near(c.side, c.time, c.row, met = !pads(c.side))).toArray
    // A NULL equals nothing.
    if (Changes.row(k, key).anyNull) come.iterator.filterNot(_.met).map(alone(_))
    else {
      java.util.Arrays.sort(come, Near.byTime)
      val held = read()
      val kept = new Kept(held)
      val pairs = kept.settle(meetings(kept, come))
      keep(held, come)
      pairs
    }
  }

  override def handleExpiredTimer(k: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Change] =
    forget(timers.getCurrentWatermarkInMs() * 1000).sortBy(_.time).iterator.map(alone(_))

  /** The pairs that rows make which have come, in the order of time, with those that are kept and with each other. */
  private def meetings(kept: Kept, come: Array[Near]): Iterator[Change] = {
    val sides = Seq(0, 1).map { side =>
      val others = come.filter(_.side != side)
      if (others.isEmpty) Array.empty[Near]
      else {
        val (from, to) = (others.head.time - within, others.last.time + within)
        // Of two that are both new the left one meets the right one.
        val fresh = if (side == 1) come.iterator.filter(_.side == 1) else Nil
        val rows = (kept.rows(side)(c => c.first <= to && c.last >= from) ++ fresh).toArray
        java.util.Arrays.sort(rows, Near.byTime)
        rows
      }
    }
    come.iterator.flatMap(r => near(r, sides(1 - r.side)))
  }

  private def near(r: Near, others: Array[Near]): Iterator[Change] = {
    var (low, high) = (0, others.length)
    while (low < high) {
      val middle = (low + high) >>> 1
      if (others(middle).time < r.time - within) low = middle + 1 else high = middle
    }
    Iterator.range(low, others.length).map(others(_)).takeWhile(_.time <= r.time + within).flatMap { o =>
      val (left, right) = if (r.side == 0) (r, o) else (o, r)
      if (meet(left, right)) Some(pair(left, right)) else None
    }
  }
}

object IntervalJoin {
  /** Bytes of rows of a key that are written anew with each that comes. */
  private val Most = 32 * 1024

  /** As `Pairing.apply`. */
  def apply(left: DataFrame, right: DataFrame, condition: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    Pairing(left, right, condition, c, TimeMode.EventTime(), c.get("behind_ms").asLong)(
      new IntervalJoin(_, c.get("within_ms").asLong * 1000, _, _, _)).drop("__delete")
  }
}
