package org.apache.spark.sql.pgstream

import java.sql.Connection

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.executor.InputMetrics
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SQLContext}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, ReadLimit, ReadMaxRows, SupportsAdmissionControl}
import org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.jdbc.JdbcDialects
import org.apache.spark.sql.sources.StreamSourceProvider
import org.apache.spark.sql.types.StructType

import Json.Node

/** The number of the last row of a view's log that was read. */
case class LogPlace(view: String, last: Long) extends Offset {
  override def json(): String = {
    val o = Json.obj
    o.putObject(view).put("0", last)
    Json.text(o)
  }
}

/** A view's log in PostgreSQL: `table`, and the columns of the view as text of the SELECT list, `listed`, by `mode`. */
case class ViewLog(target: ViewTarget, view: String, mode: String, listed: Seq[(String, String)]) {
  private val all = listed.map(_._1).mkString(", ")
  private val read = listed.map { case (name, t) => PgClock.read(name, t) }.mkString(", ")
  private val part = s"FROM ${target.table} WHERE __seq > ? AND __seq <= ?"

  /**
   * The last number that a batch may end at: whole transactions, so that each batch is as the view was at some moment, and
   * of these as few as hold the rows that are wanted. Writers take turns: numbers are in the order of the commits.
   */
  val end: String =
    s"WITH nth AS (SELECT __seq, __tx FROM ${target.table} WHERE __seq > ? ORDER BY __seq OFFSET ? LIMIT 1), " +
      s"next AS (SELECT l.__seq FROM ${target.table} l, nth WHERE l.__seq > nth.__seq AND l.__tx <> nth.__tx ORDER BY l.__seq LIMIT 1) " +
      s"SELECT max(__seq) FROM ${target.table} WHERE __seq > ? AND __seq < COALESCE((SELECT __seq FROM next), 9223372036854775807)"

  val newest: String = s"SELECT max(__seq) FROM ${target.table}"
  val trim: String = s"DELETE FROM ${target.table} WHERE __seq <= ?"

  /** The rows between two places. Without a key only what is left of them when what came and went in between is taken off. */
  val rows: String = mode match {
    case "append" => s"SELECT $read, __time, 0, __seq $part ORDER BY __seq"
    case "upsert" => s"SELECT $read, __time, __delete, 0, __seq $part ORDER BY __seq"
    case _ =>
      s"SELECT $read, __time, __n < 0 FROM (SELECT $all, max(__time) AS __time, sum(CASE WHEN __delete THEN -1 ELSE 1 END) AS __n " +
        s"$part GROUP BY $all) s CROSS JOIN generate_series(1, abs(__n))"
  }
}

/** The changes of a materialized view as they stand in its log, exactly once: the log keeps what is not known to be done. */
class ViewSource(context: SQLContext, log: ViewLog, override val schema: StructType, most: Long)
    extends Source with SupportsAdmissionControl {
  private var connection: Connection = _
  private var done: Option[Long] = None

  override def getOffset: Option[Offset] = throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is asked")
  override def getDefaultReadLimit: ReadLimit = ReadLimit.maxRows(most)

  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = {
    val from = Option(start).map(place).getOrElse(0L)
    val rows = limit match { case m: ReadMaxRows => m.maxRows; case _ => Long.MaxValue }
    number(log.end, from, rows - 1, from).map(LogPlace(log.view, _)).getOrElse(start)
  }

  override def reportLatestOffset(): AnyOffset = number(log.newest).map(LogPlace(log.view, _)).orNull

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val spark = context.sparkSession.asInstanceOf[org.apache.spark.sql.classic.SparkSession]
    val rows = new LogRows(spark.sparkContext, log, schema, start.map(place).getOrElse(0L), place(end))
    spark.internalCreateDataFrame(rows, schema, isStreaming = true)
  }

  /** One batch more than what is known to be done stays: the newest file of a checkpoint may be lost with the power. */
  override def commit(end: Offset): Unit = {
    done.foreach(number(log.trim, _))
    done = Some(place(end))
  }

  override def stop(): Unit = synchronized(disconnect())

  override def toString: String = s"View[${log.view}]"

  private def place(o: AnyOffset): Long = o match {
    case LogPlace(_, last) => last
    case other => Json.read(other.json()).get(log.view).get("0").asLong
  }

  /** A statement's only number, if it gives one. */
  private def number(sql: String, given: Long*): Option[Long] = synchronized {
    try {
      if (connection == null) { connection = log.target.connect(); connection.setAutoCommit(true) }
      val s = connection.prepareStatement(sql)
      try {
        given.zipWithIndex.foreach { case (n, i) => s.setLong(i + 1, n) }
        if (!s.execute()) None
        else {
          val r = s.getResultSet
          r.next()
          val n = r.getLong(1)
          if (r.wasNull()) None else Some(n)
        }
      } finally s.close()
    } catch { case e: Throwable => disconnect(); throw e }
  }

  private def disconnect(): Unit = {
    val c = connection
    connection = null
    if (c != null)
      try c.close()
      catch { case _: java.sql.SQLException => () }
  }
}

private case object Whole extends Partition { override def index: Int = 0 }

/** The rows of a log between two places, read by one task in the log's order. */
class LogRows(context: SparkContext, log: ViewLog, schema: StructType, after: Long, last: Long)
    extends RDD[InternalRow](context, Nil) {
  override protected def getPartitions: Array[Partition] = Array(Whole)

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val connection = log.target.connect()
    task.addTaskCompletionListener[Unit](_ => connection.close())
    connection.setAutoCommit(false) // else all rows are fetched at once
    val setting = connection.createStatement()
    setting.execute("SET TimeZone = 'UTC'")
    setting.close()
    val s = connection.prepareStatement(log.rows)
    s.setFetchSize(10000)
    s.setLong(1, after)
    s.setLong(2, last)
    JdbcUtils.resultSetToSparkInternalRows(s.executeQuery(), JdbcDialects.get(log.target.url), PgClock.stored(schema), new InputMetrics)
  }
}

/** What `readStream.format(…)` names; option `config` is JSON. */
class ViewSourceProvider extends StreamSourceProvider {
  override def sourceSchema(c: SQLContext, s: Option[StructType], name: String, o: Map[String, String]): (String, StructType) =
    ("view", s.get)

  override def createSource(
      context: SQLContext, metadata: String, schema: Option[StructType], name: String, o: Map[String, String]): Source = {
    val c = Json.read(o("config"))
    val target = ViewTarget(c.str("url"), c.str("user"), o("password"), c.str("log"), "")
    val log = ViewLog(target, c.str("view"), c.str("mode"), c.strings("names").zip(c.strings("types")))
    new ViewSource(context, log, schema.get, c.get("most").asLong)
  }
}
