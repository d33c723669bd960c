package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.sql.{Connection, DriverManager, SQLException}
import java.util.ArrayDeque

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.postgresql.PGConnection
import org.postgresql.copy.CopyDual

/** The types that domains are of. Asked for when one is met. */
class PgDomains(access: PgAccess) {
  private val known = new java.util.HashMap[Int, Int]

  def base(oid: Int): Int = if (oid >= 0 && oid < PgDomains.FirstOwn) oid else known.computeIfAbsent(oid, o => ask(o))

  private def ask(oid: Int): Int = {
    val c = access.connect("socketTimeout" -> "30")
    try {
      val s = c.prepareStatement(PgDomains.Ask)
      s.setLong(1, Integer.toUnsignedLong(oid))
      val r = s.executeQuery()
      if (r.next()) r.getLong(1).toInt else oid
    } finally c.close()
  }
}

object PgDomains {
  private val FirstOwn = 16384
  private val Ask =
    """WITH RECURSIVE d(oid, typtype, typbasetype) AS (SELECT oid, typtype, typbasetype FROM pg_type WHERE oid::bigint = ?
      |  UNION ALL SELECT t.oid, t.typtype, t.typbasetype FROM d JOIN pg_type t ON t.oid = d.typbasetype)
      |SELECT oid::bigint FROM d WHERE typtype <> 'd'""".stripMargin
}

/** The database of a table: properties of the JDBC driver, and `url` among them. */
case class PgAccess(properties: Map[String, String]) {
  def connect(more: (String, String)*): Connection = {
    val p = new java.util.Properties
    ((properties - "url") ++ more).foreach { case (k, v) => p.setProperty(k, v) }
    Class.forName("org.postgresql.Driver")
    DriverManager.getConnection(properties("url"), p)
  }

  /** A connection that speaks the replication protocol. */
  def replicating(): Connection =
    connect("replication" -> "database", "socketTimeout" -> "0", "assumeMinServerVersion" -> "10", "preferQueryMode" -> "simple",
      "options" -> PgAccess.Forms.map { case (name, form) => s"-c $name=$form" }.mkString(" "))
}

object PgAccess {
  /** How a session writes values, whatever the server's settings are. */
  val Forms: Seq[(String, String)] =
    Seq("DateStyle" -> "ISO", "IntervalStyle" -> "postgres", "TimeZone" -> "UTC", "bytea_output" -> "hex", "extra_float_digits" -> "3")
}

/** A place in a table's changes. `seq`: records that came before it; `lsn`: the end of the last whole transaction before it;
 *  `part`: records of the next one that came before it, too. `beat` tells places apart between which nothing came. */
case class SlotPlace(seq: Long, lsn: Long, part: Long, beat: Long = 0)

private class Txn(val before: Long, val first: Long) {
  var end = 0L
  var last = 0L
}

private case class SlotRecord(seq: Long, record: TableRecord, micros: Long, txn: Txn) {
  def size: Int = (if (record.key == null) 0 else record.key.length) + (if (record.value == null) 0 else record.value.length)
  def place: SlotPlace = if (txn.end != 0 && txn.last == seq) SlotPlace(seq, txn.end, 0) else SlotPlace(seq, txn.before, seq - txn.first + 1)
}

/**
 * Reads a replication slot from a place on, on a thread of its own, and holds what is not known to be done.
 *
 * The slot gives again what it was not told to be done with, in the same order, transaction after transaction: so records
 * can be counted, and a batch is the records between two counts. PostgreSQL is told of an end only by `confirm`.
 * `mark` keeps where an idle slot was told to go on, before it is told so.
 */
