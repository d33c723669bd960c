package org.apache.spark.sql.pgstream

import com.fasterxml.jackson.core.{JsonFactory, JsonParser}
import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.types._
import org.apache.spark.util.LongAccumulator

import Json.Node

/** A record that ends its query; `Watch` passes the parts on, so that the fault names them. */
class BadRecordException(val topic: String, val partition: Int, val offset: Long, val place: String, val reason: String)
    extends RuntimeException(s"record at ${if (place.isEmpty) s"partition $partition, offset $offset" else place} of topic $topic: $reason")

/**
 * Bytes of a record to a row: the declared columns, then `__time` and, for a changelog, `__delete`.
 *
 * `config` is made by `compile.decoder`. What is not as declared is refused (`on_bad_record` terminate), or dropped and
 * counted (ignore, log). `limits` (partition → offset, -1: all others) cuts off everything from there on, so that what
 * came before a known bad record can still be written, or a query be computed again up to a place.
 */
class RecordDecoder(config: String, bad: LongAccumulator) extends Serializable {
  /** The fields of the record's metadata that say where it is, where its partition and offset tell nobody anything. */
  val placed: Seq[(String, Int)] = Json.read(config).entries("placed").toSeq.map { case (name, at) => (name, at.toInt) }.sortBy(_._2)
  @transient private lazy val c = Json.read(config)
  // Sent to the tasks: parsing the text again costs each of them more.
  private val columns = DataType.fromDDL(Json.read(config).str("columns")).asInstanceOf[StructType]
  @transient private lazy val changelog = c.str("kind") == "changelog"
  @transient lazy val schema: StructType = {
    val timed = columns.add("__time", TimestampType)
    val told = if (changelog) timed.add("__delete", BooleanType, nullable = false) else timed
    if (rowKey) told.add("__rowkey", DataType.fromDDL(c.str("key_type"))) else told
  }
  @transient private lazy val empties = c.opt("empties").contains("true")
  @transient private lazy val rowKey = c.opt("row_key").contains("true")
  @transient private lazy val width = columns.length
  @transient private lazy val topic = c.str("topic")
  @transient private lazy val reader = Formats.reader(c.get("value"), columns)
  @transient private lazy val needed = c.strings("needs").map(columns.fieldIndex).toArray
  @transient private lazy val timeAt = c.opt("timestamp").map(columns.fieldIndex).getOrElse(-1)
  @transient private lazy val timeScale = if (timeAt >= 0 && columns(timeAt).dataType == LongType) 1000L else 1L
  @transient private lazy val needsTime = c.get("watermark").asBoolean
  @transient private lazy val mode = c.str("on_bad_record")
  @transient private lazy val limits = c.entries("limits").map { case (p, o) => p.toInt -> o.toLong }
  @transient private lazy val keys = new KeyReader(c, columns)
  @transient private lazy val log = c.opt("log").map(new BadRecordLog(_))

  def decode(key: Array[Byte], value: Array[Byte], partition: Int, offset: Long, micros: Long, headers: ArrayData, metadata: InternalRow): InternalRow = {
    if (limits.nonEmpty && limits.get(partition).orElse(limits.get(-1)).exists(offset >= _)) return null
    // A stream has no row that could be removed.
    if (value == null && !changelog) return null
    try {
      Bounds.begin()
      val values = Bounds.row(schema.length)
      if (value == null && empties && key != null && key.length == 0) emptied(values, micros, partition, offset, metadata)
      else if (value == null) tombstone(key, values, micros)
      else {
        reader.read(value, values)
        check(values)
        if (changelog) values(width + 1) = false
        if (rowKey) values(schema.length - 1) = keys.value(key)
        values(width) = time(values, micros)
      }
      new GenericInternalRow(values)
    } catch {
      case e: Malformed => refuse(RawRecord(key, value, partition, offset, micros, headers, place(metadata)), e.getMessage)
    }
  }

  private def place(metadata: InternalRow): String =
    if (metadata == null) ""
    else placed.map { case (name, i) => s"${name.replace('_', ' ')} ${metadata.getUTF8String(i)}" }.mkString(", ")

  private def check(values: Array[Any]): Unit = {
    var i = 0
    while (i < needed.length) {
      if (values(needed(i)) == null) throw new Malformed(s"""column "${columns(needed(i)).name}" is NULL, and declared NOT NULL""")
      i += 1
    }
  }

