package org.apache.spark.sql.pgstream

import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, ScheduledThreadPoolExecutor, TimeUnit}

import scala.collection.immutable.ListMap
import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SQLContext}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, ReadLimit, ReadMaxRows, SupportsAdmissionControl}
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.sources.StreamSourceProvider
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

import Json.Node

/**
 * A data stream of Kinesis, exactly once: a batch is a range of each shard, by the sequence numbers at its ends. A shard
 * whose parents are not done is not read, and one begins in a later batch than the one in which they end, so that what
 * follows one another under a key does so here, too.
 */
class KinesisSource(context: SQLContext, stream: KinesisStream, begin: String, most: Long, pollMs: Long)
    extends Source with SupportsAdmissionControl {
  private val id = UUID.randomUUID().toString
  private val threads = new ScheduledThreadPoolExecutor(1, (r: Runnable) => {
    val t = new Thread(r, s"kinesis-${stream.name}")
    t.setDaemon(true)
    t
  })
  threads.setRemoveOnCancelPolicy(true)
  private val fetching = new Fetching(threads, pollMs)
  private val readers = new ConcurrentHashMap[String, ShardReader]
  @volatile private var newest: KinesisOffset = _
  private var resumed = false
  private var known: Map[String, ShardInfo] = _
  KinesisSource.sources.put(id, this)
  threads.scheduleWithFixedDelay(() => look(), KinesisSource.LookMs, KinesisSource.LookMs, TimeUnit.MILLISECONDS)

  override def schema: StructType = KinesisSource.Schema
  def who: String = stream.place.who
  override def getOffset: Option[Offset] = throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is asked")
  override def getDefaultReadLimit: ReadLimit = ReadLimit.maxRows(most)

  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = synchronized {
    if (fetching.failure != null) throw fetching.failure
    val rows = limit match { case m: ReadMaxRows => m.maxRows; case _ => Long.MaxValue }
    // The first batch is empty: it keeps for good where reading begins.
    if (start == null) extended(KinesisOffset(stream.name, begin, ListMap.empty, 0, System.currentTimeMillis()))
    else {
      val before = KinesisOffset.read(stream.name, start)
      if (!resumed) { resumed = true; kept(before) }
      val from = extended(before)
      from.shards.foreach { case (shard, at) => reader(shard, at) }
      newest = taken(from, Long.MaxValue)
      val to = taken(from, rows)
      val asof = to.shards.iterator.filterNot(_._2.done).map { case (shard, at) => reader(shard, at).asof(at).getOrElse(from.asof) }
        .foldLeft(Long.MaxValue)(math.min)
      val told = if (asof == Long.MaxValue) from.asof else math.max(asof, from.asof)
      // An idle stream has an empty batch now and then, so that its checkpoint is not older than what Kinesis keeps.
      if (to.shards != before.shards || told - from.asof > KinesisSource.TellMs) to.copy(asof = told) else to
    }
  }

  /** Kinesis goes on at what is left, and does not say that it has removed what was not read. */
  private def kept(at: KinesisOffset): Unit = {
    val hours = (System.currentTimeMillis() - at.asof) / 3600000
    if (at.asof > 0 && hours >= KinesisSource.LeastHours && at.shards.exists(!_._2.done)) {
      val keeps = stream.retentionHours()
      if (hours >= keeps)
        throw new RecordsGoneException(s"stream ${stream.name} keeps its records for $keeps hours, and was read $hours hours ago")
    }
  }

  /** What was fetched and is waiting: how much more there is Kinesis does not count. */
  override def reportLatestOffset(): AnyOffset = newest


  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val spark = context.sparkSession.asInstanceOf[org.apache.spark.sql.classic.SparkSession]
    val before = start.map(KinesisOffset.read(stream.name, _).shards).getOrElse(ListMap.empty[String, ShardOffset])
    val ranges = KinesisOffset.read(stream.name, end).shards.toSeq.flatMap { case (shard, to) =>
      val from = before.getOrElse(shard, ShardOffset(to.number, to.from, 0, "", done = false))
      if (to.count > from.count) Some((shard, from, to)) else None
    }
    val parts = ranges.zipWithIndex.map { case ((shard, from, to), i) => ShardRange(i, shard, from, to) }
    val rows = new ShardRows(spark.sparkContext, id, stream.copy(place = stream.place.now), parts.toArray)
    spark.internalCreateDataFrame(rows, schema, isStreaming = true)
  }

  override def commit(end: Offset): Unit =
    KinesisOffset.read(stream.name, end).shards.foreach { case (shard, at) => Option(readers.get(shard)).foreach(_.forget(at.count)) }

  override def stop(): Unit = {
    threads.shutdownNow()
    readers.values.forEach(_.stop())
    KinesisSource.sources.remove(id)
  }

  override def toString: String = s"Kinesis[${stream.name}]"

  def held(shard: String, first: Long, end: Long): Option[Iterator[ShardRecord]] =
    Option(readers.get(shard)).flatMap(_.records(first, end))

  private def reader(shard: String, at: ShardOffset): ShardReader =
    readers.computeIfAbsent(
      shard,
      _ => {
        threads.setCorePoolSize(math.min(KinesisSource.MostThreads, readers.size + 1))
        val made = new ShardReader(stream, shard, at, fetching)
        made.start()
        made
      }
    )

  /** Which of the shards that are read were split or merged. That a service is away the readers themselves say. */
  private def look(): Unit =
    try stream.shards().filter(_.closed).foreach(s => Option(readers.get(s.id)).foreach(_.closed = true))
    catch { case _: java.io.IOException => () }

  /** With the shards that may be read now. Shards come from others: there are new ones only where some have ended. */
  private def extended(at: KinesisOffset): KinesisOffset = {
    val ended = at.shards.exists { case (shard, s) => s.done && !childrenKnown(shard) }
    if (known == null || ended) known = stream.shards().map(s => s.id -> s).toMap
    val living = at.copy(shards = at.shards.filter { case (shard, s) => !s.done || known.contains(shard) })
    val ready = known.values.filter(s =>
      !living.shards.contains(s.id) && s.parents.forall(p => !known.contains(p) || living.shards.get(p).exists(_.done)))
    living.and(ready.toSeq.sortBy(_.id).map(s => s.id -> ShardOffset(0, at.begin, 0, "", done = false)))
  }

  private def childrenKnown(shard: String): Boolean = known != null && known.values.exists(_.parents(shard))

  /** What was fetched, at most `rows`: first each shard's part, then what others have left of theirs. */
  private def taken(from: KinesisOffset, rows: Long): KinesisOffset = {
    val open = from.shards.filterNot(_._2.done)
    val places = mutable.LinkedHashMap.from(open)
    var left = rows
    for (share <- Seq(math.max(1L, rows / math.max(1, open.size)), Long.MaxValue); (shard, _) <- open) {
      val at = places(shard)
      val to = reader(shard, at).after(at, math.min(share, left))
      left -= to.count - at.count
      places(shard) = to
    }
    from.copy(shards = from.shards.map { case (shard, at) => shard -> places.getOrElse(shard, at) })
  }
}

