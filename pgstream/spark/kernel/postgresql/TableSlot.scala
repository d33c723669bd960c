package org.apache.spark.sql.pgstream

import java.sql.{Connection, SQLException}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import Json.Node

/** How a slot began: where its changes do, and the rows that the table had there, which lie in files of `chunk` rows each.
 *  `keeps`: whether rows are kept for values that are not sent. */
case class SlotStart(slot: String, publication: String, lsn: Long, rows: Long, chunk: Long, micros: Long, system: String, keeps: Boolean = false)

/**
 * What a source keeps in its folder of the checkpoint, so that it can go on: the intent to make a slot, before it is made;
 * the rows that the table had, each file written once; how the slot began, when all that is there; and how far an idle slot
 * was told to go on. A source whose start was not written down begins anew: nothing of it was read.
 */
class SlotFolder(folder: String, conf: Configuration) {
  private val root = new Path(folder)
  private val fs = root.getFileSystem(conf)
  private var turn = 0

  def rows(chunk: Long): Path = new Path(root, s"rows-$chunk")

  def write(name: String, text: String): Unit = {
    val out = fs.create(new Path(root, name), true)
    try { out.write(text.getBytes("UTF-8")); out.hsync() }
    finally out.close()
  }

  /** None when it is not there, or was not written to its end. */
  def read(name: String): Option[com.fasterxml.jackson.databind.JsonNode] = {
    val path = new Path(root, name)
    if (!fs.exists(path)) None
    else {
      val in = fs.open(path)
      try Some(Json.read(new String(in.readAllBytes(), "UTF-8"))).filter(_.has("end"))
      catch { case _: com.fasterxml.jackson.core.JsonProcessingException => None }
      finally in.close()
    }
  }

  def started: Option[SlotStart] = read("start").map { n =>
    SlotStart(n.str("slot"), n.str("publication"), n.get("lsn").asLong, n.get("rows").asLong, n.get("chunk").asLong, n.get("micros").asLong, n.str("system"),
      n.has("keeps") && n.get("keeps").asBoolean)
  }

  def start(s: SlotStart): Unit = {
    val o = Json.obj
    o.put("slot", s.slot).put("publication", s.publication).put("lsn", s.lsn).put("rows", s.rows).put("chunk", s.chunk)
    o.put("micros", s.micros).put("system", s.system).put("keeps", s.keeps).put("end", true)
    write("start", Json.text(o))
  }

  /** Written in turn into two files: one of them is whole at any moment. */
  def mark(lsn: Long): Unit = {
    turn = 1 - turn
    write(s"mark-$turn", s"""{"lsn":$lsn,"end":true}""")
  }

  def marked: Long = Seq("mark-0", "mark-1").flatMap(read).map(_.get("lsn").asLong).maxOption.getOrElse(0L)
  def drop(chunk: Long): Unit = fs.delete(rows(chunk), false)
  def create(chunk: Long): java.io.DataOutputStream = new java.io.DataOutputStream(new java.io.BufferedOutputStream(fs.create(rows(chunk), true), 1 << 16))
}

/** Makes slots and publications, and the rows that a table had when its slot was made; takes both away again. */
class TableSlot(access: PgAccess, folder: SlotFolder, store: String, entity: String, tables: Seq[TableName]) {
  import ViewMerge.quote
  private val domains = new PgDomains(access)

