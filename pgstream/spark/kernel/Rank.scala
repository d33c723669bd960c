package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.{LinkedHashMap => JLinked}

import scala.collection.mutable.{ArrayBuffer, HashMap}
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, Encoder}
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoders._
import org.apache.spark.sql.catalyst.expressions.{BoundReference, SortOrder, UnsafeProjection}
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.state.pgstream.Sure
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types._

import Json.Node

/** How often a row stands in its partition, and its event time. */
case class Held(count: Long, time: Long)

object Held {
  val encoder: Encoder[Held] = CaseClass.encoder[Held](
    "count" -> PrimitiveLongEncoder, "time" -> PrimitiveLongEncoder)
}

/**
 * Top-N: the rows of a partition whose rank by the first of `functions` is at most `limit`, with all their ranks, and what
 * a batch changes of them. Equal rows stand in the order of their position.
 *
 * Of rows that only come the first `limit` are kept. Where rows may be taken back (`takesBack`) all are, and besides them the
 * first ones, some more than are shown, in `top`: only when too many of those are gone, all are looked at. With a window
 * nothing is told until the watermark has passed its end, the last column of the key; then the partition is forgotten.
 */
class Rank(functions: Seq[String], limit: Int, order: Seq[SortOrder], width: Int, takesBack: Boolean, ttlMs: Long, windowed: Option[Windowed])
    extends Changes.Processor {
  @transient private var top: ValueState[Array[Byte]] = _
  @transient private var all: MapState[Array[Byte], Held] = _
  @transient private lazy val ordering = Kept.by(new LazilyGeneratedOrdering(order), width)
  @transient private lazy val pack = UnsafeProjection.create(functions.indices.map(BoundReference(_, LongType, nullable = false)))
  private val function = functions.head
  private val ties = functions.exists(_ != "row_number")
  private val spare = if (takesBack) limit + 8 else 0

  override def init(mode: OutputMode, time: TimeMode): Unit = {
    top = getHandle.getValueState[Array[Byte]]("top", Changes.binary, Changes.ttl(ttlMs))
    if (takesBack)
      all = getHandle.getMapState[Array[Byte], Held]("all", Changes.binary, Held.encoder, Changes.ttl(ttlMs))
  }

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] =
    windowed match {
      case None => if (takesBack) changed(rows) else added(rows)
      case Some(w) =>
        val end = w.end(key)
        if (!w.closed(end, timers)) {
          if (!top.exists()) Sure.timer(there = false)(getHandle.registerTimer(end / 1000))
          added(rows)
        }
        Iterator.empty
    }

  override def handleExpiredTimer(key: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Change] = {
    val (rows, _) = read()
    top.clear()
    numbered(rows).iterator.map { case (n, r) => change(n, r, windowed.get.end(key) - 1000, taken = false) }
  }

  /** The kept rows in order, and whether there are no others. */
  private def read(): (ArrayBuffer[Kept], Boolean) = {
    val bytes = top.get()
    if (bytes == null) (new ArrayBuffer[Kept], true)
    else {
      val b = ByteBuffer.wrap(bytes)
      val whole = b.get() == 1
      (Kept.readAll(b), whole)
    }
  }

  private def write(rows: ArrayBuffer[Kept], whole: Boolean): Unit =
    if (rows.isEmpty && whole) top.clear()
    else {
      val b = ByteBuffer.allocate(1 + rows.iterator.map(_.size).sum).put((if (whole) 1 else 0).toByte)
      rows.foreach(_.write(b))
      top.update(b.array)
    }

  /** The rows up to the limit with their ranks. */
  private def numbered(rows: ArrayBuffer[Kept]): ArrayBuffer[(Seq[Long], Kept)] = {
    val out = new ArrayBuffer[(Seq[Long], Kept)](math.min(rows.length, limit))
    var (i, rank, dense, first) = (0, 0L, 0L, 0L)
    while (i < rows.length && first <= limit) {
      if (ties && (i == 0 || !tied(rows(i - 1), rows(i)))) { rank = i + 1L; dense += 1 }
      val ranks = functions.map { case "row_number" => i + 1L; case "rank" => rank; case "dense_rank" => dense }
      first = ranks.head
      if (first <= limit) out += ranks -> rows(i)
      i += 1
    }
    out
  }

  @transient private lazy val plain = new LazilyGeneratedOrdering(order)
  private def tied(a: Kept, b: Kept): Boolean = plain.compare(a.read(width), b.read(width)) == 0

  private def added(rows: Iterator[Change]): Iterator[Change] = {
    val (kept, _) = read()
    var before: ArrayBuffer[(Seq[Long], Kept)] = null
    rows.foreach { c =>
      // Most rows of a full partition are behind its last: not kept at all.
      val r = new Kept(c)
      if (kept.length < limit || function != "row_number" || ordering.lt(r, kept.last)) {
        if (before == null) before = numbered(kept)
        insert(kept, r)
      }
    }
    if (before == null && ttlMs == 0) Iterator.empty
    else {
      // What is written lives on, even as it was.
      val after = numbered(kept)
      write(after.map(_._2), whole = true)
      if (windowed.isEmpty && before != null) difference(before, after) else Iterator.empty
    }
  }

  private def insert(rows: ArrayBuffer[Kept], r: Kept): Unit = {
    val found = rows.search(r)(ordering)
    rows.insert(found.insertionPoint, r)
    if (function == "row_number" && spare == 0 && rows.length > limit) rows.dropRightInPlace(1)
  }

  private def changed(rows: Iterator[Change]): Iterator[Change] = {
    val (kept, whole) = read()
    val before = numbered(kept)
    val border = if (whole) null else kept.last
    net(rows).foreach { case (id, (n, c)) =>
      val old = if (all.containsKey(id)) all.getValue(id) else Held(0, c.time)
      val now = math.max(0, old.count + n)
      if (now == 0) all.removeKey(id) else all.updateValue(id, Held(now, if (n > 0) c.time else old.time))
      val r = new Kept(c)
      if (border == null || ordering.lteq(r, border)) {
        (old.count until now by -1).foreach(_ => take(kept, r))
        (old.count until now).foreach(_ => insert(kept, r))
      }
    }
    val sure = whole || enough(kept)
    val (rest, complete) = if (sure) (kept, whole) else scan()
    val after = numbered(rest)
    val room = math.max(after.length, limit + spare)
    write(if (rest.length > room) rest.take(room) else rest, complete && rest.length <= room)
    difference(before, after)
  }

  /** Whether the rows that are shown are all among these, though there are others behind them. */
  private def enough(rows: ArrayBuffer[Kept]): Boolean =
    if (function == "row_number") rows.length >= limit
    else numbered(rows).length < rows.length

  private def take(rows: ArrayBuffer[Kept], r: Kept): Unit = {
    val i = rows.indexWhere(k => k.place == r.place && k.offset == r.offset && Changes.same(k.row, r.row))
    if (i >= 0) rows.remove(i)
  }

  /** All rows of the partition, in order: those that may be shown and some more. */
  private def scan(): (ArrayBuffer[Kept], Boolean) = {
    val rows = all.iterator().flatMap { case (id, h) =>
      val b = ByteBuffer.wrap(id)
      val (place, offset) = (b.getInt(), b.getLong())
      val row = new Array[Byte](b.remaining)
      b.get(row)
      Iterator.fill(h.count.toInt)(new Kept(row, h.time, place, offset))
    }.to(ArrayBuffer)
    (rows.sorted(ordering), true)
  }

  /** What a batch adds of each row, by its position and bytes. */
  private def net(rows: Iterator[Change]): Iterator[(Array[Byte], (Int, Change))] = {
    val out = new JLinked[ByteBuffer, (Int, Change)]
    rows.foreach { c =>
      val id = ByteBuffer.allocate(12 + c.row.length).putInt(c.place).putLong(c.offset).put(c.row)
      out.merge(id.flip(), (if (c.delete) -1 else 1, c), (a, b) => (a._1 + b._1, if (b._2.time > a._2.time) b._2 else a._2))
    }
    out.asScala.iterator.collect { case (id, (n, c)) if n != 0 => id.array -> (n, c) }
  }

  private def difference(before: ArrayBuffer[(Seq[Long], Kept)], after: ArrayBuffer[(Seq[Long], Kept)]): Iterator[Change] = {
    val known = new HashMap[(Seq[Long], ByteBuffer), Int]
    before.foreach { case (n, r) => known.updateWith((n, Changes.wrap(r.row)))(c => Some(c.getOrElse(0) + 1)) }
    /** One of those told before that is not accounted for yet. */
    def taken(n: Seq[Long], r: Kept): Boolean = {
      val id = (n, Changes.wrap(r.row))
      val left = known.getOrElse(id, 0)
      if (left > 0) known.update(id, left - 1)
      left > 0
    }
    val fresh = after.filterNot { case (n, r) => taken(n, r) }
    val gone = before.filter { case (n, r) => taken(n, r) }
    val latest = if (after.isEmpty) 0L else after.iterator.map(_._2.time).max
    gone.iterator.map { case (n, r) => change(n, r, math.max(r.time, latest), taken = true) } ++
      fresh.iterator.map { case (n, r) => change(n, r, r.time, taken = false) }
  }

  /** The ranks go in the place of the key, as a row of its own. */
  private def change(n: Seq[Long], r: Kept, time: Long, taken: Boolean): Change =
    Change(Changes.bytes(pack(InternalRow.fromSeq(n))), r.row, 0, time, -1, -1L, taken)
}

object Rank {
  def apply(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val key = c.strings("key")
    val schema = StructType(Changes.visible(df).filterNot(f => key.contains(f.name)))
    val order = c.get("order").elements().asScala.toSeq.map { o =>
      Kept.sortOrder(schema, o.str("column"), o.get("descending").asBoolean, o.get("nulls_first").asBoolean)
    }
    val ttl = c.get("ttl_ms").asLong
    val windowed = if (c.get("window").asBoolean) Some(Windowed(key.length, isFinal = true, c.get("drops").asBoolean)) else None
    val time = if (windowed.isEmpty) Changes.time(ttl) else TimeMode.EventTime()
    val ranks = c.get("ranks").elements().asScala.toSeq
    val p = new Rank(ranks.map(_.str("function")), c.get("limit").asInt, order, schema.length, c.get("takes_back").asBoolean,
      if (windowed.isEmpty) ttl else 0, windowed)
    val out = Changes.run(Changes.pack(df, key, schema.fieldNames.toSeq), p, c.str("mode"), time)
    Changes.unpack(out, schema, placed = false, StructType(ranks.map(r => StructField(r.str("name"), LongType, nullable = false))))
  }
}
