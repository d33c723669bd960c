package org.apache.spark.sql.pgstream

import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration

import org.apache.spark.SparkContext
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.catalyst.analysis.{UnresolvedAttribute, UnsupportedOperationChecker}
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Literal, PreciseTimestampConversion}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, Project}
import org.apache.spark.sql.catalyst.streaming.InternalOutputModes
import org.apache.spark.sql.classic.{Dataset => ClassicDataset, SparkSession => ClassicSession}
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.execution.streaming.RealTimeTrigger
import org.apache.spark.sql.streaming.{StreamingQuery, Trigger}
import org.apache.spark.sql.types.{LongType, TimestampType}
import org.apache.spark.util.{Clock, LongAccumulator, SystemClock}

import Json.Node

/** What Python calls, through Py4J. */
object Kernel {
  /** Records (key, value, __time, __partition, __offset[, __headers, __metadata]) with the decoded row beside them, as column `r`. */
  def decode(raw: DataFrame, config: String, bad: LongAccumulator): DataFrame = {
    val d = raw.asInstanceOf[ClassicDataset[_]]
    val a = Seq("key", "value", "__partition", "__offset").map(UnresolvedAttribute(_))
    val micros = PreciseTimestampConversion(UnresolvedAttribute("__time"), TimestampType, LongType)
    val decoder = new RecordDecoder(config, bad)
    def more(name: String, wanted: Boolean) = if (wanted && raw.columns.contains(name)) UnresolvedAttribute(name) else Literal(null)
    val beside = Seq(more("__headers", true), more("__metadata", decoder.placed.nonEmpty))
    val decoded = Alias(DecodeRecord((a :+ micros) ++ beside, decoder), "r")()
    // Names of their own: `raw` may be read more than once in a query, on both sides of a join.
    val kept = Seq("key", "__partition", "__offset", "__metadata", Unsent.Column).filter(raw.columns.contains(_)).map(n => Alias(UnresolvedAttribute(n), n)())
    ClassicDataset.ofRows(d.sparkSession, Project(decoded +: kept, d.logicalPlan))
  }

  /** A session for what this thread does: else Spark takes its defaults here and there, which know no type TIME. */
  def activate(spark: SparkSession): Unit = ClassicSession.setActiveSession(spark.asInstanceOf[ClassicSession])
  def deactivate(): Unit = ClassicSession.clearActiveSession()

  /** The records of a source that a query reads in several places. */
  def readOnce(df: DataFrame): DataFrame = ReadOnce(df)

  /** The topic of a query that runs in real-time mode. */
  def realTime(df: DataFrame, query: String): DataFrame = RealTime(df, query)

  /** The rows of a source, its event time told to Spark. */
  def eventTime(df: DataFrame, lateness: String): DataFrame = EventTime(df, lateness)

  /**
   * The rows that are not late. `until` names the column of the end of a row's window, or is empty; `held`: they come out
   * of an operator that may have kept them for longer than its watermark asks, which is so many milliseconds behind; else -1.
   */
  def onTime(df: DataFrame, until: String, spanMs: Long, everyMs: Long, cumulates: Boolean, held: Long, late: LongAccumulator): DataFrame = {
    val d = df.asInstanceOf[ClassicDataset[_]]
    val out = d.queryExecution.analyzed.output
    def at(name: String): Attribute = out.find(_.name == name).get
    val end = at(if (until.isEmpty) Changes.Time else until)
    val kept = OnTime(at(Changes.Time), end, spanMs * 1000, everyMs * 1000, cumulates, if (held < 0) None else Some(held), late)
    ClassicDataset.ofRows(d.sparkSession, Filter(kept, d.logicalPlan))
  }

  def counter(df: DataFrame, name: String): LongAccumulator = df.sparkSession.sparkContext.longAccumulator(name)

  /** Refuse what Spark cannot run as a stream, before anything is recorded. */
  def check(df: DataFrame, mode: String): Unit =
    UnsupportedOperationChecker.checkForStreaming(
      df.asInstanceOf[ClassicDataset[_]].queryExecution.analyzed,
      InternalOutputModes(mode)
    )

  /** Once for a worker: its queries take turns, and what each batch sends to its tasks is lean. */
  def settle(session: SparkSession): Unit = {
    Turns.take(session.sparkContext)
    Admission.take(session.sparkContext)
    forgetOrigins(session.sparkContext.hadoopConfiguration)
  }

  /**
   * Hadoop's configuration goes with each operator with state in each batch, and packs, of every one of its thousand settings
   * apart, in which file it was found: a seventh of what planning a small batch costs. It reads them again now and then.
   */
  private def forgetOrigins(settings: Configuration): Unit = {
    val origins = classOf[Configuration].getDeclaredField("updatingResource")
    origins.setAccessible(true)
    origins.set(settings, new ConcurrentHashMap[String, Array[String]] {
      override def put(setting: String, found: Array[String]): Array[String] = null
    })
  }