object KinesisSource {
  val Schema: StructType = StructType.fromDDL(
    "key binary, value binary, __time timestamp, __partition int, __offset bigint, __headers array<struct<key: string, value: binary>>, " +
      "__metadata struct<stream: string, partition_key: string, shard_id: string, sequence_number: string>")
  private[pgstream] val sources = new ConcurrentHashMap[String, KinesisSource]
  private val MostThreads = 16
  private val TellMs = 3600000L
  private val LookMs = 5000L
  /** What Kinesis keeps at the least. */
  private val LeastHours = 24
  private[pgstream] def uses(who: String): Boolean = sources.values.asScala.exists(_.who == who)
}

/** A shard's records between two places. */
case class ShardRange(index: Int, shard: String, from: ShardOffset, to: ShardOffset) extends Partition

/** The records of a batch, a task for each shard. */
class ShardRows(context: SparkContext, source: String, stream: KinesisStream, parts: Array[ShardRange])
    extends RDD[InternalRow](context, Nil) {
  override protected def getPartitions: Array[Partition] = parts.asInstanceOf[Array[Partition]]

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val range = split.asInstanceOf[ShardRange]
    val here = Option(KinesisSource.sources.get(source)).flatMap(_.held(range.shard, range.from.count, range.to.count))
    val (name, shard) = (UTF8String.fromString(stream.name), UTF8String.fromString(range.shard))
    val numbers = Iterator.iterate(range.from.count)(_ + 1)
    here.getOrElse(again(range)).zip(numbers).map { case (r, n) =>
      val key = UTF8String.fromString(r.key)
      val metadata = new GenericInternalRow(Array[Any](name, key, shard, UTF8String.fromString(r.sequence)))
      new GenericInternalRow(Array[Any](key.getBytes, r.data, r.micros, range.to.number, n, null, metadata))
    }
  }

  /** The range as Kinesis has it: the same number of records, up to the same one. */
  private def again(range: ShardRange): Iterator[ShardRecord] = {
    val wanted = range.to.count - range.from.count
    var left = wanted
    var iterator: String = null
    var last = range.from.last
    def gone(why: String) = throw new RecordsGoneException(
      s"shard ${range.shard} of stream ${stream.name} no longer holds the records up to ${range.to.last}: $why")
    val pages = Iterator.continually {
      val page = AwsCall.patiently(KinesisStream.PatienceMs) {
        try {
          if (iterator == null) iterator = stream.iterator(range.shard, range.from.copy(last = last).begin)
          stream.page(iterator, math.min(left, KinesisStream.PageRecords.toLong).toInt)
        } catch { case e: AwsException if e.code == "ExpiredIteratorException" => iterator = null; throw new AwsException(e.code, 500, "the iterator has expired") }
      }
      if (page.records.isEmpty && (page.next == null || page.behindMs == 0)) gone(s"${wanted - left} of $wanted are left")
      iterator = page.next
      left -= page.records.length
      page.records.lastOption.foreach(r => last = r.sequence)
      if (left == 0 && last != range.to.last) gone(s"the last one is $last")
      if (page.records.isEmpty) Thread.sleep(Fetching.PaceMs)
      page.records
    }
    pages.flatMap(_.iterator).take(wanted.toInt)
  }
}

/** What `readStream.format(…)` names; options `config` and `password` are JSON. */
class KinesisSourceProvider extends StreamSourceProvider {
  override def sourceSchema(c: SQLContext, s: Option[StructType], name: String, o: Map[String, String]): (String, StructType) =
    ("kinesis", KinesisSource.Schema)

  override def createSource(
      context: SQLContext, metadata: String, schema: Option[StructType], name: String, o: Map[String, String]): Source = {
    val c = Json.read(o("config"))
    new KinesisSource(context, KinesisStream.of(o("config"), o("password")), c.str("begin"), c.get("most").asLong, c.get("poll_ms").asLong)
  }
}
