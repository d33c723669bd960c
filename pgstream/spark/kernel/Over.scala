package org.apache.spark.sql.pgstream

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}
import java.nio.ByteBuffer

import scala.collection.mutable.{ArrayBuffer, ArrayDeque}
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.execution.streaming.state.pgstream.Sure
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

import Json.Node

/** The rows that an aggregate is of, besides the row itself: so many before it, or so many microseconds; else all. */
case class Frame(rows: Option[Int], range: Option[Long], peers: Boolean) {
  val bounded: Boolean = rows.nonEmpty || range.nonEmpty
}

/**
 * What is kept of a partition: settled rows that are still in a frame, rows that wait, sums, the timer that is set, and
 * the event time of the last row that was settled, where there is a time to live.
 */
private class Partition(var frame: ArrayDeque[Kept], var waiting: ArrayBuffer[Kept], var sums: Array[Byte], var timer: Long, var last: Long)

/**
 * Aggregates over the rows of a partition up to each row, in the order of event time and position. A row comes out when the
 * watermark has reached its time, so that none before it can come any more.
 *
 * `ahead`: a row comes out when so many after it have come, with what the last of them says, at that one's time; the frame
 * is as many rows. `ttl` (microseconds of event time): a row so long after the one before it finds nothing of it any more.
 */
class Over(schema: StructType, calls: Seq[Call], frame: Frame, ahead: Int, ttl: Long) extends Changes.Processor {
  @transient private var state: ValueState[Array[Byte]] = _
  @transient private lazy val frames: Array[FrameCall] = calls.map(FrameCall(_, schema, frame.bounded)).toArray
  @transient private lazy val pack = UnsafeProjection.create(calls.map(ChangeAggregate.resultType(_, schema)).toArray)

