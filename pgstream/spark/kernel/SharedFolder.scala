package org.apache.spark.sql.pgstream

import java.util.UUID

import org.apache.hadoop.fs.Path

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.util.SerializableConfiguration

/** Executors do not have the checkpoint's folder that the driver has. */
class UnsharedException(message: String) extends RuntimeException(message)

/**
 * On a cluster a checkpoint lies where the driver and all executors reach it: what one of them kept in a folder of its own
 * machine would be lost with that. The driver leaves a file, and tasks look for it and leave one beside.
 */
object SharedFolder {
  def check(context: SparkContext, checkpoint: String): Unit =
    if (!context.isLocal) {
      val conf = new SerializableConfiguration(context.hadoopConfiguration)
      // As a half-written file of ours: what a killed worker leaves goes with the next start (`checkpoints.py`).
      val mark = new Path(checkpoint, s".${UUID.randomUUID}.tmp")
      val fs = mark.getFileSystem(conf.value)
      fs.create(mark).close()
      try {
        val tasks = math.max(1, 2 * (context.getExecutorMemoryStatus.size - 1))
        val told = context.runJob(context.parallelize(1 to tasks, tasks), look(mark.toString, conf)).flatten.distinct
        if (told.nonEmpty) throw new UnsharedException(told.mkString(", "))
      } finally fs.delete(mark, false)
    }

  /** What is wrong, said of the executor's host. */
  private def look(mark: String, conf: SerializableConfiguration): Iterator[Int] => Option[String] = numbers => {
    val place = new Path(mark)
    val own = new Path(place.getParent, s".${UUID.randomUUID}.tmp")
    val host = SparkEnv.get.blockManager.blockManagerId.host
    numbers.foreach(_ => ())
    try {
      val fs = place.getFileSystem(conf.value)
      if (!fs.exists(place)) Some(s"$host does not see it")
      else { fs.create(own).close(); fs.delete(own, false); None }
    } catch { case e: java.io.IOException => Some(s"$host cannot write there: ${e.getMessage}") }
  }
}
