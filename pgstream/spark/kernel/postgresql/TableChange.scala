package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable.ArrayBuffer

/**
 * Why a table cannot be read, or its changes; `spark.faults` reads the parts of the message: kind, SQLSTATE, text, hint, and
 * the store, where the query may have others.
 */
class TableFault(val kind: String, val code: String, val text: String, val hint: String = "", val store: String = "")
    extends RuntimeException(Seq(kind, code, text, hint, store).mkString("\n")) {
  /** The same of a store by its name: a query may have several. */
  def at(name: String): TableFault = if (store.nonEmpty) this else new TableFault(kind, code, text, hint, name)
}

object TableFault {
  /** What a store may say at length: a value that it refuses, for one. */
  private val Longest = 1500
  private val NoAnswer = "08|57P|58|3D|53300"
  private val OfRows = "21|22|23|44|54|09|27|2F|38|39"
  private val OfStatement = "0A|3F|42|55000"

  /**
   * What PostgreSQL or the way to it refused, without a cause: that of a view's database means other things. What neither the
   * rows nor the statement are to blame for passes by itself, a lock or a limit as well as a server that is away; which of
   * these it is, is told by the code: 58000 where nobody answered. `rights`: what the store's user needs.
   */
  def of(e: java.sql.SQLException, rights: String): TableFault = {
    val code = Option(e.getSQLState).getOrElse("")
    val line = String.valueOf(e.getMessage).replaceFirst("^(ERROR|FATAL): ", "").linesIterator.nextOption().getOrElse("")
    val text = if (line.length <= Longest) line else line.take(Longest) + "…"
    def is(codes: String): Boolean = codes.split('|').exists(code.startsWith(_))
    code match {
      case c if c.startsWith("28") => new TableFault("refused", "58000", text, "Check 'postgres.username' and 'postgres.password'.")
      case "55006" => new TableFault("store", "55006", text, "Another query reads this slot: each has one of its own.")
      case "42501" => new TableFault("user", "42501", text, s"The store's user needs $rights.")
      case "23502" => new TableFault("data", "23502", text,
          "That column takes no NULL: leave those rows out (WHERE … IS NOT NULL), or give it a value (COALESCE). One that the query does not write " +
            "needs a DEFAULT in the table.")
      case c if c.startsWith("P0") => new TableFault("data", c, text, "A trigger or a function in the store's database says so.")
      case c if is(OfRows) => new TableFault("data", c, text)
      case c if is(OfStatement) => new TableFault("user", c, text)
      case c if c.isEmpty || is(NoAnswer) => new TableFault("store", "58000", text)
      case c => new TableFault("store", c, text)
    }
  }
}

/** A record made of a change: what a topic's record would be. A null value removes the key. `unsent`: see `Unsent`. */
case class TableRecord(key: Array[Byte], value: Array[Byte], unsent: Long = Unsent.None)

/**
 * What a record says of long values that an update did not change, and that PostgreSQL therefore did not send: a bit for each
 * column that is declared, so that `Emptied` takes it from the row as it was, which it keeps.
 */
object Unsent {
  val Column = "__unsent"
  /** Nothing needs to be kept. */
  val None: Long = -1
  /** The row was that of the key which the record before this one has removed. */
  val Moved: Long = 1L << 62
  val Most = 62
}

/** Where a table is. */
case class TableName(schema: String, table: String) {
  val quoted: String = s"${ViewMerge.quote(schema)}.${ViewMerge.quote(table)}"
  /** For a text of SQL: what `regclass` reads. */
  val literal: String = s"'${quoted.replace("'", "''")}'"
  override def toString: String = s"$schema.$table"
}

/** What a stream's rows are like. `sources`: the names of the column that says where a change was; `bytes`: the rows before and
 *  after are JSON's bytes, and so in base64. */
case class Envelope(sources: Seq[String], bytes: Boolean)

/**
 * Changes of a table as records. A stream's value is the change: operation, row before and after, and where it was; a
 * changelog's is the row, or nothing when its key is gone. `keys` names the primary key.
 */
