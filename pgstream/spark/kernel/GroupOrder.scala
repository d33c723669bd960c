package org.apache.spark.sql.pgstream

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.kafka010.pgstream.KafkaRead
import org.apache.spark.sql.catalyst.expressions.{Ascending, Expression, SortOrder, XxHash64}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SortExec, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.types.BinaryType

/**
 * Rows on their way into an operator are sorted by the hash of their key before the key itself.
 *
 * Spark compares the first eight bytes of a sorted value where it has them at hand; those of a packed row are its NULL
 * bits, the same in nearly all, so that every comparison fetched both rows. Operators need the rows of one key side by
 * side, in no order of keys.
 */
object GroupOrder extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case t: TransformWithStateExec if t.groupingAttributes.map(_.dataType) == Seq(BinaryType) =>
      t.withNewChildren(t.children.map {
        case s: SortExec if s.sortOrder.length == 1 =>
          s.copy(sortOrder = SortOrder(new XxHash64(t.groupingAttributes), Ascending) +: s.sortOrder)
        case other => other
      })
    case j: StreamingSymmetricHashJoinExec =>
      def sorted(keys: Seq[Expression], rows: SparkPlan): SparkPlan = rows match {
        case s: SortExec => s
        case _ => SortExec(Seq(SortOrder(new XxHash64(keys), Ascending)), global = false, rows)
      }
      j.withNewChildren(Seq(sorted(j.leftKeys, j.left), sorted(j.rightKeys, j.right)))
  }
}

/** What `spark.sql.extensions` names. */
class Extensions extends (SparkSessionExtensions => Unit) {
  override def apply(e: SparkSessionExtensions): Unit = {
    for (rule <- Seq(GroupOrder, WindowSave, Together, KafkaRead)) e.injectColumnar(_ => new ColumnarRule { override def preColumnarTransitions: Rule[SparkPlan] = rule })
    e.injectPlannerStrategy(_ => BatchRowsStrategy)
  }
}
