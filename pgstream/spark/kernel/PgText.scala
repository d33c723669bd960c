package org.apache.spark.sql.pgstream

import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.types._

/**
 * Spark's internal values in PostgreSQL's text format, for COPY (`copy`: backslash escapes) and for result rows.
 *
 * Arrays of scalars are PostgreSQL arrays; struct, map and other arrays are JSON, as `types.Type.pg` has it.
 */
final class PgText(copy: Boolean) {
  private val json = new JsonText(' ')
  private val scratch = new Bytes(256)
  private val hex = "0123456789abcdef"

  /** One value; the caller has looked at NULL. */
  def write(out: Bytes, row: SpecializedGetters, i: Int, t: DataType): Unit =
    t match {
      case _: StringType => escaped(out, row.getUTF8String(i).getBytes)
      case BinaryType =>
        out.ascii(if (copy) "\\\\x" else "\\x")
        hexed(out, row.getBinary(i))
      case ArrayType(element, _) if isScalar(element) =>
        scratch.clear()
        array(scratch, row.getArray(i), element)
        escaped(out, scratch.toArray)
      case _: ArrayType | _: MapType | _: StructType =>
        scratch.clear()
        json.write(scratch, row, i, t)
        escaped(out, scratch.toArray)
      case _ => scalar(out, row, i, t)
    }

  private def hexed(out: Bytes, bytes: Array[Byte]): Unit =
    bytes.foreach { b => out.put(hex.charAt((b >> 4) & 15)); out.put(hex.charAt(b & 15)) }

  private def isScalar(t: DataType): Boolean = t match {
    case _: ArrayType | _: MapType | _: StructType => false
    case _ => true
  }

  private def scalar(out: Bytes, row: SpecializedGetters, i: Int, t: DataType): Unit = t match {
    case BooleanType => out.put(if (row.getBoolean(i)) 't' else 'f')
    case ByteType => out.digits(row.getByte(i).toLong)
    case ShortType => out.digits(row.getShort(i).toLong)
    case IntegerType => out.digits(row.getInt(i).toLong)
    case LongType => out.digits(row.getLong(i))
    case FloatType => out.ascii(PgText.floating(java.lang.Float.toString(row.getFloat(i)), 6))
    case DoubleType => out.ascii(PgText.floating(java.lang.Double.toString(row.getDouble(i)), 15))
    case d: DecimalType => out.ascii(row.getDecimal(i, d.precision, d.scale).toJavaBigDecimal.toPlainString)
    case DateType => if (!TimeText.pgDate(out, row.getInt(i))) out.ascii(" BC")
    case _: TimeType => TimeText.clock(out, row.getLong(i))
    case TimestampNTZType => TimeText.pgTimestamp(out, row.getLong(i), "")
    case TimestampType => TimeText.pgTimestamp(out, row.getLong(i), "+00")
    case _: StringType => out.put(row.getUTF8String(i).getBytes)
    case BinaryType => out.ascii("\\x"); hexed(out, row.getBinary(i))
    case other => throw new IllegalArgumentException(s"no PostgreSQL form of ${other.catalogString}")
  }

  private def array(out: Bytes, values: org.apache.spark.sql.catalyst.util.ArrayData, element: DataType): Unit = {
    out.put('{')
    var n = 0
    while (n < values.numElements()) {
      if (n > 0) out.put(',')
      if (values.isNullAt(n)) out.ascii("NULL")
      else {
        val one = new Bytes(64)
        scalar(one, values, n, element)
        item(out, one.toArray)
      }
      n += 1
    }
    out.put('}')
  }

  /** PostgreSQL quotes an element when it is empty, reads as NULL, or holds braces, quotes, commas or white space. */
  private def item(out: Bytes, b: Array[Byte]): Unit = {
    val text = new String(b, java.nio.charset.StandardCharsets.UTF_8)
    val quote = b.isEmpty || text.equalsIgnoreCase("null") || text.exists(c => "{}\",\\ \t\n\r\f\u000b".indexOf(c) >= 0)
    if (!quote) out.put(b)
    else {
      out.put('"')
      b.foreach { c => if (c == '"' || c == '\\') out.put('\\'); out.put(c) }
      out.put('"')
    }
  }

  private def escaped(out: Bytes, b: Array[Byte]): Unit =
    if (!copy) out.put(b)
    else {
      var from = 0
      var i = 0
      while (i < b.length) {
        val c = b(i)
        val escape = c match { case '\\' => '\\'; case '\n' => 'n'; case '\r' => 'r'; case '\t' => 't'; case _ => 0 }
        if (escape != 0) {
          out.put(b, from, i - from)
          out.put('\\'); out.put(escape)
          from = i + 1
        }
        i += 1
      }
      out.put(b, from, b.length - from)
    }
}

object PgText {
  /** Java's shortest digits in the layout of PostgreSQL's `float8out`: `1`, `0.1`, `1e+20`. */
  def floating(java: String, precision: Int): String = java match {
    case "NaN" | "Infinity" | "-Infinity" => java
    case _ =>
      val d = new _root_.java.math.BigDecimal(java).stripTrailingZeros
      if (d.signum == 0) { if (java.startsWith("-")) "-0" else "0" }
      else {
        val exponent = d.precision - d.scale - 1
        if (exponent >= -4 && exponent < precision) d.toPlainString
        else {
          val digits = d.unscaledValue.abs.toString
          val mantissa = if (digits.length == 1) digits else s"${digits.head}.${digits.tail}"
          val sign = if (d.signum < 0) "-" else ""
          f"$sign$mantissa${if (exponent < 0) "e-" else "e+"}${math.abs(exponent)}%02d"
        }
      }
  }

  /** Which columns are the user's: the hidden ones start with two underscores and are known by name. */
  val Hidden: Set[String] = Set("__time", "__delete", "__partition", "__offset", "__key", "__rowkey", "__metadata", "__timestamp_type", Unsent.Column)
}
