package org.apache.spark.sql.pgstream

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec
import org.apache.spark.sql.execution.streaming.runtime._
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * Sources with 'source.idle.timeout.millis' that have been silent that long no longer hold event time back: their
 * watermark follows that of the others. Spark has no such thing; but its watermark is the least of what each source's
 * node has counted, so an idle one is given a count.
 */
class IdleSources {
  private val seen = new ConcurrentHashMap[UUID, Long]

  private def nodes(plan: SparkPlan): Seq[EventTimeWatermarkExec] = plan.collect { case e: EventTimeWatermarkExec => e }
  private def timeout(e: EventTimeWatermarkExec): Option[Long] =
    if (e.eventTime.metadata.contains(IdleSources.Key)) Some(e.eventTime.metadata.getLong(IdleSources.Key)) else None

  /** After each batch, on the query's thread. */
  def batch(plan: SparkPlan): Unit = {
    val now = System.currentTimeMillis()
    nodes(plan).foreach(e => if (e.eventTimeStats.value.count > 0) seen.put(e.nodeId, now))
  }

  /** From time to time, between batches; Spark then runs one, with or without rows, because the watermark has moved. */
  def check(stream: StreamingQuery): Unit = stream match {
    case w: StreamingQueryWrapper if w.isActive =>
      w.streamingQuery match {
        case m: MicroBatchExecution if m.lastExecution != null =>
          // Spark holds this lock while it decides on the next batch.
          val lock = IdleSources.Lock.invoke(m).asInstanceOf[java.util.concurrent.locks.Lock]
          if (lock.tryLock())
            try if (!w.status.isTriggerActive) follow(m)
            finally lock.unlock()
        case _ => ()
      }
    case _ => ()
  }

  private def follow(m: MicroBatchExecution): Unit = {
    val plan = m.lastExecution.executedPlan
    val every = nodes(plan)
    val now = System.currentTimeMillis()
    every.foreach(e => seen.putIfAbsent(e.nodeId, now))
    val (idle, awake) = every.partition(e => timeout(e).exists(now - seen.get(e.nodeId) >= _))
    if (idle.nonEmpty) {
      val tracker = IdleSources.Tracker.invoke(m).asInstanceOf[WatermarkTracker]
      val at = tracker.watermarkMap
      def watermarks(of: Seq[EventTimeWatermarkExec]): Seq[Long] = of.map(e => at.get(e.nodeId).flatten.getOrElse(0L))
      val to = if (awake.nonEmpty) watermarks(awake).min else watermarks(idle).max
      val behind = idle.filter(e => at.get(e.nodeId).flatten.forall(_ < to))
      if (to > 0 && behind.nonEmpty) {
        behind.foreach(e => e.eventTimeStats.add(to + e.delayMs))
        tracker.updateWatermark(plan)
        IdleSources.forget(m.lastExecution)
      }
    }
  }
}

object IdleSources {
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
