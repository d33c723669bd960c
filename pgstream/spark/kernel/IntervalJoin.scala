package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.Comparator

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.{BasePredicate, Expression, JoinedRow, Predicate}
import org.apache.spark.sql.execution.streaming.state.pgstream.Sure
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types.StructType

import Json.Node

/** A row of side 0 or 1. `met`: it has met a row of the other side, has come out without, or never will. */
private final class Near(val side: Int, val time: Long, val row: Array[Byte], var met: Boolean) {
  def size: Int = Near.Head + row.length
  def write(b: ByteBuffer): Unit = b.put((side | (if (met) 2 else 0)).toByte).putLong(time).putInt(row.length).put(row)
}

private object Near {
  private val Head = 13
  val byTime: Comparator[Near] = (a, b) => java.lang.Long.compare(a.time, b.time)

  def readAll(b: ByteBuffer): ArrayBuffer[Near] = {
    val out = new ArrayBuffer[Near]
    while (b.hasRemaining) {
      val (flags, time, row) = (b.get(), b.getLong(), new Array[Byte](b.getInt()))
      b.get(row)
      out += new Near(flags & 1, time, row, (flags & 2) != 0)
    }
    out
  }

  def bytes(rows: Iterable[Near], head: Int = 0)(first: ByteBuffer => Unit = _ => ()): Array[Byte] = {
    val b = ByteBuffer.allocate(head + rows.iterator.map(_.size).sum)
    first(b)
    rows.foreach(_.write(b))
    b.array
  }
}

/** Where rows of one side lie that are kept apart: their times, and the earliest of those that have not met any. */
private final class Block(val id: Long, val side: Int, var first: Long, var last: Long, var pending: Long) {
  def write(b: ByteBuffer): Unit = b.putLong(id).put(side.toByte).putLong(first).putLong(last).putLong(pending)
}

private object Block {
  val Size = 33
  def read(b: ByteBuffer): Block = new Block(b.getLong(), b.get(), b.getLong(), b.getLong(), b.getLong())
}

/** What is kept of a key: the timer that is set (-1: none), the number of the next block, the blocks, and the newest rows. */
private final class Meeting(var alarm: Long, var next: Long, val blocks: ArrayBuffer[Block], var rows: ArrayBuffer[Near])

/**
 * Stream with stream: rows of one key whose event times are at most `within` (microseconds) apart. Pairs come at once, with
 * the later of both times; rows of a side that `pads` and that meet none come when the watermark has left no row for them.
 *
 * Rows of a key are one value of the state, so that most keys cost one lookup a batch. What a key has more than `Most`
 * bytes of goes into blocks, of which a batch reads those that its rows can meet; they are gone as a whole.
 */
class IntervalJoin(pads: Seq[Boolean], within: Long, key: Int, condition: Option[Expression], widths: Seq[Int]) extends Changes.Processor {
  @transient private var head: ValueState[Array[Byte]] = _
  @transient private var blocks: MapState[Long, Array[Byte]] = _
  @transient private lazy val holds: Option[BasePredicate] = condition.map(Predicate.create(_))
  @transient private lazy val joined = new JoinedRow

  override def init(mode: OutputMode, time: TimeMode): Unit = {
    head = getHandle.getValueState[Array[Byte]]("rows", Changes.binary, TTLConfig.NONE)
    blocks = getHandle.getMapState[Long, Array[Byte]]("blocks", Changes.long, Changes.binary, TTLConfig.NONE)
  }

  override def handleInputRows(k: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val come = rows.map(c => new Near(c.side, c.time, c.row, met = !pads(c.side))).toArray
    // A NULL equals nothing.
    if (Changes.row(k, key).anyNull) come.iterator.filterNot(_.met).map(alone)
    else {
      java.util.Arrays.sort(come, Near.byTime)
      val held = read()
      val pairs = meet(held, come)
      keep(held, come)
      pairs
    }
  }

