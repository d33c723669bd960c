package org.apache.spark.sql.pgstream

import java.io.ByteArrayOutputStream
import java.sql.{Connection, DriverManager, SQLException}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.postgresql.PGConnection

import org.apache.spark.internal.Logging
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper
import org.apache.spark.sql.types.StructType

import Json.Node

/** Where a view's state is: JDBC address and names, quoted for PostgreSQL. `store`: whose database it is, empty for ours. */
case class ViewTarget(url: String, user: String, password: String, table: String, staging: String,
    home: String = ViewTarget.Ours, more: Map[String, String] = Map.empty, store: String = "") {
  /** What goes wrong in a store's database is the store's trouble. */
  def told[T](work: => T): T =
    try work
    catch { case e: SQLException if store.nonEmpty => throw TableFault.of(e, TableSink.Rights).at(store) }

  def connect(): Connection = {
    val p = new java.util.Properties
    if (user.nonEmpty) p.setProperty("user", user)
    p.setProperty("password", password) // an empty one keeps the driver from ~/.pgpass
    p.setProperty("ApplicationName", "pgstream worker")
    p.setProperty("tcpKeepAlive", "true")
    if (store.nonEmpty) p.setProperty("socketFactory", classOf[KeptAlive].getName)
    // Where this machine dies without a word, its row of the ledger is free in seconds: another server's worker waits for it.
    if (home == ViewTarget.Ours) p.setProperty("options", "-c tcp_keepalives_idle=3 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=3")
    more.foreach { case (k, v) => p.setProperty(k, v) }
    Class.forName("org.postgresql.Driver")
    DriverManager.getConnection(url, p)
  }
}

object ViewTarget {
  /** The schema of the ledger of views. */
  val Ours = "pg_pgstream"
}

/**
 * Materialized views of one database, exactly once; most often it is one. Several change in one transaction. `sources` names
 * the stores of the query's sources, in Spark's order, empty for a view: where given, the ledger has how far each was read,
 * too. `notify` is a channel that is told of each batch that wrote rows. `until`: the last batch that counts, after which the
 * query ends.
 *
 * A small batch is collected as COPY text and written by the driver; a task with much text COPYs it into an unlogged
 * staging table itself, tagged with its attempt, and only the attempts that succeeded are merged. Then one transaction:
 * the ledger row locked and looked at, rows merged, ledger advanced.
 */
class ViewSink(config: String) extends TaskSink with Logging {
  private val c = Json.read(config)
  private val query = c.str("query")
  private val attempt = c.get("attempt").asInt
  private val home = c.opt("home").getOrElse(ViewTarget.Ours)
  private val repeats = c.opt("repeats").contains("true")
  private val stores = c.strings("sources")
  private val until = c.opt("until").map(_.toLong)
  private val views = if (c.has("views")) c.get("views").elements.asScala.toSeq else Seq(c)
  protected val targets: Seq[ViewTarget] = views.map(v =>
    ViewTarget(c.str("url"), c.str("user"), c.str("password"), v.str("table"), v.str("staging"), home, c.entries("properties"),
      v.opt("store").mkString))
  private var connection: Connection = _
  private var merges: Seq[ViewMerge] = Nil

  override protected def write(batch: Long, rows: RDD[InternalRow], schema: StructType): Unit = {
    if (until.forall(batch <= _)) super.write(batch, rows, schema)
    if (until.contains(batch)) Watch.finish(query)
  }

  override private[pgstream] def begin(batch: Long, schemas: Seq[StructType]): TaskSink.Work = {
    val layouts = views.zip(schemas).map { case (v, s) => ViewLayout(s, v.strings("key"), v.str("mode"), repeats) }
    // Before the tasks: those with much text write into the staging table.
    synchronized(open(layouts))
    ViewSink.work(layouts, targets)
  }

  override private[pgstream] def end(batch: Long, done: Seq[TaskSink.Done]): Long = {
    val parts = done.groupMap(_.output)(_.made.asInstanceOf[TaskRows])
    try commit(batch, views.indices.map(parts.getOrElse(_, Nil)))
    catch { case e: Throwable => disconnect(); throw e }
    parts.values.flatten.map(_.rows).sum
  }

