package org.apache.spark.sql.pgstream

import java.sql.{Connection, SQLException}

import org.slf4j.LoggerFactory

/**
 * Looks after a slot from beside its reader, every few seconds: how much of the log the server keeps for it, whether that
 * grows past `warnBytes` or comes near the server's own bound, and what no replication message tells: that the slot is
 * lost, or that the publication has the table no longer.
 */
class SlotWatch(access: PgAccess, slot: String, publication: String, tables: Seq[TableName], warnBytes: Long) {
  import SlotWatch._
  private val log = LoggerFactory.getLogger(classOf[SlotWatch])
  @volatile private var stopped = false
  @volatile private var seen: Seen = _
  @volatile private var failure: TableFault = _

  private val thread = new Thread(() => run(), s"watch of slot $slot")
  thread.setDaemon(true)
  thread.start()

  def check(): Unit = if (failure != null) throw failure

  /** Figures of `DESCRIBE QUERY METRICS`. */
  def figures: Map[String, String] =
    Option(seen).map(s => Map("slot_lag_bytes" -> s.lag.toString, "slot_kept_bytes" -> s.kept.toString) ++
      s.room.map("slot_room_bytes" -> _.toString) ++ warning(s).map("slot_warning" -> _)).getOrElse(Map.empty)

  def close(): Unit = {
    stopped = true
    thread.interrupt()
  }

  private def run(): Unit = {
    var connection: Connection = null
    var warned = false
    while (!stopped && failure == null) {
      try {
        if (connection == null) connection = access.connect("socketTimeout" -> "30")
        look(connection)
        val told = Option(seen).flatMap(warning)
        if (told.isDefined && !warned) log.warn(s"replication slot $slot: ${told.get}")
        warned = told.isDefined
      } catch {
        // The reader says why a server is away.
        case _: SQLException => closed(connection); connection = null
      }
      try Thread.sleep(EveryMs)
      catch { case _: InterruptedException => () }
    }
    closed(connection)
  }

  private def look(c: Connection): Unit = {
    val s = c.prepareStatement(Ask)
    try {
      for (at <- Seq(1, 4)) {
        s.setArray(at, c.createArrayOf("text", tables.map(_.schema: AnyRef).toArray))
        s.setArray(at + 1, c.createArrayOf("text", tables.map(_.table: AnyRef).toArray))
        s.setString(at + 2, publication)
      }
      s.setString(7, slot)
      val r = s.executeQuery()
      if (r.next()) {
        if (r.getString("wal_status") == "lost") failure = TableSlot.lost(slot, TableSlot.Removed)
        else if (r.getString("missing") != null)
          failure = TableSlot.lost(slot, s"""publication "$publication" has table ${r.getString("missing")} no longer""")
        else if (r.getString("partly") != null)
          failure = TableSlot.lost(slot, s"""publication "$publication" leaves out some changes of table ${r.getString("partly")}""")
        val room = Option(r.getObject("safe_wal_size")).map(_ => r.getLong("safe_wal_size"))
        seen = Seen(r.getLong("lag"), r.getLong("kept"), room)
      }
    } finally s.close()
  }

  private def warning(s: Seen): Option[String] =
    if (s.room.exists(r => r < s.kept / 4))
      Some(s"the server keeps ${mb(s.kept)} MB for it and gives it up after ${mb(math.max(0, s.room.get))} MB more (max_slot_wal_keep_size)")
    else if (s.kept > warnBytes) Some(s"the server keeps ${mb(s.kept)} MB of its log for it")
    else None

  private def closed(c: Connection): Unit =
    if (c != null)
      try c.close()
      catch { case _: SQLException => () }
}

object SlotWatch {
  private val EveryMs = 5000L
  private val Ask =
    """SELECT pg_wal_lsn_diff(now, confirmed_flush_lsn)::bigint AS lag, pg_wal_lsn_diff(now, restart_lsn)::bigint AS kept,
      |  COALESCE(wal_status, '') AS wal_status, safe_wal_size, (SELECT w.s || '.' || w.t FROM unnest(?::text[], ?::text[]) w(s, t) LEFT JOIN
      |    pg_publication_tables p ON p.schemaname = w.s AND p.tablename = w.t AND p.pubname = ? WHERE p.pubname IS NULL LIMIT 1) AS missing,
      |  (SELECT w.s || '.' || w.t FROM unnest(?::text[], ?::text[]) w(s, t) WHERE NOT EXISTS (SELECT FROM """.stripMargin + TableSlot.Whole +
    """ AND t.schemaname = w.s AND t.tablename = w.t AND p.pubname = ?) LIMIT 1) AS partly
      |FROM pg_replication_slots, pg_current_wal_lsn() now WHERE slot_name = ?""".stripMargin

  private def mb(bytes: Long): Long = bytes >> 20

  /** `lag`: bytes of the server's log that were not confirmed; `kept`: what it keeps; `room`: until it gives the slot up. */
  private case class Seen(lag: Long, kept: Long, room: Option[Long])
}