class SlotReader(access: PgAccess, slot: String, publication: String, from: SlotPlace, tables: Seq[TableText], most: Long,
    mine: Set[Int], mark: Long => Unit) extends Transactions {
  private val MaxBytes = 64L << 20
  private val StatusMs = 5000L
  private val SilentMs = 60000L
  private val held = new ArrayDeque[SlotRecord]
  private var bytes = 0L
  private var failure: Throwable = _
  private var planned = from.seq
  private var done = SlotPlace(-1, from.lsn, 0)
  private var seq = from.seq - from.part
  private var whole = from.lsn
  private var txn: Txn = _
  private var micros = 0L
  private var lastRow = 0L
  @volatile private var stopped = false
  // Of the reading thread alone:
  private var received = from.lsn
  private var flushed = 0L
  private var told = 0L
  private var heard = 0L
  private var marked = 0L

  private val thread = new Thread(() => run(), s"slot $slot")
  thread.setDaemon(true)
  thread.start()

  // The stream's side

  /** Where the next batch may end: `count` records on at most, or where it begins. */
  def end(start: SlotPlace, count: Long): SlotPlace = synchronized {
    check()
    var last: SlotRecord = null
    var (n, size) = (0L, 0L)
    val all = held.iterator()
    while (all.hasNext && n < count && size < MaxBytes) {
      val r = all.next()
      if (r.seq > start.seq) { last = r; n += 1; size += r.size }
    }
    planned = math.max(planned, if (last == null) start.seq else last.seq)
    notifyAll()
    if (last != null) last.place
    else if (start.seq > done.seq && System.currentTimeMillis() - lastRow > 1000) {
      lastRow = System.currentTimeMillis()
      start.copy(beat = start.beat + 1) // an empty batch, after which we are told that the one before is done
    } else start
  }

  /** The records between two places, in order; waits until they are there. */
  def between(start: SlotPlace, end: SlotPlace): Seq[(Long, TableRecord, Long)] = synchronized {
    planned = math.max(planned, end.seq)
    notifyAll()
    while (seq < end.seq) { check(); wait(1000) }
    val out = new ArrayBuffer[(Long, TableRecord, Long)]
    held.iterator().asScala.filter(r => r.seq > start.seq && r.seq <= end.seq).foreach(r => out += ((r.seq, r.record, r.micros)))
    if (out.length != end.seq - start.seq) throw new IllegalStateException(s"slot $slot: ${out.length} records between $start and $end")
    out.toSeq
  }

  /** What was read up to here is written: it need not be given again. */
  def confirm(place: SlotPlace): Unit = synchronized {
    done = place
    while (!held.isEmpty && held.peekFirst.seq <= place.seq) bytes -= held.pollFirst().size
    notifyAll()
  }

  def close(): Unit = {
    stopped = true
    thread.interrupt()
    thread.join(5000)
  }

  private def check(): Unit = failure match {
    case null => ()
    case f: TableFault => throw f
    case e: SQLException => throw TableSource.fault(e)
    case e => throw new TableFault("store", "58000", s"the replication connection was lost: ${e.getMessage}")
  }

  // The thread's

  private def run(): Unit = {
    var connection: Connection = null
    try {
      connection = access.replicating()
      val names = publication.replace("'", "''").replace("\"", "\"\"")
      val copy = connection.unwrap(classOf[PGConnection]).getCopyAPI.copyDual(
        s"""START_REPLICATION SLOT "$slot" LOGICAL ${SlotReader.text(from.lsn)} (proto_version '1', publication_names '"$names"')""")
      val output = new PgOutput(tables, mine, this, new PgDomains(access).base)
      heard = System.currentTimeMillis()
      while (!stopped) {
        val next = copy.readFromCopy(false)
        if (next == null) { silent(); Thread.sleep(5) }
        else { heard = System.currentTimeMillis(); take(ByteBuffer.wrap(next), output, copy) }
        while (isFull && !stopped) {
          status(copy, force = false)
          synchronized(if (isFull) wait(500))
          heard = System.currentTimeMillis()
        }
        status(copy, force = false)
      }
    } catch {
      case _: InterruptedException if stopped => ()
      case e: Throwable => synchronized { failure = e; notifyAll() }
    } finally
      if (connection != null)
        try connection.close()
        catch { case _: SQLException => () }
  }

  /** The server answers every status: a way that is gone may say nothing itself. */
  private def silent(): Unit =
    if (System.currentTimeMillis() - heard > SilentMs)
      throw new TableFault("store", "58000", s"the server did not answer for ${SilentMs / 1000} seconds")

  private def isFull: Boolean = synchronized {
    var ahead = held.size.toLong
    if (!held.isEmpty) ahead -= math.max(0L, planned - held.peekFirst.seq + 1)
    failure == null && (ahead >= 2 * most || (bytes > MaxBytes && ahead > 0))
  }

  private def take(b: ByteBuffer, output: PgOutput, copy: CopyDual): Unit = b.get().toChar match {
    case 'w' =>
      val lsn = b.getLong()
      b.getLong(); b.getLong()
      received = math.max(received, lsn)
      output.message(b, lsn)
    case 'k' =>
      received = math.max(received, b.getLong())
      b.getLong()
      if (b.get() == 1) status(copy, force = true)
    case _ => ()
  }

  /** Tell the server how far we are; when all that came is done, and nothing is on its way, that is where it is itself. */
  private def status(copy: CopyDual, force: Boolean): Unit = {
    val now = System.currentTimeMillis()
    if (!force && now - told < StatusMs) return
    val (place, idle) = synchronized((done, held.isEmpty && txn == null && done.seq == seq))
    if (idle && received > marked) { mark(received); marked = received }
    if (done.seq >= 0) flushed = math.max(flushed, if (idle) received else place.lsn)
    val out = ByteBuffer.allocate(34).put('r'.toByte).putLong(received).putLong(flushed).putLong(flushed)
      .putLong(now * 1000 - PgOutput.Epoch).put(1.toByte)
    copy.writeToCopy(out.array, 0, 34)
    copy.flushCopy()
    told = now
  }

  override def begin(commit: Long, at: Long): Boolean = synchronized {
    micros = at
    txn = new Txn(whole, seq + 1)
    commit >= from.lsn
  }

  override def change(records: Seq[TableRecord]): Unit = synchronized {
    records.foreach { r =>
      seq += 1
      if (seq > from.seq) {
        val one = SlotRecord(seq, r, micros, txn)
        held.addLast(one)
        bytes += one.size
        lastRow = System.currentTimeMillis()
      }
    }
    notifyAll()
  }

  override def commit(end: Long): Unit = synchronized {
    if (txn.first <= seq) { txn.end = end; txn.last = seq }
    whole = math.max(whole, end)
    txn = null
    notifyAll()
  }
}

object SlotReader {
  def text(lsn: Long): String = f"${lsn >>> 32}%X/${lsn & 0xffffffffL}%X"

  def lsn(text: String): Long = {
    val Array(high, low) = text.split('/')
    java.lang.Long.parseLong(high, 16) << 32 | java.lang.Long.parseLong(low, 16)
  }
}
