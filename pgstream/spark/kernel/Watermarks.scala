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
 * Sources with 'source.idle.timeout.millis' that have been silent that long no longer hold event time back: their
 * watermark follows that of the others. And no source's watermark passes `ceiling` (milliseconds): a query that computes
 * once more what another had made by a moment releases what that one had released.
 */
class Watermarks(ceiling: Long) {
  private val seen = new ConcurrentHashMap[UUID, Long]

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
        if (ceiling != Long.MaxValue) counted.max = math.min(counted.max, ceiling + e.delayMs)
      }
    }
  }

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
    val every = nodes(plan)
    val now = System.currentTimeMillis()
    every.foreach(e => seen.putIfAbsent(e.nodeId, now))
    val (idle, awake) = every.partition(e => timeout(e).exists(now - seen.get(e.nodeId) >= _))
    idle.nonEmpty && {
      val tracker = Watermarks.Tracker.invoke(m).asInstanceOf[WatermarkTracker]
      val at = tracker.watermarkMap
      def watermarks(of: Seq[EventTimeWatermarkExec]): Seq[Long] = of.map(e => at.get(e.nodeId).flatten.getOrElse(0L))
      val to = if (awake.nonEmpty) watermarks(awake).min else watermarks(idle).max
      val behind = idle.filter(e => at.get(e.nodeId).flatten.forall(_ < to))
      val moves = to > 0 && behind.nonEmpty
      if (moves) {
        behind.foreach(e => e.eventTimeStats.add(to + e.delayMs))
        tracker.updateWatermark(plan)
        Watermarks.forget(m.lastExecution)
      }
      moves
    }
  }
}

object Watermarks {
  val Key = "pgstream.idle"
  // Protected in Scala, though nothing but this knows the watermark of each source.
  private val Lock = classOf[StreamExecution].getMethod("awaitProgressLock")
  private val Tracker = classOf[MicroBatchExecution].getMethod("watermarkTracker")

  /** The watermark that Spark has already handed to the operators for a batch that has not begun. */
  private def forget(last: IncrementalExecution): Unit = last.watermarkPropagator match {
    case p: PropagateWatermarkSimulator =>
      val field = classOf[PropagateWatermarkSimulator].getDeclaredField("batchIdToWatermark")
      field.setAccessible(true)
      field.get(p).asInstanceOf[java.util.TreeMap[Any, Any]].tailMap(last.currentBatchId, false).clear()
    case _ => ()
  }
}