  override def init(mode: OutputMode, time: TimeMode): Unit =
    state = getHandle.getValueState[Array[Byte]]("partition", Changes.binary, TTLConfig.NONE)

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val watermark = timers.getCurrentWatermarkInMs() * 1000
    val p = read()
    rows.foreach(c => p.waiting += new Kept(c))
    settle(p, watermark)
  }

  override def handleExpiredTimer(key: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Change] = {
    val p = read()
    p.timer = -1
    settle(p, timers.getCurrentWatermarkInMs() * 1000)
  }

  private def settle(p: Partition, watermark: Long): Iterator[Change] = {
    val (ready, more) = p.waiting.partition(_.time <= watermark)
    val out = if (ready.isEmpty) Nil else compute(p, ready.sorted(Kept.byTime))
    p.waiting = more
    frame.range.foreach(r => while (p.frame.nonEmpty && p.frame.head.time <= watermark - r) p.frame.removeHead())
    if (stale(p, watermark) && p.waiting.isEmpty) forget(p)
    keep(p)
    out.iterator
  }

  private def compute(p: Partition, ready: ArrayBuffer[Kept]): ArrayBuffer[Change] = {
    load(p)
    val out = new ArrayBuffer[Change](ready.length)
    var i = 0
    while (i < ready.length) {
      var end = i + 1
      if (frame.peers) while (end < ready.length && ready(end).time == ready(i).time) end += 1
      if (stale(p, ready(i).time)) { forget(p); frames.foreach(_.reset()) }
      p.last = ready(i).time
      (i until end).foreach(n => enter(p, ready(n)))
      leave(p, ready(i).time)
      val values = Changes.bytes(pack(InternalRow.fromSeq(frames.toSeq.map(_.result(p.frame)))))
      if (ahead == 0)
        (i until end).foreach { n => val r = ready(n); out += Change(values, r.row, 0, r.time, r.place, r.offset, delete = false) }
      else if (p.frame.length > ahead) {
        val r = p.frame.head
        out += Change(values, r.row, 0, ready(i).time, r.place, r.offset, delete = false)
      }
      i = end
    }
    frame.rows.foreach(n => while (p.frame.length > n) p.frame.removeHead())
    if (!frame.bounded) p.sums = written()
    out
  }

  private def stale(p: Partition, time: Long): Boolean = ttl > 0 && time - p.last > ttl

  private def forget(p: Partition): Unit = { p.frame.clear(); p.sums = Array.emptyByteArray }

  private def enter(p: Partition, r: Kept): Unit = {
    if (frame.bounded) p.frame += r
    frames.foreach(_.add(r.read(schema.length)))
  }

  private def leave(p: Partition, time: Long): Unit = {
    def out(): Unit = { val r = p.frame.removeHead(); frames.foreach(_.remove(r.read(schema.length), p.frame)) }
    frame.rows.foreach(n => while (p.frame.length > n + 1) out())
    frame.range.foreach(r => while (p.frame.head.time < time - r) out())
  }

  private def load(p: Partition): Unit = {
    frames.foreach(_.reset())
    if (frame.bounded) p.frame.foreach(r => frames.foreach(_.add(r.read(schema.length))))
    else if (p.sums.nonEmpty) {
      val in = new DataInputStream(new ByteArrayInputStream(p.sums))
      frames.foreach(_.read(in))
    }
  }

  private def written(): Array[Byte] = {
    val bytes = new ByteArrayOutputStream(64)
    val out = new DataOutputStream(bytes)
    frames.foreach(_.write(out))
    bytes.toByteArray
  }

  private def read(): Partition = {
    val bytes = state.get()
    if (bytes == null) new Partition(new ArrayDeque[Kept], new ArrayBuffer[Kept], Array.emptyByteArray, -1, 0)
    else {
      val b = ByteBuffer.wrap(bytes)
      val last = if (ttl > 0) b.getLong() else 0
      val (timer, settled, sums) = (b.getLong(), b.getInt(), new Array[Byte](b.getInt()))
      b.get(sums)
      val frame = new ArrayDeque[Kept](settled + 16)
      (0 until settled).foreach(_ => frame += Kept.read(b))
      new Partition(frame, Kept.readAll(b), sums, timer, last)
    }
  }

  /** One timer a partition: for the earliest row that waits, or to forget rows that no frame can hold any more. */
  private def keep(p: Partition): Unit = {
    val next =
      if (p.waiting.nonEmpty) Math.floorDiv(p.waiting.iterator.map(_.time).min + 999, 1000L)
      else if (p.frame.nonEmpty && frame.range.nonEmpty) Math.floorDiv(p.frame.last.time + frame.range.get, 1000L) + 1
      else if (ttl > 0 && (p.frame.nonEmpty || p.sums.nonEmpty)) Math.floorDiv(p.last + ttl, 1000L) + 1
      else -1L
    if (next != p.timer) {
      if (p.timer >= 0) Sure.timer(there = true)(getHandle.deleteTimer(p.timer))
      if (next >= 0) Sure.timer(there = false)(getHandle.registerTimer(next))
    }
    if (p.waiting.isEmpty && p.frame.isEmpty && p.sums.isEmpty) state.clear()
    else {
      val rows = p.frame.iterator ++ p.waiting.iterator
      val b = ByteBuffer.allocate((if (ttl > 0) 24 else 16) + p.sums.length + p.frame.iterator.map(_.size).sum + p.waiting.iterator.map(_.size).sum)
      if (ttl > 0) b.putLong(p.last)
      b.putLong(next).putInt(p.frame.length).putInt(p.sums.length).put(p.sums)
      rows.foreach(_.write(b))
      state.update(b.array)
    }
  }
}

object Over {
  def apply(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val key = c.strings("key")
    val schema = StructType(Changes.visible(df).filterNot(f => key.contains(f.name)))
    val calls = c.get("calls").elements().asScala.toSeq.map(Call.read(_, schema))
    val frame = Frame(c.opt("rows").map(_.toInt), c.opt("range_ms").map(_.toLong * 1000), c.get("peers").asBoolean)
    // Rows of a time range are forgotten by it.
    val ttl = if (frame.range.isEmpty) c.get("ttl_ms").asLong * 1000 else 0
    val p = new Over(schema, calls, frame, c.get("ahead").asInt, ttl)
    val out = Changes.run(Changes.pack(df, key, schema.fieldNames.toSeq), p, c.str("mode"), TimeMode.EventTime())
    val values = StructType(calls.map(call => StructField(call.name, ChangeAggregate.resultType(call, schema))))
    Changes.unpack(out, schema, placed = true, values).drop("__delete")
  }
}
