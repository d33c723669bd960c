package org.apache.spark.sql.pgstream

import java.util.{HashMap => JMap}

import com.fasterxml.jackson.core.{JsonParser, JsonToken}
import com.fasterxml.jackson.core.JsonToken._

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, GenericArrayData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Why a record is not what its relation declares; the message is for a person. */
class Malformed(what: String) extends Exception(what, null, false, false)

/** What is not worked with: an exponent of nine digits is a gigabyte when it is written out; NUL ends PostgreSQL's COPY. */
object Bounds {
  final val Scales = 1000L
  final val Bytes = 64

  /** Values in the STRUCTs of one record, absent ones too: more than a record of any use has, and no danger to memory. */
  private final val Values = 4 << 20
  private val left = ThreadLocal.withInitial[Array[Int]](() => Array(Values))

  /** A record begins on this thread. */
  def begin(): Unit = left.get()(0) = Values

  /** Place for the values of a STRUCT in the record: each takes memory, also where a byte or none stands for all. */
  def row(width: Int): Array[Any] = {
    spend(width)
    new Array[Any](width)
  }

  def spend(values: Int): Unit = {
    val room = left.get()
    room(0) -= values
    if (room(0) < 0) throw new Malformed("it says that it holds more than its bytes can")
  }

  def isSmall(v: java.math.BigDecimal): Boolean =
    math.abs(v.scale.toLong) <= Scales && v.precision <= Scales

  /** What PostgreSQL has as text, too: UTF-8 without NUL. */
  def text(b: Array[Byte], path: String): UTF8String = {
    var plain = true
    var i = 0
    while (i < b.length) {
      if (b(i) == 0) throw nul(path)
      if (b(i) < 0) plain = false
      i += 1
    }
    val u = UTF8String.fromBytes(b)
    if (!plain && !u.isValid) throw new Malformed(s"""field "$path" is not UTF-8 text""")
    u
  }

  def nul(path: String): Malformed = new Malformed(s"""field "$path" has a character NUL, which text cannot hold""")
}

/**
 * A strict JSON reader per type, from the parser's current token to Spark's internal value.
 *
 * Numbers must be numbers and fit, and JSON has one kind of them: 8.0 and 8e0 are the whole number 8. Text columns also
 * take numbers, booleans and nested JSON as their text, and nested columns a text of JSON.
 */
sealed abstract class Reader {
  def read(p: JsonParser): Any
}

object Reader {
  def of(t: DataType, separator: Char): Reader = t match {
    case s: StructType => new Fields(s, separator)
    case ArrayType(e, _) => new Elements(of(e, separator))
    case MapType(k, v, _) => new Entries(k, of(v, separator))
    case _ => new Scalar(t, separator)
  }

  def name(t: DataType): String = t match {
    case ByteType => "TINYINT"
    case ShortType => "SMALLINT"
    case IntegerType => "INTEGER"
    case LongType => "BIGINT"
    case _: StringType => "VARCHAR"
    case BinaryType => "VARBINARY"
    case _: TimeType => "TIME"
    case TimestampNTZType => "TIMESTAMP"
    case TimestampType => "TIMESTAMP_LTZ"
    case _: ArrayType => "ARRAY"
    case _: MapType => "MAP"
    case _: StructType => "STRUCT"
    case other => other.sql
  }

  def found(t: JsonToken): String = t match {
    case VALUE_STRING => "a string"
    case VALUE_NUMBER_INT | VALUE_NUMBER_FLOAT => "a number"
    case VALUE_TRUE | VALUE_FALSE => "a boolean"
    case START_ARRAY => "an array"
    case START_OBJECT => "an object"
    case _ => "nothing"
  }

  def path(p: JsonParser): String = p.getParsingContext.pathAsPointer.toString.stripPrefix("/").replace('/', '.')

  /** `why`: what of the value is the trouble, where that is known. */
  def mismatch(p: JsonParser, wanted: String, why: String = ""): Malformed = {
    val path = Reader.path(p)
    val value = p.currentToken match {
      case VALUE_STRING | VALUE_NUMBER_INT | VALUE_NUMBER_FLOAT =>
        val text = p.getText
        " " + (if (text.length > 40) text.take(40) + "…" else text)
      case _ => ""
    }
    val what = if (path.isEmpty) "it" else s"""field "$path""""
    new Malformed(s"""$what must be $wanted, found ${found(p.currentToken)}$value$why""")
  }
}

