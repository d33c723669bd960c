package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.{DataFrame, Dataset, Encoders}
import org.apache.spark.sql.catalyst.expressions.{BasePredicate, BoundReference, Expression, Predicate, SortOrder, UnsafeProjection}
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering
import org.apache.spark.sql.execution.streaming.state.pgstream.Sure
import org.apache.spark.sql.streaming._
import org.apache.spark.sql.types._

import Json.Node

/** Where the next match may begin; `to`: the variable, -1 where none is named. */
case class Skip(how: String, to: Int)

/**
 * What is kept of a partition: settled rows, from the one where the next match may begin (`next`, by its number among
 * them) and so many before it as PREV can reach from a match; rows that wait; the timer that is set, -1 for none.
 */
private class Seen(val rows: ArrayBuffer[Kept], var waiting: ArrayBuffer[Kept], var next: Int, var timer: Long)

/**
 * MATCH_RECOGNIZE: rows of a partition in the order of event time, then of `order`, then of position; a row a match, as
 * soon as the watermark has passed the rows that decide it. A match that begins earlier is told earlier.
 *
 * `conditions` are over the `reads`, `tells` are those of the reads that are told of a match. `within` and `ttl`
 * (microseconds, Long.MaxValue for none): a match is no longer than either, and a row so long after the one before it sees
 * nothing of that any more.
 */