class TableText(kind: String, database: String, val of: TableName, keys: Seq[String], wanted: Seq[String], nested: Set[String],
    fills: Boolean, envelope: Envelope) {
  import of.{schema, table}
  private val json = new PgJson(nested)
  private val isKey = keys.toSet
  private val isWanted = wanted.toSet
  private val changelog = kind == "changelog"
  def keyed: Boolean = changelog
  /** Whether rows are kept for the values that are not sent: said when the slot begins, for as long as the query is there. */
  @volatile var keeps: Boolean = false
  private type Row = Array[Array[Byte]]

  /** Columns that the changelog declares and the table no longer has. */
  def check(columns: Array[TableColumn]): Unit = if (changelog) {
    val has = columns.map(_.name).toSet
    wanted.find(!has(_)).foreach { name =>
      throw new TableFault("data", "42703", s"""table "$of" no longer has column "$name"""", "Create the changelog again.")
    }
  }

  /** Whether rows must be kept: the server does not tell the row before, and it may have long values. */
  def mayKeep(identity: Char, columns: Array[TableColumn]): Boolean =
    fills && identity != 'f' && columns.exists(c => isWanted(c.name) && !isKey(c.name) && !TableText.Short(c.oid))

  /** The identity of rows by which the server tells changes and deletes. */
  def identified(by: Set[String]): Unit = if (changelog)
    keys.find(!by(_)).foreach { name =>
      throw new TableFault("data", "55000", s"the replica identity of table $of does not have column \"$name\" of its primary key",
        s"ALTER TABLE $of REPLICA IDENTITY DEFAULT, then create the query again.")
    }

  def insert(op: String, columns: Array[TableColumn], row: Row, micros: Long, lsn: Long): Seq[TableRecord] =
    one(op, columns, null, row, micros, lsn)

  /** `old`: the row before, or the columns of its key, where PostgreSQL told it. */
  def update(columns: Array[TableColumn], old: Row, row: Row, micros: Long, lsn: Long): Seq[TableRecord] = {
    var unsent = 0L
    val sent = columns.indices.map { i =>
      if (!(row(i) eq TableText.Unsent)) row(i)
      else if (old != null && old(i) != null && !(old(i) eq TableText.Unsent)) old(i)
      else { unsent |= kept(columns(i)); null }
    }.toArray
    val moved = changelog && old != null && columns.indices.exists { i =>
      isKey(columns(i).name) && old(i) != null && !java.util.Arrays.equals(old(i), sent(i))
    }
    val removed = if (moved) Seq(TableRecord(key(columns, old), null, told(0))) else Nil
    removed ++ one("u", columns, old, sent, micros, lsn, if (moved && unsent != 0) unsent | Unsent.Moved else unsent)
  }

  def delete(columns: Array[TableColumn], old: Row, micros: Long, lsn: Long): Seq[TableRecord] =
    if (changelog) Seq(TableRecord(key(columns, old), null, told(0))) else one("d", columns, old, null, micros, lsn)

  def truncate(micros: Long, lsn: Long): Seq[TableRecord] =
    if (changelog) Seq(TableRecord(Array.emptyByteArray, null, told(0)))
    else one("t", Array.empty, null, null, micros, lsn)

  private def told(unsent: Long): Long = if (keeps) unsent else Unsent.None

  /** The bit of a column whose value was not sent, 0 of one that nobody reads. */
  private def kept(c: TableColumn): Long = wanted.indexOf(c.name) match {
    case -1 if wanted.nonEmpty => 0
    case i if i >= 0 && keeps && i < Unsent.Most => 1L << i
    case _ =>
      throw TableText.notSent(c.name, of.toString)
  }

  private def one(op: String, columns: Array[TableColumn], before: Row, after: Row, micros: Long, lsn: Long, unsent: Long = 0): Seq[TableRecord] = {
    val out = new Bytes(256)
    if (changelog) json.row(out, columns, after)
    else {
      out.ascii(s"""{"op":"$op","ts_ms":${Math.floorDiv(micros, 1000L)},"before":""")
      side(out, columns, before)
      out.ascii(""","after":""")
      side(out, columns, after)
      envelope.sources.foreach { name =>
        out.ascii(s""","$name":{"db":""")
        Seq(database -> ",\"schema\":", schema -> ",\"table\":", table -> s""","lsn":$lsn}""").foreach { case (value, next) =>
          json.string(out, value.getBytes(UTF_8))
          out.ascii(next)
        }
      }
      out.put('}')
    }
    Seq(TableRecord(if (columns.isEmpty) null else key(columns, if (after != null) after else before), out.toArray, told(unsent)))
  }

  private def side(out: Bytes, columns: Array[TableColumn], row: Row): Unit =
    if (row == null) out.ascii("null")
    else if (envelope.bytes) {
      val one = new Bytes(256)
      json.row(one, columns, row)
      out.put('"'); out.put(java.util.Base64.getEncoder.encode(one.toArray)); out.put('"')
    } else json.row(out, columns, row)

  private def key(columns: Array[TableColumn], row: Row): Array[Byte] =
    if (keys.isEmpty) null
    else {
      val out = new Bytes(64)
      json.row(out, columns, row, isKey)
      out.toArray
    }
}

object TableText {
  /** Stands for a long value that an update did not change, and that PostgreSQL therefore did not send. */
  val Unsent: Array[Byte] = new Array[Byte](0)

  /** Types of a fixed length, whose values lie in the row itself. */
  private[pgstream] val Short = Set(16, 18, 19, 20, 21, 23, 26, 700, 701, 790, 829, 1082, 1083, 1114, 1184, 1186, 1266, 2950)

  def notSent(column: String, table: String): TableFault =
    new TableFault("data", "22000", s"""the value of column "$column" of table "$table" was not sent""",
      s"It is long and was not changed. ALTER TABLE $table REPLICA IDENTITY FULL, then create the query again.")
}

/** What comes out of the messages of `pgoutput`, in their order. */
trait Transactions {
  /** Commit `lsn` and time of the transaction whose changes follow; false when they are not wanted. */
  def begin(lsn: Long, micros: Long): Boolean
  def change(records: Seq[TableRecord]): Unit
  def commit(end: Long): Unit
}

/** The messages of output plugin `pgoutput`, protocol 1, of some tables, whose oids are `mine`. `base`: see `PgDomains`. */
class PgOutput(tables: Seq[TableText], mine: Set[Int], into: Transactions, base: Int => Int) {
  private val relations = new java.util.HashMap[Int, (TableText, Array[TableColumn])]
  private var micros = 0L
  private var wanted = false

  /** `lsn`: where the message stands. */
  def message(b: ByteBuffer, lsn: Long): Unit = b.get().toChar match {
    case 'B' =>
      val commit = b.getLong()
      micros = b.getLong() + PgOutput.Epoch
      wanted = into.begin(commit, micros)
    case 'C' =>
      b.get(); b.getLong()
      into.commit(b.getLong())
    case 'R' => relation(b)
    case 'I' => of(b) { (text, columns) => b.get(); text.insert("c", columns, tuple(b), micros, lsn) }
    case 'U' => of(b) { (text, columns) =>
        val old = if ("KO".indexOf(b.get()) >= 0) { val o = tuple(b); b.get(); o } else null
        text.update(columns, old, tuple(b), micros, lsn)
      }
    case 'D' => of(b) { (text, columns) => b.get(); text.delete(columns, tuple(b), micros, lsn) }
    case 'T' =>
      val count = b.getInt()
      b.get()
      (0 until count).map(_ => relations.get(b.getInt())).foreach { told => if (wanted && told != null) into.change(told._1.truncate(micros, lsn)) }
    case _ => () // origin, type, message
  }

  private def of(b: ByteBuffer)(make: (TableText, Array[TableColumn]) => Seq[TableRecord]): Unit = {
    val told = relations.get(b.getInt())
    if (wanted && told != null) into.change(make(told._1, told._2))
  }

  private def relation(b: ByteBuffer): Unit = {
    val id = b.getInt()
    val (in, name) = (string(b), string(b))
    b.get()
    val told = Array.fill(b.getShort()) {
      val identifies = b.get() == 1
      val c = TableColumn(string(b), b.getInt())
      b.getInt()
      (c, identifies)
    }
    // The publication may hold other tables, too.
    val text = tables.find(_.of == TableName(in, name))
    if (text.isDefined) {
      val columns = told.map(_._1)
      text.get.check(columns)
      text.get.identified(told.collect { case (c, true) => c.name }.toSet)
      relations.put(id, (text.get, columns.map(c => c.copy(oid = base(c.oid)))))
    } else if (relations.remove(id) != null || mine(id))
      throw new TableFault("data", "55000", s"the table is called $in.$name now",
        "Changes may be missing. Create the query again: it begins with the rows that the table has.")
  }

  private def tuple(b: ByteBuffer): Array[Array[Byte]] = Array.fill(b.getShort()) {
    b.get().toChar match {
      case 'n' => null
      case 'u' => TableText.Unsent
      case _ =>
        val bytes = new Array[Byte](b.getInt())
        b.get(bytes)
        bytes
    }
  }

  private def string(b: ByteBuffer): String = {
    val out = new ArrayBuffer[Byte]
    var c = b.get()
    while (c != 0) { out += c; c = b.get() }
    new String(out.toArray, UTF_8)
  }
}

object PgOutput {
  /** PostgreSQL's times begin with the year 2000. */
  val Epoch: Long = 946684800000000L
}
