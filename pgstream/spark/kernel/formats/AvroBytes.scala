package org.apache.spark.sql.pgstream

import java.io.EOFException

import scala.jdk.CollectionConverters._

import org.apache.avro.Schema
import org.apache.avro.Schema.Type._

import org.apache.spark.unsafe.types.UTF8String

/**
 * Avro's binary encoding over the bytes of one record, whoever wrote them.
 *
 * Nothing is allocated for a length that the record does not have, and what a record may cost is bounded by its size:
 * items that take no bytes, records that hold each other and block counts of any size end it as malformed.
 */
final class AvroBytes {
  private var bytes: Array[Byte] = _
  private var at = 0
  private var work = 0L

  def over(record: Array[Byte], from: Int): this.type = {
    bytes = record
    at = from
    work = 4L * record.length + AvroBytes.Free
    this
  }

  def isEnd: Boolean = at == bytes.length
  def left: Int = bytes.length - at

  private def need(n: Int): Int = {
    if (n > left) throw new EOFException
    at += n
    at - n
  }

  private def spend(n: Long): Unit = {
    work -= n
    if (work < 0) throw new Malformed("it says that it holds more than its bytes can")
  }

  def readBoolean(): Boolean = bytes(need(1)) match {
    case 0 => false
    case 1 => true
    case b => throw new Malformed(s"a boolean of $b")
  }

  def readLong(): Long = {
    var v = 0L
    var shift = 0
    var b = 0
    do {
      b = bytes(need(1))
      if (shift > 63) throw new Malformed("a number of more than 64 bits")
      v |= (b & 0x7fL) << shift
      shift += 7
    } while (b < 0)
    (v >>> 1) ^ -(v & 1)
  }

  def readInt(): Int = {
    val v = readLong()
    if (v.toInt != v) throw new Malformed(s"an int of $v")
    v.toInt
  }

  def readFloat(): Float = java.lang.Float.intBitsToFloat(fixed(need(4), 4).toInt)
  def readDouble(): Double = java.lang.Double.longBitsToDouble(fixed(need(8), 8))

  private def fixed(from: Int, n: Int): Long = {
    var v = 0L
    var i = n - 1
    while (i >= 0) { v = (v << 8) | (bytes(from + i) & 0xffL); i -= 1 }
    v
  }

  private def length(): Int = {
    val n = readLong()
    if (n < 0 || n > left) throw new Malformed(s"a length of $n where $left bytes are left")
    n.toInt
  }

  def readBytes(): Array[Byte] = readFixed(length())

  def readFixed(n: Int): Array[Byte] = {
    val from = need(n)
    java.util.Arrays.copyOfRange(bytes, from, from + n)
  }

  def readText(path: String): UTF8String = Bounds.text(readBytes(), path)

  /** How many items come next in an array or map; 0 at its end. */
  def readItems(): Long = {
    var n = readLong()
    if (n < 0) {
      n = -n
      readLong() // their bytes
    }
    if (n < 0) throw new Malformed("a block without a size")
    spend(n)
    n
  }

  /** Pass over a value. */
  def skip(s: Schema, depth: Int = 0): Unit = {
    spend(1)
    if (depth > AvroBytes.Deepest) throw new Malformed(s"values nested more than ${AvroBytes.Deepest} deep")
    s.getType match {
      case RECORD => s.getFields.asScala.foreach(f => skip(f.schema, depth + 1))
      case UNION => skip(s.getTypes.get(readInt()), depth + 1)
      case ARRAY => items(skip(s.getElementType, depth + 1))
      case MAP => items { need(length()); skip(s.getValueType, depth + 1) }
      case STRING | BYTES => need(length())
      case FIXED => need(s.getFixedSize)
      case INT | LONG | ENUM => readLong()
      case FLOAT => need(4)
      case DOUBLE => need(8)
      case BOOLEAN => need(1)
      case NULL =>
    }
  }

  private def items(one: => Unit): Unit = {
    var n = readItems()
    while (n > 0) {
      var i = 0L
      while (i < n) { one; i += 1 }
      n = readItems()
    }
  }
}

object AvroBytes {
  /** Items and nested values that a record may have beyond what its size says. */
  private final val Free = 100000L
  private final val Deepest = 500
}