class Recognize(
    schema: StructType, order: Seq[SortOrder], pattern: Pattern, reads: IndexedSeq[Read],
    conditions: Seq[Option[Expression]], tells: Array[Int], skip: Skip, within: Long, ttl: Long
) extends Changes.Processor {
  @transient private var state: ValueState[Array[Byte]] = _
  private val longest = math.min(within, ttl)
  private val needs = conditions.map(_.toSeq.flatMap(_.collect { case b: BoundReference => b.ordinal }).distinct.toArray).toArray
  private val back = {
    val before = pattern.before
    // What is read, and how many rows a match has at least before the one that is asked about, or is its last.
    val asked = pattern.variables.indices.flatMap(v => needs(v).map(_ -> before(v))) ++ tells.map(_ -> (before.last - 1))
    asked.map { case (r, last) =>
      reads(r) match {
        case Seek(-1, _, _, true, 0, shift, _) => -shift - last
        case Seek(v, _, _, isLast, offset, shift, _) => -shift - (if (v < 0) 0 else before(v)) - (if (isLast) 0 else offset)
        case _ => 0
      }
    }.foldLeft(0)(_ max _)
  }
  @transient private lazy val ordering: Ordering[Kept] = {
    val by = Kept.by(new LazilyGeneratedOrdering(order), schema.length)
    (a: Kept, b: Kept) => { val t = java.lang.Long.compare(a.time, b.time); if (t != 0) t else by.compare(a, b) }
  }
  @transient private lazy val pack = UnsafeProjection.create(tells.map(reads(_).dataType))
  @transient private lazy val search = {
    val predicates = conditions.map(_.map(predicate).orNull).toArray
    new Search(pattern, schema, reads, predicates, needs, longest, ttl)
  }

  private def predicate(e: Expression): BasePredicate = { val p = Predicate.create(e); p.initialize(0); p }

  override def init(mode: OutputMode, time: TimeMode): Unit =
    state = getHandle.getValueState[Array[Byte]]("partition", Changes.binary, TTLConfig.NONE)

  override def handleInputRows(key: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val p = read(state.get())
    rows.foreach(c => p.waiting += new Kept(c))
    settle(key, p, Recognize.passed(timers.getCurrentWatermarkInMs()))
  }

  override def handleExpiredTimer(key: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Change] = {
    val p = read(state.get())
    p.timer = -1
    settle(key, p, Recognize.passed(timers.getCurrentWatermarkInMs()))
  }

  private def settle(key: Array[Byte], p: Seen, watermark: Long): Iterator[Change] = {
    val out = advance(key, p, watermark)
    val next = timer(p, watermark)
    if (next != p.timer) {
      if (p.timer >= 0) Sure.timer(there = true)(getHandle.deleteTimer(p.timer))
      if (next >= 0) Sure.timer(there = false)(getHandle.registerTimer(next))
      p.timer = next
    }
    if (p.rows.isEmpty && p.waiting.isEmpty) state.clear() else state.update(written(p))
    out.iterator
  }

  /** The matches that are decided at a watermark. */
  private[pgstream] def advance(key: Array[Byte], p: Seen, watermark: Long): ArrayBuffer[Change] = {
    val (ready, more) = p.waiting.partition(_.time <= watermark)
    p.rows ++= ready.sorted(ordering)
    p.waiting = more
    val out = new ArrayBuffer[Change]
    search.over(p.rows, watermark)
    var going = true
    while (going && p.next < p.rows.length) {
      search.attempt(p.next) match {
        case Nothing => p.next += 1
        case Waits => going = false
        case Found =>
          search.packed(tells, pack) match {
            case None => going = false
            case Some(told) =>
              out += Change(key, told, 0, p.rows(p.next + search.length - 1).time, -1, -1L, delete = false)
              p.next = after(p.next)
          }
      }
    }
    forget(p, watermark)
    out
  }

  private def after(start: Int): Int = skip.how match {
    case "past last row" => start + search.length
    case "to next row" => start + 1
    case how =>
      val name = pattern.variables(skip.to)
      val to = if (how == "to first") search.first(skip.to) else search.last(skip.to)
      val row = to.getOrElse(throw new Raised("2202K", s"""AFTER MATCH SKIP to pattern variable "$name": no row of the match is mapped to it"""))
      if (row == start) throw new Raised("2202L", s"""AFTER MATCH SKIP to pattern variable "$name" leads back to the first row of the match""")
      row
  }

  private def forget(p: Seen, watermark: Long): Unit = {
    val over = p.next >= p.rows.length && p.rows.nonEmpty && ttl != Long.MaxValue && watermark >= p.rows.last.time + ttl
    val gone = if (over) p.rows.length else math.max(0, p.next - back)
    p.rows.remove(0, gone)
    p.next -= gone
  }

  /** When something may be decided without another row: one timer a partition, in milliseconds. The first watermark is above 0. */
  private def timer(p: Seen, watermark: Long): Long = {
    val waiting = if (p.waiting.isEmpty) None else Some(p.waiting.iterator.map(_.time).min)
    val ends = if (p.next < p.rows.length && longest != Long.MaxValue) Some(p.rows(p.next).time + longest) else None
    val old = if (p.rows.nonEmpty && ttl != Long.MaxValue) Some(p.rows.last.time + ttl) else None
    Seq(waiting, ends, old).flatten.filter(_ > watermark).minOption.map(t => math.max(1, Math.floorDiv(t + 999, 1000L))).getOrElse(-1L)
  }

  private[pgstream] def read(bytes: Array[Byte]): Seen =
    if (bytes == null) new Seen(new ArrayBuffer[Kept], new ArrayBuffer[Kept], 0, -1)
    else {
      val b = ByteBuffer.wrap(bytes)
      val (timer, settled, next) = (b.getLong(), b.getInt(), b.getInt())
      val rows = new ArrayBuffer[Kept](settled + 16)
      (0 until settled).foreach(_ => rows += Kept.read(b))
      new Seen(rows, Kept.readAll(b), next, timer)
    }

  private[pgstream] def written(p: Seen): Array[Byte] = {
    val b = ByteBuffer.allocate(16 + p.rows.iterator.map(_.size).sum + p.waiting.iterator.map(_.size).sum)
    b.putLong(p.timer).putInt(p.rows.length).putInt(p.next)
    p.rows.foreach(_.write(b))
    p.waiting.foreach(_.write(b))
    b.array
  }
}

object Recognize {
  /** A watermark (ms) in microseconds; nothing has passed before the first record. */
  private def passed(ms: Long): Long = if (ms <= 0) Long.MinValue else ms * 1000

