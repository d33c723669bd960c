package org.apache.spark.sql.pgstream

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong}

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.{Dependency, NarrowDependency, Partition, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioning, Partitioning}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.aggregate.HashAggregateExec
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec
import org.apache.spark.sql.execution.exchange.{Exchange, ShuffleExchangeExec}

/**
 * The groups of a small batch change hands between its tasks in memory: a shuffle of Spark's is a stage of its own, with
 * tasks, files and messages that cost more than a few thousand rows do.
 *
 * Each task makes the groups of some of the source's partitions, for all, and takes its own of each. A partition's are
 * made once, by the first that asks; whoever asks meanwhile waits for that task, which waits for nobody. Where all tasks
 * are in this process only, as what they share is.
 */
object Together extends Rule[SparkPlan] {
  /** Records of a batch that are few: what they come to fits into memory. */
  private val Few = 5000L
  private val number = new AtomicLong
  private val shared = new ConcurrentHashMap[Long, Made]

  override def apply(plan: SparkPlan): SparkPlan = plan.collect { case e: Exchange => e } match {
    case Seq(only: ShuffleExchangeExec) if only.session != null && only.session.sparkContext.isLocal => plan.transformUp {
      case ShuffleExchangeExec(by: HashPartitioning, groups: HashAggregateExec, _, _) if few(groups, by.numPartitions) => TogetherExec(by, groups)
    }
    case _ => plan
  }

  /** Of Kafka, whose offsets count records, and no fewer partitions than there will be tasks: none is to wait for work. */
  private def few(plan: SparkPlan, tasks: Int): Boolean = plan.collectLeaves() match {
    case Seq(scan: MicroBatchScanExec) if scan.stream.getClass.getName.endsWith(".KafkaMicroBatchStream") =>
      val from = Arrivals.places(scan.start.json).toMap
      val until = Arrivals.places(scan.end.json)
      until.size >= tasks && until.forall { case (p, _) => from.contains(p) } && until.map { case (p, at) => at - from(p) }.sum <= Few
    case _ => false
  }

  private[pgstream] def next(): Long = number.incrementAndGet()
  private[pgstream] def made(id: Long, sources: Int, tasks: Int): Made = shared.computeIfAbsent(id, _ => new Made(sources, new AtomicInteger(tasks)))
  private[pgstream] def over(id: Long): Unit = shared.remove(id)

  /** A batch is over; its tasks may have failed before they had taken all. */
  def release(plan: SparkPlan): Unit = plan.foreach { case t: TogetherExec => over(t.batch); case _ => () }
  /** How many batches have rows here. */
  def held: Int = shared.size
}

/** What the tasks of one batch have made: of each of the source's partitions the rows for each task. */
private[pgstream] class Made(sources: Int, val left: AtomicInteger) {
  private val parts = Array.fill(sources)(new Part)

  def of(source: Int)(make: => Array[ArrayBuffer[InternalRow]]): Array[ArrayBuffer[InternalRow]] = {
    val part = parts(source)
    part.synchronized {
      if (part.rows == null) part.rows = make
      part.rows
    }
  }

  private class Part { var rows: Array[ArrayBuffer[InternalRow]] = _ }
}

case class TogetherExec(by: HashPartitioning, child: SparkPlan) extends UnaryExecNode {
  @transient private[pgstream] lazy val batch: Long = Together.next()
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = by
  override protected def doExecute(): RDD[InternalRow] =
    new TogetherRdd(child.execute(), batch, by.numPartitions, by.partitionIdExpression, child.output)
  override protected def withNewChildInternal(c: SparkPlan): TogetherExec = copy(child = c)
}

private class TogetherPart(override val index: Int, val sources: Array[Partition]) extends Partition

private class TogetherRdd(@transient private val from: RDD[InternalRow], id: Long, tasks: Int, task: Expression, columns: Seq[Attribute])
    extends RDD[InternalRow](from.context, Nil) {
  override protected def getPartitions: Array[Partition] = Array.tabulate(tasks)(new TogetherPart(_, from.partitions))
  override protected def getDependencies: Seq[Dependency[_]] = {
    val all = from.partitions.indices
    Seq(new NarrowDependency(from) { override def getParents(p: Int): Seq[Int] = all })
  }

  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = {
    context.killTaskIfInterrupted() // else what it makes would be left over
    val mine = split.asInstanceOf[TogetherPart]
    val made = Together.made(id, mine.sources.length, tasks)
    val parent = firstParent[InternalRow]
    val taken = mine.sources.indices.map(i => (i + mine.index) % mine.sources.length).map { source =>
      made.of(source) {
        val place = UnsafeProjection.create(Seq(task), columns)
        val rows = Array.fill(tasks)(new ArrayBuffer[InternalRow])
        parent.iterator(mine.sources(source), context).foreach(row => rows(place(row).getInt(0)) += row.copy())
        rows
      }(mine.index)
    }
    if (made.left.decrementAndGet() == 0) Together.over(id)
    taken.iterator.flatten
  }
}
