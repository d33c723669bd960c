package org.apache.spark.sql.kafka010.pgstream

import java.time.Duration
import java.{util => ju}
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.kafka.clients.consumer.{ConsumerRecord, KafkaConsumer}
import org.apache.kafka.clients.consumer.ConsumerConfig.{CLIENT_ID_CONFIG, GROUP_ID_CONFIG}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.TimeoutException
import org.apache.spark.{Partition, SparkEnv, TaskContext}
import org.apache.spark.internal.Logging
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceRDD, MicroBatchScanExec}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.kafka010.{KafkaBatchInputPartition, KafkaBatchReaderFactory, KafkaRecordToRowConverter}
import org.apache.spark.sql.pgstream.Brokers
import org.apache.spark.util.UninterruptibleThread

/**
 * Kafka's records are read on from where the batch before ended. Spark's reader asks the broker for a partition's first and
 * last offset with each fetch, and jumps there and back to do so, which throws away what the client has fetched ahead.
 * With whatever goes wrong Spark's reader takes over where this one stands, and says it as it always did; unless the
 * brokers are away, for which nobody waits twice (`Brokers`).
 */
object KafkaRead extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case scan: MicroBatchScanExec if scan.stream.getClass.getName.endsWith(".KafkaMicroBatchStream") => KafkaReadExec(scan)
  }
}

/** The scan stays below, for Spark's account of what a batch has read. */
case class KafkaReadExec(child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override protected def doExecute(): RDD[InternalRow] = {
    val scan = child.asInstanceOf[MicroBatchScanExec]
    new ReadRdd(scan.inputPartitions.map(Seq(_)), child.longMetric("numOutputRows"), this)
  }
  override protected def withNewChildInternal(c: SparkPlan): KafkaReadExec = copy(child = c)
}

private class ReadRdd(parts: Seq[Seq[InputPartition]], rows: SQLMetric, @transient of: SparkPlan)
    extends DataSourceRDD(of.session.sparkContext, parts, Readers, false, Map.empty) {
  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = {
    val all = super.compute(split, context)
    new Iterator[InternalRow] {
      override def hasNext: Boolean = all.hasNext
      override def next(): InternalRow = { rows += 1; all.next() }
    }
  }
}

private object Readers extends PartitionReaderFactory {
  override def createReader(p: InputPartition): PartitionReader[InternalRow] = new OnwardReader(p.asInstanceOf[KafkaBatchInputPartition])
}

private class OnwardReader(p: KafkaBatchInputPartition) extends PartitionReader[InternalRow] with Logging {
  private val range = p.offsetRange
  private val key = Consumers.key(p)
  private val start = String.valueOf(p.executorKafkaParams.get(GROUP_ID_CONFIG)) // Spark names one for each
  private var consumer: OpenConsumer = _
  private var other: PartitionReader[InternalRow] = _ // Spark's, since something went wrong
  private var at = range.fromOffset
  private var row: UnsafeRow = _

  override def next(): Boolean = {
    if (other == null)
      try return own()
      catch { case NonFatal(e) => handOver(e) }
    other.next()
  }

  private def own(): Boolean = at < range.untilOffset && {
    val record = OnwardReader.uninterrupted {
      if (consumer == null) {
        Brokers.expect(p.executorKafkaParams.asScala)
        consumer = Consumers.take(key, at, start)
      }
      consumer.next(at, range.untilOffset, OnwardReader.share(p.pollTimeoutMs))
    }
    if (record == null) at = range.untilOffset
    else {
      row = consumer.row(record)
      at = record.offset + 1
    }
    record != null
  }

