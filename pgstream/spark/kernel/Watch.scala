package org.apache.spark.sql.pgstream

import java.util.concurrent.{ConcurrentHashMap, CountDownLatch, LinkedBlockingQueue, TimeUnit}

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus
import org.apache.spark.sql.streaming.{StreamingQuery, StreamingQueryListener, StreamingQueryProgress}
import org.apache.spark.sql.streaming.StreamingQueryListener._
import org.apache.spark.util.LongAccumulator

/** A query that runs, and what its progress is told with. */
class Run(val query: String, val attempt: Int, val sink: BatchSink, val bad: LongAccumulator, val late: LongAccumulator) {
  @volatile var stream: StreamingQuery = _
  @volatile var progress: StreamingQueryProgress = _
  @volatile var finished = false
  /** Of Spark's scheduler: a pool that no other run has now. */
  var lane = 0
  /** It was stopped between two batches: what it told last, if it has had a batch, is all that it has written. */
  @volatile var whole = false
  @volatile var alive = false
  @volatile var lateRows = 0L
  /** Of all batches of this run. */
  @volatile var batches, rowsIn, batchMs = 0L
  /** While it waits for records; how often it has. */
  @volatile var waiting: CountDownLatch = _
  /** Its event time has moved since it waited last. */
  @volatile var moved = false
  @volatile var waits = 0L
  val toldLock = new Object
  var toldBatch = -1L
  var toldAt = 0L
}

/**
 * What happens in the JVM, in one queue that Python drains by one blocking call: rows, progress, ends, and the first
 * sign that a query's sources answer.
 *
 * Progress is told at most once a second per query, and once more before its end.
 */
object Watch {
  private val runs = new ConcurrentHashMap[String, Run]
  private val outbox = new LinkedBlockingQueue[String]
  private val lanes = new Object

  /** Spark never forgets a scheduler's pool: a run takes one that an ended run has had, if there is one. */
  def add(run: Run): Unit = lanes.synchronized {
    val taken = active.collect { case r if r.query != run.query => r.lane }.toSet
    run.lane = Iterator.from(0).find(!taken(_)).get
    runs.put(run.query, run)
  }

  /** Spark never forgets a session's bus of events either, and hands it those of all sessions. */
  def leave(sc: SparkContext, listeners: Seq[StreamingQueryListener]): Unit =
    sc.listenerBus.findListenersByClass[StreamingQueryListenerBus]()
      .filter(bus => listeners.exists(l => bus.listeners.contains(l))).foreach(sc.listenerBus.removeListener)

  def find(query: String): Option[Run] = Option(runs.get(query))
  def active: Seq[Run] = runs.values.asScala.toSeq

  def rows(query: String, rows: Array[String], cost: Int): Unit =
    outbox.put(rows.mkString(s"""{"type":"rows","query":"$query","cost":$cost,"rows":[""", ",", "]}"))

  /** LIMIT is reached: end the stream from another thread, it cannot stop itself. */
  def finish(query: String): Unit =
    find(query).foreach { run =>
      if (!run.finished) {
        run.finished = true
        // `Kernel.start` holds the run until it knows the stream.
        daemon(s"finish $query")(run.synchronized(run.stream).stop())
      }
    }

  private[pgstream] def daemon(name: String)(work: => Unit): Unit = {
    val t = new Thread(() => work, name)
    t.setDaemon(true)
    t.start()
  }

  def drop(query: String): Unit = Option(runs.remove(query)).foreach(_ => Sinks.remove(query))

  private[pgstream] def onProgress(p: StreamingQueryProgress): Unit =
    find(p.name.takeWhile(_ != ':')).foreach { run =>
      // Other operators' late rows are counted one by one, before they are grouped (`OnTime`).
      run.lateRows += p.stateOperators.filter(_.operatorName == "symmetricHashJoin").map(_.numRowsDroppedByWatermark).sum
      run.batches += 1
      run.rowsIn += p.numInputRows
      run.batchMs += p.batchDuration
      run.progress = p
      beat(run)
    }