  /** Without a ledger, as before the first batch, it has none. */
  override private[pgstream] def holds(batch: Long): Boolean = {
    val c = targets.head.connect()
    try {
      val there = c.prepareStatement(s"SELECT to_regclass('$home.ledger') IS NOT NULL").executeQuery()
      there.next()
      there.getBoolean(1) && {
        val s = c.prepareStatement(s"SELECT FROM $home.ledger WHERE query = ?::uuid AND batch >= ?")
        s.setString(1, query)
        s.setLong(2, batch)
        s.executeQuery().next()
      }
    } finally c.close()
  }

  private def open(layouts: Seq[ViewLayout]): Unit =
    if (connection == null)
      try {
        connection = targets.head.connect()
        connection.setAutoCommit(false)
        ViewSink.lasting(connection)
        settle(connection)
        merges = layouts.zip(targets).zipWithIndex.map { case ((l, t), i) => new ViewMerge(connection, t, l, i) }
        merges.foreach(_.prepare())
        connection.commit()
      } catch { case e: Throwable => disconnect(); throw e }

  /** What must be there before staging. */
  protected def settle(connection: Connection): Unit = ()

  private def commit(batch: Long, parts: Seq[Seq[TaskRows]]): Unit = synchronized {
    val ledger = new Ledger(connection, query, attempt, home)
    if (ledger.isNew(batch)) {
      KillPoints.at("view before copy")
      merges.zip(views).zip(parts).foreach { case ((merge, view), rows) =>
        if (rows.exists(_.rows > 0)) {
          merge.run(rows)
          view.opt("notify").filter(_.nonEmpty).foreach(tell(_, view.str("relation"), batch))
        }
      }
      ledger.advance(batch, consumed(batch))
    }
    KillPoints.at("view before commit")
    connection.commit()
    KillPoints.at("view after commit")
  }

  /**
   * How far each source was read at the end of a batch, and the watermark (milliseconds) in it:
   * `[{"store": …, "watermark": …, "at": {topic: {partition: next offset}}}, …]`.
   */
  private def consumed(batch: Long): Option[String] =
    Watch.find(query).filter(_ => stores.nonEmpty).map(run => run.synchronized(run.stream)).collect {
      case w: StreamingQueryWrapper => w.streamingQuery
    }.flatMap(_.offsetLog.get(batch)).map { read =>
      val list = Json.array
      val watermark = read.metadata.fold(0L)(_.batchWatermarkMs)
      read.offsets.zip(stores).foreach { case (offset, store) =>
        offset.foreach(o => list.addObject().put("store", store).put("watermark", watermark).set[JsonNode]("at", Json.read(o.json())))
      }
      Json.text(list)
    }

  private def tell(channel: String, relation: String, batch: Long): Unit = {
    val s = connection.prepareStatement("SELECT pg_notify(?, ?)")
    try {
      s.setString(1, channel)
      s.setString(2, Json.text(Json.obj.put("view", relation).put("batch", batch)))
      s.execute()
    } finally s.close()
  }

  private def disconnect(): Unit = {
    val c = connection
    connection = null
    if (c != null)
      try c.close()
      catch { case _: java.sql.SQLException => () }
  }

  /**
   * At the query's end the staging tables go, also when a batch failed and took the connection with it: where a view was
   * replaced meanwhile no later start would find them. Those that a killed worker left are dropped by the next start.
   */
  override def close(): Unit = synchronized {
    try
      if (merges.nonEmpty) {
        if (connection == null) { connection = targets.head.connect(); connection.setAutoCommit(false) }
        connection.rollback()
        ViewMerge.drop(connection, targets)
        connection.commit()
      }
    catch { case e: java.sql.SQLException => logWarning(s"staging tables of query $query stay for now: SQLSTATE ${e.getSQLState}") }
    disconnect()
  }
}

object ViewSink {
  private val Large = 8L << 20

  /** A database may be set to lose its latest commits in a crash; the checkpoint goes on after a batch that is in. */
  private def lasting(c: Connection): Unit = {
    val s = c.createStatement()
    try s.execute("SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'")
    finally s.close()
  }

