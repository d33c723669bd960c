package org.apache.spark.sql.pgstream

import scala.collection.mutable.ArrayBuffer

import com.fasterxml.jackson.databind.JsonNode
import org.apache.kafka.clients.producer.ProducerRecord

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types._

import Json.Node

/**
 * A Kafka topic, exactly once: the rows of a batch and its number in one transaction.
 *
 * It is that of all tasks (`together`), where they are in this process: who reads the topic by event time would take the
 * rows of a task that is behind for late ones. Elsewhere, and in plans of before version 9, each task has its own.
 */
class KafkaSink(config: String) extends TaskSink {
  private val query = Json.read(config).str("query")
  // Of what only writes there, nothing in this process logs in before its tasks do.
  if (config.contains(classOf[MskLogin].getName)) MskLogin.send()

  /** On a cluster, of as many writers as a batch has tasks, that is not asked. */
  override private[pgstream] def holds(batch: Long): Boolean = {
    val c = Json.read(config)
    KafkaSink.isTogether(c, SparkContext.getOrCreate().isLocal) && KafkaSink.writer(c, KafkaSink.All).written >= batch
  }

  override private[pgstream] def begin(batch: Long, schemas: Seq[StructType]): TaskSink.Work =
    KafkaSink.work(config, batch, schemas.head, SparkContext.getOrCreate().isLocal)

  override private[pgstream] def end(batch: Long, done: Seq[TaskSink.Done]): Long = {
    KafkaWriter.commitAll(query, batch)
    done.map(_.made.asInstanceOf[Long]).sum
  }

  override private[pgstream] def over(): Unit = KafkaWriter.giveUp(query)
}

object KafkaSink {
  type Record = ProducerRecord[Array[Byte], Array[Byte]]

  private def work(config: String, batch: Long, schema: StructType, local: Boolean): TaskSink.Work =
    (_, task, rows) => writePart(config, schema, batch, task, local, rows)

  /** Rows of a stateless query are put in event-time order in runs of this many; its input is nearly in order. */
  private val Run = 50000

  /**
   * Who writes a task's rows, alone: the same rows have the same writer when a batch is repeated, which is how it knows that
   * it has written them. A task that reads a source's partition is named by that partition: Spark lists those in any
   * order. Tasks behind a shuffle keep their number.
   */
  private def writerOf(task: Int, first: InternalRow, schema: StructType): String = {
    val at = schema.fieldNames.indexOf("__partition")
    if (at >= 0 && !first.isNullAt(at)) s"p${first.getInt(at)}" else s"t$task"
  }

  private val All = "all"

  private def isTogether(c: JsonNode, local: Boolean): Boolean = local && c.get("together").asBoolean

  private def writer(c: JsonNode, who: String): KafkaWriter =
    KafkaWriter.open(c.str("query"), c.get("attempt").asInt, c.opt("output").map(o => s"o$o-").getOrElse("") + who, c.str("topic"), c.entries("properties"))

  private def writePart(config: String, schema: StructType, batch: Long, task: Int, local: Boolean, all: Iterator[InternalRow]): Long = {
    if (!all.hasNext) return 0
    val rows = all.buffered
    val c = Json.read(config)
    // Of one query's sinks each has writers of its own.
    val together = isTogether(c, local)
    val writer = this.writer(c, if (together) All else writerOf(task, rows.head, schema))
    // An earlier one may be any: who has no rows writes none, and a group's offset is forgotten some day.
    if (writer.written > batch) throw new StrangeBatchException(c.str("query"), batch, writer.written)
    val format = new RecordFormat(c, schema)
    val order = c.str("order")
    val run = if (order == "all") Int.MaxValue else Run
    var count = 0L
    val part: (Record => Unit) => Unit = { send =>
      if (order == "source") rows.foreach { r => send(format.record(r)); count += 1 }
      else
        rows.grouped1(run) { records => sorted(records).foreach(send); count += records.length }(format.record)
    }
    if (!together) writer.write(batch)(part)
    else part(if (writer.begin(batch)) writer.send else _ => ())
    count
  }

  implicit private class Runs(val rows: Iterator[InternalRow]) extends AnyVal {
    def grouped1(size: Int)(f: ArrayBuffer[Record] => Unit)(make: InternalRow => Record): Unit =
      while (rows.hasNext) {
        val records = new ArrayBuffer[Record]
        while (rows.hasNext && records.length < size) records += make(rows.next())
        f(records)
      }
  }

  /** Stable, so rows of one time keep their order. */
  private def sorted(records: ArrayBuffer[Record]): ArrayBuffer[Record] = {
    var i = 1
    while (i < records.length && records(i - 1).timestamp <= records(i).timestamp) i += 1
    if (i >= records.length) records else records.sortBy(_.timestamp.longValue)
  }
}

/** A row as a record: its value and key in their formats, the event time as the record's timestamp. */
class RecordFormat(c: com.fasterxml.jackson.databind.JsonNode, schema: StructType) {
  private val topic = c.str("topic")
  private val upsert = c.str("mode") == "upsert"
  private val value = Formats.writer(c.get("value"), schema, c.strings("columns").map(schema.fieldIndex).toArray)
  private val keyColumns = c.strings("key_columns").map(schema.fieldIndex).toArray
  private val key = if (keyColumns.isEmpty) null else Formats.writer(c.get("key"), schema, keyColumns)
  private val timeAt = schema.fieldNames.indexOf("__time")
  private val deleteAt = schema.fieldNames.indexOf("__delete")

  def record(row: InternalRow): ProducerRecord[Array[Byte], Array[Byte]] = {
    val time: java.lang.Long =
      if (timeAt < 0 || row.isNullAt(timeAt)) System.currentTimeMillis()
      else math.max(0L, Math.floorDiv(row.getLong(timeAt), 1000L))
    val deleted = upsert && deleteAt >= 0 && !row.isNullAt(deleteAt) && row.getBoolean(deleteAt)
    val k = if (key == null) null else key.write(row)
    new ProducerRecord(topic, null, time, k, if (deleted) null else value.write(row))
  }
}
