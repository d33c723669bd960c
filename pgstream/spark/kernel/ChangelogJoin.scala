package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.{LinkedHashMap => JLinked}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.LongAccumulator

import Json.Node

/**
 * Changelog with changelog, both as retractions: the difference that a batch makes to the joined rows of a key.
 *
 * `pads`: which sides' rows without a match come out with NULLs (LEFT: the first, FULL: both). Rows with a NULL in the
 * key, which has `width` columns, match nothing.
 */
class ChangelogJoin(pads: Seq[Boolean], width: Int, ttlMs: Long) extends Changes.Processor {
  private type Rows = Map[ByteBuffer, Long]
  @transient private var held: Seq[MapState[Array[Byte], Long]] = _

  override def init(mode: OutputMode, time: TimeMode): Unit =
    held = Seq("left", "right").map(getHandle.getMapState[Array[Byte], Long](_, Encoders.BINARY, Encoders.scalaLong, Changes.ttl(ttlMs)))

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val before = held.map(_.iterator().map { case (r, t) => Changes.wrap(r) -> t }.toMap)
    val nets = Seq.fill(2)(new JLinked[ByteBuffer, Int])
    val times = new java.util.HashMap[ByteBuffer, Long]
    rows.foreach { c =>
      nets(c.side).merge(Changes.wrap(c.row), if (c.delete) -1 else 1, (a, b) => a + b)
      times.merge(Changes.wrap(c.row), c.time, (a, b) => math.max(a, b))
    }
    val after = Seq(0, 1).map(side => applied(side, before(side), nets(side), times))
    val blank = Changes.row(key, width).anyNull
    val (was, is) = (joined(before.head, before(1), blank), joined(after.head, after(1), blank))
    val latest = if (times.isEmpty) 0L else times.values.asScala.max
    val gone = was.iterator.filterNot(p => is.contains(p._1)).map { case (p, _) => change(p, latest, taken = true) }
    gone ++ is.iterator.filterNot(p => was.contains(p._1)).map { case (p, t) => change(p, t, taken = false) }
  }

  private def applied(side: Int, before: Rows, net: JLinked[ByteBuffer, Int], times: java.util.HashMap[ByteBuffer, Long]): Rows =
    net.asScala.foldLeft(before) {
      case (rows, (r, n)) if n > 0 => held(side).updateValue(r.array, times.get(r)); rows + (r -> times.get(r))
      case (rows, (r, n)) if n < 0 => held(side).removeKey(r.array); rows - r
      case (rows, _) => rows
    }

  /** The joined rows of a key and their event times; null where a side has no match. */
  private def joined(left: Rows, right: Rows, blank: Boolean): Map[(ByteBuffer, ByteBuffer), Long] = {
    val matches = if (blank) Nil else for ((l, t) <- left.toSeq; (r, u) <- right) yield (l, r) -> math.max(t, u)
    val lonely = if (pads.head && (blank || right.isEmpty)) left.toSeq.map { case (l, t) => (l, null: ByteBuffer) -> t } else Nil
    val others = if (pads(1) && (blank || left.isEmpty)) right.toSeq.map { case (r, t) => (null: ByteBuffer, r) -> t } else Nil
    (matches ++ lonely ++ others).toMap
  }

  private def change(pair: (ByteBuffer, ByteBuffer), time: Long, taken: Boolean): Change = {
    def bytes(b: ByteBuffer): Array[Byte] = if (b == null) null else b.array
    Change(bytes(pair._2), bytes(pair._1), 0, time, -1, -1L, taken)
  }
}

object ChangelogJoin {
  def apply(left: DataFrame, right: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val (keys, how, ttl) = (c.strings("keys"), c.str("how"), c.get("ttl_ms").asLong)
    def kept(df: DataFrame) = StructType(Changes.visible(df).filterNot(f => keys.contains(f.name)))
    val (l, r) = (kept(left), kept(right))
    val both = Changes.pack(left, keys, l.fieldNames.toSeq).union(Changes.pack(right, keys, r.fieldNames.toSeq, 1))
    val p = new ChangelogJoin(Seq(how != "inner", how == "full"), keys.length, ttl)
    Changes.unpack(Changes.run(both, p, c.str("mode"), Changes.time(ttl)), l, placed = false, r)
  }
}
