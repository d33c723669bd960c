package org.apache.spark.sql.pgstream

import java.time.Instant
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.LongAdder

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.admin.{Admin, ListOffsetsOptions, OffsetSpec}
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException
import org.apache.kafka.clients.producer.{KafkaProducer, ProducerRecord}
import org.apache.kafka.common.{IsolationLevel, TopicPartition}
import org.apache.kafka.common.serialization.ByteArraySerializer

import org.apache.spark.SparkContext
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler.local.LocalSchedulerBackend
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{SupportsWrite, Table, TableCapability}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}
import org.apache.spark.sql.types.StructType

import Json.Node

/** A query's tasks would not all have a place; the message is for who asked for it. */
class NoPlaceException(message: String) extends RuntimeException(message)

/**
 * The topic that a query in real-time mode writes, at least once: every record is sent as it comes, by one producer of the
 * query. Before a batch's offsets are kept, all its records are acknowledged; after a death the batch is read again.
 *
 * All tasks are in this process, and are told by this object when to end; it also is what the source around Spark's
 * (`RealTime`) tells how far it is. `config`: what `KafkaSink` is told, and of the source's topic `reads`: its name
 * `topic` and a client's `properties`.
 */
class RealTimeSink(config: String) extends BatchSink {
  import RealTimeSink._
  private val c = Json.read(config)
  private val query = c.str("query")
  private val topic = c.get("reads").str("topic")
  private val settings = c.get("reads").entries("properties")
  private val committed = new ListOffsetsOptions(
    if (settings.get("isolation.level").contains("read_uncommitted")) IsolationLevel.READ_UNCOMMITTED else IsolationLevel.READ_COMMITTED)
  private var open: Option[Admin] = None
  private val producer = new KafkaProducer[Array[Byte], Array[Byte]](
    (KafkaWriter.over(Defaults, c.entries("properties")) ++ Forced).asInstanceOf[Map[String, AnyRef]].asJava, new ByteArraySerializer, new ByteArraySerializer)
  private val places = new ConcurrentHashMap[Int, RealTimePlace]
  private[pgstream] val sent = new LongAdder
  @volatile private var failure: Throwable = _
  @volatile private var tasks = 0
  @volatile private var told = false
  @volatile private[pgstream] var stream: RealTimeStream = _
  @volatile private[pgstream] var batch = 0L

  override protected def write(batch: Long, rows: RDD[InternalRow], schema: StructType): Unit =
    throw new IllegalStateException("a query in real-time mode has no batches of rows")

  // The source

  /** Before a batch: a query that is to stop ends here, with all that it read committed. */
  def between(): Unit = while (stopping) { parked = true; Thread.sleep(1000) } // until `stop` interrupts it

  /** Spark waits for ever for offsets that the topic no longer has. */
  def checkKept(start: Map[Int, Long]): Unit =
    offsets(start.keys, OffsetSpec.earliest).foreach { case (partition, first) =>
      if (start(partition) < first) throw new OffsetOutOfRangeException(
        s"partition $partition of topic $topic begins at offset $first, and the query is at ${start(partition)}",
        java.util.Map.of(new TopicPartition(topic, partition), java.lang.Long.valueOf(start(partition))))
    }

  def begin(from: RealTimeStream, partitions: Int): Unit = {
    take(partitions)
    stream = from
    tasks = partitions
  }

  def reads(partition: Int, next: Long): RealTimePlace = {
    val place = places.computeIfAbsent(partition, _ => new RealTimePlace)
    place.next = next
    place
  }

  /** Every task has looked for records once. */
  def alive(): Unit = if (!told && places.size >= tasks && places.values.asScala.forall(_.seen)) { told = true; Watch.alive(query) }

  /** Take a place for each partition: what is left of the worker's must do for all other queries. */
  def take(partitions: Int): Unit = RealTimeSink.take(query, partitions)

  def partitions(): Int = Topics.partitions((settings: Map[String, String]).asJava, topic)

  // The sink

  def format(schema: StructType): RecordFormat = new RecordFormat(c, schema)

  def send(record: ProducerRecord[Array[Byte], Array[Byte]]): Unit = {
    check()
    producer.send(record, (_, e) => if (e != null && failure == null) failure = e)
    sent.increment()
  }

  /** A record that could not be written ends the batch, whether others come or not. */
  def check(): Unit = if (failure != null) throw failure

  def flush(): Unit = { producer.flush(); check() }

  def committed(rows: Long): Unit = wrote(rows)

  // Figures

  def taken: Long = places.values.asScala.map(_.count).sum

  /** The topic's offsets; of a cluster that does not answer, its exception. */
  def offsets(partitions: Iterable[Int], which: OffsetSpec): Map[Int, Long] =
    try
      admin.listOffsets(partitions.map(new TopicPartition(topic, _) -> which).toMap.asJava, committed).all.get.asScala
        .map { case (at, found) => at.partition -> found.offset }.toMap
    catch { case e: java.util.concurrent.ExecutionException => throw e.getCause }

  private def admin: Admin = synchronized {
    if (open.isEmpty) open = Some(Admin.create(settings.asInstanceOf[Map[String, AnyRef]].asJava))
    open.get
  }

