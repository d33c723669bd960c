package org.apache.spark.sql.pgstream

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.admin.{Admin, ListConsumerGroupOffsetsOptions, ListConsumerGroupOffsetsSpec}
import org.apache.kafka.clients.consumer.{ConsumerGroupMetadata, OffsetAndMetadata}
import org.apache.kafka.clients.producer.{KafkaProducer, ProducerRecord}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.TimeoutException
import org.apache.kafka.common.serialization.ByteArraySerializer

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.util.ThreadUtils

/** Whether a transaction of a writer is in cannot be told: Kafka has neither committed nor aborted it. */
class UnendedTransactionException(writer: String, topic: String)
    extends RuntimeException(s"a transaction of $writer on topic $topic has neither been committed nor aborted by the cluster")

/**
 * One transactional producer of a (query, writer), kept open between batches. A batch's number may be any that grows: that
 * of bad records is their last one's offset.
 *
 * The number of the last batch is a committed offset of consumer group `pgstream-<query>-<writer>`, committed inside the
 * transaction that wrote the batch. Opening fences a producer of an earlier start and settles its open transaction, so
 * the offset read after it is final.
 */
class KafkaWriter(private val query: String, val attempt: Int, val writer: String, topic: String, properties: Map[String, String]) {
  private val name = s"pgstream-$query-$writer"
  private val position = new TopicPartition(topic, 0)
  Brokers.expect(properties)
  private val producer = {
    val settings = KafkaWriter.over(KafkaWriter.Defaults, properties) ++ Map("transactional.id" -> name, "enable.idempotence" -> "true", "acks" -> "all")
    new KafkaProducer[Array[Byte], Array[Byte]](
      settings.asInstanceOf[Map[String, AnyRef]].asJava, new ByteArraySerializer, new ByteArraySerializer)
  }
  private var last: Long = try { producer.initTransactions(); committed() } catch { case e: Throwable => closeAfter(e); throw e }

  /** The batch that has begun and is not in. */
  @volatile private var begun: Option[Long] = None
  @volatile private var failure: Exception = _

  @volatile private var used = System.nanoTime()
  private def isIdle(now: Long): Boolean = now - used > KafkaWriter.IdleNanos

  /** The number of the last batch that is in; before `write`, and inside it. */
  def written: Long = last

  /**
   * Kafka's client leaves a partition out of its answer where a transaction that wrote the offset has no end yet. That is
   * so for a moment after the end of a transaction, and for good where a cluster has lost its end.
   */
  private def committed(): Long = {
    val settings = KafkaWriter.adminProperties(properties)
    val asked = java.util.Map.of(name, new ListConsumerGroupOffsetsSpec().topicPartitions(java.util.List.of(position)))
    val stable = new ListConsumerGroupOffsetsOptions().requireStable(true)
    val admin = Admin.create(settings.asInstanceOf[Map[String, AnyRef]].asJava)
    try {
      val until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(settings.getOrElse("default.api.timeout.ms", "60000").trim.toLong)
      def answer = admin.listConsumerGroupOffsets(asked, stable).partitionsToOffsetAndMetadata(name).get()
      var read = answer
      while (!read.containsKey(position)) {
        if (System.nanoTime() > until) throw new UnendedTransactionException(name, topic)
        Thread.sleep(100)
        read = answer
      }
      Option(read.get(position)).map(_.offset).getOrElse(-1L)
    } finally admin.close()
  }

  /** A batch as a transaction; of one that is in the rows are computed, which saves the state. */
  def write(batch: Long)(rows: (ProducerRecord[Array[Byte], Array[Byte]] => Unit) => Unit): Unit = synchronized {
    if (begin(batch)) { settling(rows(send)); commit(batch) } else rows(_ => ())
  }

  /** Begin the transaction of a batch, if no other of its tasks has; false for a batch that is in. */
  def begin(batch: Long): Boolean = synchronized {
    if (batch > last && !begun.contains(batch)) settling {
      producer.beginTransaction()
      failure = null
      begun = Some(batch)
    }
    batch > last
  }

  /** From any thread, after `begin`. */
  def send(r: ProducerRecord[Array[Byte], Array[Byte]]): Unit = {
    if (failure != null) throw failure
    producer.send(r, (_, e) => if (e != null && failure == null) failure = e)
  }

  /** What was begun is in. */
  def commit(batch: Long): Unit = synchronized {
    settling {
      KillPoints.at("topic after flush", producer.flush())
      if (failure != null) throw failure
      producer.sendOffsetsToTransaction(Map(position -> new OffsetAndMetadata(batch)).asJava, new ConsumerGroupMetadata(name))
      KillPoints.at("topic before commit")
      producer.commitTransaction()
      KillPoints.at("topic after commit")
      last = batch
      begun = None
    }
  }

  /** Whatever happened, a fresh producer settles it: initTransactions aborts or completes what is open. */
  private def settling[A](what: => A): A =
    try what
    catch {
      case e: Throwable =>
        KafkaWriter.forget(query, writer, this)
        closeAfter(e)
        throw e
    }

