package org.apache.spark.sql.pgstream

import scala.collection.mutable.ArrayBuffer

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.fs.Path
import org.apache.kafka.clients.producer.ProducerRecord

import org.apache.spark.SparkContext
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.types._

import Json.Node

/**
 * A Kafka topic, exactly once: the rows of a batch and its number in one transaction.
 *
 * It is that of all tasks (`together`), where they are in this process: who reads the topic by event time would take the
 * rows of a task that is behind for late ones. Elsewhere, and in plans of before version 9, each task has its own; a query
 * may move from one to the other in the middle of a batch (docs/decisions/0057).
 */
class KafkaSink(config: String) extends TaskSink {
  import KafkaSink._

  private val c = Json.read(config)
  private val query = c.str("query")
  private lazy val mark = new TasksMark(checkpoint, c.opt("output"))
  // Of what only writes there, nothing in this process logs in before its tasks do.
  if (config.contains(classOf[MskLogin].getName)) MskLogin.send()

  private val together = c.get("together").asBoolean
  private def isLocal = SparkContext.getOrCreate().isLocal

  /** Or any of it, where tasks write: what one has written another may not be kept from. */
  override private[pgstream] def holds(batch: Long): Boolean =
    if (together && isLocal && !mark.isSet) writer(c, All).written >= batch
    else KafkaWriter.anyIn(s"$query-${prefix(c)}", batch, c.entries("properties"))

  override private[pgstream] def begin(batch: Long, schemas: Seq[StructType]): TaskSink.Work =
    KafkaSink.work(config, batch, schemas.head, who(batch))

  /** The batch that this process has begun with as on a cluster. */
  private var first = -1L

  /**
   * A batch may have been cut off where tasks were in other processes than now. In this one, the first is written as on the
   * cluster, where each task's writer knows whether its part is in; the next one begins when Spark has noted that. There,
   * before the first, the writer of all is asked.
   */
  private def who(batch: Long): Writing =
    if (!together) Alone
    else if (isLocal && mark.isSet && (first < 0 || first == batch)) {
      first = batch
      if (isIn(c, writer(c, All), batch)) Nobody else Alone
    } else if (isLocal) {
      if (mark.isSet) { KafkaWriter.closeAll(query); mark.remove() }
      Together
    } else if (mark.isSet) Alone
    else {
      val all = writer(c, All)
      try if (isIn(c, all, batch)) Nobody else { mark.set(); Alone }
      finally KafkaWriter.close(all)
    }

  override private[pgstream] def end(batch: Long, done: Seq[TaskSink.Done]): Long = {
    KafkaWriter.commitAll(query, batch)
    done.map(_.made.asInstanceOf[Long]).sum
  }

  override private[pgstream] def over(): Unit = KafkaWriter.giveUp(query)
}

object KafkaSink {
  type Record = ProducerRecord[Array[Byte], Array[Byte]]

  /** Who writes a batch: each task its part, one writer that of all, or nobody, as it is in. */
  sealed private trait Writing
  private case object Alone extends Writing
  private case object Together extends Writing
  private case object Nobody extends Writing

  private def work(config: String, batch: Long, schema: StructType, writing: Writing): TaskSink.Work =
    (_, task, rows) => writePart(config, schema, batch, task, writing, rows)

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

  /** An earlier batch may be any: who has no rows writes none, and a group's offset is forgotten some day. */
  private def isIn(c: JsonNode, writer: KafkaWriter, batch: Long): Boolean = {
    if (writer.written > batch) throw new StrangeBatchException(c.str("query"), batch, writer.written)
    writer.written == batch
  }

  /** Of one query's sinks each has writers of its own. */
  private def prefix(c: JsonNode): String = c.opt("output").map(o => s"o$o-").getOrElse("")

  private def writer(c: JsonNode, who: String): KafkaWriter =
    KafkaWriter.open(c.str("query"), c.get("attempt").asInt, prefix(c) + who, c.str("topic"), c.entries("properties"))

  private def writePart(config: String, schema: StructType, batch: Long, task: Int, writing: Writing, all: Iterator[InternalRow]): Long = {
    if (!all.hasNext) return 0
    val rows = all.buffered
    val c = Json.read(config)
    val format = new RecordFormat(c, schema)
    val order = c.str("order")
    val run = if (order == "all") Int.MaxValue else Run
    var count = 0L
    val part: (Record => Unit) => Unit = { send =>
      if (order == "source") rows.foreach { r => send(format.record(r)); count += 1 }
      else
        rows.grouped1(run) { records => sorted(records).foreach(send); count += records.length }(format.record)
    }
    def own(who: String) = { val w = writer(c, who); isIn(c, w, batch); w }
    writing match {
      case Alone => own(writerOf(task, rows.head, schema)).write(batch)(part)
      case Together => { val all = own(All); part(if (all.begin(batch)) all.send else _ => ()) }
      case Nobody => part(_ => ())
    }
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

/**
 * In a query's checkpoint: its batches are written by tasks, each alone. So from the first on a cluster to the first that
 * is not, and in Spark's log.
 */
private class TasksMark(checkpoint: String, output: Option[String]) {
  private val place = new Path(checkpoint, s"tasks-write${output.getOrElse("")}")
  private lazy val files = CheckpointFileManager.create(place.getParent, SparkSession.active.sessionState.newHadoopConf())
  private var known: Option[Boolean] = None

  def isSet: Boolean = {
    if (known.isEmpty) known = Some(files.exists(place))
    known.get
  }

  def set(): Unit = {
    files.createAtomic(place, overwriteIfPossible = true).close()
    known = Some(true)
  }

  def remove(): Unit = {
    files.delete(place)
    known = Some(false)
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
