package org.apache.spark.sql.pgstream

import java.util.concurrent.{ConcurrentHashMap, Semaphore}

import org.apache.spark.SparkContext

/**
 * How many batches are under way at once: one more than there are places for tasks. With more all would go slower
 * together, and each show only what had come when it began; one that waits begins later, with newer records. Those who
 * wait come in order. A batch that takes long, for a store or by its size, is not counted any more: it keeps no other out.
 */
object Admission {
  /** What a batch may take until it is not counted, in ms. */
  private val LongMs = 1000L
  @volatile private var places = new Semaphore(Int.MaxValue, true)
  private val under = new ConcurrentHashMap[Run, Long]

  /** Once for a worker, before its first query. */
  def take(sc: SparkContext): Unit = places = new Semaphore(sc.defaultParallelism + 1, true)

  /** Waits until a run's next batch may begin; it may be interrupted. */
  def enter(run: Run): Unit = {
    places.acquire()
    under.put(run, System.currentTimeMillis())
  }

  /** Its batch is over, or the run is. */
  def leave(run: Run): Unit = if (under.remove(run) != 0L) places.release()

  /** How many runs' batches wait. */
  def waiting: Int = places.getQueueLength

  /** From time to time. */
  def look(): Unit = {
    val now = System.currentTimeMillis()
    under.forEach((run, since) => if (now - since > LongMs && under.remove(run, since)) places.release())
  }
}
