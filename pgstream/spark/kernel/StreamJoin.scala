package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.{LinkedHashMap => JMap}

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.streaming._

import Json.Node

/**
 * Stream with stream, however far apart in event time: rows of one key, each kept for `ttl` (microseconds) of the clock after
 * it has come. A row of a side that `pads` comes alone where it meets none, and is taken back when it meets its first. Rows may be taken
 * back that came in from such a join; equal ones are alike.
 */
class StreamJoin(pads: Seq[Boolean], ttl: Long, key: Int, condition: Option[Expression], widths: Seq[Int])
    extends Pairing(pads, ttl, condition, widths, StreamJoin.Most) {
  override protected def age(r: Near): Long = r.seen
  override protected def waits(r: Near): Boolean = false

  override def handleInputRows(k: Array[Byte], rows: Iterator[Change], timers: TimerValues): Iterator[Change] = {
    val now = timers.getCurrentProcessingTimeInMs() * 1000
    val (gone, come) = net(rows.toArray, now)
    // A NULL equals nothing.
    if (Changes.row(k, key).anyNull) gone.iterator.filterNot(_.met).map(alone(_, delete = true)) ++ come.iterator.filterNot(_.met).map(alone(_))
    else {
      val held = read()
      val kept = new Kept(held)
      val changes = kept.settle(meetings(kept, gone, come, now - ttl))
      keep(held, come)
      changes
    }
  }

  override def handleExpiredTimer(k: Array[Byte], timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Change] = {
    forget(timers.getCurrentProcessingTimeInMs() * 1000)
    Iterator.empty
  }

  /** The rows that a batch takes back, and those that it brings, without those that it both brings and takes back. */
  private def net(rows: Array[Change], now: Long): (Array[Near], Array[Near]) = {
    val (gone, come) = rows.partition(_.delete)
    def near(c: Change) = new Near(c.side, c.time, c.row, met = !pads(c.side), now)
    if (gone.isEmpty) (Array.empty, come.map(near))
    else {
      val left = new JMap[(Int, ByteBuffer), ArrayBuffer[Change]]
      gone.foreach(c => left.computeIfAbsent((c.side, Changes.wrap(c.row)), _ => new ArrayBuffer) += c)
      val more = come.filter { c =>
        val same = left.get((c.side, Changes.wrap(c.row)))
        if (same == null || same.isEmpty) true else { same.remove(same.length - 1); false }
      }
      (left.values.asScala.flatten.map(near).toArray, more.map(near))
    }
  }

  /** What rows make that are gone or have come, of those that are kept and with each other: first what is taken back. */
  private def meetings(kept: Kept, gone: Array[Near], come: Array[Near], from: Long): Iterator[Change] = {
    val (lefts, rights) = come.partition(_.side == 0)
    def alive(side: Int, others: Array[Near]): ArrayBuffer[Near] =
      if (others.isEmpty && gone.isEmpty) new ArrayBuffer else kept.rows(side)(_.last >= from).filter(_.seen >= from).to(ArrayBuffer)
    val before = Seq(alive(0, rights), alive(1, lefts))
    val taken = gone.flatMap(leave(kept, before, _))
    val alones = if (pads.contains(true)) before.map(_.filterNot(_.met)) else Nil
    val pairs =
      lefts.iterator.flatMap(l => (before(1).iterator ++ rights).filter(meet(l, _)).map(pair(l, _))) ++
        rights.iterator.flatMap(r => before(0).iterator.filter(meet(_, r)).map(pair(_, r)))
    if (!pads.contains(true)) taken.iterator ++ pairs
    else {
      val all = pairs.toArray
      val latest = (gone.iterator ++ come).map(_.time).max
      val ended = alones.iterator.flatten.filter(_.met).map(r => alone(r, delete = true)).map(c => c.copy(time = math.max(c.time, latest)))
      taken.iterator ++ ended ++ all ++ come.iterator.filterNot(_.met).map(alone(_))
    }
  }

  /** One of the rows that are like `g` goes, and its pairs; who then has none comes alone. What has been forgotten is gone already. */
  private def leave(kept: Kept, before: Seq[ArrayBuffer[Near]], g: Near): Seq[Change] = {
    val (own, others) = (before(g.side), before(1 - g.side))
    own.find(r => Changes.same(r.row, g.row)).toSeq.flatMap { r =>
      own -= r
      kept.drop(r)
      def sides(a: Near, b: Near) = if (g.side == 0) (a, b) else (b, a)
      val met = others.filter(o => (suits _).tupled(sides(r, o)))
      val pairs = met.map { o => val (a, b) = sides(r, o); pair(a, b, delete = true) }
      val lone = if (r.met) Nil else Seq(alone(r, delete = true))
      val lonely = if (pads(1 - g.side)) met.filterNot(o => own.exists(x => (suits _).tupled(sides(x, o)))) else Nil
      lonely.foreach(_.met = false)
      (pairs ++ lone).map(c => c.copy(time = math.max(c.time, g.time))) ++ lonely.map(alone(_))
    }
  }
}

object StreamJoin {
  /** Bytes of rows of a key that are written anew with each that comes. */
  private val Most = 16 * 1024

  /** As `Pairing.apply`. */
  def apply(left: DataFrame, right: DataFrame, condition: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    Pairing(left, right, condition, c, TimeMode.ProcessingTime(), 0)(new StreamJoin(_, c.get("ttl_ms").asLong * 1000, _, _, _))
  }
}