  /** An empty DataFrame of what the conditions and measures read, by its name, to resolve them over. */
  def shape(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val fields = told(c, Changes.visible(df), Pattern.read(c.get("pattern"))).map { case (name, r) => StructField(name, r.dataType) }
    Bound.shape(df, fields)
  }

  private def told(c: JsonNode, schema: StructType, pattern: Pattern): IndexedSeq[(String, Read)] =
    c.get("reads").elements().asScala.toIndexedSeq.map { r =>
      val variable = pattern.variables.indexOf(r.str("variable"))
      def errors(at: Seq[Int]) = at.flatMap(i => schema.getFieldIndex(Tried.error(schema(i).name))).toArray
      val read =
        if (r.has("call")) {
          val call = Call.read(r.get("call"), schema)
          Tally(variable, call, ChangeAggregate.resultType(call, schema), errors(call.at))
        } else {
          val at = schema.fieldIndex(r.str("at"))
          Seek(variable, at, schema(at).dataType, r.get("last").asBoolean, r.get("offset").asInt, r.get("shift").asInt, errors(Seq(at)))
        }
      r.str("name") -> read
    }

  /** `conditions`: columns over `reads`, by the names of their variables. */
  def apply(df: DataFrame, conditions: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val p = processor(df, conditions, config)
    val key = c.strings("key")
    val packed = Changes.pack(df, key, rows(df, key).fieldNames.toSeq)
    unpacked(Changes.run(packed, p, c.str("mode"), TimeMode.EventTime(), c.get("behind_ms").asLong), df, config)
  }

  private def unpacked(out: Dataset[Change], df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val key = c.strings("key")
    val reads = told(c, rows(df, key), Pattern.read(c.get("pattern"))).toMap
    val tells = StructType(c.strings("tells").map(n => StructField(n, reads(n).dataType)))
    Changes.unpack(out, tells, placed = false, StructType(key.map(df.schema(_)))).drop("__delete")
  }

  private def rows(df: DataFrame, key: Seq[String]): StructType = StructType(Changes.visible(df).filterNot(f => key.contains(f.name)))

  private[pgstream] def processor(df: DataFrame, conditions: DataFrame, config: String): Recognize = {
    val c = Json.read(config)
    val schema = rows(df, c.strings("key"))
    val pattern = Pattern.read(c.get("pattern"))
    val reads = told(c, schema, pattern)
    val names = reads.map(_._1)
    val defined = Bound.columns(conditions, names)
    val order = c.get("order").elements().asScala.toSeq.map { o =>
      Kept.sortOrder(schema, o.str("column"), o.get("descending").asBoolean, o.get("nulls_first").asBoolean)
    }
    def micros(name: String): Long = c.opt(name).map(_.toLong * 1000).filter(_ > 0).getOrElse(Long.MaxValue)
    new Recognize(
      schema, order, pattern, reads.map(_._2), pattern.variables.map(defined.get), c.strings("tells").map(names.indexOf(_)).toArray,
      Skip(c.str("skip"), pattern.variables.indexOf(c.str("to"))), micros("within_ms"), micros("ttl_ms"))
  }

  /** The matches in rows that are there, without a query, as the watermark (ms) passes some points. */
  def replay(df: DataFrame, conditions: DataFrame, config: String, watermarks: java.util.List[Number]): DataFrame = {
    val p = processor(df, conditions, config)
    val key = Json.read(config).strings("key")
    val all = Changes.pack(df, key, rows(df, key).fieldNames.toSeq).collect()
    val out = all.groupBy(c => Changes.wrap(c.key)).values.toSeq.flatMap { of =>
      var seen = p.read(null)
      seen.waiting ++= of.map(new Kept(_))
      watermarks.asScala.toSeq.flatMap { w =>
        val found = p.advance(of.head.key, seen, passed(w.longValue))
        seen = p.read(p.written(seen))
        found
      }
    }
    unpacked(df.sparkSession.createDataset(out)(Changes.encoder), df, config)
  }
}
