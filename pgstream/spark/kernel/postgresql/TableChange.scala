package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable.ArrayBuffer

/**
 * Why a table cannot be read, or its changes; `spark.faults` reads the parts of the message: kind, SQLSTATE, text, hint, and
 * the store, where the query may have others.
 */
class TableFault(val kind: String, val code: String, val text: String, val hint: String = "", store: String = "")
    extends RuntimeException(Seq(kind, code, text, hint, store).mkString("\n"))

object TableFault {
  /** What PostgreSQL or the way to it refused, without a cause: that of a view's database means other things. */
  def of(e: java.sql.SQLException): TableFault = {
    val code = Option(e.getSQLState).getOrElse("")
    val text = String.valueOf(e.getMessage).replaceFirst("^(ERROR|FATAL): ", "").linesIterator.nextOption().getOrElse("")
    code match {
      case c if c.startsWith("28") => new TableFault("refused", "58000", text, "Check 'postgres.username' and 'postgres.password'.")
      case "55006" => new TableFault("store", "55006", text, "Another query reads this slot: each has one of its own.")
      case "42501" => new TableFault("user", "42501", text, "The store's user needs REPLICATION, and SELECT on the table.")
      case c if c.startsWith("21") || c.startsWith("22") || c.startsWith("23") => new TableFault("data", c, text)
      case c if c.startsWith("42") || c == "55000" => new TableFault("user", c, text)
      case _ => new TableFault("store", "58000", text)
    }
  }

  /** The same where rows of a table are looked up. */
  def asked(e: java.sql.SQLException, store: String): TableFault = {
    val f = of(e)
    new TableFault(f.kind, f.code, f.text, if (f.code == "42501") "The store's user needs SELECT on the table." else f.hint, store)
  }
}

/** A record made of a change: what a topic's record would be. A null value removes the key. */
case class TableRecord(key: Array[Byte], value: Array[Byte])

/**
 * Changes of a table as records. A stream's value is the change: operation, row before and after, and where it was; a
 * changelog's is the row, or nothing when its key is gone. `keys` names the primary key.
 */
class TableText(kind: String, database: String, schema: String, table: String, keys: Seq[String], wanted: Seq[String], nested: Set[String]) {
  private val json = new PgJson(nested)
  private val isKey = keys.toSet
  private val changelog = kind == "changelog"
  private type Row = Array[Array[Byte]]

  /** Columns that the changelog declares and the table no longer has. */
  def check(columns: Array[TableColumn]): Unit = if (changelog) {
    val has = columns.map(_.name).toSet
    wanted.find(!has(_)).foreach { name =>
      throw new TableFault("data", "42703", s"""table "$schema.$table" no longer has column "$name"""", "Create the changelog again.")
    }
  }

  def insert(op: String, columns: Array[TableColumn], row: Row, micros: Long, lsn: Long): Seq[TableRecord] =
    one(op, columns, null, row, micros, lsn)

  /** `old`: the row before, or the columns of its key, where PostgreSQL told it. */
  def update(columns: Array[TableColumn], old: Row, row: Row, micros: Long, lsn: Long): Seq[TableRecord] = {
    val sent = columns.indices.map(i => if (row(i) eq TableText.Unsent) kept(columns(i), old, i) else row(i)).toArray
    val moved = changelog && old != null && columns.indices.exists { i =>
      isKey(columns(i).name) && old(i) != null && !java.util.Arrays.equals(old(i), sent(i))
    }
    (if (moved) Seq(TableRecord(key(columns, old), null)) else Nil) ++ one("u", columns, old, sent, micros, lsn)
  }

  def delete(columns: Array[TableColumn], old: Row, micros: Long, lsn: Long): Seq[TableRecord] =
    if (changelog) Seq(TableRecord(key(columns, old), null)) else one("d", columns, old, null, micros, lsn)

  def truncate(micros: Long, lsn: Long): Seq[TableRecord] =
    if (changelog) Seq(TableRecord(Array.emptyByteArray, null))
    else one("t", Array.empty, null, null, micros, lsn)

  private def kept(c: TableColumn, old: Row, i: Int): Array[Byte] =
    if (old != null && old(i) != null && !(old(i) eq TableText.Unsent)) old(i)
    else
      throw new TableFault("data", "22000", s"""the value of column "${c.name}" of table "$schema.$table" was not sent""",
        s"It is long and was not changed. ALTER TABLE $schema.$table REPLICA IDENTITY FULL, then create the query again.")

  private def one(op: String, columns: Array[TableColumn], before: Row, after: Row, micros: Long, lsn: Long): Seq[TableRecord] = {
    val out = new Bytes(256)
    if (changelog) json.row(out, columns, after)
    else {
      out.ascii(s"""{"op":"$op","ts_ms":${Math.floorDiv(micros, 1000L)},"before":""")
      side(out, columns, before)
      out.ascii(""","after":""")
      side(out, columns, after)
      out.ascii(""","source":{"db":""")
      Seq(database -> ",\"schema\":", schema -> ",\"table\":", table -> s""","lsn":$lsn}}""").foreach { case (name, next) =>
        json.string(out, name.getBytes(UTF_8))
        out.ascii(next)
      }
    }
    Seq(TableRecord(if (columns.isEmpty) null else key(columns, if (after != null) after else before), out.toArray))
  }

  private def side(out: Bytes, columns: Array[TableColumn], row: Row): Unit =
    if (row == null) out.ascii("null") else json.row(out, columns, row)

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
}

/** What comes out of the messages of `pgoutput`, in their order. */
trait Transactions {
  /** Commit `lsn` and time of the transaction whose changes follow; false when they are not wanted. */
  def begin(lsn: Long, micros: Long): Boolean
  def change(records: Seq[TableRecord]): Unit
  def commit(end: Long): Unit
}

/** The messages of output plugin `pgoutput`, protocol 1, of one table. */
class PgOutput(schema: String, table: String, text: TableText, into: Transactions) {
  private val relations = new java.util.HashMap[Int, Array[TableColumn]]
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
    case 'I' => of(b) { columns => b.get(); text.insert("c", columns, tuple(b), micros, lsn) }
    case 'U' => of(b) { columns =>
        val old = if ("KO".indexOf(b.get()) >= 0) { val o = tuple(b); b.get(); o } else null
        text.update(columns, old, tuple(b), micros, lsn)
      }
    case 'D' => of(b) { columns => b.get(); text.delete(columns, tuple(b), micros, lsn) }
    case 'T' =>
      val count = b.getInt()
      b.get()
      if (wanted && (0 until count).exists(_ => relations.get(b.getInt()) != null)) into.change(text.truncate(micros, lsn))
    case _ => () // origin, type, message
  }

  private def of(b: ByteBuffer)(make: Array[TableColumn] => Seq[TableRecord]): Unit = {
    val columns = relations.get(b.getInt())
    if (wanted && columns != null) into.change(make(columns))
  }

  private def relation(b: ByteBuffer): Unit = {
    val id = b.getInt()
    val (in, name) = (string(b), string(b))
    b.get()
    val columns = Array.fill(b.getShort()) {
      b.get()
      val c = TableColumn(string(b), b.getInt())
      b.getInt()
      c
    }
    // The publication may hold other tables, too.
    if (in == schema && name == table) { text.check(columns); relations.put(id, columns) }
    else relations.remove(id)
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
