package org.apache.spark.sql.pgstream

import java.util.concurrent.{ConcurrentHashMap, CountDownLatch, ExecutionException, TimeUnit, TimeoutException}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.admin.{Admin, AdminClientConfig, ListOffsetsOptions, OffsetSpec}
import org.apache.kafka.common.{IsolationLevel, TopicPartition}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamingQueryWrapper}
import org.apache.spark.util.SystemClock

/**
 * When a query asks its sources again. One that had nothing to do waits until records have arrived: a single thread asks a
 * broker for all who wait, where each would ask for itself with every trigger. It asks by itself from time to time all the
 * same, for what no broker tells: new partitions, a deleted topic, event time that moves because a source is silent.
 */
class ArrivalClock(run: Run, plan: LogicalPlan, every: Long) extends SystemClock {
  private val topics = Arrivals.topics(plan)
  private var batches = 0L

  override def waitTillTime(at: Long): Long = {
    Admission.leave(run)
    super.waitTillTime(at)
    if (run.sink.begun == batches)
      for (known <- topics; read <- reached if known.keySet == read.keySet) Arrivals.await(run, known.toSeq.groupMapReduce(_._2)(t => read(t._1))(_ ++ _), every)
    batches = run.sink.begun
    Admission.enter(run)
    val now = getTimeMillis()
    run.sink.watermarks.looked = now
    now
  }

  /** Where the query stands in each partition of its topics. */
  private def reached: Option[Map[String, Map[TopicPartition, Long]]] = run.stream match {
    case w: StreamingQueryWrapper =>
      w.streamingQuery match {
        case m: MicroBatchExecution => Some(m.committedOffsets.values.flatMap(o => Arrivals.places(o.json())).toMap.groupBy(_._1.topic))
        case _ => None
      }
    case _ => None
  }
}

object Arrivals {
  /** How long a query waits at most, in ms. */
  val Longest = 1000L
  private val LingerMs = 30000L
  private type Settings = Map[String, String]
  private val brokers = mutable.HashMap[Settings, Broker]()

  /** The topics that a plan reads and how each is reached; None when it reads something else, or what cannot be told apart. */
  def topics(plan: LogicalPlan): Option[Map[String, Settings]] = {
    val known = AdminClientConfig.configNames().asScala + "isolation.level"
    val found = plan.collectLeaves().filter(_.isStreaming).map {
      case r: StreamingRelationV2 if r.sourceName == "kafka" =>
        val options = r.extraOptions.asScala.toMap
        val settings = options.collect { case (name, value) if known(name.stripPrefix("kafka.")) => name.stripPrefix("kafka.") -> value }
        options.get("subscribe").map(_ -> settings)
      case _ => None
    }.distinct
    val each = found.flatten
    if (found.contains(None) || each.map(_._1).distinct.size < each.size) None else Some(each.toMap)
  }

  /** Spark's offsets of topics: `{"topic": {"0": 17}}`. */
  def places(json: String): Seq[(TopicPartition, Long)] =
    Json.read(json).properties().asScala.toSeq.flatMap { topic =>
      topic.getValue.properties().asScala.map(p => new TopicPartition(topic.getKey, p.getKey.toInt) -> p.getValue.asLong)
    }

  /** Returns when a topic has more, or less, than what was read of it, or cannot be asked; at the latest after `Longest`. */
  def await(run: Run, read: Map[Settings, Map[TopicPartition, Long]], every: Long): Unit = {
    val news = new CountDownLatch(1)
    run.waiting = news
    if (run.moved) { run.moved = false; news.countDown() }
    run.waits += 1
    val asked = read.toSeq.map { case (settings, places) => synchronized {
      val broker = brokers.getOrElseUpdate(settings, new Broker(settings, every))
      broker.waiting.put(news, places)
      if (broker.getState == Thread.State.NEW) broker.start()
      broker
    } }
    try news.await(Longest, TimeUnit.MILLISECONDS)
    finally asked.foreach(_.waiting.remove(news))
  }

  /** Takes nothing of the thread that makes it along: that of an ended query would keep all of its session. */
  private class Broker(settings: Settings, every: Long) extends Thread(null, null, "arrivals", 0, false) {
    val waiting = new ConcurrentHashMap[CountDownLatch, Map[TopicPartition, Long]]
    private val committed = settings.get("isolation.level").contains("read_committed")
    private val options = new ListOffsetsOptions(if (committed) IsolationLevel.READ_COMMITTED else IsolationLevel.READ_UNCOMMITTED)
    setDaemon(true)

    override def run(): Unit = {
      var admin: Admin = null
      var last = System.currentTimeMillis()
      def over = Arrivals.synchronized {
        val over = waiting.isEmpty && System.currentTimeMillis() - last > LingerMs
        if (over) brokers.remove(settings)
        over
      }
      try
        while (!over) {
          Thread.sleep(every)
          if (!waiting.isEmpty) {
            last = System.currentTimeMillis()
            val now = waiting.asScala.toMap
            try {
              if (admin == null) admin = Admin.create((settings - "isolation.level").asJava.asInstanceOf[java.util.Map[String, Object]])
              ask(admin, now)
            } catch { case _: Exception | _: LinkageError => // they learn it themselves, and tell it
              now.keys.foreach(_.countDown())
              if (admin != null) admin.close(java.time.Duration.ZERO)
              admin = null // one that has lost all its brokers does not find others
              Thread.sleep(Longest)
            }
          }
        }
      finally {
        Arrivals.synchronized(if (brokers.get(settings).contains(this)) brokers.remove(settings))
        if (admin != null) admin.close(java.time.Duration.ZERO)
      }
    }

    private def ask(admin: Admin, now: Map[CountDownLatch, Map[TopicPartition, Long]]): Unit = {
      val latest = OffsetSpec.latest()
      val asked = now.values.flatMap(_.keys).toSet
      val told = admin.listOffsets(asked.map(_ -> latest).toMap.asJava, options)
      val until = System.currentTimeMillis() + Longest
      // One that has no leader is not waited for longer.
      val ends = asked.flatMap { p =>
        try Some(p -> told.partitionResult(p).get(math.max(1L, until - System.currentTimeMillis()), TimeUnit.MILLISECONDS).offset)
        catch { case _: ExecutionException | _: TimeoutException => None }
      }.toMap
      if (ends.isEmpty) throw new TimeoutException
      now.foreach { case (news, read) => if (read.exists { case (p, at) => !ends.get(p).contains(at) }) news.countDown() }
    }
  }
}
