package org.apache.spark.sql.pgstream

import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.types._

/** Spark's internal values as JSON. `separator` and `zone` are the layout of timestamps: blank and `Z` for `sql`. */
final class JsonText(separator: Char) {
  private val hex = "0123456789abcdef"

  def string(out: Bytes, utf8: Array[Byte]): Unit = {
    out.put('"')
    var from = 0
    var i = 0
    while (i < utf8.length) {
      val b = utf8(i)
      if (b == '"' || b == '\\' || (b >= 0 && b < 0x20)) {
        out.put(utf8, from, i - from)
        from = i + 1
        b match {
          case '"' => out.ascii("\\\"")
          case '\\' => out.ascii("\\\\")
          case '\n' => out.ascii("\\n")
          case '\r' => out.ascii("\\r")
          case '\t' => out.ascii("\\t")
          case _ => out.ascii("\\u00"); out.put(hex.charAt(b >> 4)); out.put(hex.charAt(b & 15))
        }
      }
      i += 1
    }
    out.put(utf8, from, utf8.length - from)
    out.put('"')
  }

  def write(out: Bytes, row: SpecializedGetters, i: Int, t: DataType): Unit =
    if (row.isNullAt(i)) out.ascii("null")
    else
      t match {
        case BooleanType => out.ascii(if (row.getBoolean(i)) "true" else "false")
        case ByteType => out.digits(row.getByte(i).toLong)
        case ShortType => out.digits(row.getShort(i).toLong)
        case IntegerType => out.digits(row.getInt(i).toLong)
        case LongType => out.digits(row.getLong(i))
        case FloatType => floating(out, row.getFloat(i).toDouble, java.lang.Float.toString(row.getFloat(i)))
        case DoubleType => floating(out, row.getDouble(i), java.lang.Double.toString(row.getDouble(i)))
        case d: DecimalType => out.ascii(row.getDecimal(i, d.precision, d.scale).toJavaBigDecimal.toPlainString)
        case _: StringType => string(out, row.getUTF8String(i).getBytes)
        case BinaryType => out.put('"'); out.put(java.util.Base64.getEncoder.encode(row.getBinary(i))); out.put('"')
        case DateType => out.put('"'); TimeText.date(out, row.getInt(i)); out.put('"')
        case _: TimeType => out.put('"'); TimeText.clock(out, row.getLong(i)); out.put('"')
        case TimestampNTZType => out.put('"'); TimeText.timestamp(out, row.getLong(i), separator); out.put('"')
        case TimestampType => out.put('"'); TimeText.timestamp(out, row.getLong(i), separator); out.ascii("Z\"")
        case a: ArrayType =>
          val values = row.getArray(i)
          out.put('[')
          var n = 0
          while (n < values.numElements()) {
            if (n > 0) out.put(',')
            write(out, values, n, a.elementType)
            n += 1
          }
          out.put(']')
        case m: MapType =>
          val map = row.getMap(i)
          out.put('{')
          var n = 0
          while (n < map.numElements()) {
            if (n > 0) out.put(',')
            val at = out.size
            write(out, map.keyArray(), n, m.keyType)
            quoteFrom(out, at)
            out.put(':')
            write(out, map.valueArray(), n, m.valueType)
            n += 1
          }
          out.put('}')
        case s: StructType =>
          val struct = row.getStruct(i, s.length)
          fields(out, struct, s, s.indices.toArray)
        case _: NullType => out.ascii("null")
        case other => throw new IllegalArgumentException(s"no JSON form of ${other.catalogString}")
      }

  def fields(out: Bytes, row: SpecializedGetters, s: StructType, which: Array[Int]): Unit = {
    out.put('{')
    var n = 0
    while (n < which.length) {
      if (n > 0) out.put(',')
      val f = s(which(n))
      string(out, f.name.getBytes(java.nio.charset.StandardCharsets.UTF_8))
      out.put(':')
      write(out, row, which(n), f.dataType)
      n += 1
    }
    out.put('}')
  }

  private def floating(out: Bytes, d: Double, text: String): Unit =
    if (d.isNaN || d.isInfinite) { out.put('"'); out.ascii(text); out.put('"') } else out.ascii(text)

  /** JSON's keys are strings: quote a key that was rendered as something else. */
  private def quoteFrom(out: Bytes, at: Int): Unit = {
    val key = out.copyFrom(at)
    if (key.isEmpty || key(0) != '"') {
      out.cut(at)
      out.put('"'); out.put(key); out.put('"')
    }
  }
}
