package org.apache.spark.sql.pgstream

import java.util.UUID
import java.util.concurrent.TimeUnit

import scala.collection.mutable
import scala.util.Try

import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.logging.slf4j.Log4jLoggerFactory
import org.slf4j.LoggerFactory

import org.apache.spark.util.ThreadUtils

/** What the libraries below keep for ever of a query's run, and nobody asks for again. */
object Remains {
  private val Run = "queryRunId=([0-9a-f-]{36})".r.unanchored

  /** After a run has ended: `running` are those that have not. What an ended one still lets go later, the next sweep finds. */
  def sweep(running: Set[UUID]): Unit = {
    loggers(running.map(_.toString))
    Try(fetched()) // where no query has read Kafka, there may be no such class
  }

  /**
   * Remove the checkpoint of an ended run, and what comes back: Spark lets the run's state stores go when it looks after all of
   * them next, every `lookMs`, and those write a snapshot that has waited before they close.
   */
  def remove(checkpoint: Path, files: FileSystem, lookMs: Long): Unit = {
    files.delete(checkpoint, true)
    Seq(1, 2).foreach(n => later.schedule((() => Try(files.delete(checkpoint, true))): Runnable, n * lookMs + 5000L, TimeUnit.MILLISECONDS))
  }
  private lazy val later = ThreadUtils.newDaemonSingleThreadScheduledExecutor("remains")

  /** Each state store of a run has loggers of its own name, which the logging facade keeps. */
  private def loggers(running: Set[String]): Unit = LoggerFactory.getILoggerFactory match {
    case factory: Log4jLoggerFactory =>
      factory.getLoggerContexts.forEach(context =>
        factory.getLoggersInContext(context).keySet.removeIf {
          case Run(id) => !running(id)
          case _ => false
        })
    case _ => ()
  }

  /** The pool of fetched records lets idle ones go, but keeps a place for each partition of each run. */
  private def fetched(): Unit = {
    val pool = field(Class.forName("org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer$"), "fetchedDataPool", null)
    pool.synchronized {
      field(pool.getClass, "cache", pool).asInstanceOf[mutable.Map[AnyRef, mutable.Buffer[AnyRef]]].filterInPlace((_, held) => held.nonEmpty)
    }
  }

  private def field(of: Class[_], name: String, in: AnyRef): AnyRef = {
    val found = of.getDeclaredField(name)
    found.setAccessible(true)
    found.get(in)
  }
}