  private def work(layouts: Seq[ViewLayout], targets: Seq[ViewTarget]): TaskSink.Work =
    (view, _, rows) => render(rows, layouts(view), targets(view))

  private def render(rows: Iterator[InternalRow], layout: ViewLayout, target: ViewTarget): TaskRows = {
    val out = new ViewRows(layout)
    // Not Spark's attempt number: that of a dead worker's task may come again.
    val attempt = java.util.concurrent.ThreadLocalRandom.current().nextLong(1L, Long.MaxValue)
    var staging: Connection = null
    try {
      while (rows.hasNext) {
        out.add(rows.next())
        if (out.size > Large) {
          if (staging == null) staging = target.told(tagged(target, attempt))
          target.told(stage(staging, target, layout, out))
        }
      }
      if (staging != null) target.told(stage(staging, target, layout, out))
    } finally
      if (staging != null)
        try staging.close()
        catch { case _: SQLException => () } // it is over: why, the statement that met it says
    val text = new ByteArrayOutputStream(out.size.toInt)
    if (staging == null) out.take(text)
    TaskRows(text.toByteArray, out.rows, out.deletes, out.nullKeyDeletes, staging != null, attempt)
  }

  /** A connection whose rows in the staging table carry the attempt: the column's default reads the setting. */
  private def tagged(target: ViewTarget, attempt: Long): Connection = {
    val c = target.connect()
    c.setAutoCommit(true)
    val s = c.createStatement()
    try s.execute(s"SET pgstream.attempt = '$attempt'")
    finally s.close()
    c
  }

  private def stage(c: Connection, target: ViewTarget, layout: ViewLayout, out: ViewRows): Unit = {
    val text = new ByteArrayOutputStream(out.size.toInt)
    out.take(text)
    val copy = c.unwrap(classOf[PGConnection]).getCopyAPI
    val names = layout.names.map(ViewMerge.quote) ++ (if (layout.changes) ViewMerge.HiddenNames else Nil)
    KillPoints.at("view before staging")
    copy.copyIn(s"COPY ${target.staging} (${names.mkString(", ")}) FROM STDIN", new java.io.ByteArrayInputStream(text.toByteArray))
  }
}

/** The row of `pg_pgstream.ledger` that says which batch of a query is in, and which attempt may write. */
class Ledger(c: Connection, query: String, attempt: Int, home: String = ViewTarget.Ours) {
  /** Each batch of a query is in after the one before: another number is of other data, or of another checkpoint. */
  def isNew(batch: Long): Boolean = {
    val there = row().orElse(if (batch > 0) None else { insert(); row() })
    there.foreach { case (_, by) => if (by > attempt) throw new FencedException(query, attempt, by) }
    val last = there.fold(-1L)(_._1)
    if (last != batch && last != batch - 1) throw new StrangeBatchException(query, batch, last)
    last < batch
  }

  private def row(): Option[(Long, Int)] = {
    val s = c.prepareStatement(s"SELECT batch, attempt FROM $home.ledger WHERE query = ?::uuid FOR UPDATE")
    try {
      s.setString(1, query)
      val r = s.executeQuery()
      if (r.next()) Some((r.getLong(1), r.getInt(2))) else None
    } finally s.close()
  }

  /** An earlier start may be in the commit of its first batch: it is waited for, and has the row. */
  private def insert(): Unit = {
    val s = c.prepareStatement(s"INSERT INTO $home.ledger (query, batch, attempt) VALUES (?::uuid, -1, ?) ON CONFLICT DO NOTHING")
    try { s.setString(1, query); s.setInt(2, attempt); s.executeUpdate() }
    finally s.close()
  }

  def advance(batch: Long, consumed: Option[String]): Unit = {
    val read = if (consumed.isEmpty) "" else ", consumed = ?::jsonb"
    val s = c.prepareStatement(s"UPDATE $home.ledger SET batch = ?, attempt = ?$read WHERE query = ?::uuid")
    try {
      s.setLong(1, batch)
      s.setInt(2, attempt)
      consumed.foreach(s.setString(3, _))
      s.setString(3 + consumed.size, query)
      s.executeUpdate()
    } finally s.close()
  }
}
