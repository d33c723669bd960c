package org.apache.spark.sql.pgstream

import java.sql.{Connection, SQLException}
import java.util.concurrent.{ScheduledThreadPoolExecutor, TimeUnit}

import scala.util.Try

import org.apache.spark.TaskContext
import org.postgresql.PGConnection

/** Nobody has answered a lookup in its time; `store`: who was asked, empty for the view's own PostgreSQL. */
class SlowLookup(store: String, ms: Long) extends RuntimeException(
    (if (store.isEmpty) "a lookup was not answered" else s"""store "$store" did not answer a lookup""") + s" within ${ms / 1000} seconds")

/**
 * A connection that a task asks by. The task's thread, as long as it waits for an answer, notices neither that its task is
 * to end nor how long it has waited; another one does. It cancels what was asked, and after a moment ends PostgreSQL's
 * process (a function may go on after it was canceled) and the connection. `limitMs`: for one question, 0 for ever.
 */
class Asking(val connection: Connection, target: ViewTarget, store: String, task: TaskContext, limitMs: Long) extends AutoCloseable {
  import Asking._

  private val pg = connection.unwrap(classOf[PGConnection])
  /** Times of `System.nanoTime`; 0: not now, or not yet. */
  @volatile private var since, canceled = 0L
  @volatile private var ended = false
  private val looks = looker.scheduleWithFixedDelay(() => look(), EveryMs, EveryMs, TimeUnit.MILLISECONDS)

  /** Wait for what `work` asks. */
  def waiting[T](work: => T): T = {
    task.killTaskIfInterrupted()
    since = System.nanoTime
    try work
    catch { case _: SQLException if late(0) && !task.isInterrupted => throw new SlowLookup(store, limitMs) }
    finally since = 0
  }

  private def late(more: Long): Boolean = limitMs > 0 && passed(since) >= limitMs + more

  private def look(): Unit =
    if (since != 0 && !ended) {
      if (task.isInterrupted && canceled == 0) {
        canceled = System.nanoTime
        Watch.daemon("cancel a lookup")(Try(pg.cancelQuery()))
      } else if (canceled != 0 && passed(canceled) > GraceMs || late(GraceMs)) {
        ended = true
        Watch.daemon("end a lookup") { Try(terminate()); Try(connection.abort((r: Runnable) => r.run())) }
      }
    }

  /** A store's process is the store's: what it says its number is may be another's, where something stands between. */
  private def terminate(): Unit =
    if (store.isEmpty) {
      val c = target.copy(more = target.more ++ Map("loginTimeout" -> "10", "socketTimeout" -> "10")).connect()
      try {
        val s = c.prepareStatement("SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE pid = ? AND usename = session_user")
        s.setInt(1, pg.getBackendPID)
        s.execute()
      } finally c.close()
    }

  override def close(): Unit = {
    looks.cancel(false)
    connection.close()
  }
}

object Asking {
  private val EveryMs = 250L
  /** How long what was canceled may take to end, and PostgreSQL to notice by itself that the time is over. */
  private val GraceMs = 3000L
  private val looker = new ScheduledThreadPoolExecutor(1, (r: Runnable) => {
    val t = new Thread(r, "looks after lookups")
    t.setDaemon(true)
    t
  })
  looker.setRemoveOnCancelPolicy(true)

  private def passed(since: Long): Long = (System.nanoTime - since) / 1000000
}