  /** Have a slot, and in the folder what is needed to go on with it. `snapshot`: whether the rows that are there are read. */
  def begin(slot: String, publication: String, snapshot: Boolean, chunk: Long, texts: Seq[TableText]): SlotStart = {
    val sql = access.connect()
    try {
      tables.foreach(check(sql, _))
      texts.filter(_.keyed).foreach(t => once(sql, t.of))
      // An earlier start may have been killed half-way: what it made is of no use.
      val left = folder.read("intent").exists(_.str("slot") == slot)
      if (left && exists(sql, slot)) drop(sql, slot)
      val made = !exists(sql, slot)
      val published = number(sql, "SELECT count(*) FROM pg_publication WHERE pubname = ?", publication) == 0
      val intent = Json.obj
      intent.put("store", store).put("table", entity).put("slot", slot).put("made", made).put("publication", publication)
      folder.write("intent", Json.text(intent.put("published", published || left).put("end", true)))
      publish(sql, publication, published)
      texts.foreach(t => t.keeps = t.mayKeep(identity(sql, t.of), columnsOf(sql, t.of)))
      val found = if (made) make(slot, snapshot, tables.map(fitting(sql, _, chunk)).min, texts) else existing(sql, slot)
      val start = found.copy(publication = publication, system = system(sql), keeps = texts.exists(_.keeps))
      folder.start(start)
      start
    } finally sql.close()
  }

  /** That a slot can still go on from a place; nothing is skipped in silence. */
  def resume(start: SlotStart, place: SlotPlace): Unit = {
    val sql = access.connect()
    try {
      def lost(why: String) = throw TableSlot.lost(start.slot, why)
      if (system(sql) != start.system) lost("the server is another one than before")
      val read = math.max(place.lsn, folder.marked)
      if (SlotReader.lsn(one(sql, TableSlot.Stands)) < read) lost("the server stands before the last change that was read: it is an older copy")
      val s = sql.prepareStatement("SELECT confirmed_flush_lsn::text, COALESCE(wal_status, '') FROM pg_replication_slots WHERE slot_name = ?")
      s.setString(1, start.slot)
      val r = s.executeQuery()
      if (!r.next()) lost("it does not exist any more")
      if (r.getString(2) == "lost") lost(TableSlot.Removed)
      val confirmed = SlotReader.lsn(r.getString(1))
      if (confirmed > math.max(read, start.lsn)) lost("it stands after the last change that was read")
    } finally sql.close()
  }

  /** By these PostgreSQL knows the tables, whatever they are called. */
  def oids: Set[Int] = {
    val sql = access.connect()
    try tables.map(of => number(sql, s"SELECT COALESCE(to_regclass(${of.literal})::oid::bigint, 0)").toInt).toSet
    finally sql.close()
  }

  /** Take away what was made for a query. */
  def end(): Unit = folder.read("intent").foreach { intent =>
    val sql = access.connect()
    try {
      if (intent.get("made").asBoolean && exists(sql, intent.str("slot"))) drop(sql, intent.str("slot"))
      if (intent.get("published").asBoolean) run(sql, s"DROP PUBLICATION IF EXISTS ${quote(intent.str("publication"))}")
    } finally sql.close()
  }

  private def check(sql: Connection, of: TableName): Unit = {
    val level = one(sql, "SHOW wal_level")
    if (level != "logical")
      throw new TableFault("user", "55000", s"""the server's wal_level is "$level", so it does not tell changes""",
        "Set wal_level = logical in its postgresql.conf and restart it.")
    val identity = this.identity(sql, of)
    val keyed = number(sql, s"SELECT count(*) FROM pg_index WHERE indisprimary AND indrelid = ${of.literal}::regclass") > 0
    // PostgreSQL would refuse UPDATE and DELETE of such a table as soon as it is published.
    if (identity == 'n' || (identity == 'd' && !keyed))
      throw new TableFault("user", "55000", s"table $of has neither a primary key nor a replica identity",
        s"Add a primary key, or ALTER TABLE $of REPLICA IDENTITY FULL.")
  }

  /** Where two rows may have one key for a moment, which of them a change means is not told. */
  private def once(sql: Connection, of: TableName): Unit =
    if (number(sql, s"SELECT count(*) FROM pg_index WHERE indisprimary AND NOT indimmediate AND indrelid = ${of.literal}::regclass") > 0)
      throw new TableFault("user", "0A000", s"a changelog over a table whose primary key is deferrable, as that of $of is, is not supported",
        "Inside a transaction two rows may have one key. Make the key NOT DEFERRABLE, or read the table's changes as a stream.")

