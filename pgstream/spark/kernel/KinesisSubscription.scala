package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{CompletionException, Flow}
import java.util.zip.CRC32

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import Json.Node

/** A message of AWS's event stream: the headers that are text, and what it says. */
final class EventMessage(val headers: Map[String, String], val payload: Array[Byte])

/**
 * Messages out of bytes as they come: lengths of all and of the headers, a checksum of the two, headers, payload, a
 * checksum of all. AWS's documentation has it under "Event stream encoding". IOException for what is not that.
 */
final class EventDecoder {
  private var bytes = new Array[Byte](1 << 16)
  private var from, until = 0

  def add(more: ByteBuffer): Unit = {
    val wanted = until - from + more.remaining
    if (until + more.remaining > bytes.length) {
      val into = if (wanted > bytes.length) new Array[Byte](math.max(wanted, bytes.length * 2)) else bytes
      System.arraycopy(bytes, from, into, 0, until - from)
      until -= from
      from = 0
      bytes = into
    }
    val length = more.remaining
    more.get(bytes, until, length)
    until += length
  }

  /** The next message, if it is whole. */
  def next(): Option[EventMessage] =
    if (until - from < EventDecoder.Prelude) None
    else {
      val at = ByteBuffer.wrap(bytes, from, until - from)
      val (total, headers) = (at.getInt, at.getInt)
      check(EventDecoder.Prelude - 4)
      if (headers < 0 || headers > EventDecoder.Most || total < EventDecoder.Prelude + headers + 4 || total > EventDecoder.Most) throw broken
      if (until - from < total) None
      else {
        check(total - 4)
        at.getInt
        val read = EventDecoder.headers(at.slice(at.position, headers))
        val payload = java.util.Arrays.copyOfRange(bytes, from + EventDecoder.Prelude + headers, from + total - 4)
        from += total
        Some(new EventMessage(read, payload))
      }
    }

  private def check(length: Int): Unit = {
    val sum = new CRC32
    sum.update(bytes, from, length)
    if (sum.getValue.toInt != ByteBuffer.wrap(bytes, from + length, 4).getInt) throw broken
  }

  private def broken = new java.io.IOException("a message of the event stream is broken")
}

object EventDecoder {
  private val Prelude = 12
  /** AWS's are at most 16 MB. */
  private val Most = 32 << 20
  private val Text = 7
  /** How long a value of each type is; -1: its length comes before it. */
  private val Lengths = Array(0, 0, 1, 2, 4, 8, -1, -1, 8, 16)

  private def headers(at: ByteBuffer): Map[String, String] = {
    val out = mutable.Map.empty[String, String]
    while (at.hasRemaining) {
      val name = text(at, at.get & 0xff)
      val kind = at.get.toInt
      val length = if (Lengths(kind) < 0) at.getShort & 0xffff else Lengths(kind)
      if (kind == Text) out(name) = text(at, length) else at.position(at.position + length)
    }
    out.toMap
  }

  private def text(at: ByteBuffer, length: Int): String = {
    val out = new Array[Byte](length)
    at.get(out)
    new String(out, UTF_8)
  }
}

/**
 * A shard as a registered consumer gets it: Kinesis sends what has come, through a share of the shard that is the consumer's
 * own. A subscription ends after five minutes, and the next goes on where it ended. Bytes are asked for while there is room.
 */
private class ShardSubscription(stream: KinesisStream, shard: ShardReader, fetching: Fetching) extends ShardFeed {
  import ShardSubscription._
  private val client = AwsCall.alone()
  @volatile private var current: Coming = _
  @volatile private var stopped = false
  private var going: String = _

  def start(): Unit = later(0)

  override def stop(): Unit = {
    val last = synchronized {
      stopped = true
      val last = current
      current = null
      last
    }
    if (last != null) last.leave()
  }
  private def later(ms: Long): Unit = fetching.later(ms)(subscribe())

