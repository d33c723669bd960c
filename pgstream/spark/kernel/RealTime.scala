package org.apache.spark.sql.pgstream

import java.util.{Map => JavaMap}

import org.apache.spark.TaskContext
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.connector.catalog.{Column, SupportsRead, TableCapability}
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory, Scan, ScanBuilder}
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead.RecordStatus
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * The topic of a query in Spark's real-time mode: a task reads a partition for as long as a batch lasts, and each record goes
 * on as it comes. Spark's own source does the reading. Around it stands what Spark has not: a batch that ends at once when
 * the query is to stop, or when a record could not be written; figures of the batch under way; offsets that are gone,
 * which Spark would wait for; and that all tasks have a place (`RealTimeSink`).
 */
object RealTime {
  def apply(df: DataFrame, query: String): DataFrame = {
    val d = df.asInstanceOf[ClassicDataset[_]]
    val plan = d.logicalPlan.transform {
      case s: StreamingRelationV2 => s.copy(table = new RealTimeTable(s.table.asInstanceOf[SupportsRead], query), v1Relation = None)
    }
    ClassicDataset.ofRows(d.sparkSession, plan)
  }

  /** The next offset of each partition, as the source's offsets say it: `{"topic": {"0": 12}}`. */
  def places(offset: String): Map[Int, Long] = {
    val found = Map.newBuilder[Int, Long]
    Json.read(offset).properties.forEach(_.getValue.properties.forEach(e => found += e.getKey.toInt -> e.getValue.asLong))
    found.result()
  }
}

class RealTimeTable(of: SupportsRead, query: String) extends SupportsRead {
  override def name: String = of.name
  override def columns: Array[Column] = of.columns
  override def capabilities: java.util.Set[TableCapability] = of.capabilities
  override def properties: JavaMap[String, String] = of.properties
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => new RealTimeScan(of.newScanBuilder(options).build(), query)
}

class RealTimeScan(of: Scan, query: String) extends Scan {
  override def readSchema: StructType = of.readSchema
  override def description: String = of.description
  override def supportedCustomMetrics: Array[CustomMetric] = of.supportedCustomMetrics
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream =
    new RealTimeStream(of.toMicroBatchStream(checkpoint).asInstanceOf[RealTimeStream.Of], query)
}

class RealTimeStream(of: RealTimeStream.Of, query: String) extends MicroBatchStream with SupportsRealTimeMode with SupportsAdmissionControl {
  private val sink = RealTimeSink.of(query)

  override def prepareForRealTimeMode(): Unit = of.prepareForRealTimeMode()
  override def initialOffset(): Offset = of.initialOffset()
  override def deserializeOffset(json: String): Offset = of.deserializeOffset(json)
  override def mergeOffsets(offsets: Array[PartitionOffset]): Offset = of.mergeOffsets(offsets)
  override def getDefaultReadLimit: ReadLimit = of.getDefaultReadLimit
  override def reportLatestOffset(): Offset = of.reportLatestOffset()
  override def latestOffset(): Offset = of.latestOffset()

  /** Between two batches. */
  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    sink.between()
    sink.checkKept(RealTime.places(start.json))
    of.latestOffset(start, limit)
  }

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = of.planInputPartitions(start, end)

  override def planInputPartitions(start: Offset): Array[InputPartition] = {
    val parts = of.planInputPartitions(start)
    sink.begin(this, parts.length)
    parts
  }

  override def createReaderFactory(): PartitionReaderFactory = new RealTimeReaders(of.createReaderFactory(), query)

  /** Which partition a task reads, and its next offset. */
  def place(offset: PartitionOffset): (Int, Long) = RealTime.places(of.mergeOffsets(Array(offset)).json).head

  override def commit(end: Offset): Unit = of.commit(end)
  override def stop(): Unit = of.stop()
  override def toString: String = of.toString
}

object RealTimeStream {
  type Of = MicroBatchStream with SupportsRealTimeMode with SupportsAdmissionControl
}

class RealTimeReaders(of: PartitionReaderFactory, query: String) extends PartitionReaderFactory {
  override def createReader(part: InputPartition): PartitionReader[InternalRow] =
    new RealTimeReader(of.createReader(part).asInstanceOf[SupportsRealTimeRead[InternalRow]], RealTimeSink.of(query))
}

class RealTimeReader(of: SupportsRealTimeRead[InternalRow], sink: RealTimeSink) extends SupportsRealTimeRead[InternalRow] {
  import RealTimeReader._
  private val place = {
    val (partition, next) = sink.stream.place(of.getOffset)
    sink.reads(partition, next)
  }
  // Spark does not close it, and its consumer would not be free for the next batch.
  TaskContext.get().addTaskCompletionListener[Unit](_ => of.close())

  override def nextWithTimeout(timeout: java.lang.Long): RecordStatus = {
    val until = System.currentTimeMillis() + timeout
    var found: RecordStatus = null
    place.sent() // its row was handed on to the end before the next is asked for
    while (found == null) {
      sink.check()
      val now = System.currentTimeMillis()
      if (sink.stopping || now >= until) found = RecordStatus.newStatusWithoutArrivalTime(false)
      else {
        val next = of.nextWithTimeout(math.min(Slice, until - now))
        if (next.hasRecord) { found = next; place.took(of.get().getLong(OffsetAt)) }
        else place.quiet = now
        if (!place.seen) { place.seen = true; sink.alive() }
      }
    }
    found
  }

  override def get(): InternalRow = of.get()
  override def getOffset: PartitionOffset = of.getOffset
  override def next(): Boolean = throw new IllegalStateException("read with a timeout")
  override def currentMetricsValues: Array[CustomTaskMetric] = of.currentMetricsValues
  override def close(): Unit = ()
}

object RealTimeReader {
  /** Milliseconds after which a task without records looks whether it is to end. */
  private val Slice = 100L
  /** The place of the offset in a row of Spark's Kafka source. */
  private val OffsetAt = 4
}

/** How far a partition has been read, by one task at a time: all before `next` has been given to the producer. */
class RealTimePlace {
  @volatile var next, count, quiet = 0L
  @volatile var seen = false
  private var taken = -1L

  def took(offset: Long): Unit = { taken = offset + 1; count += 1 }
  def sent(): Unit = if (taken > next) next = taken
}
