package org.apache.spark.sql.pgstream

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec
import org.apache.spark.sql.execution.streaming.runtime._
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * What moves a query's event time beside its records. Spark's watermark is the least of what each source's node has
 * counted; the counts are changed here.
 *
 * A source is as far as its slowest partition: its records are fetched, and come in, partition by partition. One that has
 * had none for `PartitionMs` does not count; where none counts, the source is as far as its latest record.
 *
 * Sources with 'source.idle.timeout.millis' that have been silent that long no longer hold event time back: their
 * watermark follows that of the others. And no source's watermark passes `ceiling` (milliseconds): a query that computes
 * once more what another had made by a moment releases what that one had released.
 */
class Watermarks(ceiling: Long) {
  /** A partition's latest event time, and when it had records last; milliseconds. */
  private case class Reached(ms: Long, at: Long)
  /** A source's watermark as Spark has it, and as it is by its own partitions; milliseconds. */
  private case class Standing(of: EventTimeWatermarkExec, told: Long, own: Long, idle: Boolean)
  private val seen = new ConcurrentHashMap[UUID, Long]
  private val partitions = new ConcurrentHashMap[UUID, Map[Int, Reached]]
  /** When the sources were asked for records last. */
  @volatile var looked: Long = System.currentTimeMillis()

  private def nodes(plan: SparkPlan): Seq[EventTimeWatermarkExec] = plan.collect { case e: EventTimeWatermarkExec => e }
  private def timeout(e: EventTimeWatermarkExec): Option[Long] =
    if (e.eventTime.metadata.contains(Watermarks.Key)) Some(e.eventTime.metadata.getLong(Watermarks.Key)) else None

  /** After each batch, on the query's thread, before Spark looks at what was counted. */
  def batch(plan: SparkPlan): Unit = {
    val now = System.currentTimeMillis()
    nodes(plan).foreach { e =>
      val counted = e.eventTimeStats.value
      if (counted.count > 0) {
        seen.put(e.nodeId, now)
        Watermarks.times(e).foreach(note(e, _, now))
        counted.max = reached(e).getOrElse(counted.max) min latest(e)
      }
    }
  }

  private def note(e: EventTimeWatermarkExec, times: PartitionTimes, now: Long): Unit = {
    val before = Option(partitions.get(e.nodeId)).getOrElse(Map.empty)
    val read = times.value.map { case (p, micros) => p -> Reached(before.get(p).map(_.ms).foldLeft(Math.floorDiv(micros, 1000L))(_ max _), now) }
    partitions.put(e.nodeId, before ++ read)
    times.reset()
  }

  /** How far the partitions of a source are, milliseconds of event time; None where it has none. */
  private def reached(e: EventTimeWatermarkExec): Option[Long] =
    Option(partitions.get(e.nodeId)).filter(_.nonEmpty).map { all =>
      val told = e.session.sessionState.conf.getConfString(Watermarks.PartitionMs, "2000").toLong
      val wait = told min timeout(e).getOrElse(Long.MaxValue)
      val awake = all.values.filter(wait > 0 && looked - _.at < wait).map(_.ms)
      if (awake.isEmpty) all.values.map(_.ms).max else awake.min
    }

  /** What a source's latest event time may be, milliseconds. */
  private def latest(e: EventTimeWatermarkExec): Long = if (ceiling == Long.MaxValue) ceiling else ceiling + e.delayMs

  /** From time to time, between batches; True when Spark then runs one, with or without rows, as the watermark has moved. */
  def check(stream: StreamingQuery): Boolean = stream match {
    case w: StreamingQueryWrapper if w.isActive =>
      w.streamingQuery match {
        case m: MicroBatchExecution if m.lastExecution != null =>
          // Spark holds this lock while it decides on the next batch.
          val lock = Watermarks.Lock.invoke(m).asInstanceOf[java.util.concurrent.locks.Lock]
          lock.tryLock() && (try !w.status.isTriggerActive && follow(m) finally lock.unlock())
        case _ => false
      }
    case _ => false
  }

  private def follow(m: MicroBatchExecution): Boolean = {
    val plan = m.lastExecution.executedPlan
    val now = System.currentTimeMillis()
    val tracker = Watermarks.Tracker.invoke(m).asInstanceOf[WatermarkTracker]
    val sources = nodes(plan).map { e =>
      val told = tracker.watermarkMap.get(e.nodeId).flatten.getOrElse(0L)
      val own = reached(e).fold(told)(r => told max ((r min latest(e)) - e.delayMs))
      seen.putIfAbsent(e.nodeId, now)
      Standing(e, told, own, timeout(e).exists(now - seen.get(e.nodeId) >= _))
    }
    val awake = sources.filterNot(_.idle)
    val others = if (awake.nonEmpty) awake.map(_.own).min else sources.map(_.own).maxOption.getOrElse(0L)
    val ahead = sources.map(s => s -> (if (s.idle) s.own max others else s.own)).filter { case (s, to) => to > s.told }
    ahead.foreach { case (s, to) => s.of.eventTimeStats.add(to + s.of.delayMs) }
    if (ahead.nonEmpty) {
      tracker.updateWatermark(plan)
      Watermarks.forget(m.lastExecution)
    }
    ahead.nonEmpty
  }
}

object Watermarks {
  val Key = "pgstream.idle"
  /** For how long partitions of a source wait for one that has no records; 0: for none. A pool's 'compute_pool.silent_partition_ms'. */
  val PartitionMs = "spark.pgstream.silentPartitionMs"
  // Protected in Scala, though nothing but this knows the watermark of each source.
  private val Lock = classOf[StreamExecution].getMethod("awaitProgressLock")
  private val Tracker = classOf[MicroBatchExecution].getMethod("watermarkTracker")

  private def times(e: EventTimeWatermarkExec): Option[PartitionTimes] =
    e.child.collectFirst(Function.unlift((p: SparkPlan) => p.expressions.flatMap(_.collectFirst { case s: Noted => s.times }).headOption))

  /** The watermark that Spark has already handed to the operators for a batch that has not begun. */
  private def forget(last: IncrementalExecution): Unit = last.watermarkPropagator match {
    case p: PropagateWatermarkSimulator =>
      val field = classOf[PropagateWatermarkSimulator].getDeclaredField("batchIdToWatermark")
      field.setAccessible(true)
      field.get(p).asInstanceOf[java.util.TreeMap[Any, Any]].tailMap(last.currentBatchId, false).clear()
    case _ => ()
  }
}
