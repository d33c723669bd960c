package org.apache.spark.sql.pgstream

import java.sql.{Connection, SQLException}

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

import Json.Node

/** A table of a store, exactly once as a view's: ledger and staging lie in schema `pgstream` of the table's own database. */
class TableSink(config: String) extends ViewSink(TableSink.at(config)) {
  override protected def settle(connection: Connection): Unit = {
    val s = connection.createStatement()
    try {
      // Two queries may come at once, and CREATE … IF NOT EXISTS is no lock.
      s.execute("SELECT pg_advisory_xact_lock(hashtext('pgstream'))")
      s.execute("CREATE SCHEMA IF NOT EXISTS pgstream")
      s.execute("CREATE TABLE IF NOT EXISTS pgstream.ledger (query uuid PRIMARY KEY, batch bigint NOT NULL, attempt integer NOT NULL)")
    } finally s.close()
  }

  override protected def write(batch: Long, rows: RDD[InternalRow], schema: StructType): Unit =
    try super.write(batch, rows, schema)
    catch { case e: SQLException => throw TableFault.of(e) }
}

object TableSink {
  private[pgstream] def at(config: String): String = {
    val c = Json.read(config).asInstanceOf[com.fasterxml.jackson.databind.node.ObjectNode]
    val staging = s"pgstream.\"s_${c.str("query").replace("-", "")}_${c.str("attempt")}\""
    Json.text(c.put("home", "pgstream").put("staging", staging).put("repeats", c.str("mode") == "upsert"))
  }
}
