package org.apache.spark.sql.pgstream

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.unsafe.types.UTF8String

/** A growable byte buffer: rows are rendered into it without a String per value. */
final class Bytes(initial: Int = 1024) {
  private var bytes = new Array[Byte](initial)
  private var count = 0

  def size: Int = count
  def clear(): Unit = count = 0
  def cut(length: Int): Unit = count = length
  def toArray: Array[Byte] = java.util.Arrays.copyOf(bytes, count)
  def text: String = new String(bytes, 0, count, UTF_8)
  def writeTo(out: java.io.OutputStream): Unit = out.write(bytes, 0, count)
  def copyFrom(from: Int): Array[Byte] = java.util.Arrays.copyOfRange(bytes, from, count)

  private def room(more: Int): Unit =
    if (count + more > bytes.length) bytes = java.util.Arrays.copyOf(bytes, math.max(bytes.length * 2, count + more))

  def put(b: Int): Unit = {
    if (count == bytes.length) room(1)
    bytes(count) = b.toByte
    count += 1
  }

  def ascii(s: String): Unit = {
    val n = s.length
    room(n)
    var i = 0
    while (i < n) { bytes(count + i) = s.charAt(i).toByte; i += 1 }
    count += n
  }

  def put(b: Array[Byte], from: Int, length: Int): Unit = {
    room(length)
    System.arraycopy(b, from, bytes, count, length)
    count += length
  }

  def put(b: Array[Byte]): Unit = put(b, 0, b.length)
  def put(s: UTF8String): Unit = put(s.getBytes)

  def digits(value: Long): Unit = {
    if (value < 0 || value >= 1000000000L) ascii(java.lang.Long.toString(value))
    else {
      var v = value.toInt
      var n = 1
      var p = 10L
      while (v >= p) { n += 1; p *= 10 }
      room(n)
      var i = count + n - 1
      while (i >= count) { bytes(i) = ('0' + v % 10).toByte; v /= 10; i -= 1 }
      count += n
    }
  }

  /** A number with leading zeros to `width`. */
  def padded(value: Int, width: Int): Unit = {
    var p = 1
    var i = 1
    while (i < width) { p *= 10; i += 1 }
    var v = value
    while (p > 0) { put('0' + v / p % 10); p /= 10 }
  }
}
