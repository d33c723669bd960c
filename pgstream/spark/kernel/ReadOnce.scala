package org.apache.spark.sql.pgstream

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.execution.{QueryExecution, SparkPlan, SparkStrategy, UnaryExecNode}
import org.apache.spark.storage.StorageLevel

/**
 * The records of a source that a query reads in several places: a batch's are fetched by the first that asks, and kept
 * until the batch is over. To Spark they are one source already, with one range of offsets a batch.
 */
object ReadOnce {
  def apply(df: DataFrame): DataFrame = {
    val d = df.asInstanceOf[ClassicDataset[_]]
    val methods = d.sparkSession.experimental
    if (!methods.extraStrategies.contains(ReadOnceStrategy)) methods.extraStrategies = methods.extraStrategies :+ ReadOnceStrategy
    ClassicDataset.ofRows(d.sparkSession, SharedRecords(d.logicalPlan, new Fetched))
  }

  /** A batch is over. */
  def release(execution: QueryExecution): Unit = execution.analyzed.foreach { case s: SharedRecords => s.fetched.release(); case _ => () }
}

/** What one batch has fetched. Operators that are sent to tasks may have it below them. */
class Fetched extends Serializable {
  @transient private var records: RDD[InternalRow] = _

  def of(plan: SparkPlan): RDD[InternalRow] = synchronized {
    if (records == null) records = plan.execute().map(_.copy()).persist(StorageLevel.MEMORY_AND_DISK)
    records
  }

  def release(): Unit = synchronized { if (records != null) { records.unpersist(); records = null } }
}

case class SharedRecords(child: LogicalPlan, fetched: Fetched) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  // All of them: each place reads other columns of the same records.
  @transient override lazy val references: AttributeSet = child.outputSet
  override protected def withNewChildInternal(c: LogicalPlan): SharedRecords = copy(child = c)
}

case class SharedRecordsExec(child: SparkPlan, fetched: Fetched) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override protected def doExecute(): RDD[InternalRow] = fetched.of(child)
  override protected def withNewChildInternal(c: SparkPlan): SharedRecordsExec = copy(child = c)
}

object ReadOnceStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case SharedRecords(child, fetched) => SharedRecordsExec(planLater(child), fetched) :: Nil
    case _ => Nil
  }
}