  private def handOver(e: Throwable): Unit = {
    logInfo(s"${range.topicPartition} is read by Spark's reader from offset $at on: ${e.getClass.getName}")
    val failed = consumer
    consumer = null
    if (failed != null) Consumers.drop(failed)
    Option(TaskContext.get()).foreach(_.killTaskIfInterrupted())
    if (e.isInstanceOf[TimeoutException]) OnwardReader.uninterrupted(Brokers.waited(p.executorKafkaParams.asScala))
    // Of a broker that is away both wait no longer together than Spark's reader alone.
    val rest = p.copy(offsetRange = range.copy(fromOffset = at), pollTimeoutMs = p.pollTimeoutMs - OnwardReader.share(p.pollTimeoutMs))
    other = KafkaBatchReaderFactory.createReader(rest).asInstanceOf[PartitionReader[InternalRow]]
  }

  override def get(): InternalRow = if (other != null) other.get() else row

  override def close(): Unit = {
    if (consumer != null) Consumers.give(key, consumer)
    consumer = null
    if (other != null) other.close()
  }
}

private object OnwardReader {
  def share(timeoutMs: Long): Long = timeoutMs / 3

  /** An interrupt in the middle of a client's call may leave it hanging (KAFKA-1894); Spark's reader does the same. */
  def uninterrupted[T](body: => T): T = Thread.currentThread match {
    case t: UninterruptibleThread => t.runUninterruptibly(body)
    case _ => body
  }
}

/** A client that reads one partition, and what it has read ahead. One thread at a time has it. */
final private class OpenConsumer(key: Consumers.Key) extends Logging {
  type Record = ConsumerRecord[Array[Byte], Array[Byte]]
  val row: Record => UnsafeRow = new KafkaRecordToRowConverter().toUnsafeRowProjector(key.headers)
  var since = 0L // when it was given back
  var start = "" // by whom it is used, or was last
  private val consumer = {
    val settings = new ju.HashMap[String, Object](key.params)
    settings.putIfAbsent(CLIENT_ID_CONFIG, s"pgstream-reads-${OpenConsumer.number.incrementAndGet()}")
    new KafkaConsumer[Array[Byte], Array[Byte]](settings)
  }
  private var ahead: ju.List[Record] = ju.List.of()
  private var first = 0
  var place = -1L // what was read ends here
  consumer.assign(ju.List.of(key.partition))

  /** The first record from `at` on; null if there is none before `until`. TimeoutException if none comes, Kafka's own. */
  def next(at: Long, until: Long, timeoutMs: Long): Record = {
    if (at != place) {
      consumer.seek(key.partition, at)
      ahead = ju.List.of()
      first = 0
      place = at
    }
    if (first >= ahead.size) fetch(until, timeoutMs)
    if (first < ahead.size && ahead.get(first).offset < until) {
      val record = ahead.get(first)
      first += 1
      place = record.offset + 1
      record
    } else {
      place = until
      null
    }
  }

  /** More records, or a position behind the range: of a transaction's end there is nothing to give, but it was read. */
  private def fetch(until: Long, timeoutMs: Long): Unit = {
    val from = place
    place = -1 // should this fail
    var position = consumer.position(key.partition)
    var end = System.nanoTime() + timeoutMs * 1000000
    ahead = ju.List.of()
    first = 0
    while (ahead.isEmpty && position < until) {
      ahead = consumer.poll(Duration.ofMillis(OpenConsumer.LookMs)).records(key.partition)
      val before = position
      position = consumer.position(key.partition)
      if (position > before) end = System.nanoTime() + timeoutMs * 1000000
      else if (System.nanoTime() > end) throw new TimeoutException
    }
    place = from
  }

  def close(): Unit =
    try consumer.close(Duration.ZERO)
    catch { case NonFatal(e) => logInfo(s"${key.partition}: ${e.getClass.getName} while a client was closed") }
}

private object OpenConsumer {
  val LookMs = 200L
  val number = new AtomicLong
}

/**
 * Clients that nobody reads with now. They are any query's that reads the partition in the same way: one goes on with the
 * client that stands where it does. Where there is none, and no room for another, it takes the one that was given back
 * last and jumps: with more queries than places, those that come in turn would else each find that theirs was closed.
 */
