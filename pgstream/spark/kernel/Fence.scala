package org.apache.spark.sql.pgstream

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.expressions.{CallMethodViaReflection, SubqueryExpression}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/**
 * What no plan of ours holds, for the case that a client's text ever leaves the string it stands in: a query in an
 * expression, which reads any file, and a call of any Java method. The planner writes neither.
 */
object Fence extends (LogicalPlan => Unit) {
  override def apply(plan: LogicalPlan): Unit = plan.foreach(_.expressions.foreach(_.foreach {
    case _: SubqueryExpression => refuse("a query in an expression")
    case _: CallMethodViaReflection => refuse("a call of a Java method")
    case _ => ()
  }))

  private def refuse(what: String): Nothing = throw new AnalysisException("INTERNAL_ERROR", Map("message" -> s"the plan holds $what"))
}