  /** A trigger found nothing new: the run has everything that was there when it began. */
  private[pgstream] def onIdle(runId: java.util.UUID, began: String): Unit =
    active.find(r => r.stream != null && r.stream.runId == runId).foreach { run =>
      beat(run)
      outbox.put(s"""{"type":"idle","query":"${run.query}","began":"$began"}""")
    }

  /** A query in real-time mode: its tasks look for records. */
  private[pgstream] def alive(query: String): Unit = find(query).foreach(beat)

  /** The same: what its batch under way is like. */
  private[pgstream] def figures(run: Run, told: com.fasterxml.jackson.databind.node.ObjectNode): Unit = run.toldLock.synchronized {
    if (find(run.query).contains(run)) outbox.put(Json.text(told))
  }

  /** The first trigger is over, with rows or without. */
  private def beat(run: Run): Unit =
    if (!run.alive) {
      run.alive = true
      outbox.put(s"""{"type":"alive","query":"${run.query}","attempt":${run.attempt}}""")
    }

  private[pgstream] def onTerminated(runId: java.util.UUID): Unit =
    // Operators with state have asked the session of the batches for its manager of streams, which has a bus of its own.
    // Not while `ended` is locked: the bus waits for its thread, which may wait for that.
    ended(runId).foreach { run =>
      for (session <- Option(run.sink.session))
        Try(leave(session.sparkContext, session.streams.listListeners().toSeq)) // Spark may be ending
      Remains.sweep(active.map(_.stream).filter(_ != null).map(_.runId).toSet)
    }

  /** Tells, once, that a run is over. */
  private def ended(runId: java.util.UUID): Option[Run] = synchronized {
    val found = active.find(r => r.stream != null && r.stream.runId == runId)
    found.foreach { run =>
      Admission.leave(run)
      tell(run)
      runs.remove(run.query, run)
      Sinks.remove(run.query)
      val failure = if (run.finished) None else run.stream.exception
      outbox.put(Json.text(Events.ended(run, failure)))
    }
    found
  }

  private def tell(run: Run): Unit = run.toldLock.synchronized {
    val p = run.progress
    if (p != null && p.batchId != run.toldBatch) {
      run.toldBatch = p.batchId
      run.toldAt = System.currentTimeMillis()
      outbox.put(Json.text(Events.progress(run, p)))
    }
  }

  /** Events as a JSON array; waits up to `ms` for the first. */
  def poll(ms: Long): String = {
    val now = System.currentTimeMillis()
    Admission.look()
    active.foreach { r =>
      if (now - r.toldAt >= 1000) tell(r)
      if (r.stream != null && r.sink.watermarks.check(r.stream)) {
        r.moved = true
        if (r.waiting != null) r.waiting.countDown()
      }
    }
    val first = outbox.poll(ms, TimeUnit.MILLISECONDS)
    if (first == null) "[]"
    else {
      val more = new java.util.ArrayList[String]
      more.add(first)
      outbox.drainTo(more, 200)
      more.asScala.mkString("[", ",", "]")
    }
  }
}

/** Named by `spark.sql.streaming.streamingQueryListeners`: every session has one, and runs one query. */
class WatchListener extends StreamingQueryListener {
  override def onQueryStarted(e: QueryStartedEvent): Unit = ()
  override def onQueryProgress(e: QueryProgressEvent): Unit = if (e.progress.name != null) Watch.onProgress(e.progress)
  override def onQueryIdle(e: QueryIdleEvent): Unit = Watch.onIdle(e.runId, e.timestamp)
  override def onQueryTerminated(e: QueryTerminatedEvent): Unit =
    try Watch.onTerminated(e.runId)
    finally Watch.leave(SparkContext.getOrCreate(), Seq(this))
}
