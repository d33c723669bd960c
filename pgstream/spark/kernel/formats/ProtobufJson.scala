package org.apache.spark.sql.pgstream

import java.io.ByteArrayOutputStream

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{BooleanNode, DoubleNode, JsonNodeFactory, LongNode, NullNode, ObjectNode, TextNode}
import com.google.protobuf.{CodedInputStream, ListValue, Message, Struct, Value, NullValue}

import org.apache.spark.unsafe.types.UTF8String

/** google.protobuf.Struct, Value and ListValue as the JSON that they stand for, both ways. */
private object ProtoJson {
  // Of what a message may nest, as protobuf's own libraries have it.
  private val Deepest = 100
  private val nodes = JsonNodeFactory.instance

  def text(in: CodedInputStream, name: String, path: String): UTF8String = {
    val b = in.readByteArray()
    val node = name match {
      case "google.protobuf.Struct" => obj(Struct.parseFrom(b), path)
      case "google.protobuf.ListValue" => list(ListValue.parseFrom(b), path)
      case _ => value(Value.parseFrom(b), path)
    }
    UTF8String.fromString(Json.text(node))
  }

  private def obj(s: Struct, path: String): JsonNode = {
    val out = nodes.objectNode()
    s.getFieldsMap.asScala.foreach { case (k, v) => out.set[JsonNode](k, value(v, path)) }
    out
  }

  private def list(l: ListValue, path: String): JsonNode = {
    val out = nodes.arrayNode()
    l.getValuesList.asScala.foreach(v => out.add(value(v, path)))
    out
  }

  private def value(v: Value, path: String): JsonNode = v.getKindCase match {
    case Value.KindCase.NUMBER_VALUE =>
      val n = v.getNumberValue
      if (n.isNaN || n.isInfinite) throw new Malformed(s"""field "$path" has the number $n, which JSON has not""")
      // The number 0.0 with a sign is not the integer 0.
      if (n == n.toLong && math.abs(n) < 1e15 && !(n == 0 && 1 / n < 0)) LongNode.valueOf(n.toLong) else DoubleNode.valueOf(n)
    case Value.KindCase.STRING_VALUE => TextNode.valueOf(v.getStringValue)
    case Value.KindCase.BOOL_VALUE => BooleanNode.valueOf(v.getBoolValue)
    case Value.KindCase.STRUCT_VALUE => obj(v.getStructValue, path)
    case Value.KindCase.LIST_VALUE => list(v.getListValue, path)
    case _ => NullNode.instance
  }

  /** The message for a text of JSON. Unwritable for one that is none, or of another kind. */
  def message(text: UTF8String, name: String, path: String): Message = {
    def wrong(why: String) = throw new Unwritable(s"""column "$path" is not JSON for $name: $why""")
    val node =
      try Json.mapper.readTree(text.getBytes)
      catch { case e: com.fasterxml.jackson.core.JsonProcessingException => wrong(e.getOriginalMessage) }
    (name, node) match {
      case (_, null) => wrong("it is empty")
      case ("google.protobuf.Struct", o: ObjectNode) => struct(o, 0, wrong)
      case ("google.protobuf.Struct", _) => wrong("it is no object")
      case ("google.protobuf.ListValue", l) => if (l.isArray) array(l, 0, wrong) else wrong("it is no array")
      case (_, v) => of(v, 0, wrong)
    }
  }

  private def struct(o: JsonNode, depth: Int, wrong: String => Nothing): Struct = {
    val out = Struct.newBuilder
    o.properties().asScala.foreach(e => out.putFields(e.getKey, of(e.getValue, depth + 1, wrong)))
    out.build()
  }

  private def array(l: JsonNode, depth: Int, wrong: String => Nothing): ListValue = {
    val out = ListValue.newBuilder
    l.elements().asScala.foreach(v => out.addValues(of(v, depth + 1, wrong)))
    out.build()
  }

  private def of(n: JsonNode, depth: Int, wrong: String => Nothing): Value = {
    if (depth > Deepest / 3) wrong(s"it is nested deeper than ${Deepest / 3} levels")
    val v = Value.newBuilder
    (if (n.isObject) v.setStructValue(struct(n, depth, wrong))
     else if (n.isArray) v.setListValue(array(n, depth, wrong))
     else if (n.isTextual) v.setStringValue(n.asText)
     else if (n.isBoolean) v.setBoolValue(n.asBoolean)
     else if (n.isNumber) {
       if (n.isIntegralNumber && new java.math.BigDecimal(n.doubleValue).compareTo(n.decimalValue) != 0) wrong(s"it has no number as large as ${n.asText}")
       v.setNumberValue(n.doubleValue)
     } else v.setNullValue(NullValue.NULL_VALUE)).build()
  }
}