  /** Start a stream into the sink that `sink` describes; returns when it has been started, not when it has read. */
  def start(df: DataFrame, bad: LongAccumulator, late: LongAccumulator, sink: String): Unit = {
    val c = Json.read(sink)
    val query = c.str("query")
    val made = this.made(sink)
    c.opt("ceiling_ms").foreach(ms => made.watermarks = new Watermarks(ms.toLong))
    c.opt("fail_after").foreach(m => made.failAfter = Some(badRecord(m)))
    val run = new Run(query, c.get("attempt").asInt, made, bad, late)
    Sinks.register(query, made)
    Watch.add(run)
    try
      run.synchronized {
        val d = df.asInstanceOf[ClassicDataset[_]]
        d.sparkSession.sparkContext.setLocalProperty("spark.scheduler.pool", s"lane ${run.lane}")
        // As `writeStream` does it, but for the clock.
        def begin(rows: ClassicDataset[_], table: Table, mode: String, trigger: Trigger, clock: Clock): StreamingQuery = d.sparkSession.streams.startQuery(
          Some(s"$query:${c.str("attempt")}"), Some(c.str("checkpoint")), rows, Map("checkpointLocation" -> c.str("checkpoint")), table,
          InternalOutputModes(mode), trigger = trigger, triggerClock = clock
        )
        run.stream = made match {
          case r: RealTimeSink =>
            r.take(r.partitions())
            // Spark would take Sinks of its own only; what the plan may hold is the planner's to say (`planner/real_time.py`).
            d.sparkSession.conf.set("spark.sql.streaming.realTimeMode.allowlistCheck", "false")
            begin(d, new RealTimeTopic(query), "update", RealTimeTrigger(c.get("batch_ms").asLong), new SystemClock)
          case _ =>
            val every = c.get("trigger_ms").asLong
            val rows = ClassicDataset.ofRows(d.sparkSession, BatchRows(d.queryExecution.analyzed))
            begin(rows, made, c.str("output_mode"), Trigger.ProcessingTime(every), new ArrivalClock(run, d.queryExecution.analyzed, every))
        }
      }
    catch {
      case e: Throwable =>
        Watch.drop(query)
        Watch.leave(df.sparkSession.sparkContext, df.sparkSession.streams.listListeners().toSeq)
        throw e
    }
    made match {
      case r: RealTimeSink => Watch.daemon(s"figures of $query")(r.tell(run))
      case _ => ()
    }
    // A stream that failed at once ended before `stream` was known.
    if (!run.stream.isActive) Watch.onTerminated(run.stream.runId)
  }

  private def made(sink: String): BatchSink = {
    val c = Json.read(sink)
    val made = c.str("type") match {
      case "result" => new ResultSink(sink)
      case "outputs" => new OutputsSink(sink, taskSink)
      case "real time" => new RealTimeSink(sink)
      case _ => taskSink(sink)
    }
    (made +: made.parts).foreach(_.checkpoint = c.str("checkpoint"))
    made
  }

  /** Let the batch that has failed end before the bad record that it failed by. False: it must not, or cannot. */
  def endBefore(session: SparkSession, sink: String, bad: String): Boolean = {
    val asked = made(sink)
    try new BatchEnds(session, Json.read(sink).str("checkpoint")).before(badRecord(bad), asked.holds)
    finally asked.close()
  }

  private def taskSink(sink: String): TaskSink = Json.read(sink).str("type") match {
    case "view" => new ViewSink(sink)
    case "kafka" => new KafkaSink(sink)
    // A store type's own, by the name of its class (`SparkFace.write`).
    case other => Class.forName(other).getConstructor(classOf[String]).newInstance(sink).asInstanceOf[TaskSink]
  }

  private def badRecord(json: String): BadRecordException = {
    val n = Json.read(json)
    new BadRecordException(n.str("topic"), n.get("partition").asInt, n.get("offset").asLong, n.opt("place").getOrElse(""), n.str("reason"))
  }

  def more(query: String, rows: Int): Unit =
    if (Sinks.get(query).exists(_.isInstanceOf[ResultSink])) ResultSink.client(query).credit.release(rows)

  /** A query is over for good. */
  def forget(query: String): Unit = ResultSink.forget(query)

  /** End a stream between two batches if one ends soon, else in the middle of one. False when it does not run. */
  def stop(query: String, graceMs: Long): Boolean =
    Watch.find(query) match {
      case None => false
      case Some(run) =>
        run.sink.stopping = true
        val end = System.currentTimeMillis() + graceMs
        def between = run.sink.parked || !run.stream.status.isTriggerActive
        while (run.stream.isActive && !between && System.currentTimeMillis() < end) Thread.sleep(5)
        run.whole = run.stream.isActive && between
        run.stream.stop()
        true
    }

  /** Remove a checkpoint, on whatever file system it is. */
  def remove(path: String): Unit = {
    val session = org.apache.spark.sql.classic.SparkSession.active
    val p = new org.apache.hadoop.fs.Path(path)
    Remains.remove(p, p.getFileSystem(session.sparkContext.hadoopConfiguration), session.sessionState.conf.streamingMaintenanceInterval)
  }

  /** The names in a folder, on whatever file system it is; none where there is no folder. */
  def list(path: String): Array[String] = {
    val p = new org.apache.hadoop.fs.Path(path)
    val fs = p.getFileSystem(org.apache.spark.sql.classic.SparkSession.active.sparkContext.hadoopConfiguration)
    if (fs.exists(p)) fs.listStatus(p).map(_.getPath.getName) else Array.empty
  }

  /** The process ends after this: no batch begins, those under way may finish. */
  def quiesce(ms: Long): Boolean = Sinks.quiesce(ms)

  def causes(failure: Throwable): String = Events.causes(failure)

  /** What has happened. IllegalStateException once Spark has ended: a cluster ends an application that it cannot keep up. */
  def poll(ms: Long): String =
    if (SparkContext.getActive.isEmpty) throw new IllegalStateException("the Spark application has ended")
    else Watch.poll(ms)
  def active(): Int = Watch.active.length
}