  override def handleExpiredTimer(k: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Change] = {
    val over = timers.getCurrentWatermarkInMs() * 1000 - within
    val held = read()
    val out = new ArrayBuffer[Change]
    def stay(rows: ArrayBuffer[Near]): ArrayBuffer[Near] = {
      val (gone, more) = rows.partition(_.time < over)
      gone.foreach(r => if (!r.met) out += alone(r))
      more
    }
    held.blocks.filterInPlace { c =>
      if (c.pending < over) fill(c, stay(load(c)))
      else if (c.last < over) fill(c, Nil)
      else true
    }
    held.rows = stay(held.rows)
    // The one that has fired Spark removes by itself.
    held.alarm = -1
    set(held, due(held) ++ held.rows.filterNot(_.met).map(_.time) ++ patience(held.rows))
    write(held)
    out.sortBy(_.time).iterator
  }

  /** The pairs that rows make which have come, in the order of time, with those that are kept and with each other. */
  private def meet(held: Meeting, come: Array[Near]): Iterator[Change] = {
    val loaded = new ArrayBuffer[(Block, ArrayBuffer[Near], Int)]
    val sides = Seq(0, 1).map { side =>
      val others = come.filter(_.side != side)
      if (others.isEmpty) Array.empty[Near]
      else {
        val (from, to) = (others.head.time - within, others.last.time + within)
        val kept = held.blocks.filter(c => c.side == side && c.first <= to && c.last >= from).map(c => c -> load(c))
        loaded ++= kept.map { case (c, rows) => (c, rows, rows.count(_.met)) }
        val all = (held.rows.iterator ++ kept.iterator.flatMap(_._2)).filter(_.side == side)
        // Of two that are both new the left one meets the right one.
        val rows = (all ++ (if (side == 1) come.iterator.filter(_.side == 1) else Nil)).toArray
        java.util.Arrays.sort(rows, Near.byTime)
        rows
      }
    }
    val pairs = come.iterator.flatMap(r => near(r, sides(1 - r.side)))
    if (pads.contains(true)) {
      val all = pairs.toArray
      for ((c, rows, met) <- loaded if rows.count(_.met) > met) fill(c, rows)
      all.iterator
    } else pairs
  }

  private def near(r: Near, others: Array[Near]): Iterator[Change] = {
    var (low, high) = (0, others.length)
    while (low < high) {
      val middle = (low + high) >>> 1
      if (others(middle).time < r.time - within) low = middle + 1 else high = middle
    }
    Iterator.range(low, others.length).map(others(_)).takeWhile(_.time <= r.time + within).flatMap { o =>
      val (left, right) = if (r.side == 0) (r, o) else (o, r)
      if (!meets(left, right)) None
      else {
        left.met = true
        right.met = true
        Some(Change(right.row, left.row, 0, math.max(left.time, right.time), -1, -1L, delete = false))
      }
    }
  }

  private def meets(left: Near, right: Near): Boolean =
    holds.forall(_.eval(joined(Changes.row(left.row, widths.head), Changes.row(right.row, widths(1)))))

  private def alone(r: Near): Change =
    Change(if (r.side == 1) r.row else null, if (r.side == 0) r.row else null, 0, r.time, -1, -1L, delete = false)

  private def keep(held: Meeting, come: Array[Near]): Unit = {
    held.rows ++= come
    set(held, come.find(!_.met).map(_.time) ++ patience(come))
    if (held.rows.iterator.map(_.size).sum > IntervalJoin.Most) {
      held.rows.groupBy(_.side).foreach { case (side, rows) =>
        rows.sortInPlaceBy(_.time)
        while (rows.nonEmpty) {
          var size = 0
          val some = rows.takeWhile { r => size += r.size; size - r.size < IntervalJoin.Most / 2 }
          rows.remove(0, some.length)
          val c = new Block(held.next, side, 0, 0, 0)
          held.next += 1
          fill(c, some)
          held.blocks += c
        }
      }
      held.rows.clear()
      set(held, due(held))
    }
    write(held)
  }