  /**
   * What the batch under way is like, once every two seconds: Spark tells of a batch when it is over. Where a partition had no
   * records for a while after the end of it was asked for, it has been read until there, though its last offsets may
   * be none of records (transactions have such).
   */
  def tell(run: Run): Unit = {
    var ends, known = Map.empty[Int, Long]
    var asked, at = System.currentTimeMillis()
    var before = taken
    while (Sinks.get(query).exists(_ eq this)) {
      Thread.sleep(TellEvery)
      val now = System.currentTimeMillis()
      try if (places.size >= tasks && tasks > 0 && !parked) {
        val latest = offsets(places.keySet.asScala, OffsetSpec.latest)
        val given = places.asScala.toMap.map { case (p, place) => p -> place.next }
        flush() // what is told is where a query that resumes this one begins
        val read = latest.map { case (p, _) =>
          val place = places.get(p)
          p -> (if (place.quiet > asked) math.max(given(p), known.getOrElse(p, 0L)) else given(p))
        }
        val rows = taken
        Watch.figures(run, Events.realTime(run, this, topic, latest, read, Instant.ofEpochMilli(now), rows, (rows - before) * 1000.0 / (now - at), now - at))
        known = latest
        asked = System.currentTimeMillis()
        before = rows
        at = now
      } catch { case _: Exception => () } // the cluster does not answer: the batch's end says so
    }
  }

  override def close(): Unit = {
    RealTimeSink.leave(query)
    synchronized(open.foreach(_.close(java.time.Duration.ZERO)))
    producer.close(java.time.Duration.ZERO)
  }
}

object RealTimeSink {
  private val TellEvery = 2000L
  private val Defaults = Map("linger.ms" -> "0", "batch.size" -> "131072", "buffer.memory" -> "33554432",
    "max.block.ms" -> "15000", "request.timeout.ms" -> "10000", "delivery.timeout.ms" -> "20000")
  private val Forced = Map("enable.idempotence" -> "true", "acks" -> "all")
  private val taken = scala.collection.mutable.Map.empty[String, Int]

  def of(query: String): RealTimeSink = Sinks.get(query) match {
    case Some(s: RealTimeSink) => s
    case _ => throw new IllegalStateException("the sink is not registered")
  }

  /** How many tasks run at once in this worker. */
  private def places: Int = SparkContext.getOrCreate().schedulerBackend match {
    case local: LocalSchedulerBackend => local.totalCores
    case _ => throw new NoPlaceException("a compute pool on a cluster does not run queries in real time")
  }

  private def take(query: String, partitions: Int): Unit = synchronized {
    val others = (taken - query).values.sum
    if (others + partitions >= places) throw new NoPlaceException(
      s"$partitions partition${if (partitions == 1) "" else "s"} of the topic want as many tasks for good, and the compute pool " +
        s"runs $places at once, of which other queries in real time have $others and one is kept free")
    taken(query) = partitions
  }

  private def leave(query: String): Unit = synchronized { taken.remove(query) }
}

/** What a query in real-time mode is started with. */
class RealTimeTopic(query: String) extends Table with SupportsWrite {
  override def name: String = "real time"
  override def schema: StructType = new StructType
  override def capabilities: java.util.Set[TableCapability] = java.util.Set.of(TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA)
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new RealTimeBuilder(query, info.schema)
}

/** In output mode update Spark wants to be told that later rows do not replace earlier ones: `SupportsStreamingUpdateAsAppend`. */
class RealTimeBuilder(query: String, schema: StructType)
    extends WriteBuilder with org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend {
  override def build(): Write = new Write { override def toStreaming: StreamingWrite = new RealTimeWrite(query, schema) }
}

class RealTimeWrite(query: String, schema: StructType) extends StreamingWrite {
  override def createStreamingWriterFactory(info: PhysicalWriteInfo): StreamingDataWriterFactory = new RealTimeWriters(query, schema)
  override def useCommitCoordinator: Boolean = false
  override def commit(batch: Long, done: Array[WriterCommitMessage]): Unit =
    RealTimeSink.of(query).committed(done.collect { case m: Written => m.rows }.sum)
  override def abort(batch: Long, done: Array[WriterCommitMessage]): Unit = ()
}

case class Written(rows: Long) extends WriterCommitMessage

class RealTimeWriters(query: String, schema: StructType) extends StreamingDataWriterFactory {
  override def createWriter(partition: Int, task: Long, batch: Long): DataWriter[InternalRow] =
    new RealTimeWriter(RealTimeSink.of(query), batch, schema)
}

class RealTimeWriter(sink: RealTimeSink, batch: Long, schema: StructType) extends DataWriter[InternalRow] {
  sink.batch = batch
  private val format = sink.format(schema)
  private var rows = 0L

  override def write(row: InternalRow): Unit = { sink.send(format.record(row)); rows += 1 }
  override def commit(): WriterCommitMessage = { sink.flush(); Written(rows) }
  /** What came before a bad record is written all the same. */
  override def abort(): Unit = scala.util.Try(sink.flush())
  override def close(): Unit = ()
}
