package org.apache.spark.sql.pgstream

import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable.ArrayBuffer

import org.apache.kafka.clients.producer.ProducerRecord
import org.apache.kafka.common.header.internals.RecordHeader

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.util.ArrayData

import Json.Node

/** A record as it came from its source; `headers` are Spark's, and may be null. */
final case class RawRecord(key: Array[Byte], value: Array[Byte], partition: Int, offset: Long, micros: Long, headers: ArrayData, place: String)

/**
 * Bad records go, as they were, to a log topic; headers of their own, behind the record's, say why. Exactly once: each
 * partition's are written in transactions that also keep how far they have come, as a sink's batches are
 * (`KafkaWriter`), so that a batch that is repeated logs only what is not there yet. A task's are written when it ends.
 *
 * `config`: `query`, `attempt`, `reader` (which of the query's decoders this is), `topic`, `properties`.
 */
class BadRecordLog(config: String) {
  import BadRecordLog._
  private val c = Json.read(config)
  private val waiting = new ArrayBuffer[(Long, ProducerRecord[Array[Byte], Array[Byte]])]
  private var bytes = 0L
  private var partition = -1
  private var told = false

  def send(from: String, r: RawRecord, why: String): Unit = {
    if (r.partition != partition) flush()
    partition = r.partition
    waiting += ((r.offset, record(from, r, why)))
    bytes += size(r.key) + size(r.value)
    val task = TaskContext.get()
    if (!told && task != null) {
      told = true
      task.addTaskCompletionListener[Unit](t => if (!t.isFailed() && !t.isInterrupted()) flush())
    }
    if (task == null || bytes > Most || waiting.length >= Longest) flush()
  }

  private def record(from: String, r: RawRecord, why: String): ProducerRecord[Array[Byte], Array[Byte]] = {
    val made = new ProducerRecord[Array[Byte], Array[Byte]](c.str("topic"), r.key, r.value)
    if (r.headers != null) for (i <- 0 until r.headers.numElements()) {
      val h = r.headers.getStruct(i, 2)
      made.headers.add(new RecordHeader(h.getUTF8String(0).toString, if (h.isNullAt(1)) null else h.getBinary(1)))
    }
    val told = Seq("error" -> why, "topic" -> from, "partition" -> r.partition, "offset" -> r.offset,
      "timestamp" -> Math.floorDiv(r.micros, 1000L), "query" -> c.str("query"))
    (told ++ Seq("place" -> r.place).filter(_._2.nonEmpty)).foreach {
      case (name, said) => made.headers.add(new RecordHeader(s"pgstream.$name", said.toString.getBytes(UTF_8)))
    }
    made
  }

  private def flush(): Unit =
    if (waiting.nonEmpty) {
      val name = s"bad-${c.str("reader")}-p$partition"
      val writer = KafkaWriter.open(c.str("query"), c.get("attempt").asInt, name, c.str("topic"), c.entries("properties"))
      writer.write(waiting.last._1) { send =>
        val done = writer.written
        waiting.foreach { case (offset, r) => if (offset > done) send(r) }
      }
      waiting.clear()
      bytes = 0
    }
}

object BadRecordLog {
  private val Most = 8L << 20
  private val Longest = 10000

  private def size(b: Array[Byte]): Int = if (b == null) 0 else b.length
}