final private class Scalar(t: DataType, separator: Char) extends Reader {
  private val wanted = Reader.name(t)

  override def read(p: JsonParser): Any = {
    val token = p.currentToken
    if (token == VALUE_NULL) null
    else
      t match {
        case _: StringType => text(p, token)
        case LongType => integer(p, token, Long.MinValue, Long.MaxValue)
        case IntegerType => integer(p, token, Int.MinValue, Int.MaxValue).toInt
        case ShortType => integer(p, token, Short.MinValue, Short.MaxValue).toShort
        case ByteType => integer(p, token, Byte.MinValue, Byte.MaxValue).toByte
        case DoubleType => floating(p, token)
        case FloatType => floating(p, token).toFloat
        case BooleanType =>
          if (token == VALUE_TRUE) true else if (token == VALUE_FALSE) false else no(p)
        case d: DecimalType => decimal(p, token, d)
        case _ if token != VALUE_STRING => no(p)
        case _ => fromText(p)
      }
  }

  private def no(p: JsonParser): Nothing = throw Reader.mismatch(p, wanted)

  private def fits(p: JsonParser): Boolean = p.getNumberType match {
    case JsonParser.NumberType.INT | JsonParser.NumberType.LONG => true
    case _ => false
  }

  private def integer(p: JsonParser, token: JsonToken, low: Long, high: Long): Long = {
    val v = if (token == VALUE_NUMBER_INT && fits(p)) p.getLongValue else if (token == VALUE_NUMBER_FLOAT) whole(p) else no(p)
    if (v < low || v > high) no(p)
    v
  }

  /** A number with a point or an exponent, where nothing is lost without them. */
  private def whole(p: JsonParser): Long =
    try { val v = p.getDecimalValue; if (Bounds.isSmall(v)) v.longValueExact else no(p) }
    catch { case _: ArithmeticException | _: NumberFormatException => no(p) }

  private def floating(p: JsonParser, token: JsonToken): Double =
    if (token == VALUE_NUMBER_INT || token == VALUE_NUMBER_FLOAT) p.getDoubleValue
    else if (token == VALUE_STRING)
      p.getText match {
        case "NaN" => Double.NaN
        case "Infinity" => Double.PositiveInfinity
        case "-Infinity" => Double.NegativeInfinity
        case _ => no(p)
      }
    else no(p)

  private def decimal(p: JsonParser, token: JsonToken, d: DecimalType): Decimal = {
    if (token != VALUE_NUMBER_INT && token != VALUE_NUMBER_FLOAT) no(p)
    val exact = try p.getDecimalValue catch { case _: NumberFormatException => no(p) } // an exponent of ten digits
    if (!Bounds.isSmall(exact)) no(p)
    val value = Decimal(exact)
    if (!value.changePrecision(d.precision, d.scale)) no(p)
    value
  }

  private def text(p: JsonParser, token: JsonToken): UTF8String = token match {
    case START_OBJECT | START_ARRAY =>
      val out = new java.io.ByteArrayOutputStream
      val g = p.getCodec.getFactory.createGenerator(out)
      g.copyCurrentStructure(p)
      g.close()
      UTF8String.fromBytes(out.toByteArray)
    case _ =>
      val s = p.getText
      if (s.indexOf('\u0000') >= 0) throw Bounds.nul(Reader.path(p))
      UTF8String.fromString(s)
  }

  private def fromText(p: JsonParser): Any =
    try
      t match {
        case TimestampNTZType | TimestampType => TimeText.parseTimestamp(p.getText, separator, zoned = t == TimestampType)
        case DateType => TimeText.parseDate(p.getText)
        case _: TimeType => TimeText.parseClock(p.getText)
        case BinaryType => java.util.Base64.getDecoder.decode(p.getText)
        case _ => no(p)
      }
    catch {
      case _: IllegalArgumentException | _: java.time.DateTimeException | _: StringIndexOutOfBoundsException =>
        throw Reader.mismatch(p, wanted, trouble(p.getText))
    }

