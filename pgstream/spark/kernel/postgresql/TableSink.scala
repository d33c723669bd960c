package org.apache.spark.sql.pgstream

import java.sql.Connection

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.types.StructType

import Json.Node

/** A table of a store, exactly once as a view's: ledger and staging lie in schema `pgstream` of the table's own database. */
class TableSink(config: String) extends ViewSink(TableSink.at(config)) {
  /**
   * PostgreSQL wants the right to make a schema even where it is there: who may not finds it made. Committed at once: who waits
   * for a lock on its table must not hold up those that write others.
   */
  override protected def settle(connection: Connection): Unit = {
    val s = connection.createStatement()
    try {
      // Two queries may come at once, and CREATE … IF NOT EXISTS is no lock.
      s.execute("SELECT pg_advisory_xact_lock(hashtext('pgstream'))")
      s.execute("DO $$ BEGIN IF to_regnamespace('pgstream') IS NULL THEN CREATE SCHEMA pgstream; END IF; " +
        "IF to_regclass('pgstream.ledger') IS NULL THEN " +
        "CREATE TABLE pgstream.ledger (query uuid PRIMARY KEY, batch bigint NOT NULL, attempt integer NOT NULL); END IF; END $$")
      connection.commit()
    } finally s.close()
  }

  override private[pgstream] def holds(batch: Long): Boolean = targets.head.told(super.holds(batch))
  override private[pgstream] def begin(batch: Long, schemas: Seq[StructType]): TaskSink.Work = targets.head.told(super.begin(batch, schemas))
  override private[pgstream] def end(batch: Long, done: Seq[TaskSink.Done]): Long = targets.head.told(super.end(batch, done))
}

object TableSink {
  private[pgstream] val Rights =
    "SELECT and INSERT on the table, with a key UPDATE and DELETE, and CREATE on the database, or on its schema pgstream with all rights on its ledger"

  private[pgstream] def at(config: String): String = {
    val c = Json.read(config).asInstanceOf[ObjectNode]
    val tables = if (c.has("views")) c.get("views").elements.asScala.toSeq else Seq(c)
    tables.zipWithIndex.foreach { case (t, i) =>
      val of = c.str("query").replace("-", "") + (if (i > 0) s"x$i" else "")
      t.asInstanceOf[ObjectNode].put("staging", s"pgstream.\"s_${of}_${c.str("attempt")}\"")
    }
    Json.text(c.put("home", "pgstream").put("repeats", tables.exists(_.str("mode") == "upsert")))
  }
}