object Consumers {
  private[pgstream] case class Key(partition: TopicPartition, params: ju.Map[String, Object], headers: Boolean)
  private val IdleMs = 60000L
  private val idle = mutable.HashMap[Key, List[OpenConsumer]]() // the last that was given back is the first
  private val starts = mutable.LinkedHashMap[String, Long]() // when each was first seen here
  private val MostStarts = 10000
  private var room: Option[Int] = None
  private var inUse = 0
  private lazy val closing = {
    // Takes nothing of the task's thread along.
    val t = new Thread(null, () => while (true) { Thread.sleep(IdleMs / 4); look(IdleMs) }, "idle consumers", 0, false)
    t.setDaemon(true)
    t.start()
  }

  /** Without the group that Spark makes up for each start of a query (`spark.py` says how it begins): nothing is kept in it. */
  private[pgstream] def key(p: KafkaBatchInputPartition): Key = {
    val params = new ju.HashMap[String, Object](p.executorKafkaParams)
    val group = String.valueOf(params.get(GROUP_ID_CONFIG))
    if (group.startsWith("pgstream-") && group.endsWith("-executor")) params.remove(GROUP_ID_CONFIG)
    Key(p.offsetRange.topicPartition, params, p.includeHeaders)
  }

  /**
   * A client of another start that stands there may have records at hand that it was given before this one began: of a topic,
   * even, that was deleted and made anew. So it is taken only if it was in use since then.
   */
  private[pgstream] def take(key: Key, at: Long, start: String): OpenConsumer = {
    val found = synchronized {
      val began = starts.getOrElseUpdate(start, System.nanoTime())
      if (starts.size > MostStarts) starts -= starts.head._1
      val all = idle.getOrElse(key, Nil)
      val found = all.find(one => one.place == at && (one.start == start || one.since - began > 0))
        .orElse(all.find(_.place != at).filter(_ => held + inUse >= most))
      found.foreach(one => keep(key, all.filter(_ ne one)))
      inUse += 1
      found
    }
    try { val one = found.getOrElse(new OpenConsumer(key)); one.start = start; one }
    catch { case e: Throwable => synchronized(inUse -= 1); throw e }
  }

  /** It is not to be used any more. */
  private[pgstream] def drop(consumer: OpenConsumer): Unit = {
    synchronized(inUse -= 1)
    consumer.close()
  }

  private[pgstream] def give(key: Key, consumer: OpenConsumer): Unit = {
    consumer.since = System.nanoTime()
    val over = synchronized {
      closing
      inUse -= 1
      idle(key) = consumer :: idle.getOrElse(key, Nil)
      Option.when(held + inUse > most) {
        val (of, oldest) = idle.iterator.map { case (k, all) => (k, all.last) }.minBy(_._2.since)
        keep(of, idle(of).init)
        oldest
      }
    }
    over.foreach(_.close())
  }

  private def keep(key: Key, all: List[OpenConsumer]): Unit = if (all.isEmpty) idle.remove(key) else idle(key) = all

  /** How many there are room for. */
  def most: Int = synchronized {
    if (room.isEmpty) bound(SparkEnv.get.conf.getInt("spark.kafka.consumer.cache.capacity", 64))
    room.get
  }

  def bound(places: Int): Unit = synchronized { room = Some(places) }

  /** How many were made since this process began. */
  def made: Long = OpenConsumer.number.get

  def held: Int = synchronized(idle.valuesIterator.map(_.size).sum)

  /** Close those that nobody has read with for so long. */
  def look(ms: Long): Unit = {
    val until = System.nanoTime() - ms * 1000000
    val over = synchronized {
      idle.toSeq.flatMap { case (key, all) =>
        val (young, old) = all.partition(_.since - until > 0)
        keep(key, young)
        old
      }
    }
    over.foreach(_.close())
  }
}
