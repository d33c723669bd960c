package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.sql.{Connection, SQLException}
import java.util.{HashMap => JMap}

import scala.collection.mutable.ArrayBuffer
import scala.util.Try

import org.apache.spark.TaskContext
import org.apache.spark.executor.InputMetrics
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection}
import org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
import org.apache.spark.sql.jdbc.JdbcDialects
import org.apache.spark.sql.types._

import Json.Node

/**
 * What PostgreSQL is asked for many rows at once: `sql` of the arguments of each, which come as text and are of the
 * types `arguments`; the results as `types`. It can change nothing, and is asked with the rights of `role`, or where
 * `store` is named with those of that store's user. An answer may take `limitMs`.
 */
case class Question(target: ViewTarget, store: String, role: Option[String], schema: Option[String], sql: String,
    arguments: Seq[String], types: Seq[String], limitMs: Long) {
  private val results = types.indices.map(i => s"c${i + 1}").mkString(", ")
  private val read = types.zipWithIndex.map { case (t, i) => PgClock.read(s"q.c${i + 1}", t) }.mkString(", ")
  private val rows =
    if (arguments.isEmpty) "(SELECT 1::bigint AS n)"
    else {
      // Where it is, is said: one of another client's that fits better would run with the rights of `role`.
      val lists = arguments.map(t => s"pg_catalog.unnest(CAST(CAST(? AS text[]) AS $t[]))").mkString(", ")
      s"ROWS FROM ($lists) WITH ORDINALITY"
    }
  private val names = if (arguments.isEmpty) "n" else (arguments.indices.map(i => s"p${i + 1}") :+ "n").mkString(", ")

  /** The number of the row that asked, from one on, then the results. */
  val text: String = s"""SELECT "__row".n, $read FROM $rows AS "__row"($names) CROSS JOIN LATERAL ($sql) AS q($results)"""

  /** A connection for as long as the task runs. */
  def open(task: TaskContext): Asking = told {
    // The driver's own bound: of what it fetches at once, and so of a single row.
    val bounded = target.copy(more = target.more + ("maxResultBuffer" -> Lookup.MostBytes.toString))
    val asking = new Asking(bounded.connect(), target, store, task, limitMs)
    task.addTaskCompletionListener[Unit](_ => asking.close())
    asking.waiting(prepare(asking.connection))
    asking
  }

  private def prepare(c: Connection): Unit = {
    val s = c.createStatement()
    val own = role.map(r => s"SET ROLE $r; ").mkString + schema.map(p => s"SET search_path = $p; ").mkString
    s.execute(s"$limit${own}SET TimeZone = 'UTC'; SET default_transaction_read_only = on")
    s.close()
    c.setReadOnly(true)
    c.setAutoCommit(false)
  }

  /** PostgreSQL's own limit is ours, unless its administrator has set a shorter one for who asks. */
  private def limit: String =
    if (limitMs == 0) ""
    else {
      val set = "pg_catalog.current_setting('statement_timeout')"
      s"SELECT pg_catalog.set_config('statement_timeout', CASE WHEN CAST($set AS interval) BETWEEN interval '1 ms' " +
        s"AND interval '$limitMs ms' THEN $set ELSE '$limitMs' END, false); "
    }

  /** What goes wrong at a store is the store's: it is waited for, or names what it refused. */
  def told[T](work: => T): T =
    try work
    catch { case e: SQLException if store.nonEmpty => throw TableFault.of(e, "SELECT on the table").at(store) }
}

