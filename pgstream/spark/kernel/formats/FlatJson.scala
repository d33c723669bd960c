package org.apache.spark.sql.pgstream

import java.nio.charset.StandardCharsets.ISO_8859_1

import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * The record as most are: one object of plain numbers, texts and words, read without a parser object for each.
 *
 * Gives up on all else (escapes, long numbers, exponents, nested values, whatever is wrong): `Fields` then reads the record
 * from its beginning, so what is refused and why is told in one place.
 */
final class FlatJson(columns: StructType, separator: Char) {
  import FlatJson._

  private val types = columns.fields.map(_.dataType)
  private val names = columns.fieldNames.map(_.getBytes(java.nio.charset.StandardCharsets.UTF_8))
  private val kinds = types.map(kind)
  private var bytes: Array[Byte] = _
  private var at = 0
  // What a record that was given up costs more than it saves; with none left nothing is tried any more.
  private var credit = if (kinds.contains(Other)) 0 else Most

  /** Whether the whole record was read into its places. */
  def read(record: Array[Byte], into: Array[Any]): Boolean =
    if (credit == 0) false
    else {
      bytes = record
      at = 0
      val done = whole(into)
      credit = if (done) math.min(Most, credit + 1) else credit - 1
      done
    }

  private def whole(into: Array[Any]): Boolean = {
    if (!(blank() && take('{') && blank())) return false
    if (take('}')) return end()
    var next = 0
    while (true) {
      if (!take('"')) return false
      val place = name(next)
      if (place == Unclear || !(blank() && take(':') && blank()) || !value(place, into) || !blank()) return false
      next = place + 1
      if (take('}')) return end()
      if (!(take(',') && blank())) return false
    }
    false
  }

  private def end(): Boolean = { blank(); at == bytes.length }
  private def take(c: Char): Boolean = at < bytes.length && bytes(at) == c && { at += 1; true }
  private def blank(): Boolean = {
    while (at < bytes.length && (bytes(at) == ' ' || bytes(at) == '\n' || bytes(at) == '\r' || bytes(at) == '\t')) at += 1
    true
  }

  /** The place of the name that stands here; most often it is the `next`. */
  private def name(next: Int): Int =
    if (next < names.length && is(names(next))) next
    else {
      val length = plain()
      if (length < 0) Unclear
      else {
        at -= length + 1
        val found = names.indexWhere(is)
        if (found < 0) at += length + 1
        found
      }
    }

  private def is(name: Array[Byte]): Boolean = {
    val to = at + name.length
    val same = to < bytes.length && bytes(to) == '"' && java.util.Arrays.equals(bytes, at, to, name, 0, name.length)
    if (same) at = to + 1
    same
  }

  /** The length of a text without escapes, up to its quote and past it; -1 for another. */
  private def plain(): Int = {
    val from = at
    var beyond = false
    while (at < bytes.length && bytes(at) != '"') {
      if (bytes(at) == '\\' || (bytes(at) >= 0 && bytes(at) < 0x20)) return -1
      beyond |= bytes(at) < 0
      at += 1
    }
    if (at == bytes.length || (beyond && !UTF8String.fromBytes(bytes, from, at - from).isValid)) return -1
    at += 1
    at - from - 1
  }

  private def word(text: String): Boolean = {
    val to = at + text.length
    var i = 0
    while (i < text.length && at + i < bytes.length && bytes(at + i) == text.charAt(i)) i += 1
    i == text.length && { at = to; true }
  }

  /** `place` is negative for a field that is not declared. */
  private def value(place: Int, into: Array[Any]): Boolean =
    if (at == bytes.length) false
    else
      bytes(at) match {
        case '"' => at += 1; text(place, into)
        case 'n' => word("null") && { if (place >= 0) into(place) = null; true }
        case 't' => word("true") && set(place, into, true)
        case 'f' => word("false") && set(place, into, false)
        case _ => number(place, into)
      }

  private def set(place: Int, into: Array[Any], value: Boolean): Boolean =
    if (place < 0) true else kinds(place) == Truth && { into(place) = value; true }

