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

/**
 * A row of side 0 or 1. `met`: it has met a row of the other side, has come out without, or never will. `seen`: when it came
 * (microseconds), 0 where nobody asks.
 */
final class Near(val side: Int, val time: Long, val row: Array[Byte], var met: Boolean, val seen: Long = 0) {
  def size: Int = Near.Head + (if (seen == 0) 0 else 8) + row.length
  def write(b: ByteBuffer): Unit = {
    b.put((side | (if (met) 2 else 0) | (if (seen == 0) 0 else 4)).toByte).putLong(time)
    if (seen != 0) b.putLong(seen)
    b.putInt(row.length).put(row)
  }
}

object Near {
  private val Head = 13
  val byTime: Comparator[Near] = (a, b) => java.lang.Long.compare(a.time, b.time)

  def readAll(b: ByteBuffer): ArrayBuffer[Near] = {
    val out = new ArrayBuffer[Near]
    while (b.hasRemaining) {
      val (flags, time) = (b.get(), b.getLong())
      val seen = if ((flags & 4) != 0) b.getLong() else 0L
      val row = new Array[Byte](b.getInt())
      b.get(row)
      out += new Near(flags & 1, time, row, (flags & 2) != 0, seen)
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

/** Where rows of one side lie that are kept apart: their ages, and the first of those that wait. */
final class Block(val id: Long, val side: Int, var first: Long, var last: Long, var pending: Long) {
  def write(b: ByteBuffer): Unit = b.putLong(id).put(side.toByte).putLong(first).putLong(last).putLong(pending)
}

object Block {
  val Size = 33
  def read(b: ByteBuffer): Block = new Block(b.getLong(), b.get(), b.getLong(), b.getLong(), b.getLong())
}

/** What is kept of a key: the timer that is set (-1: none), the number of the next block, the blocks, and the newest rows. */
final class Meeting(var alarm: Long, var next: Long, val blocks: ArrayBuffer[Block], var rows: ArrayBuffer[Near])

/**
 * Two streams, of whose rows of one key those are kept that may still meet: until `over` (microseconds) after their `age`.
 *
 * Rows of a key are one value of the state, so that most keys cost one lookup a batch. What a key has more than `most`
 * bytes of goes into blocks, of which a batch reads those that its rows can meet; they are gone as a whole. `pads`: which sides'
 * rows come out alone too.
 */
abstract class Pairing(pads: Seq[Boolean], over: Long, condition: Option[Expression], widths: Seq[Int], most: Int)
    extends Changes.Processor {
  @transient private var head: ValueState[Array[Byte]] = _
  @transient private var blocks: MapState[Long, Array[Byte]] = _
  @transient private lazy val holds: Option[BasePredicate] = condition.map(Predicate.create(_))
  @transient private lazy val joined = new JoinedRow

  /** From when on a row is kept, and whether it waits for that to be over: it then comes out alone. */
  protected def age(r: Near): Long
  protected def waits(r: Near): Boolean

  override def init(mode: OutputMode, time: TimeMode): Unit = {
    head = getHandle.getValueState[Array[Byte]]("rows", Changes.binary, TTLConfig.NONE)
    blocks = getHandle.getMapState[Long, Array[Byte]]("blocks", Changes.long, Changes.binary, TTLConfig.NONE)
  }

  /** Forget the rows that are older than `now` allows; those of them that have waited. */
  protected def forget(now: Long): ArrayBuffer[Near] = {
    val (held, out) = (read(), new ArrayBuffer[Near])
    def stay(rows: ArrayBuffer[Near]): ArrayBuffer[Near] = {
      val (gone, more) = rows.partition(age(_) < now - over)
      gone.foreach(r => if (waits(r)) out += r)
      more
    }
    held.blocks.filterInPlace { c =>
      if (c.pending < now - over) fill(c, stay(load(c)))
      else if (c.last < now - over) fill(c, Nil)
      else true
    }
    held.rows = stay(held.rows)
    // The one that has fired Spark removes by itself.
    held.alarm = -1
    set(held, due(held) ++ held.rows.filter(waits).map(age) ++ patience(held.rows))
    write(held)
    out
  }

  /** Does ON hold, beside its equalities? */
  protected def suits(left: Near, right: Near): Boolean =
    holds.forall(_.eval(joined(Changes.row(left.row, widths.head), Changes.row(right.row, widths(1)))))

  /** Then both have met. */
  protected def meet(left: Near, right: Near): Boolean = {
    val yes = suits(left, right)
    if (yes) {
      left.met = true
      right.met = true
    }
    yes
  }

  protected def pair(left: Near, right: Near, delete: Boolean = false): Change =
    Change(right.row, left.row, 0, math.max(left.time, right.time), -1, -1L, delete)

  protected def alone(r: Near, delete: Boolean = false): Change =
    Change(if (r.side == 1) r.row else null, if (r.side == 0) r.row else null, 0, r.time, -1, -1L, delete)

  /** What is kept of a key, as a batch reads it. */
  protected final class Kept(held: Meeting) {
    private val loaded = new ArrayBuffer[(Block, ArrayBuffer[Near], Seq[Boolean])]
    private var dropped = false

    /** A side's rows, those in blocks where `reach` says so. */
    def rows(side: Int)(reach: Block => Boolean): Iterator[Near] = {
      val some = held.blocks.filter(c => c.side == side && reach(c)).map(c => c -> load(c))
      loaded ++= some.map { case (c, rows) => (c, rows, rows.map(_.met).toSeq) }
      (held.rows.iterator ++ some.iterator.flatMap(_._2)).filter(_.side == side)
    }

    def drop(r: Near): Unit = {
      dropped = true
      held.rows -= r
      loaded.foreach(_._2 -= r)
    }

    /** What has been made of them; blocks that are not as they were by then are written anew. */
    def settle(made: Iterator[Change]): Iterator[Change] =
      if (!pads.contains(true) && !dropped) made
      else {
        val all = made.toArray
        for ((c, rows, met) <- loaded if rows.map(_.met) != met && !fill(c, rows)) held.blocks -= c
        all.iterator
      }
  }

  protected def keep(held: Meeting, come: Array[Near]): Unit = {
    held.rows ++= come
    set(held, come.iterator.filter(waits).map(age).minOption ++ patience(come))
    if (held.rows.iterator.map(_.size).sum > most) {
      held.rows.groupBy(_.side).foreach { case (side, rows) =>
        rows.sortInPlaceBy(age)
        while (rows.nonEmpty) {
          var size = 0
          val some = rows.takeWhile { r => size += r.size; size - r.size < most / 2 }
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
      c.first = rows.iterator.map(age).min
      c.last = rows.iterator.map(age).max
      c.pending = rows.iterator.filter(waits).map(age).minOption.getOrElse(Long.MaxValue)
      blocks.updateValue(c.id, Near.bytes(rows)())
    }
    rows.nonEmpty
  }

  private def due(held: Meeting): Iterable[Long] = held.blocks.map(c => math.min(c.pending, c.last))

  /** Rows that wait for nobody go together, but not with one that is far ahead of them. */
  private def patience(rows: Iterable[Near]): Option[Long] =
    rows.iterator.map(age).minOption.map(first => math.min(first + over, rows.iterator.map(age).max))

  /** One timer a key, set no later than the first of these times is over. */
  private def set(held: Meeting, times: Iterable[Long]): Unit =
    times.minOption.map(t => Math.floorDiv(t + over, 1000L) + 1).filter(held.alarm < 0 || _ < held.alarm).foreach { t =>
      if (held.alarm >= 0) Sure.timer(there = true)(getHandle.deleteTimer(held.alarm))
      Sure.timer(there = false)(getHandle.registerTimer(t))
      held.alarm = t
    }

  protected def read(): Meeting = {
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

object Pairing {
  private def kept(df: DataFrame, keys: Seq[String]) = StructType(Changes.visible(df).filterNot(f => keys.contains(f.name)))

  /** An empty DataFrame of the joined rows, to resolve a condition over. */
  def shape(left: DataFrame, right: DataFrame, config: String): DataFrame = {
    val keys = Json.read(config).strings("keys")
    Bound.shape(left, kept(left, keys) ++ kept(right, keys))
  }

  /**
   * Both inputs have columns of unlike names; `key_0` … are the names of the key's columns on either side. `condition`: one
   * column over the joined rows, or null; rows for which it does not hold have not met. `of` makes the operator of the sides
   * that come out alone, the width of the key, the condition and the widths of both sides.
   */
  def apply(left: DataFrame, right: DataFrame, condition: DataFrame, c: Node, time: TimeMode, behindMs: Long)(
      of: (Seq[Boolean], Int, Option[Expression], Seq[Int]) => Pairing): DataFrame = {
    val (keys, how) = (c.strings("keys"), c.str("how"))
    val (l, r) = (kept(left, keys), kept(right, keys))
    val both = Changes.pack(left, keys, l.fieldNames.toSeq).union(Changes.pack(right, keys, r.fieldNames.toSeq, 1))
    val holds = Bound.columns(condition, (l ++ r).map(_.name).toIndexedSeq).values.headOption
    val p = of(Seq(how != "inner", how == "full"), keys.length, holds, Seq(l.length, r.length))
    Changes.unpack(Changes.run(both, p, c.str("mode"), time, behindMs), l, placed = false, r)
  }
}