  /** How many of the table's rows are a batch: `most`, or as many as have some 64 MB. */
  private def fitting(sql: Connection, of: TableName, most: Long): Long = {
    val bytes = number(sql, s"SELECT pg_table_size(${of.literal})")
    val rows = number(sql, s"SELECT reltuples::bigint FROM pg_class WHERE oid = ${of.literal}::regclass")
    if (bytes < TableSlot.BatchBytes) most
    else if (rows <= 0) math.min(most, 10000)
    else math.max(100, math.min(most, TableSlot.BatchBytes * rows / bytes))
  }

  private def identity(sql: Connection, of: TableName): Char =
    one(sql, s"SELECT relreplident::text FROM pg_class WHERE oid = ${of.literal}::regclass").headOption.getOrElse('d')

  private def publish(sql: Connection, publication: String, missing: Boolean): Unit =
    if (missing)
      run(sql, s"CREATE PUBLICATION ${quote(publication)} FOR TABLE ${tables.map(_.quoted).mkString(", ")} WITH (publish_via_partition_root = true)")
    else tables.foreach { of =>
      if (number(sql, "SELECT count(*) FROM pg_publication_tables WHERE pubname = ? AND schemaname = ? AND tablename = ?", publication, of.schema, of.table) == 0)
        throw new TableFault("user", "55000", s"""publication "$publication" does not have table $of""",
          s"ALTER PUBLICATION ${quote(publication)} ADD TABLE $of.")
      if (number(sql, s"SELECT count(*) FROM ${TableSlot.Whole} AND p.pubname = ? AND t.schemaname = ? AND t.tablename = ?", publication, of.schema, of.table) == 0)
        throw new TableFault("user", "55000", s"""publication "$publication" leaves out some changes of table $of""",
          "It must publish insert, update, delete and truncate, without WHERE; or let the query make one of its own.")
    }

  /** A new slot, and the tables as they were at that moment: the snapshot lives as long as this connection says nothing else. */
  private def make(slot: String, snapshot: Boolean, chunk: Long, texts: Seq[TableText]): SlotStart = {
    val c = access.replicating()
    try {
      val s = c.createStatement()
      val r = s.executeQuery(s"""CREATE_REPLICATION_SLOT "$slot" LOGICAL pgoutput""")
      r.next()
      val lsn = SlotReader.lsn(r.getString("consistent_point"))
      val micros = System.currentTimeMillis() * 1000
      val rows = if (snapshot) copy(r.getString("snapshot_name"), lsn, micros, chunk, texts) else 0L
      SlotStart(slot, "", lsn, rows, chunk, micros, "")
    } finally c.close()
  }

  private def existing(sql: Connection, slot: String): SlotStart = {
    val s = sql.prepareStatement("SELECT confirmed_flush_lsn::text, plugin, database = current_database() FROM pg_replication_slots WHERE slot_name = ?")
    s.setString(1, slot)
    val r = s.executeQuery()
    r.next()
    if (r.getString(2) != "pgoutput" || !r.getBoolean(3))
      throw new TableFault("user", "55000", s"""replication slot "$slot" is not one of this database with plugin pgoutput""")
    SlotStart(slot, "", SlotReader.lsn(r.getString(1)), 0, 1, 0, "")
  }

