package org.apache.spark.sql.pgstream

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.datasources.v2.{StreamingDataSourceV2Relation, StreamingDataSourceV2ScanRelation}
import org.apache.spark.sql.execution.streaming.runtime.{StreamingExecutionRelation, StreamingRelation}

/**
 * The rows of a query, at the top of its plan: they are a stream until each of its sources has been told where a batch ends.
 *
 * Before each batch Spark writes out what it runs for its web page. A plan that is a stream it plans once more to do so;
 * one that is not it writes as it is.
 */
case class BatchRows(child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override def isStreaming: Boolean = child.isStreaming && child.collectLeaves().exists {
    case s: StreamingDataSourceV2ScanRelation => s.endOffset.isEmpty
    case _: StreamingRelation | _: StreamingRelationV2 | _: StreamingExecutionRelation | _: StreamingDataSourceV2Relation => true
    case _ => false
  }
  override protected def withNewChildInternal(newChild: LogicalPlan): BatchRows = copy(newChild)
}

object BatchRowsStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case BatchRows(child) => planLater(child) :: Nil
    case _ => Nil
  }
}