  /** What keeps a text from being a time, where another type or 'timestamp.format' would read it. */
  private def trouble(text: String): String = {
    def reads(separator: Char) =
      try { TimeText.parseTimestamp(text, separator, zoned = true); true }
      catch { case _: IllegalArgumentException | _: java.time.DateTimeException | _: StringIndexOutOfBoundsException => false }
    val other = if (separator == 'T') ' ' else 'T'
    t match {
      case TimestampNTZType if reads(separator) => ", which has a time zone; a TIMESTAMP_LTZ may have one"
      case TimestampNTZType | TimestampType if reads(other) =>
        s", but its 'timestamp.format' is ${if (separator == 'T') "ISO8601" else "SQL"}"
      case _ => ""
    }
  }
}

/** A nested value that stands as text: JSON, or base64 of that, which JSON has for bytes. */
private object Nested {
  def read(p: JsonParser, reader: Reader, wanted: String): Any = {
    val bytes = plain(p.getText)
    if (!opens(bytes)) throw Reader.mismatch(p, wanted)
    try JsonBytes.readOne(bytes, reader)
    catch {
      case _: java.io.IOException => throw Reader.mismatch(p, wanted)
      case e: Malformed => throw new Malformed(s"""${e.getMessage}, in the text of field "${Reader.path(p)}"""")
    }
  }

  private def plain(text: String): Array[Byte] = {
    val bytes = text.getBytes(java.nio.charset.StandardCharsets.UTF_8)
    if (opens(bytes)) bytes
    else try java.util.Base64.getDecoder.decode(bytes) catch { case _: IllegalArgumentException => bytes }
  }

  private def opens(bytes: Array[Byte]): Boolean = bytes.nonEmpty && (bytes(0) == '{' || bytes(0) == '[')
}

final class Fields(s: StructType, separator: Char) extends Reader {
  private val readers = s.map(f => Reader.of(f.dataType, separator)).toArray
  private val places = {
    val m = new JMap[String, Integer]
    s.fieldNames.zipWithIndex.foreach { case (n, i) => m.put(n, i) }
    m
  }

  override def read(p: JsonParser): Any =
    if (p.currentToken == VALUE_NULL) null
    else if (p.currentToken == VALUE_STRING) Nested.read(p, this, "an object")
    else {
      val values = Bounds.row(readers.length)
      into(p, values)
      new GenericInternalRow(values)
    }

  /** Read an object's fields into their places; names are matched exactly, other fields are skipped. */
  def into(p: JsonParser, values: Array[Any]): Unit = {
    if (p.currentToken != START_OBJECT) throw Reader.mismatch(p, "an object")
    while (p.nextToken() == FIELD_NAME) {
      val place = places.get(p.currentName)
      p.nextToken()
      if (place == null) p.skipChildren() else values(place) = readers(place).read(p)
    }
  }
}

final private class Elements(element: Reader) extends Reader {
  override def read(p: JsonParser): Any =
    if (p.currentToken == VALUE_NULL) null
    else if (p.currentToken == VALUE_STRING) Nested.read(p, this, "ARRAY")
    else if (p.currentToken != START_ARRAY) throw Reader.mismatch(p, "ARRAY")
    else {
      val values = scala.collection.mutable.ArrayBuffer.empty[Any]
      while (p.nextToken() != END_ARRAY) values += element.read(p)
      new GenericArrayData(values.toArray)
    }
}

final private class Entries(key: DataType, value: Reader) extends Reader {
  override def read(p: JsonParser): Any =
    if (p.currentToken == VALUE_NULL) null
    else if (p.currentToken == VALUE_STRING) Nested.read(p, this, "MAP")
    else if (p.currentToken != START_OBJECT) throw Reader.mismatch(p, "MAP")
    else {
      val entries = new java.util.LinkedHashMap[Any, Any]
      while (p.nextToken() == FIELD_NAME) {
        val k = keyOf(p)
        p.nextToken()
        entries.put(k, value.read(p))
      }
      new ArrayBasedMapData(new GenericArrayData(entries.keySet.toArray), new GenericArrayData(entries.values.toArray))
    }

  private def keyOf(p: JsonParser): Any =
    try
      key match {
        case _: StringType => UTF8String.fromString(p.currentName)
        case LongType => p.currentName.toLong
        case IntegerType => p.currentName.toInt
        case other => throw new Malformed(s"a MAP with ${Reader.name(other)} keys cannot be read from JSON")
      }
    catch { case _: NumberFormatException => throw Reader.mismatch(p, s"a MAP with ${Reader.name(key)} keys") }
}
