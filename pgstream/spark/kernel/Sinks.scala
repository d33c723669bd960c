package org.apache.spark.sql.pgstream

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.Sink
import org.apache.spark.sql.types.StructType

/**
 * A sink that takes a micro-batch as internal rows: no second planning of the batch, no rows of Python or Row objects.
 *
 * `write` runs the batch's plan exactly once in every case, also when the batch is known to be written already: the
 * state of the batch's operators is saved by running it.
 */
abstract class BatchSink extends Sink {
  /** Of the last batch, and of all since the query was started. */
  @volatile var rowsOut, totalOut = 0L
  @volatile var stopping: Boolean = false
  /** A batch came after the query was asked to stop: it waits for the end, and nothing of it is written. */
  @volatile var parked: Boolean = false
  /** Batches that have begun. */
  @volatile var begun = 0L
  @volatile var watermarks = new Watermarks(Long.MaxValue)
  /** In which Spark runs the batches: a copy of the query's own. */
  @volatile private[pgstream] var session: SparkSession = _
  /** Looked at before the first batch. */
  private[pgstream] var checkpoint = ""
  private var seen = false
  /** A fault to raise after the next batch: what came before a bad record has then been written. */
  @volatile var failAfter: Option[RuntimeException] = None

  protected def write(batch: Long, rows: RDD[InternalRow], schema: StructType): Unit

  /** Whether it has a batch, or any of it, from an earlier run. */
  private[pgstream] def holds(batch: Long): Boolean = parts.exists(p => (p ne this) && p.holds(batch))

  /** This sink, or those that it is made of. */
  private[pgstream] def parts: Seq[BatchSink] = Seq(this)

  protected def wrote(rows: Long): Unit = { rowsOut = rows; totalOut += rows }

  /** Whether what is written outlives this process; its end then waits for a batch under way. */
  protected def lasting: Boolean = true

  override def addBatch(batch: Long, data: DataFrame): Unit = {
    begun += 1
    while (stopping && lasting) { parked = true; Thread.sleep(1000) } // until `stop` interrupts it
    if (lasting) Sinks.running(run(batch, data)) else run(batch, data)
  }

  private def run(batch: Long, data: DataFrame): Unit = {
    val execution = data.asInstanceOf[org.apache.spark.sql.classic.Dataset[_]].queryExecution
    session = execution.sparkSession
    if (!seen && checkpoint.nonEmpty) { SharedFolder.check(execution.sparkSession.sparkContext, checkpoint); seen = true }
    Passed.tell(execution)
    try write(batch, execution.toRdd, data.schema)
    finally { ReadOnce.release(execution); Together.release(execution.executedPlan) }
    watermarks.batch(execution.executedPlan)
    failAfter.foreach(throw _)
  }

  def close(): Unit = ()
}

/**
 * A sink whose work is a job of Spark's: what each task does with its rows, and what the driver does when all are done.
 * Its rows are of one output, or of several, each with a schema of its own (``Outputs``).
 */
abstract class TaskSink extends BatchSink {
  import TaskSink._

  /** Before the tasks of a batch. The work is sent to them: it must not hold this sink. */
  private[pgstream] def begin(batch: Long, schemas: Seq[StructType]): Work

  /** After them, with what each gave; how many rows were written. */
  private[pgstream] def end(batch: Long, done: Seq[Done]): Long

  /** After that, also when a task or `end` has failed. */
  private[pgstream] def over(): Unit = ()

  override protected def write(batch: Long, rows: RDD[InternalRow], schema: StructType): Unit = {
    val work = begin(batch, Seq(schema))
    val job = (t: TaskContext, it: Iterator[InternalRow]) => work(0, t.partitionId(), it)
    try wrote(end(batch, rows.sparkContext.runJob(rows, job).toSeq.map(Done(0, _))))
    finally over()
  }
}

object TaskSink {
  /** An output's number among the sink's, a task's, and the task's rows of that output. */
  type Work = (Int, Int, Iterator[InternalRow]) => Any
  case class Done(output: Int, made: Any)
}

object Sinks {
  private val sinks = new ConcurrentHashMap[String, BatchSink]

  private var closing = false
  private var under = 0

  /** Run a batch's writing; once `quiesce` was called nothing begins any more, and the thread waits for the end. */
  private[pgstream] def running(batch: => Unit): Unit = {
    synchronized {
      while (closing) wait()
      under += 1
    }
    try batch
    finally synchronized { under -= 1; notifyAll() }
  }

  /** Let what is being written be finished, and begin nothing more; true when all was done in time. */
  def quiesce(ms: Long): Boolean = synchronized {
    closing = true
    val end = System.currentTimeMillis() + ms
    // Those in real-time mode are in the midst of a batch at any time.
    val long = every.collect { case r: RealTimeSink => r }.toSeq
    long.foreach(_.stopping = true)
    def busy = under > 0 || !long.forall(_.parked)
    while (busy && System.currentTimeMillis() < end) wait(math.max(1L, math.min(20L, end - System.currentTimeMillis())))
    !busy
  }

  def register(id: String, sink: BatchSink): Unit = sinks.put(id, sink)
  def every: Iterator[BatchSink] = sinks.values.asScala.iterator.flatMap(_.parts)
  def get(id: String): Option[BatchSink] = Option(sinks.get(id))
  def remove(id: String): Unit = {
    Option(sinks.remove(id)).foreach(_.close())
    KafkaWriter.closeAll(id) // a topic's, and those of bad records
  }
}

/** Another start of the same query has taken over; this one must not write any more. */
class FencedException(query: String, mine: Int, other: Int)
    extends RuntimeException(s"query $query: attempt $mine is fenced by attempt $other")

/**
 * A sink's last batch is not one that the checkpoint goes on from: either was put back to an earlier day. Written as if it
 * were, rows would be missing, or be there twice.
 */
class StrangeBatchException(query: String, batch: Long, last: Long)
    extends RuntimeException(
      if (last < batch) s"the checkpoint of query $query goes on with batch $batch, what it writes has those up to $last only"
      else s"the checkpoint of query $query goes on with batch $batch, what it writes has those up to $last already")
