package org.apache.spark.sql.pgstream

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, Encoder}
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoders._
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.streaming.state.pgstream.Sure
import org.apache.spark.sql.functions.{col, unix_micros, when}
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

import Json.Node

/** One call: columns of the packed row that are its arguments. `separator` is LISTAGG's, `offset` LAG's and LEAD's. */
case class Call(name: String, function: String, at: Seq[Int], distinct: Boolean, separator: String, offset: Int) {
  /** The column that says which rows ARRAY_AGG counts, -1 without one. */
  def counts: Int = if (function == "array_agg" && at.length > 1) at(1) else -1
}

object Call {
  def read(n: com.fasterxml.jackson.databind.JsonNode, schema: StructType): Call =
    Call(n.str("name"), n.str("function"), n.strings("arguments").map(schema.fieldIndex), n.get("distinct").asBoolean, n.str("separator"),
      n.get("offset").asInt)
}

/** `width`: of the group. `drops`: rows can be late; they have been counted before (`OnTime`). */
case class Windowed(width: Int, isFinal: Boolean, drops: Boolean) {
  /** The end of a group's window, in microseconds. */
  def end(key: Array[Byte]): Long = Changes.row(key, width).getLong(width - 1)
  /** Whether the watermark has passed the window's end: a row may be late for some of its windows only. */
  def closed(end: Long, timers: TimerValues): Boolean = {
    val watermark = timers.getCurrentWatermarkInMs() * 1000
    drops && watermark > 0 && end <= watermark
  }
}

/** A group between two batches. */
case class Group(rows: Long, time: Long, sums: Array[Byte], result: Array[Byte])

object Group {
  val encoder: Encoder[Group] = CaseClass.encoder[Group](
    "rows" -> PrimitiveLongEncoder, "time" -> PrimitiveLongEncoder, "sums" -> BinaryEncoder, "result" -> BinaryEncoder)
}

/**
 * GROUP BY over rows that may be taken back. Tells a group's new values when they differ from what it told last; a group
 * without rows is removed, unless it is the only one (`single`), which is there from the beginning (`Beginning`).
 *
 * With a window its end is the last column of the group: when the watermark has passed it, the group is forgotten; one
 * that is `windowed.final` is told then, and only then.
 */
