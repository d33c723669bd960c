package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

import Json.Node

/** The bytes of a value or key into columns. Belongs to one task. */
trait FormatReader {
  /** Fill the places of the columns, in order; Malformed when the bytes are not as declared. */
  def read(bytes: Array[Byte], values: Array[Any]): Unit
}

/** Columns of a row as the bytes of a value or key. Belongs to one task. */
trait FormatWriter {
  /** Null for no bytes at all; Unwritable when the format has no place for a value. */
  def write(row: InternalRow): Array[Byte]
}

/** A value that its format cannot hold; the message is for a person. */
class Unwritable(what: String) extends RuntimeException(what)

/** `side` is a value or a key: its `format`, and what that format needs (`spark/records.py` makes it). */
object Formats {
  def reader(side: JsonNode, columns: StructType): FormatReader = side.str("format") match {
    case "json" => new JsonReader(columns, separator(side))
    case "primitive" =>
      if (columns.length != 1) throw new Malformed(s"a primitive is one column, not ${columns.length}")
      new PrimitiveReader(columns)
    case "avro" => new AvroReader(columns, Registry.open(side.str("registry")))
    case "protobuf" => new ProtobufReader(columns, Protobuf.reading(side))
    case other => throw new IllegalArgumentException(s"no format $other")
  }

  def writer(side: JsonNode, schema: StructType, which: Array[Int]): FormatWriter = side.str("format") match {
    case "json" => new JsonWriter(schema, which, separator(side))
    case "primitive" => new PrimitiveWriter(schema, which(0))
    case "avro" => new AvroWriter(side.str("schema"), side.get("schema_id").asInt, schema, which)
    case "protobuf" =>
      val message = Protobuf.message(side)
      val prefix = side.opt("schema_id").map(id => RegisteredMessage.prefix(id.toInt, message)).getOrElse(Array.emptyByteArray)
      new ProtobufWriter(message, prefix, schema, which)
    case other => throw new IllegalArgumentException(s"no format $other")
  }

  private def separator(side: JsonNode) = if (side.opt("timestamp_format").contains("iso8601")) 'T' else ' '
}

/** One object a record; a single column may also stand bare, as keys of one column do. */
private class JsonReader(columns: StructType, separator: Char) extends FormatReader {
  private val fields = new Fields(columns, separator)
  private val flat = new FlatJson(columns, separator)
  private val bare = if (columns.length == 1) Reader.of(columns(0).dataType, separator) else null

  override def read(bytes: Array[Byte], values: Array[Any]): Unit =
    try {
      if (bare == null || bytes.isEmpty || bytes(0) == '{') {
        if (!flat.read(bytes, values)) {
          java.util.Arrays.fill(values.asInstanceOf[Array[AnyRef]], 0, columns.length, null)
          JsonBytes.read(bytes, fields, values)
        }
      } else values(0) = JsonBytes.readOne(bytes, bare)
    } catch {
      case e: com.fasterxml.jackson.core.JsonProcessingException => throw new Malformed("not JSON: " + e.getOriginalMessage)
      case e: java.io.IOException => throw new Malformed("not JSON: " + e.getMessage)
    }
}

private class JsonWriter(schema: StructType, which: Array[Int], separator: Char) extends FormatWriter {
  private val json = new JsonText(separator)
  private val out = new Bytes(512)

  override def write(row: InternalRow): Array[Byte] = {
    out.clear()
    json.fields(out, row, schema, which)
    out.toArray
  }
}

/** Bytes reinterpreted, numbers big-endian (manual: "Serializing with primitive data types"). */
private class PrimitiveReader(columns: StructType) extends FormatReader {
  private val t = columns(0).dataType

  override def read(b: Array[Byte], values: Array[Any]): Unit = values(0) = t match {
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

private class PrimitiveWriter(schema: StructType, i: Int) extends FormatWriter {
  private val t = schema(i).dataType

  override def write(row: InternalRow): Array[Byte] =
    if (row.isNullAt(i)) null
    else
      t match {
        case LongType => ByteBuffer.allocate(8).putLong(row.getLong(i)).array
        case IntegerType => ByteBuffer.allocate(4).putInt(row.getInt(i)).array
        case ShortType => ByteBuffer.allocate(2).putShort(row.getShort(i)).array
        case ByteType => Array(row.getByte(i))
        case DoubleType => ByteBuffer.allocate(8).putDouble(row.getDouble(i)).array
        case FloatType => ByteBuffer.allocate(4).putFloat(row.getFloat(i)).array
        case BooleanType => Array(if (row.getBoolean(i)) 1.toByte else 0.toByte)
        case BinaryType => row.getBinary(i)
        case _: StringType => row.getUTF8String(i).getBytes
        case other =>
          val text = new Bytes(64)
          new PgText(copy = false).write(text, row, i, other)
          text.text.getBytes(UTF_8)
      }
}