  private def subscribe(): Unit = {
    val coming = new Coming
    if (synchronized { if (!stopped) current = coming; !stopped }) try {
      stream.subscribe(client, shard.id, Option(going).map(n => s"after:$n").getOrElse(shard.begin), coming).whenComplete((_, e) => coming.over(e))
      coming.watch()
    } catch { case e: Throwable => coming.over(e) }
  }

  /** What one subscription sends. Locked, for a watch looks at it from aside. */
  private class Coming extends Flow.Subscriber[java.util.List[ByteBuffer]] {
    private val begun = System.currentTimeMillis()
    private val decoder = new EventDecoder
    private var sender: Flow.Subscription = _
    private var asked = false
    private var heard = begun
    private def live = current eq this

    override def onSubscribe(s: Flow.Subscription): Unit = synchronized {
      sender = s
      ask() // or leaves at once, if the query has ended meanwhile
    }

    override def onNext(bytes: java.util.List[ByteBuffer]): Unit = synchronized {
      asked = false
      heard = System.currentTimeMillis()
      try {
        bytes.asScala.foreach(decoder.add)
        Iterator.continually(if (live) decoder.next() else None).takeWhile(_.isDefined).flatten.foreach(message)
        if (live) ask()
      } catch { case e: Throwable => over(e) }
    }

    override def onError(e: Throwable): Unit = ()
    override def onComplete(): Unit = ()

    /** More bytes, once there is room. */
    private def ask(): Unit = synchronized {
      if (!live) leave()
      else if (fetching.full) fetching.later(20)(ask())
      else {
        asked = true
        heard = System.currentTimeMillis()
        sender.request(1)
      }
    }

    private def message(m: EventMessage): Unit = m.headers.get(":message-type") match {
      case Some("event") if m.headers.get(":event-type").contains("SubscribeToShardEvent") =>
        val page = KinesisStream.read(m.payload)
        val last = shard.closed && page.next != null && page.records.isEmpty && page.behindMs == 0
        if (last) {
          over(null, shard.poll())
        } else {
          going = page.next
          shard.came(page, begun)
          if (page.next == null) over(null, ())
        }
      case Some("event") => ()
      case _ => throw ShardSubscription.refused(m)
    }

    /** The connection may be gone without a word: Kinesis says something every few seconds. */
    def watch(): Unit = fetching.later(WatchMs) {
      val silent = synchronized(live && asked && System.currentTimeMillis() - heard > SilentMs)
      if (silent) over(new AwsException("Unreachable", 0, s"nothing came from shard ${shard.id} for ${SilentMs / 1000} seconds"))
      else if (live) watch()
    }

    def over(e: Throwable): Unit = over(e, retry(e))

    /** Once. */
    private def over(e: Throwable, next: => Unit): Unit = {
      val first = ShardSubscription.this.synchronized {
        val was = live
        if (was) current = null
        was
      }
      if (first) {
        leave()
        next
      }
    }

    private def retry(e: Throwable): Unit = (e match { case c: CompletionException if c.getCause != null => c.getCause; case other => other }) match {
      case null => later(math.max(0L, LeastMs - (System.currentTimeMillis() - begun)))
      case e: AwsException => shard.failed(e).foreach(later)
      case e: java.io.IOException => shard.failed(new AwsException("Unreachable", 0, String.valueOf(e.getMessage))).foreach(later)
      case e => shard.failed(e)
    }

    def leave(): Unit = synchronized { if (sender != null) sender.cancel() }
  }
}

private object ShardSubscription {
  private val WatchMs = 5000L
  private val SilentMs = 30000L
  /** Subscriptions that end at once are not made without end. */
  private val LeastMs = 1000L

  /** A message that tells of a failure. */
  def refused(m: EventMessage): AwsException = {
    val told = try Json.mapper.readTree(m.payload) catch { case _: java.io.IOException => Json.obj }
    val code = m.headers.get(":exception-type").orElse(m.headers.get(":error-code")).getOrElse("InternalFailureException")
    val why = m.headers.get(":error-message").orElse(Option(told).flatMap(_.opt("message"))).getOrElse("the subscription failed")
    new AwsException(code, if (code.startsWith("Internal")) 500 else 400, why)
  }
}
