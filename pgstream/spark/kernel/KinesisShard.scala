package org.apache.spark.sql.pgstream

import java.util.concurrent.{ScheduledThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable.ArrayDeque

/** What the shards of one source have fetched and not given away, in bytes; and how they are paced. */
class Fetching(threads: ScheduledThreadPoolExecutor, val pollMs: Long) {
  val held = new AtomicLong
  @volatile var failure: Throwable = _
  def full: Boolean = held.get > Fetching.MostBytes

  def later(ms: Long)(work: => Unit): Unit =
    if (!threads.isShutdown)
      try threads.schedule((() => work): Runnable, math.max(0L, ms), TimeUnit.MILLISECONDS)
      catch { case _: java.util.concurrent.RejectedExecutionException => () }
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

/** How the records of a shard come. */
trait ShardFeed {
  def start(): Unit
  def stop(): Unit = ()
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
  private var failures = 0
  private var since = 0L
  private var reached = 0L
  private var feed: ShardFeed = if (stream.consumer.isEmpty) new ShardPolling(stream, this, fetching) else new ShardSubscription(stream, this, fetching)
  /** It has been split or merged. AWS ends such a shard itself after its last record; others that speak its API do not. */
  @volatile var closed = false

  def start(): Unit = if (!ended) feed.start()
  def stop(): Unit = synchronized(feed).stop()

  /** How many records were fetched since `from`. */
  def count: Long = synchronized(fetched)

  /** Where what has not come yet begins. */
  def begin: String = synchronized(ShardOffset(0, at.from, 0, last, done = false).begin)

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

  /** Records have come, or none; if none are missing, `asof` is a moment up to which none are. */
  def came(page: ShardPage, asof: Long): Unit = synchronized {
    if (page.records.nonEmpty) {
      chunks += new Chunk(fetched, page.records)
      fetching.held.addAndGet(Fetching.bytes(page.records))
      fetched += page.records.length
      last = page.records.last.sequence
    }
    failures = 0
    if (page.behindMs == 0) reached = asof
    else page.records.lastOption.foreach(r => reached = r.micros / 1000)
    ended = page.next == null
  }

  /** What is left of a shard that may have no more is asked for: what is sent does not say when it was found. */
  def poll(): Unit = {
    val polling = new ShardPolling(stream, this, fetching)
    synchronized { feed = polling }
    polling.start()
  }

  /**
   * How long to wait, in milliseconds, before the next try. None: the query ends. What is throttled goes on for ever; what
   * is away ends the query, which is tried again by others.
   */
  def failed(e: Throwable): Option[Long] = synchronized(e match {
    case e: AwsException if e.passing =>
      failures += 1
      if (failures == 1) since = System.currentTimeMillis()
      if (e.throttled || System.currentTimeMillis() - since <= KinesisStream.PatienceMs) Some(AwsCall.pauseMs(failures))
      else ends(e)
    case e => ends(e)
  })

  private def ends(e: Throwable): Option[Long] = {
    fetching.failure = e
    None
  }
}

/** A shard that is asked again and again, within what it allows. */
private class ShardPolling(stream: KinesisStream, shard: ShardReader, fetching: Fetching) extends ShardFeed {
  private var iterator: String = _

  def start(): Unit = later(0)
  private def later(ms: Long): Unit = fetching.later(ms)(run())

  private def run(): Unit =
    try {
      if (fetching.full) later(20)
      else {
        val begun = System.currentTimeMillis()
        val was = shard.closed
        val fetched = fetch()
        val page = if (was && fetched.records.isEmpty && fetched.behindMs == 0) new ShardPage(fetched.records, null, 0) else fetched
        iterator = page.next
        shard.came(page, begun)
        if (page.next != null)
          later((if (page.records.isEmpty) fetching.pollMs else Fetching.PaceMs) - (System.currentTimeMillis() - begun))
      }
    } catch {
      case e: AwsException if e.code == "ExpiredIteratorException" => iterator = null; later(0)
      case e: Throwable => shard.failed(e).foreach(later)
    }

  private def fetch(): ShardPage = {
    if (iterator == null) iterator = stream.iterator(shard.id, shard.begin)
    stream.page(iterator, KinesisStream.PageRecords)
  }
}
