package org.apache.spark.sql.pgstream

import java.util.concurrent.{ConcurrentHashMap, ExecutionException, TimeUnit}

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.admin.Admin
import org.apache.kafka.common.errors.TimeoutException

/**
 * Kafka clusters that do not answer, as the tasks of this process know them. A pool has few tasks: where each found out by
 * a client's patience that a cluster is away, its queries would hold up those of other stores for minutes, longest on
 * a cluster of Spark's, which tries a task four times. The first who waited in vain says so, and until the cluster answers
 * again the others wait no longer than a question to it takes.
 */
object Brokers {
  private val WithinMs = 2000
  /** A store that nobody asks any more is forgotten. */
  private val KeptNanos = TimeUnit.MINUTES.toNanos(10)
  private type Settings = Map[String, AnyRef]
  private val silent = new ConcurrentHashMap[Settings, Silence]

  private class Silence {
    var why: Option[String] = None
    @volatile var asked: Long = System.nanoTime()
  }

  /** A client waited in vain: ask the cluster itself. Errors: TimeoutException, it does not answer. */
  def waited(client: Iterable[(String, Any)]): Unit = {
    silent.values.removeIf(s => System.nanoTime() - s.asked > KeptNanos)
    silent.putIfAbsent(connection(client), new Silence)
    expect(client)
  }

  /** Before a client waits for an answer. Errors: TimeoutException, there was none a moment ago, and is none now. */
  def expect(client: Iterable[(String, Any)]): Unit = if (!silent.isEmpty) {
    val settings = connection(client)
    val silence = silent.get(settings)
    if (silence != null) silence.synchronized {
      if (silence.why.isEmpty || System.nanoTime() - silence.asked > TimeUnit.MILLISECONDS.toNanos(WithinMs)) {
        silence.why = ask(settings)
        silence.asked = System.nanoTime()
      }
      if (silence.why.isEmpty) silent.remove(settings, silence)
      silence.why.foreach(why => throw new TimeoutException(why))
    }
  }

  def isSilent(client: Iterable[(String, Any)]): Boolean = silent.containsKey(connection(client))

  /** For callers from Python. */
  def waited(client: java.util.Map[String, String]): Unit = waited(client.asScala)
  def expect(client: java.util.Map[String, String]): Unit = expect(client.asScala)
  def isSilent(client: java.util.Map[String, String]): Boolean = isSilent(client.asScala)

  /** Where the cluster is and how it is entered, by which clients of one store are alike. */
  private def connection(client: Iterable[(String, Any)]): Settings = client.collect {
    case (name, value: AnyRef) if Connecting.exists(name.startsWith) => name -> value
  }.toMap
  private val Connecting = Seq("bootstrap.servers", "client.dns.lookup", "security.", "ssl.", "sasl.")

  /** None is an answer, also one that says no: the client will hear it as well. */
  private def ask(settings: Settings): Option[String] = {
    val patience = Map("default.api.timeout.ms" -> s"$WithinMs", "request.timeout.ms" -> s"$WithinMs")
    val admin = Admin.create((settings ++ patience).asJava)
    try { admin.describeCluster().nodes().get(); None }
    catch {
      case e: ExecutionException =>
        e.getCause match {
          case why: TimeoutException => Some(why.getMessage)
          case _ => None
        }
    } finally admin.close(java.time.Duration.ZERO)
  }
}
