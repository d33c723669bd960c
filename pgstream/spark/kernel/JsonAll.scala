package org.apache.spark.sql.pgstream

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.{DeserializationFeature, JsonNode, ObjectMapper}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String
import scala.jdk.CollectionConverters._

/**
 * All that a path with wildcards finds in a JSON text, as the text of an array. `path`: the path's steps as a JSON array:
 * names, places, and null for all members or elements. NULL where the text is no JSON and, when `strict`, where what
 * stands before the first wildcard is not there.
 */
case class JsonAll(text: Expression, path: Expression, strict: Expression)
    extends TernaryExpression with ImplicitCastInputTypes with CodegenFallback {
  override def first: Expression = text
  override def second: Expression = path
  override def third: Expression = strict
  override def inputTypes: Seq[AbstractDataType] = Seq(StringType, StringType, BooleanType)
  override def dataType: DataType = StringType
  override def nullable: Boolean = true
  override def nullIntolerant: Boolean = true
  override def prettyName: String = "pgstream_json_all"

  @transient private lazy val mapper = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
  @transient private lazy val steps = mapper.readTree(path.eval().toString).asScala.toVector

  override protected def nullSafeEval(json: Any, path: Any, strict: Any): Any =
    try {
      val root = mapper.readTree(json.asInstanceOf[UTF8String].getBytes)
      if (root.isMissingNode) null
      else {
        val fixed = steps.takeWhile(!_.isNull)
        val start = fixed.foldLeft(Vector(root))(step)
        if (start.isEmpty && strict.asInstanceOf[Boolean]) null
        else {
          val found = steps.drop(fixed.size).foldLeft(start)(step)
          UTF8String.fromString(mapper.writeValueAsString(mapper.createArrayNode().addAll(found.asJava)))
        }
      }
    } catch {
      case _: JsonProcessingException => null
    }

  private def step(from: Vector[JsonNode], by: JsonNode): Vector[JsonNode] = from.flatMap { node =>
    if (by.isNull) node.elements().asScala
    else Option(if (by.isTextual) node.get(by.asText) else if (node.isArray) node.get(by.asInt) else null)
  }

  override protected def withNewChildrenInternal(a: Expression, b: Expression, c: Expression): JsonAll = copy(a, b, c)
}