/** What is looked up for one row is more than the worker keeps; `store`: who was asked, empty for the view's own PostgreSQL. */
class LongLookup(store: String) extends RuntimeException(
    s"a lookup${if (store.isEmpty) "" else s""" in store "$store""""} found more than ${Lookup.MostBytes >> 20} MB for one row")

/** Rows of a stream beside what PostgreSQL answers for each when it comes by; `left`: a row without an answer stays. */
class Lookup(question: Question, width: Int, right: StructType, left: Boolean) extends Serializable {
  private val Run = 1000
  private type Answers = JMap[ByteBuffer, ArrayBuffer[Array[Byte]]]
  private val all = PgClock.stored(StructType(StructField("n", LongType) +: right.fields))

  /** Not called apply: Py4J would not find the object's. */
  def joined(rows: Iterator[Change]): Iterator[Change] =
    if (!rows.hasNext) Iterator.empty
    else {
      val asking = question.open(TaskContext.get())
      rows.grouped(Run).flatMap(beside(asking, _))
    }

  /** Where the answers are too many to be kept, half of the rows ask at a time. */
  private def beside(asking: Asking, run: Seq[Change]): Iterator[Change] =
    question.told(asking.waiting(read(asking.connection, run))) match {
      case Some(found) => run.iterator.flatMap { c =>
        val hits = found.get(Changes.wrap(c.key))
        if (hits != null) hits.iterator.map(r => c.copy(key = r))
        else if (left) Iterator.single(c.copy(key = null))
        else Iterator.empty
      }
      case None if run.map(c => Changes.wrap(c.key)).distinct.size == 1 => throw new LongLookup(question.store)
      case None =>
        val (some, others) = run.splitAt(run.size / 2)
        beside(asking, some) ++ beside(asking, others)
    }

  /**
   * The answers by the arguments that they are for, in a transaction that is rolled back: a function in a view that is
   * read may change settings, the role in force among them, and what the next run is asked would be another thing.
   */
  private def read(connection: Connection, run: Seq[Change]): Option[Answers] = {
    val found =
      try answers(connection, run)
      catch {
        case e: SQLException if String.valueOf(e.getMessage).contains("maxResultBuffer") =>
          // The driver has left the answer in the middle.
          Try(connection.abort((r: Runnable) => r.run()))
          throw new LongLookup(question.store)
        case e: Throwable => Try(connection.rollback()); throw e
      }
    connection.rollback()
    found
  }

  /** None where they are more than is kept. */
  private def answers(connection: Connection, run: Seq[Change]): Option[Answers] = {
    val out: Answers = new JMap
    var left = Lookup.MostBytes
    val keys = run.map(c => Changes.wrap(c.key)).distinct
    val s = connection.prepareStatement(question.text)
    try {
      (0 until width).foreach { i =>
        val values: Array[AnyRef] = keys.map { b =>
          val k = Changes.row(b.array, width)
          if (k.isNullAt(i)) null else k.getUTF8String(i).toString
        }.toArray
        s.setArray(i + 1, connection.createArrayOf("text", values))
      }
      val pack = UnsafeProjection.create(right.fields.toSeq.zipWithIndex.map { case (f, i) => BoundReference(i + 1, f.dataType, nullable = true) })
      // Else the driver fetches all of them at once. How many there is room for is known when some have come.
      s.setFetchSize(Lookup.FirstPage)
      val found = s.executeQuery()
      var longest = 1
      JdbcUtils.resultSetToSparkInternalRows(found, JdbcDialects.get(question.target.url), all, new InputMetrics).takeWhile(_ => left >= 0).foreach { r =>
        val row = Changes.bytes(pack(r))
        longest = math.max(longest, row.length)
        found.setFetchSize(math.max(1, math.min(Lookup.Page, Lookup.PageBytes / longest)))
        left -= row.length + Lookup.RowBytes
        out.computeIfAbsent(keys(r.getLong(0).toInt - 1), _ => new ArrayBuffer[Array[Byte]]) += row
      }
    } finally s.close()
    if (left >= 0) Some(out) else None
  }
}

object Lookup {
  /** What a task keeps of answers: for up to 1000 rows, or for one. */
  val MostBytes: Long = 64L << 20
  private val RowBytes = 64
  private val FirstPage = 2
  private val Page = 500
  private val PageBytes = 8 << 20

  /** How long one answer may take; 0: for ever. Set where the session is opened (`session.py`). */
  val LimitMs = "spark.pgstream.lookupTimeoutMs"

  /** `key`: the columns of `df` with the arguments as text; what PostgreSQL answers is of `ddl` and named by `names`. */
  def apply(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val key = c.strings("key")
    val rows = StructType(Changes.visible(df).filterNot(f => key.contains(f.name)))
    val right = StructType.fromDDL(c.str("ddl"))
    val target = ViewTarget(c.str("url"), c.str("user"), c.str("password"), "", "", more = c.entries("properties"))
    val question = Question(target, c.opt("store").mkString, c.opt("role"), c.opt("schema"), c.str("sql"),
      c.strings("arguments"), c.strings("types"), df.sparkSession.conf.get(LimitMs, "60000").toLong)
    val lookup = new Lookup(question, key.length, right, c.str("how") == "left")
    val out = Changes.pack(df, key, rows.fieldNames.toSeq).mapPartitions(lookup.joined(_))(Changes.encoder)
    val named = StructType(right.fields.zip(c.strings("names")).map { case (f, n) => f.copy(name = n) })
    val told = Changes.unpack(out, rows, df.columns.contains("__offset"), named)
    if (df.columns.contains("__delete")) told else told.drop("__delete")
  }
}
