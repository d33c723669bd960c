package org.apache.spark.sql.pgstream

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.admin.Admin

/** What a query must know of a topic before it reads it. */
object Topics {
  def partitions(settings: java.util.Map[String, String], topic: String): Int = {
    val admin = Admin.create((settings.asScala.toMap: Map[String, AnyRef]).asJava)
    try admin.describeTopics(java.util.List.of(topic)).allTopicNames.get.get(topic).partitions.size
    finally admin.close(java.time.Duration.ZERO)
  }
}
