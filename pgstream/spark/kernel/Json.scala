package org.apache.spark.sql.pgstream

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

/** JSON of the configuration that Python hands over, and of the events that go back. */
object Json {
  val mapper = new ObjectMapper()

  def read(text: String): JsonNode = mapper.readTree(text)
  def array: ArrayNode = mapper.createArrayNode()
  def obj: ObjectNode = mapper.createObjectNode()
  def text(n: JsonNode): String = mapper.writeValueAsString(n)

  implicit class Node(val n: JsonNode) extends AnyVal {
    def str(name: String): String = n.get(name).asText()
    def opt(name: String): Option[String] = Option(n.get(name)).filterNot(_.isNull).map(_.asText())
    def strings(name: String): Seq[String] = Option(n.get(name)).toSeq.flatMap(_.elements().asScala.map(_.asText()))
    def entries(name: String): Map[String, String] =
      Option(n.get(name)).toSeq.flatMap(_.properties().asScala.map(e => e.getKey -> e.getValue.asText())).toMap
  }
}