  private def copy(snapshot: String, lsn: Long, micros: Long, chunk: Long, texts: Seq[TableText]): Long = {
    val sql = access.connect()
    var out: java.io.DataOutputStream = null
    var rows = 0L
    try {
      sql.setAutoCommit(false)
      run(sql, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
      run(sql, s"SET TRANSACTION SNAPSHOT '$snapshot'")
      run(sql, "SET statement_timeout = 0")
      PgAccess.Forms.foreach { case (name, form) => run(sql, s"SET $name = '$form'") }
      texts.foreach { text =>
        val columns = columnsOf(sql, text.of)
        text.check(columns)
        val names = columns.map(c => quote(c.name)).mkString(", ")
        val copy = sql.unwrap(classOf[org.postgresql.PGConnection]).getCopyAPI.copyOut(s"COPY (SELECT $names FROM ${own(sql, text.of)}) TO STDOUT")
        var line = copy.readFromCopy()
        while (line != null) {
          text.insert("r", columns, CopyText.fields(line, columns.length), micros, lsn).foreach { record =>
            if (rows % chunk == 0) { if (out != null) out.close(); out = folder.create(rows / chunk) }
            TableRows.write(out, record)
            rows += 1
          }
          line = copy.readFromCopy()
        }
      }
      rows
    } finally {
      if (out != null) out.close()
      sql.close()
    }
  }

  /** Its rows, without those of tables that inherit from it: their changes are told under their names. Partitions' are told under its own. */
  private def own(sql: Connection, of: TableName): String =
    if (one(sql, s"SELECT relkind::text FROM pg_class WHERE oid = ${of.literal}::regclass") == "p") of.quoted else s"ONLY ${of.quoted}"

  private def columnsOf(sql: Connection, of: TableName): Array[TableColumn] = {
    val s = sql.createStatement()
    val r = s.executeQuery(s"SELECT attname, atttypid::int FROM pg_attribute WHERE attrelid = ${of.literal}::regclass " +
      "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum")
    Iterator.continually(r).takeWhile(_.next()).map(row => TableColumn(row.getString(1), domains.base(row.getInt(2)))).toArray
  }

  private def exists(sql: Connection, slot: String): Boolean =
    number(sql, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = ?", slot) > 0

  private def drop(sql: Connection, slot: String): Unit = {
    // Its reader has gone a moment ago, and the server may not have seen it yet.
    var tries = 50
    while (number(sql, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = ? AND active", slot) > 0 && tries > 0) {
      tries -= 1
      Thread.sleep(100)
    }
    number(sql, "SELECT count(*) FROM (SELECT pg_drop_replication_slot(?)) d", slot)
  }

  private def system(sql: Connection): String = one(sql, "SELECT system_identifier::text FROM pg_control_system()")

  private def one(sql: Connection, text: String): String = {
    val s = sql.createStatement()
    try {
      val r = s.executeQuery(text)
      if (r.next()) r.getString(1) else ""
    } finally s.close()
  }

  private def number(sql: Connection, text: String, given: String*): Long = {
    val s = sql.prepareStatement(text)
    try {
      given.zipWithIndex.foreach { case (g, i) => s.setString(i + 1, g) }
      val r = s.executeQuery()
      r.next()
      r.getLong(1)
    } finally s.close()
  }

  private def run(sql: Connection, text: String): Unit = {
    val s = sql.createStatement()
    try s.execute(text)
    finally s.close()
  }
}

object TableSlot {
  private val BatchBytes = 64L << 20
  private val Stands = "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END)::text"
  val Removed = "the server has removed what it held (max_slot_wal_keep_size)"

  /** Tables of publications that tell every change of them. */
  val Whole = "pg_publication_tables t JOIN pg_publication p USING (pubname) WHERE p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate " +
    "AND t.rowfilter IS NULL"

  def lost(slot: String, why: String): TableFault = new TableFault("data", "55000", s"""replication slot "$slot" cannot go on: $why""",
    "Changes may be missing. Create the query again: it begins with the rows that the table has.")
}

/** A line of COPY's text format as its fields. */
object CopyText {
  def fields(line: Array[Byte], count: Int): Array[Array[Byte]] = {
    val out = new Array[Array[Byte]](count)
    val field = new Bytes(64)
    var n = 0
    var i = 0
    var isNull = false
    while (i < line.length && n < count) {
      line(i) match {
        case '\t' | '\n' =>
          out(n) = if (isNull) null else field.toArray
          n += 1
          isNull = false
          field.clear()
        case '\\' =>
          i += 1
          line(i) match {
            case 'N' => isNull = true
            case 'b' => field.put('\b')
            case 'f' => field.put('\f')
            case 'n' => field.put('\n')
            case 'r' => field.put('\r')
            case 't' => field.put('\t')
            case 'v' => field.put(11)
            case other => field.put(other)
          }
        case b => field.put(b)
      }
      i += 1
    }
    out
  }
}
