package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.{LinkedHashMap => JLinked}

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.execution.streaming.state.pgstream.Sure
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.LongAccumulator

import Json.Node

/** What a batch does to one row: how often it is added more than taken back, and its latest time. */
private final class Net(val row: Array[Byte]) {
  var count = 0
  var time = Long.MinValue
}

/**
 * The rows of a key on one side: those that a batch takes (`gone`), adds (`come`) and leaves (`stay`, where all are read).
 * `expires`: what is not found may still be there, as far as Spark counts.
 */
private final class Side(held: MapState[Array[Byte], Long], nets: JLinked[ByteBuffer, Net], all: Boolean, expires: Boolean) {
  val gone, come, stay = new ArrayBuffer[(Array[Byte], Long)]

  private val known = new JLinked[ByteBuffer, Long]
  if (all) held.iterator().foreach { case (r, t) => known.put(Changes.wrap(r), t) }
  nets.forEach { (id, n) =>
    val there = if (all) known.containsKey(id) else held.containsKey(n.row)
    if (n.count > 0) {
      write(there)(held.updateValue(n.row, n.time))
      if (!there) come += n.row -> n.time else if (all) known.put(id, n.time)
    } else if (n.count < 0 && there) {
      write(there)(held.removeKey(n.row))
      gone += n.row -> n.time
      known.remove(id)
    }
  }
  known.forEach((id, t) => stay += id.array -> t)

  private def write(there: Boolean)(one: => Unit): Unit = if (expires) one else Sure.write(there)(one)

  def before: Iterator[(Array[Byte], Long)] = gone.iterator ++ stay
  def after: Iterator[(Array[Byte], Long)] = stay.iterator ++ come
}

/**
 * Changelog with changelog, both as retractions: the difference that a batch makes to the joined rows of a key.
 *
 * `pads`: which sides' rows without a match come out with NULLs (LEFT: the first, FULL: both). Rows with a NULL in the
 * key, which has `width` columns, match nothing. All rows of a side are read only where those of the other have changed.
 */
class ChangelogJoin(pads: Seq[Boolean], width: Int, ttlMs: Long) extends Changes.Processor {
  @transient private var held: Seq[MapState[Array[Byte], Long]] = _

  override def init(mode: OutputMode, time: TimeMode): Unit =
    held = Seq("left", "right").map(getHandle.getMapState[Array[Byte], Long](_, Changes.binary, Changes.long, Changes.ttl(ttlMs)))

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val nets = Seq.fill(2)(new JLinked[ByteBuffer, Net])
    var latest = Long.MinValue
    rows.foreach { c =>
      val n = nets(c.side).computeIfAbsent(Changes.wrap(c.row), _ => new Net(c.row))
      n.count += (if (c.delete) -1 else 1)
      n.time = math.max(n.time, c.time)
      latest = math.max(latest, c.time)
    }
    val blank = Changes.row(key, width).anyNull
    def read(side: Int, other: Int): Side = {
      val needed = !nets(other).isEmpty || (pads(other) && !nets(side).isEmpty)
      new Side(held(side), nets(side), needed && !blank, ttlMs > 0)
    }
    difference(read(0, 1), read(1, 0), blank, latest)
  }

  private def difference(left: Side, right: Side, blank: Boolean, latest: Long): Iterator[Change] = {
    val taken, added = new ArrayBuffer[Change]
    type Row = (Array[Byte], Long)
    def take(l: Row, r: Row): Unit = taken += Change(r._1, l._1, 0, latest, -1, -1L, delete = true)
    def add(l: Row, r: Row): Unit = added += Change(r._1, l._1, 0, math.max(l._2, r._2), -1, -1L, delete = false)
    if (!blank) {
      for (l <- left.gone; r <- right.before) take(l, r)
      for (l <- left.stay; r <- right.gone) take(l, r)
      for (l <- left.come; r <- right.after) add(l, r)
      for (l <- left.stay; r <- right.come) add(l, r)
    }
    val none: Row = (null, Long.MinValue)
    if (pads.head) lonely(left, right, blank, take(_, none), add(_, none))
    if (pads(1)) lonely(right, left, blank, take(none, _), add(none, _))
    taken.iterator ++ added
  }

  /** Rows of `side` while the other has none. */
  private def lonely(side: Side, other: Side, blank: Boolean, take: ((Array[Byte], Long)) => Unit, add: ((Array[Byte], Long)) => Unit): Unit = {
    val (was, is) = (blank || other.before.isEmpty, blank || other.after.isEmpty)
    if (was) side.gone.foreach(take)
    if (was && !is) side.stay.foreach(take)
    if (is) side.come.foreach(add)
    if (is && !was) side.stay.foreach(add)
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
