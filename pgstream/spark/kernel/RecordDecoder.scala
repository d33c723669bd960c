package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

import com.fasterxml.jackson.core.{JsonFactory, JsonParser, JsonProcessingException}
import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.util.LongAccumulator

import Json.Node

/** A record that ends its query; `Watch` passes the parts on, so that the fault names them. */
class BadRecordException(val topic: String, val partition: Int, val offset: Long, val reason: String)
    extends RuntimeException(s"record at partition $partition, offset $offset of topic $topic: $reason")

/**
 * Bytes of a record to a row: the declared columns, then `__time` and, for a changelog, `__delete`.
 *
 * `config` is made by `compile.decoder`. What is not as declared is refused (`on_bad_record` terminate), or dropped and
 * counted (ignore, log). `limits` (partition → offset) cuts off everything from a known bad record on, so that what
 * came before it can still be written.
 */
class RecordDecoder(config: String, bad: LongAccumulator) extends Serializable {
  @transient private lazy val c = Json.read(config)
  @transient private lazy val columns = DataType.fromDDL(c.str("columns")).asInstanceOf[StructType]
  @transient private lazy val changelog = c.str("kind") == "changelog"
  @transient lazy val schema: StructType = {
    val timed = columns.add("__time", TimestampType)
    if (changelog) timed.add("__delete", BooleanType, nullable = false) else timed
  }
  @transient private lazy val width = columns.length
  @transient private lazy val topic = c.str("topic")
  @transient private lazy val separator = if (c.str("timestamp_format") == "iso8601") 'T' else ' '
  @transient private lazy val json = new Fields(columns, separator)
  @transient private lazy val isJson = c.str("value_format") == "json"
  @transient private lazy val timeAt = c.opt("timestamp").map(columns.fieldIndex).getOrElse(-1)
  @transient private lazy val timeScale = if (timeAt >= 0 && columns(timeAt).dataType == LongType) 1000L else 1L
  @transient private lazy val needsTime = c.get("watermark").asBoolean
  @transient private lazy val mode = c.str("on_bad_record")
  @transient private lazy val limits = c.entries("limits").map { case (p, o) => p.toInt -> o.toLong }
  @transient private lazy val keys = new KeyReader(c, columns, separator)
  @transient private lazy val log = c.opt("log").map(new BadRecordLog(_))

  def decode(key: Array[Byte], value: Array[Byte], partition: Int, offset: Long, micros: Long): InternalRow = {
    if (limits.nonEmpty && limits.get(partition).exists(offset >= _)) return null
    try {
      val values = new Array[Any](schema.length)
      if (value == null) tombstone(key, values, micros)
      else {
        if (isJson) JsonBytes.read(value, json, values) else values(0) = Primitive.read(value, columns(0).dataType)
        if (changelog) values(width + 1) = false
        values(width) = time(values, micros)
      }
      new GenericInternalRow(values)
    } catch {
      case e: Malformed => refuse(key, value, partition, offset, e.getMessage)
      case e: JsonProcessingException => refuse(key, value, partition, offset, "not JSON: " + e.getOriginalMessage)
      case e: java.io.IOException => refuse(key, value, partition, offset, "not JSON: " + e.getMessage)
    }
  }

  private def time(values: Array[Any], micros: Long): Any =
    if (timeAt < 0) micros
    else if (values(timeAt) != null) values(timeAt).asInstanceOf[Long] * timeScale
    else if (needsTime) throw new Malformed(s"""timestamp column "${columns(timeAt).name}" is NULL""")
    else micros

  private def tombstone(key: Array[Byte], values: Array[Any], micros: Long): Unit = {
    if (!changelog) throw new Malformed("the record has no value")
    keys.fill(key, values)
    values(width + 1) = true
    values(width) = micros
  }

  private def refuse(key: Array[Byte], value: Array[Byte], partition: Int, offset: Long, why: String): InternalRow = {
    // A delete whose key cannot be read is skipped whatever the mode: nothing could be removed by it.
    if (mode == "terminate" && value != null) throw new BadRecordException(topic, partition, offset, why)
    if (mode == "terminate" && !changelog) throw new BadRecordException(topic, partition, offset, why)
    bad.add(1)
    log.foreach(_.send(topic, partition, offset, key, value, why))
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

  def parser(value: Array[Byte]): JsonParser = factory.createParser(value)
}

/** The value.format and key.format PRIMITIVE: bytes reinterpreted, numbers big-endian. */
private object Primitive {
  def read(b: Array[Byte], t: DataType): Any = t match {
    case _: StringType =>
      val s = UTF8String.fromBytes(b)
      if (!s.isValid) throw new Malformed("the value is not UTF-8 text")
      s
    case BinaryType => b
    case LongType => sized(b, 8).getLong
    case IntegerType => sized(b, 4).getInt
    case ShortType => sized(b, 2).getShort
    case ByteType => sized(b, 1).get
    case DoubleType => sized(b, 8).getDouble
    case FloatType => sized(b, 4).getFloat
    case BooleanType => sized(b, 1).get != 0
    case other => throw new Malformed(s"${Reader.name(other)} has no primitive form")
  }

  private def sized(b: Array[Byte], n: Int): ByteBuffer = {
    if (b.length != n) throw new Malformed(s"a value of ${b.length} bytes, $n expected")
    ByteBuffer.wrap(b)
  }
}

/** The primary key of a tombstone, taken from the record's key. */
private class KeyReader(c: com.fasterxml.jackson.databind.JsonNode, columns: StructType, separator: Char) {
  private val primary = c.strings("primary_key")
  private val format = c.opt("key_format")
  private val declared = c.opt("key_type").map(DataType.fromDDL(_))
  private val single = declared.forall(!_.isInstanceOf[StructType])
  private lazy val struct = declared match {
    case Some(s: StructType) => s
    case _ => StructType(primary.map(columns(_)))
  }
  private lazy val reader = new Fields(struct, separator)

  def fill(key: Array[Byte], values: Array[Any]): Unit = {
    if (key == null) throw new Malformed("the delete has no key")
    format match {
      case Some("primitive") if primary.length == 1 =>
        val at = columns.fieldIndex(primary.head)
        values(at) = Primitive.read(key, columns(at).dataType)
      case Some("json") if primary.length == 1 && single && key.nonEmpty && key(0) != '{' =>
        val at = columns.fieldIndex(primary.head)
        val p = JsonBytes.parser(key)
        p.nextToken()
        values(at) = Reader.of(columns(at).dataType, separator).read(p)
      case Some("json") =>
        val into = new Array[Any](struct.length)
        JsonBytes.read(key, reader, into)
        primary.foreach { name =>
          if (!struct.fieldNames.contains(name)) throw new Malformed(s"""the key has no "$name"""")
          values(columns.fieldIndex(name)) = into(struct.fieldIndex(name))
        }
      case _ => throw new Malformed("the delete's key cannot be read without 'key.format'")
    }
  }
}
