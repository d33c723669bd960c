package org.apache.spark.sql.pgstream

import java.nio.charset.StandardCharsets.UTF_8
import java.util.{Base64, UUID}

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

import Json.Node

/** A record of a data stream is larger than there can be. */
class RecordTooLargeException(message: String) extends RuntimeException(message)

/** A data stream, at least once: a batch that is repeated is written again. Each task writes its rows in their order. */
class KinesisSink(config: String) extends TaskSink {
  val who: String = Json.read(config).str("who")

  override private[pgstream] def begin(batch: Long, schemas: Seq[StructType]): TaskSink.Work = {
    val stream = KinesisStream.of(config, Json.read(config).str("keys"))
    KinesisSink.work(config, stream.copy(place = stream.place.now), schemas.head)
  }
  override private[pgstream] def end(batch: Long, done: Seq[TaskSink.Done]): Long = done.map(_.made.asInstanceOf[Long]).sum
}

object KinesisSink {
  private val MostRecords = 500
  private val MostBytes = 5 << 20
  private val LargestRecord = 1 << 20
  private val LongestKey = 256
  private val PatienceMs = 60000L

  private def work(config: String, stream: KinesisStream, schema: StructType): TaskSink.Work =
    (_, _, rows) => part(config, stream, schema, rows)

  private def part(config: String, stream: KinesisStream, schema: StructType, rows: Iterator[InternalRow]): Long = {
    val format = new RowFormat(Json.read(config), schema)
    val waiting = new ArrayBuffer[Entry]
    var bytes = 0
    var count = 0L
    rows.foreach { row =>
      val entry = format.entry(row)
      if (entry.size > LargestRecord)
        throw new RecordTooLargeException(s"a record for stream ${stream.name} has ${entry.size} bytes with its partition key")
      if (waiting.length == MostRecords || bytes + entry.size > MostBytes) { send(stream, waiting); waiting.clear(); bytes = 0 }
      waiting += entry
      bytes += entry.size
      count += 1
    }
    if (waiting.nonEmpty) send(stream, waiting)
    count
  }

  /**
   * What was not taken is sent again, and with it what followed under the same keys, so that the last record of a key
   * is the last one: records may come twice, and each key's stay in their order.
   */
  private def send(stream: KinesisStream, entries: ArrayBuffer[Entry]): Unit = {
    val end = System.currentTimeMillis() + PatienceMs
    var left = entries.toSeq
    var attempt = 0
    while (left.nonEmpty) {
      val failed =
        try stream.put(body(stream, left))
        catch { case e: AwsException if e.passing && System.currentTimeMillis() < end => left.indices.map(_ -> e.getMessage).toMap }
      if (failed.nonEmpty) {
        if (System.currentTimeMillis() > end) {
          val (code, why) = failed.head._2.splitAt(failed.head._2.indexOf(": "))
          throw new AwsException(code, 500, s"stream ${stream.name} did not take ${failed.size} records: ${why.drop(2)}")
        }
        attempt += 1
        Thread.sleep(AwsCall.pauseMs(attempt))
      }
      left = again(left, failed.keySet)
    }
  }

  private def again(sent: Seq[Entry], failed: Set[Int]): Seq[Entry] = {
    val keys = mutable.Set.empty[String]
    sent.zipWithIndex.collect { case (e, i) if (failed(i) && { keys += e.key; true }) || keys(e.key) => e }
  }

  private def body(stream: KinesisStream, entries: Seq[Entry]): Array[Byte] = {
    val out = new java.io.ByteArrayOutputStream(entries.length * 256)
    val g = Json.mapper.getFactory.createGenerator(out)
    g.writeStartObject()
    g.writeStringField("StreamName", stream.name)
    g.writeArrayFieldStart("Records")
    entries.foreach { e =>
      g.writeStartObject()
      g.writeStringField("PartitionKey", e.key)
      g.writeBinaryField("Data", e.data)
      g.writeEndObject()
    }
    g.writeEndArray()
    g.writeEndObject()
    g.close()
    out.toByteArray
  }

  final private class Entry(val key: String, val data: Array[Byte]) {
    val size: Int = data.length + key.getBytes(UTF_8).length
  }

  /** Rows as records. Without key columns they are spread over the shards; a key that is too long for Kinesis is hashed. */
  private class RowFormat(c: com.fasterxml.jackson.databind.JsonNode, schema: StructType) {
    private val value = Formats.writer(c.get("value"), schema, c.strings("columns").map(schema.fieldIndex).toArray)
    private val keyColumns = c.strings("key_columns").map(schema.fieldIndex).toArray
    private val key = if (keyColumns.isEmpty) null else Formats.writer(c.get("key"), schema, keyColumns)

    def entry(row: InternalRow): Entry = new Entry(keyOf(row), value.write(row))

    private def keyOf(row: InternalRow): String = {
      val written = if (key == null) null else key.write(row)
      if (written == null || written.isEmpty) UUID.randomUUID().toString
      else {
        val text = new String(written, UTF_8)
        if (text.codePointCount(0, text.length) <= LongestKey) text else hashed(written)
      }
    }

    private def hashed(b: Array[Byte]): String =
      Base64.getUrlEncoder.withoutPadding.encodeToString(java.security.MessageDigest.getInstance("SHA-256").digest(b))
  }
}