  private def load(c: Block): ArrayBuffer[Near] = Near.readAll(ByteBuffer.wrap(blocks.getValue(c.id)))

  /** Whether there are any rows. */
  private def fill(c: Block, rows: Iterable[Near]): Boolean = {
    if (rows.isEmpty) blocks.removeKey(c.id)
    else {
      c.first = rows.iterator.map(_.time).min
      c.last = rows.iterator.map(_.time).max
      c.pending = rows.iterator.filterNot(_.met).map(_.time).minOption.getOrElse(Long.MaxValue)
      blocks.updateValue(c.id, Near.bytes(rows)())
    }
    rows.nonEmpty
  }

  private def due(held: Meeting): Iterable[Long] = held.blocks.map(c => math.min(c.pending, c.last))

  /** Rows that wait for nobody go together, but not with one that is far ahead of them. */
  private def patience(rows: Iterable[Near]): Option[Long] =
    rows.iterator.map(_.time).minOption.map(first => math.min(first + within, rows.iterator.map(_.time).max))

  /** One timer a key, set no later than the first of these times is over. */
  private def set(held: Meeting, times: Iterable[Long]): Unit =
    times.minOption.map(t => Math.floorDiv(t + within, 1000L) + 1).filter(held.alarm < 0 || _ < held.alarm).foreach { t =>
      if (held.alarm >= 0) Sure.timer(there = true)(getHandle.deleteTimer(held.alarm))
      Sure.timer(there = false)(getHandle.registerTimer(t))
      held.alarm = t
    }

  private def read(): Meeting = {
    val bytes = head.get()
    if (bytes == null) new Meeting(-1, 0, new ArrayBuffer, new ArrayBuffer)
    else {
      val b = ByteBuffer.wrap(bytes)
      val (alarm, next, n) = (b.getLong(), b.getLong(), b.getInt())
      new Meeting(alarm, next, ArrayBuffer.fill(n)(Block.read(b)), Near.readAll(b))
    }
  }

  private def write(held: Meeting): Unit =
    if (held.blocks.isEmpty && held.rows.isEmpty) head.clear()
    else head.update(Near.bytes(held.rows, 20 + held.blocks.length * Block.Size) { b =>
      b.putLong(held.alarm).putLong(held.next).putInt(held.blocks.length)
      held.blocks.foreach(_.write(b))
    })
}

object IntervalJoin {
  /** Bytes of rows of a key that are written anew with each that comes. */
  private val Most = 32 * 1024

  private def kept(df: DataFrame, keys: Seq[String]) = StructType(Changes.visible(df).filterNot(f => keys.contains(f.name)))

  /** An empty DataFrame of the joined rows, to resolve a condition over. */
  def shape(left: DataFrame, right: DataFrame, config: String): DataFrame = {
    val keys = Json.read(config).strings("keys")
    Bound.shape(left, kept(left, keys) ++ kept(right, keys))
  }

  /**
   * Both inputs have columns of unlike names; `key_0` … are the names of the key's columns on either side. `condition`: one
   * column over the joined rows, or null; rows for which it does not hold have not met.
   */
  def apply(left: DataFrame, right: DataFrame, condition: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val (keys, how, within) = (c.strings("keys"), c.str("how"), c.get("within_ms").asLong)
    val (l, r) = (kept(left, keys), kept(right, keys))
    val both = Changes.pack(left, keys, l.fieldNames.toSeq).union(Changes.pack(right, keys, r.fieldNames.toSeq, 1))
    val holds = Bound.columns(condition, (l ++ r).map(_.name).toIndexedSeq).values.headOption
    val p = new IntervalJoin(Seq(how != "inner", how == "full"), within * 1000, keys.length, holds, Seq(l.length, r.length))
    val out = Changes.run(both, p, c.str("mode"), TimeMode.EventTime(), c.get("behind_ms").asLong)
    Changes.unpack(out, l, placed = false, r).drop("__delete")
  }
}
