package org.apache.spark.sql.pgstream

import java.util.concurrent.{ScheduledThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable.ArrayDeque

/** What the shards of one source have fetched and not given away, in bytes; and how they are paced. */
class Fetching(val threads: ScheduledThreadPoolExecutor, val pollMs: Long) {
  val held = new AtomicLong
  @volatile var failure: Throwable = _
  def full: Boolean = held.get > Fetching.MostBytes
}

object Fetching {
  private val MostBytes = 96L << 20
  /** Five calls a second are what a shard allows all its readers together. */
  val PaceMs = 200L
  val Overhead = 120

  def bytes(records: Array[ShardRecord]): Long = records.iterator.map(_.data.length.toLong + Overhead).sum
}

/** Records one after another, the first being number `first` of its shard. */
final private class Chunk(val first: Long, val records: Array[ShardRecord]) {
  def end: Long = first + records.length
}

/**
 * A shard that is read ahead of the batches, in the driver: the end of a batch must be known when it is planned, and each
 * shard allows few calls. Tasks of the same process take the records from here; others read the range again.
 */
class ShardReader(stream: KinesisStream, val id: String, at: ShardOffset, fetching: Fetching) {
  private val chunks = ArrayDeque.empty[Chunk]
  private var fetched = at.count
  private var last = at.last
  private var ended = at.done
  private var iterator: String = _
  private var failures = 0
  private var since = 0L
  private var reached = 0L
  @volatile private var closed = false

  def start(): Unit = if (!ended) later(0)

  /** It has been split or merged. AWS ends such a shard itself after its last record; others that speak its API do not. */
  def close(): Unit = closed = true

  /** How many records were fetched since `from`. */
  def count: Long = synchronized(fetched)

  /** The place after at most `most` records from `place` on. */
  def after(place: ShardOffset, most: Long): ShardOffset = synchronized {
    val count = place.count + math.min(fetched - place.count, most)
    val sequence = if (count == place.count) place.last else record(count - 1).sequence
    place.copy(count = count, last = sequence, done = ended && count == fetched)
  }

  /** What had come to the shard by then is read with what lies before `place`, in epoch milliseconds; None: not known. */
  def asof(place: ShardOffset): Option[Long] = synchronized {
    if (place.count < fetched) chunks.find(_.end >= place.count).filter(_.first < place.count).map(_ => record(place.count - 1).micros / 1000)
    else if (reached > 0) Some(reached)
    else None
  }

  /** Records number `first` until `end`, if they are all here. */
  def records(first: Long, end: Long): Option[Iterator[ShardRecord]] = synchronized {
    if (chunks.isEmpty || chunks.head.first > first || fetched < end) None
    else {
      val wanted = chunks.filter(c => c.end > first && c.first < end).toArray
      Some(wanted.iterator.flatMap(c =>
        c.records.iterator.slice(math.max(0L, first - c.first).toInt, math.min(c.records.length.toLong, end - c.first).toInt)))
    }
  }

  /** Records before number `count` are not needed any more. */
  def forget(count: Long): Unit = synchronized {
    while (chunks.nonEmpty && chunks.head.end <= count) fetching.held.addAndGet(-Fetching.bytes(chunks.removeHead().records))
  }

  private def record(number: Long): ShardRecord = {
    val c = chunks.find(_.end > number).get
    c.records((number - c.first).toInt)
  }

  private def later(ms: Long): Unit =
    if (!fetching.threads.isShutdown)
      try fetching.threads.schedule((() => run()): Runnable, math.max(0L, ms), TimeUnit.MILLISECONDS)
      catch { case _: java.util.concurrent.RejectedExecutionException => () }

  private def run(): Unit =
    try {
      if (fetching.full) later(20)
      else {
        val begun = System.currentTimeMillis()
        val was = closed
        val fetched = fetch()
        val page = if (was && fetched.records.isEmpty && fetched.behindMs == 0) new ShardPage(fetched.records, null, 0) else fetched
        failures = 0
        append(page)
        if (page.behindMs == 0) reached = begun
        else page.records.lastOption.foreach(r => reached = r.micros / 1000)
        if (page.next != null)
          later((if (page.records.isEmpty) fetching.pollMs else Fetching.PaceMs) - (System.currentTimeMillis() - begun))
      }
    } catch {
      case e: AwsException if e.code == "ExpiredIteratorException" => iterator = null; later(0)
      case e: AwsException if e.passing => again(e)
      case e: Throwable => fetching.failure = e
    }

  /** What is throttled goes on for ever; what is away ends the query, which is tried again by others. */
  private def again(e: AwsException): Unit = {
    failures += 1
    if (failures == 1) since = System.currentTimeMillis()
    if (!e.throttled && System.currentTimeMillis() - since > KinesisStream.PatienceMs) fetching.failure = e
    else later(AwsCall.pauseMs(failures))
  }

  private def fetch(): ShardPage = {
    if (iterator == null) iterator = stream.iterator(id, ShardOffset(0, at.from, 0, last, done = false).begin)
    stream.page(iterator, KinesisStream.PageRecords)
  }

  private def append(page: ShardPage): Unit = synchronized {
    if (page.records.nonEmpty) {
      chunks += new Chunk(fetched, page.records)
      fetching.held.addAndGet(Fetching.bytes(page.records))
      fetched += page.records.length
      last = page.records.last.sequence
    }
    iterator = page.next
    ended = page.next == null
  }
}
