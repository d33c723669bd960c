package org.apache.spark.sql.pgstream

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.Dataset
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy, UnaryExecNode}
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution

/**
 * The rows of a query and, in its first batch, one that is none: the operator above is called then, whether there
 * are rows or not. A first batch there always is; one that is run again has the state from before it, and begins again.
 */
case class Beginning(child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): Beginning = copy(newChild)
}

object Beginning {
  /** The side of the row that is none. */
  val Side: Int = -1

  /** The key of the operator above has no columns. */
  def apply(changes: Dataset[Change]): Dataset[Change] = {
    val d = changes.asInstanceOf[ClassicDataset[Change]]
    ClassicDataset.ofRows(d.sparkSession, Beginning(d.logicalPlan)).as[Change](Changes.encoder)
  }
}

case class BeginningExec(child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output

  override protected def doExecute(): RDD[InternalRow] =
    if (sparkContext.getLocalProperty(MicroBatchExecution.BATCH_ID_KEY) != "0") child.execute()
    else {
      val types = output.map(_.dataType).toArray
      val none = sparkContext.parallelize(Seq(Array.emptyByteArray), 1).mapPartitions { it =>
        val made = UnsafeProjection.create(types)
        it.map(bytes => made(InternalRow(bytes, bytes, Beginning.Side, Long.MinValue, -1, -1L, false)): InternalRow)
      }
      sparkContext.union(child.execute(), none)
    }

  override protected def withNewChildInternal(newChild: SparkPlan): BeginningExec = copy(newChild)
}

object BeginningStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case Beginning(child) => BeginningExec(planLater(child)) :: Nil
    case _ => Nil
  }
}