  private def text(place: Int, into: Array[Any]): Boolean = {
    val from = at
    val length = plain()
    if (length < 0) false
    else if (place < 0) true
    else
      kinds(place) match {
        case Text => into(place) = UTF8String.fromBytes(bytes, from, length); true
        case Time => time(place, new String(bytes, from, length, ISO_8859_1), into)
        case _ => false
      }
  }

  private def time(place: Int, text: String, into: Array[Any]): Boolean =
    try {
      into(place) = types(place) match {
        case DateType => TimeText.parseDate(text)
        case _: TimeType => TimeText.parseClock(text)
        case t => TimeText.parseTimestamp(text, separator, zoned = t == TimestampType)
      }
      true
    } catch { case _: IllegalArgumentException | _: java.time.DateTimeException | _: StringIndexOutOfBoundsException => false }

  private def number(place: Int, into: Array[Any]): Boolean = {
    val negative = take('-')
    val from = at
    var digits = 0L
    while (at < bytes.length && bytes(at) >= '0' && bytes(at) <= '9') { digits = digits * 10 + (bytes(at) - '0'); at += 1 }
    val whole = at - from
    if (whole == 0 || whole > 18 || (whole > 1 && bytes(from) == '0')) return false
    var scale = 0
    if (take('.')) {
      val point = at
      while (at < bytes.length && bytes(at) >= '0' && bytes(at) <= '9') { digits = digits * 10 + (bytes(at) - '0'); at += 1 }
      scale = at - point
      if (scale == 0 || whole + scale > 15) return false
    }
    if (negative && digits == 0) false // minus zero is the parser's
    else if (place < 0) true
    else if (scale == 0) integer(place, if (negative) -digits else digits, whole, into)
    else fraction(place, negative, digits, scale, into)
  }

  private def integer(place: Int, v: Long, length: Int, into: Array[Any]): Boolean = kinds(place) match {
    case Big => into(place) = v; true
    case Small =>
      types(place) match {
        case IntegerType if v.toInt == v => into(place) = v.toInt; true
        case ShortType if v.toShort == v => into(place) = v.toShort; true
        case ByteType if v.toByte == v => into(place) = v.toByte; true
        case _ => false
      }
    case Floating if length <= 15 => floating(place, v.toDouble, into)
    case Exact => exact(place, v, 0, into)
    case _ => false
  }

  private def fraction(place: Int, negative: Boolean, digits: Long, scale: Int, into: Array[Any]): Boolean = kinds(place) match {
    // Both are exact below 2^53 and 10^22, so their quotient is the nearest double.
    case Floating =>
      val v = digits.toDouble / Tens(scale)
      floating(place, if (negative) -v else v, into)
    case Exact => exact(place, if (negative) -digits else digits, scale, into)
    case _ => false
  }

  private def floating(place: Int, v: Double, into: Array[Any]): Boolean = {
    into(place) = if (types(place) == FloatType) v.toFloat else v
    true
  }

  private def exact(place: Int, unscaled: Long, scale: Int, into: Array[Any]): Boolean = {
    val t = types(place).asInstanceOf[DecimalType]
    val v = Decimal(java.math.BigDecimal.valueOf(unscaled, scale))
    v.changePrecision(t.precision, t.scale) && { into(place) = v; true }
  }
}

private object FlatJson {
  final val Most = 1000
  final val Unclear = -2
  final val Other = 0
  final val Big = 1
  final val Small = 2
  final val Truth = 3
  final val Text = 4
  final val Floating = 5
  final val Exact = 6
  final val Time = 7
  val Tens: Array[Double] = Array.tabulate(16)(n => math.pow(10, n))

  def kind(t: DataType): Int = t match {
    case LongType => Big
    case IntegerType | ShortType | ByteType => Small
    case BooleanType => Truth
    case _: StringType => Text
    case DoubleType | FloatType => Floating
    case _: DecimalType => Exact
    case TimestampType | TimestampNTZType | DateType | _: TimeType => Time
    case _ => Other
  }
}