  private def time(values: Array[Any], micros: Long): Any =
    if (timeAt < 0) micros
    else if (values(timeAt) != null) scaled(values(timeAt).asInstanceOf[Long])
    else if (needsTime) throw new Malformed(s"""timestamp column "${columns(timeAt).name}" is NULL""")
    else micros

  private def scaled(time: Long): Long =
    if (timeScale == 1 || math.abs(time) <= Long.MaxValue / timeScale) time * timeScale
    else throw new Malformed(s"""timestamp column "${columns(timeAt).name}" of $time is no time""")

  /** A table was truncated: a delete without a key, which `Emptied` makes one of each key that is there. */
  private def emptied(values: Array[Any], micros: Long, partition: Int, offset: Long, metadata: InternalRow): Unit = {
    if (!c.opt("follows").contains("true"))
      throw new BadRecordException(topic, partition, offset, place(metadata), "the table was truncated, which this query cannot follow")
    values(width + 1) = true
    values(width) = micros
  }

  private def tombstone(key: Array[Byte], values: Array[Any], micros: Long): Unit = {
    keys.fill(key, values)
    values(width + 1) = true
    values(width) = micros
  }

  private def refuse(r: RawRecord, why: String): InternalRow = {
    // A delete whose key cannot be read is skipped whatever the mode: nothing could be removed by it.
    if (mode == "terminate" && r.value != null) throw new BadRecordException(topic, r.partition, r.offset, r.place, why)
    bad.add(1)
    log.foreach(_.send(topic, r, why))
    null
  }
}

/** The shared parser factory; a whole record is one object and nothing after it. */
private object JsonBytes {
  private val factory = {
    val f = new JsonFactory
    f.setCodec(new ObjectMapper(f))
    f
  }

  def read(value: Array[Byte], fields: Fields, into: Array[Any]): Unit = {
    val p: JsonParser = factory.createParser(value)
    try {
      if (p.nextToken() == null) throw new Malformed("not JSON: the value is empty")
      fields.into(p, into)
      if (p.nextToken() != null) throw new Malformed("not JSON: text after the object")
    } finally p.close()
  }

  def readOne(value: Array[Byte], reader: Reader): Any = {
    val p: JsonParser = factory.createParser(value)
    try {
      p.nextToken()
      val v = reader.read(p)
      if (p.nextToken() != null) throw new Malformed("not JSON: text after the value")
      v
    } finally p.close()
  }
}

/**
 * A record's key as columns: those of key.type, or the primary key's. Where nothing is said of the key it may be what INSERT
 * writes by itself, an object of the primary key.
 */
private class KeyReader(c: com.fasterxml.jackson.databind.JsonNode, columns: StructType) {
  private val primary = c.strings("primary_key")
  private val declared = c.opt("key_type").map(DataType.fromDDL(_))
  private val bare = declared.exists(!_.isInstanceOf[StructType])
  private val struct = declared match {
    case Some(s: StructType) => s
    case Some(one) if primary.isEmpty => new StructType().add("key", one)
    case Some(one) if primary.length == 1 => new StructType().add(primary.head, columns(primary.head).dataType)
    case _ => StructType(primary.map(columns(_)))
  }
  private val said = c.get("key_said").asBoolean
  private lazy val reader = Formats.reader(c.get("key"), struct)

  /** The whole key as a value of key.type; null for no key. */
  def value(key: Array[Byte]): Any =
    if (key == null) null
    else {
      val into = read(key)
      if (bare) into(0) else new GenericInternalRow(into)
    }

  /** The primary key of a tombstone into its columns. */
  def fill(key: Array[Byte], values: Array[Any]): Unit = {
    if (key == null) throw new Malformed("the delete has no key")
    if (!said && !isPrimary(key)) throw new Malformed("the delete's key cannot be read without 'key.format'")
    val into = read(key)
    primary.foreach { name =>
      if (!struct.fieldNames.contains(name)) throw new Malformed(s"""the key has no "$name"""")
      values(columns.fieldIndex(name)) = into(struct.fieldIndex(name))
    }
  }

  /** Whether it is a JSON object that has the whole primary key. */
  private def isPrimary(key: Array[Byte]): Boolean =
    key.headOption.contains('{'.toByte) && (
      try primary.forall(Json.mapper.readTree(key).has)
      catch { case _: java.io.IOException => false })

  private def read(key: Array[Byte]): Array[Any] = {
    val into = new Array[Any](struct.length)
    reader.read(key, into)
    into
  }
}