class ChangeAggregate(schema: StructType, calls: Seq[Call], single: Boolean, ttlMs: Long, windowed: Option[Windowed])
    extends Changes.Processor {
  import ChangeAggregate.resultType

  @transient private var group: ValueState[Group] = _
  @transient private var bags: Array[MapState[Array[Byte], Long]] = _
  @transient private lazy val kept = calls.zipWithIndex.filter(c => ChangeAggregate.keeps(c._1))
  @transient private lazy val inner: Array[Accumulator] = calls.map { c =>
    val t = schema(c.at.head).dataType
    if (ChangeAggregate.hasSum(c)) Accumulator.of(c.function, t) else null
  }.toArray
  @transient private lazy val bag: Array[Bag] = calls.zipWithIndex.map { case (c, i) => bagOf(c, i) }.toArray
  @transient private lazy val pack = UnsafeProjection.create(calls.map(c => resultType(c, schema)).toArray)

  private def bagOf(c: Call, i: Int): Bag = {
    val n = kept.indexWhere(_._2 == i)
    val t = schema(c.at.head).dataType
    if (n < 0) null
    else if (c.distinct && inner(i) != null) new DistinctBag(inner(i), c.at.map(schema(_).dataType), () => bags(n), c.at)
    else c.function match {
      case "min" | "max" => new ExtremeBag(t, () => bags(n), c.at.head, c.function == "max")
      case f => new OrderedBag(f, t, () => bags(n), c.at.head, c.counts, c.distinct, UTF8String.fromString(c.separator))
    }
  }

  override def init(mode: OutputMode, time: TimeMode): Unit = {
    group = getHandle.getValueState[Group]("group", Group.encoder, Changes.ttl(ttlMs))
    bags = kept.map { case (_, i) =>
      getHandle.getMapState[Array[Byte], Long](s"values_$i", Changes.binary, Changes.long, Changes.ttl(ttlMs))
    }.toArray
  }

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] =
    windowed match {
      case None => change(key, rows)
      case Some(w) =>
        val end = w.end(key)
        if (w.closed(end, timers)) Iterator.empty
        else {
          val known = group.exists()
          val out = change(key, rows)
          if (!known) Sure.timer(there = false)(getHandle.registerTimer(end / 1000))
          if (w.isFinal) Iterator.empty else out.map(_.copy(time = end - 1000))
        }
    }

  override def handleExpiredTimer(key: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Change] = {
    val (old, w) = (group.get(), windowed.get)
    group.clear()
    bags.foreach(_.clear())
    if (old == null || !w.isFinal) Iterator.empty
    else Iterator.single(Change(key, old.result, 0, w.end(key) - 1000, -1, -1L, delete = false))
  }

  private def change(key: Array[Byte], rows: Iterator[Change]): Iterator[Change] = {
    val old = group.get()
    read(if (old == null) null else old.sums)
    var count = if (old == null) 0L else old.rows
    var time = if (old == null) Long.MinValue else old.time
    while (rows.hasNext) {
      val c = rows.next()
      if (c.side != Beginning.Side) {
        count += (if (c.delete) -1 else 1)
        time = math.max(time, c.time)
        add(c)
      }
    }
    bag.foreach(b => if (b != null) b.flush())
    // What was never added, as after a state that was forgotten, cannot be taken back.
    if (count <= 0 && !single) gone(key, old, time)
    else {
      val result = results()
      group.update(Group(math.max(0L, count), time, written(), result))
      if (old != null && Changes.same(old.result, result)) Iterator.empty
      else Iterator.single(Change(key, result, 0, time, -1, -1L, delete = false))
    }
  }

  private def gone(key: Array[Byte], old: Group, time: Long): Iterator[Change] = {
    group.clear()
    bags.foreach(_.clear())
    if (old == null) Iterator.empty else Iterator.single(Change(key, old.result, 0, time, -1, -1L, delete = true))
  }

  private def add(c: Change): Unit = {
    val row = Changes.row(c.row, schema.length)
    var i = 0
    while (i < calls.length) {
      if (bag(i) != null) bag(i).add(row, c) else inner(i).add(row, calls(i).at.head, if (c.delete) -1 else 1)
      i += 1
    }
  }

  private def results(): Array[Byte] =
    Changes.bytes(pack(InternalRow.fromSeq(calls.indices.map(i => if (bag(i) != null) bag(i).result else inner(i).result))))

  private def read(sums: Array[Byte]): Unit = {
    inner.foreach(a => if (a != null) a.reset())
    bag.foreach { case b: ExtremeBag => b.best = null; case _ => () }
    if (sums != null) {
      val in = new DataInputStream(new ByteArrayInputStream(sums))
      calls.indices.foreach { i =>
        if (inner(i) != null) inner(i).read(in)
        bag(i) match { case b: ExtremeBag => b.best = bytes(in); case _ => () }
      }
    }
  }

  private def bytes(in: DataInputStream): Array[Byte] = {
    val n = in.readInt()
    if (n < 0) null else { val b = new Array[Byte](n); in.readFully(b); b }
  }

  private def written(): Array[Byte] = {
    val bytes = new ByteArrayOutputStream(64)
    val out = new DataOutputStream(bytes)
    calls.indices.foreach { i =>
      if (inner(i) != null) inner(i).write(out)
      bag(i) match {
        case b: ExtremeBag if b.best == null => out.writeInt(-1)
        case b: ExtremeBag => out.writeInt(b.best.length); out.write(b.best)
        case _ => ()
      }
    }
    bytes.toByteArray
  }
}

object ChangeAggregate {
  private val Extremes = Set("min", "max")
  private val Ordered = Set("listagg", "array_agg", "first_value", "last_value")

  def hasSum(c: Call): Boolean = !Extremes(c.function) && !Ordered(c.function)
  /** Whether the values of a group are kept. */
  def keeps(c: Call): Boolean = c.distinct || !hasSum(c)
  def resultType(c: Call, schema: StructType): DataType = Accumulator.resultType(c.function, schema(c.at.head).dataType)

  def apply(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val (group, args) = (c.strings("group"), c.strings("arguments"))
    val schema = StructType(args.map(df.schema(_)))
    val calls = c.get("calls").elements().asScala.toSeq.map(Call.read(_, schema))
    val ttl = c.get("ttl_ms").asLong
    def flag(name: String): Boolean = c.get(name).asBoolean
    val windowed = if (flag("window")) Some(Windowed(group.length, flag("final"), flag("drops"))) else None
    val p = new ChangeAggregate(schema, calls, group.isEmpty, if (windowed.isEmpty) ttl else 0, windowed)
    val time = if (windowed.isEmpty) Changes.time(ttl) else TimeMode.EventTime()
    val rows = Changes.pack(df, group, args)
    val out = Changes.run(if (group.isEmpty) Beginning(rows) else rows, p, c.str("mode"), time)
    val values = StructType(calls.map(call => StructField(call.name, resultType(call, schema))))
    val told = Changes.unpack(out, values, placed = false, StructType(group.map(df.schema(_))))
    if (group.isEmpty) told.withColumn(Changes.Time, when(unix_micros(col(Changes.Time)) =!= Long.MinValue, col(Changes.Time))) else told
  }
}