  private def closeAfter(e: Throwable): Unit = {
    close()
    if (e.isInstanceOf[TimeoutException]) Brokers.waited(properties)
  }

  def close(): Unit = producer.close(java.time.Duration.ZERO)
}

object KafkaWriter {
  private val writers = new ConcurrentHashMap[(String, String), KafkaWriter]
  private val Defaults = Map(
    "linger.ms" -> "5", "batch.size" -> "131072", "buffer.memory" -> "33554432", "transaction.timeout.ms" -> "300000",
    // A broker that is away fails the batch soon: the query then says so, and tries again.
    "max.block.ms" -> "15000", "request.timeout.ms" -> "10000", "delivery.timeout.ms" -> "20000")
  private val ProducerOnly =
    Set("batch.size", "linger.ms", "buffer.memory", "compression.type", "max.request.size", "delivery.timeout.ms",
      "max.in.flight.requests.per.connection", "transaction.timeout.ms", "retries", "max.block.ms", "acks")

  /** A client's settings: those that are asked for, over `own`. Kafka wants the whole time of a call no shorter than that of
    * its requests and what waits before them, and sees to it by itself where the whole is not given. */
  def over(own: Map[String, String], asked: Map[String, String]): Map[String, String] = {
    def millis(setting: String): Long = asked.get(setting).orElse(own.get(setting)).flatMap(_.trim.toLongOption).getOrElse(0L)
    val least = millis("request.timeout.ms") + millis("linger.ms")
    own.filterNot { case (setting, value) => Wholes(setting) && value.toLong < least } ++ asked
  }
  private val Wholes = Set("delivery.timeout.ms", "default.api.timeout.ms")

  def adminProperties(p: Map[String, String]): Map[String, String] =
    over(Map("default.api.timeout.ms" -> "15000", "request.timeout.ms" -> "10000"), p -- ProducerOnly)

  /** Longer than a transaction may be open. */
  private val IdleNanos = TimeUnit.MINUTES.toNanos(10)

  /** An executor is not told that a query is over, or that another one has its partitions: it closes what it does not use. */
  private lazy val sweeper = {
    val thread = ThreadUtils.newDaemonSingleThreadScheduledExecutor("kafka-writers")
    thread.scheduleWithFixedDelay(() => closeIdle(System.nanoTime()), 1, 1, TimeUnit.MINUTES)
    thread
  }
  private def inExecutor: Boolean = Option(SparkEnv.get).exists(_.executorId != SparkContext.DRIVER_IDENTIFIER)

  def closeIdle(now: Long): Unit = writers.keySet.asScala.foreach { key =>
    writers.computeIfPresent(key, (_, w) => if (w.isIdle(now)) { w.close(); null } else w)
  }

  def open(query: String, attempt: Int, writer: String, topic: String, properties: Map[String, String]): KafkaWriter = {
    if (inExecutor) sweeper
    writers.compute(
      (query, writer),
      (_, old) =>
        if (old != null && old.attempt == attempt) { old.used = System.nanoTime(); old }
        else if (old != null && old.attempt > attempt) throw new FencedException(query, attempt, old.attempt)
        else {
          if (old != null) old.close()
          new KafkaWriter(query, attempt, writer, topic, properties)
        }
    )
  }

  def forget(query: String, writer: String, which: KafkaWriter): Unit = writers.remove((query, writer), which)

  /** In the process of the tasks, all of which are done: the ends of the transactions of the query's sinks. */
  def commitAll(query: String, batch: Long): Unit = of(query).filter(_.begun.contains(batch)).asJava.parallelStream.forEach(_.commit(batch))

  /** Whether any task's writer of a sink (`prefix`: its query and what its writers begin with) has a batch, or may have. */
  def anyIn(prefix: String, batch: Long, properties: Map[String, String]): Boolean = {
    val admin = Admin.create(adminProperties(properties).asInstanceOf[Map[String, AnyRef]].asJava)
    try {
      val ours = admin.listConsumerGroups().valid().get().asScala.map(_.groupId).filter { g =>
        g.startsWith(s"pgstream-$prefix") && g.stripPrefix(s"pgstream-$prefix").matches("[pt][0-9]+")
      }
      val asked = ours.map(_ -> new ListConsumerGroupOffsetsSpec()).toMap.asJava
      val stable = new ListConsumerGroupOffsetsOptions().requireStable(true)
      ours.nonEmpty && admin.listConsumerGroupOffsets(asked, stable).all().get().asScala.exists { case (_, offsets) =>
        offsets.isEmpty || offsets.values.asScala.exists(o => o == null || o.offset >= batch)
      }
    } finally admin.close()
  }

  /** What was begun and does not come in: its writers are closed. */
  def giveUp(query: String): Unit = of(query).filter(_.begun.nonEmpty).foreach(close)

  def close(w: KafkaWriter): Unit = { forget(w.query, w.writer, w); w.close() }

  private def of(query: String): Seq[KafkaWriter] = writers.asScala.collect { case ((q, _), w) if q == query => w }.toSeq

  def closeAll(query: String): Unit =
    writers.keySet.asScala.filter(_._1 == query).foreach(k => Option(writers.remove(k)).foreach(_.close()))
}
