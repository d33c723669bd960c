package org.apache.spark.sql.pgstream

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.producer.{KafkaProducer, ProducerRecord}
import org.apache.kafka.common.header.internals.RecordHeader
import org.apache.kafka.common.serialization.ByteArraySerializer

import org.apache.spark.TaskContext

import Json.Node

/** Bad records go, as they were, to a log topic; headers say why. At least once: a retried batch logs again. */
class BadRecordLog(config: String) {
  private val c = Json.read(config)
  private val topic = c.str("topic")
  private val producer = BadRecordLog.producer(c.entries("properties"))
  @volatile private var failure: Exception = _
  private val flushing = new ThreadLocal[java.lang.Long]

  def send(from: String, partition: Int, offset: Long, key: Array[Byte], value: Array[Byte], why: String): Unit = {
    val record = new ProducerRecord[Array[Byte], Array[Byte]](topic, key, value)
    Seq("error" -> why, "topic" -> from, "partition" -> partition.toString, "offset" -> offset.toString).foreach {
      case (name, text) => record.headers.add(new RecordHeader(s"pgstream.$name", text.getBytes("UTF-8")))
    }
    producer.send(record, (_, e) => if (e != null) failure = e)
    val task = TaskContext.get()
    if (task != null && flushing.get != task.taskAttemptId()) {
      flushing.set(task.taskAttemptId())
      task.addTaskCompletionListener[Unit] { _ => producer.flush(); if (failure != null) throw failure }
    }
  }
}

object BadRecordLog {
  private val producers = new ConcurrentHashMap[Map[String, String], KafkaProducer[Array[Byte], Array[Byte]]]

  def producer(properties: Map[String, String]): KafkaProducer[Array[Byte], Array[Byte]] =
    producers.computeIfAbsent(
      properties,
      p => {
        val settings: Map[String, AnyRef] = Map("max.block.ms" -> "15000", "request.timeout.ms" -> "10000", "delivery.timeout.ms" -> "20000") ++ p ++
          Map("acks" -> "all", "linger.ms" -> "5")
        new KafkaProducer(settings.asJava, new ByteArraySerializer, new ByteArraySerializer)
      }
    )
}
