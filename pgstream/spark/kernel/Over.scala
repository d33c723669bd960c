package org.apache.spark.sql.pgstream

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}
import java.nio.ByteBuffer

import scala.collection.mutable.{ArrayBuffer, ArrayDeque}
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.util.LongAccumulator

import Json.Node

/** The rows that an aggregate is of, besides the row itself: so many before it, or so many microseconds; else all. */
case class Frame(rows: Option[Int], range: Option[Long], peers: Boolean) {
  val bounded: Boolean = rows.nonEmpty || range.nonEmpty
}

/** What is kept of a partition: settled rows that are still in a frame, rows that wait, sums, and the timer that is set. */
private class Partition(var frame: ArrayDeque[Kept], var waiting: ArrayBuffer[Kept], var sums: Array[Byte], var timer: Long)

/**
 * Aggregates over the rows of a partition up to each row, in the order of event time and position. A row comes out when the
 * watermark has reached its time, so that none before it can come any more; one that comes later is dropped and counted
 * in `late` (`drops`), unless it comes out of an operator that has waited for this watermark itself.
 */
class Over(schema: StructType, calls: Seq[Call], frame: Frame, drops: Boolean, late: LongAccumulator) extends Changes.Processor {
  @transient private var state: ValueState[Array[Byte]] = _
  @transient private lazy val frames: Array[FrameCall] = calls.map(FrameCall(_, schema, frame.bounded)).toArray
  @transient private lazy val pack = UnsafeProjection.create(calls.map(ChangeAggregate.resultType(_, schema)).toArray)

  override def init(mode: OutputMode, time: TimeMode): Unit =
    state = getHandle.getValueState[Array[Byte]]("partition", Encoders.BINARY, TTLConfig.NONE)

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val watermark = timers.getCurrentWatermarkInMs() * 1000
    val p = read()
    rows.foreach { c => if (drops && watermark > 0 && c.time <= watermark) late.add(1) else p.waiting += new Kept(c) }
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
      (i until end).foreach(n => enter(p, ready(n)))
      leave(p, ready(i).time)
      val values = Changes.bytes(pack(InternalRow.fromSeq(frames.toSeq.map(_.result(p.frame)))))
      (i until end).foreach { n => val r = ready(n); out += Change(values, r.row, 0, r.time, r.place, r.offset, delete = false) }
      i = end
    }
    frame.rows.foreach(n => while (p.frame.length > n) p.frame.removeHead())
    if (!frame.bounded) p.sums = written()
    out
  }

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
    if (bytes == null) new Partition(new ArrayDeque[Kept], new ArrayBuffer[Kept], Array.emptyByteArray, -1)
    else {
      val b = ByteBuffer.wrap(bytes)
      val (timer, settled, sums) = (b.getLong(), b.getInt(), new Array[Byte](b.getInt()))
      b.get(sums)
      val frame = new ArrayDeque[Kept](settled + 16)
      (0 until settled).foreach(_ => frame += Kept.read(b))
      new Partition(frame, Kept.readAll(b), sums, timer)
    }
  }

  /** One timer a partition: for the earliest row that waits, or to forget rows that no frame can hold any more. */
  private def keep(p: Partition): Unit = {
    val next =
      if (p.waiting.nonEmpty) Math.floorDiv(p.waiting.iterator.map(_.time).min + 999, 1000L)
      else if (p.frame.nonEmpty && frame.range.nonEmpty) Math.floorDiv(p.frame.last.time + frame.range.get, 1000L) + 1
      else -1L
    if (next != p.timer) {
      if (p.timer >= 0) getHandle.deleteTimer(p.timer)
      if (next >= 0) getHandle.registerTimer(next)
    }
    if (p.waiting.isEmpty && p.frame.isEmpty && p.sums.isEmpty) state.clear()
    else {
      val rows = p.frame.iterator ++ p.waiting.iterator
      val b = ByteBuffer.allocate(16 + p.sums.length + p.frame.iterator.map(_.size).sum + p.waiting.iterator.map(_.size).sum)
      b.putLong(next).putInt(p.frame.length).putInt(p.sums.length).put(p.sums)
      rows.foreach(_.write(b))
      state.update(b.array)
    }
  }
}

object Over {
  def apply(df: DataFrame, config: String, late: LongAccumulator): DataFrame = {
    val c = Json.read(config)
    val key = c.strings("key")
    val schema = StructType(Changes.visible(df).filterNot(f => key.contains(f.name)))
    val calls = c.get("calls").elements().asScala.toSeq.map(Call.read(_, schema))
    val frame = Frame(c.opt("rows").map(_.toInt), c.opt("range_ms").map(_.toLong * 1000), c.get("peers").asBoolean)
    val p = new Over(schema, calls, frame, c.get("drops").asBoolean, late)
    val out = Changes.run(Changes.pack(df, key, schema.fieldNames.toSeq), p, c.str("mode"), TimeMode.EventTime())
    val values = StructType(calls.map(call => StructField(call.name, ChangeAggregate.resultType(call, schema))))
    Changes.unpack(out, schema, placed = true, values).drop("__delete")
  }
}
