package org.apache.spark.sql.pgstream

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{Pool, Schedulable, SchedulingAlgorithm, SchedulingMode, TaskSchedulerImpl}

/**
 * Who gets the next free place for a task: the query that has the fewest tasks running, and of several such the one whose
 * batch has waited longest. Spark's fair scheduler lets of several the one go first whose pool's name comes first in the
 * alphabet: where all places are wanted all the time, the last ones get none.
 */
object Turns extends SchedulingAlgorithm {
  private val Algorithm = classOf[Pool].getDeclaredField("taskSetSchedulingAlgorithm")
  Algorithm.setAccessible(true)

  def take(sc: SparkContext): Unit = sc.taskScheduler match {
    case s: TaskSchedulerImpl if s.schedulingMode == SchedulingMode.FAIR => Algorithm.set(s.rootPool, this)
    case _ => ()
  }

  override def comparator(a: Schedulable, b: Schedulable): Boolean = {
    val running = Integer.compare(a.runningTasks, b.runningTasks)
    if (running != 0) running < 0 else first(a) < first(b)
  }

  /** The oldest job of a pool; Spark numbers them as they come. */
  private def first(pool: Schedulable): Int = Option(pool.schedulableQueue.peek()).fold(Int.MaxValue)(_.priority)
}
