package org.apache.spark.sql.pgstream

import java.nio.charset.StandardCharsets.UTF_8

/** A column of a table, as its relation message or the catalogue has it: its name and the oid of its type. */
case class TableColumn(name: String, oid: Int)

/**
 * Values in PostgreSQL's text form as JSON, so that they are read as any other record's. `nested`: the columns that are
 * declared as STRUCT, MAP or ARRAY; JSON and arrays in others are text, as they stand.
 */
class PgJson(nested: Set[String]) {
  private val hex = "0123456789abcdef"

  /** An object of a row; a null value is NULL. `only`: the columns that are taken. */
  def row(out: Bytes, columns: Array[TableColumn], values: Array[Array[Byte]], only: String => Boolean = _ => true): Unit = {
    out.put('{')
    var first = true
    columns.indices.foreach { i =>
      val c = columns(i)
      if (only(c.name)) {
        if (!first) out.put(',')
        first = false
        string(out, c.name.getBytes(UTF_8))
        out.put(':')
        if (values(i) == null) out.ascii("null") else value(out, values(i), c)
      }
    }
    out.put('}')
  }

  private def value(out: Bytes, text: Array[Byte], c: TableColumn): Unit = c.oid match {
    case 16 => out.ascii(if (text(0) == 't') "true" else "false")
    case 20 | 21 | 23 | 26 => out.put(text)
    case 700 | 701 | 1700 => if (isNumber(text)) out.put(text) else string(out, text)
    case 17 => out.put('"'); out.put(java.util.Base64.getEncoder.encode(unhex(text))); out.put('"')
    case 114 | 3802 if nested(c.name) => out.put(text)
    case _ if nested(c.name) && text.length > 0 && (text(0) == '{' || text(0) == '[') =>
      new PgArray(text, PgJson.elements.getOrElse(c.oid, 25), if (c.oid == 1020) ';' else ',').write(out)
    case _ => string(out, text)
  }

  /** `[2:3]={…}` is one whose indexes do not begin with 1. `comma`: boxes have commas of their own. */
  private class PgArray(text: Array[Byte], element: Int, comma: Char) {
    private var at = if (text(0) == '[') text.indexOf('='.toByte) + 1 else 0

    def write(out: Bytes): Unit = {
      at += 1
      out.put('[')
      var first = true
      while (text(at) != '}') {
        if (!first) { out.put(','); at += 1 }
        first = false
        if (text(at) == '{') write(out) else item(out)
      }
      at += 1
      out.put(']')
    }

    private def item(out: Bytes): Unit = {
      val one = new Bytes(32)
      val quoted = text(at) == '"'
      if (quoted) at += 1
      while (if (quoted) text(at) != '"' else text(at) != comma && text(at) != '}') {
        if (text(at) == '\\') at += 1
        one.put(text(at))
        at += 1
      }
      if (quoted) at += 1
      val bytes = one.toArray
      if (!quoted && new String(bytes, UTF_8).equalsIgnoreCase("null")) out.ascii("null")
      else value(out, bytes, TableColumn("", element))
    }
  }

  private def isNumber(text: Array[Byte]): Boolean = text.forall(b => b < 'A' || b == 'e') // not NaN, not Infinity

  private def unhex(text: Array[Byte]): Array[Byte] = {
    val out = new Array[Byte]((text.length - 2) / 2)
    out.indices.foreach(i => out(i) = (hex.indexOf(text(2 * i + 2)) << 4 | hex.indexOf(text(2 * i + 3))).toByte)
    out
  }

  def string(out: Bytes, text: Array[Byte]): Unit = {
    out.put('"')
    text.foreach {
      case '"' => out.ascii("\\\"")
      case '\\' => out.ascii("\\\\")
      case b if b >= 0 && b < 32 => out.ascii("\\u00"); out.put(hex.charAt(b >> 4)); out.put(hex.charAt(b & 15))
      case b => out.put(b)
    }
    out.put('"')
  }
}

object PgJson {
  /** Types of arrays, and those of their elements, where these are not written as text. */
  private[pgstream] val elements = Map(
    1000 -> 16, 1001 -> 17, 1005 -> 21, 1007 -> 23, 1016 -> 20, 1021 -> 700, 1022 -> 701, 1231 -> 1700, 1028 -> 26)
}
