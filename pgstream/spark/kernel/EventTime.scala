package org.apache.spark.sql.pgstream

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Expression, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.types.DataType

/**
 * A value as it is, which the optimizer takes for one that must not move: no filter goes below it.
 */
case class Settled(child: Expression) extends UnaryExpression {
  override lazy val deterministic: Boolean = false
  override def dataType: DataType = child.dataType
  override protected def nullSafeEval(value: Any): Any = value
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = child.genCode(ctx)
  override protected def withNewChildInternal(c: Expression): Settled = copy(child = c)
}

object EventTime {
  /**
   * The rows of a source, its event time told to Spark. Every record moves it: Spark would apply filters first, those
   * that a join implies too, and time would stand still while no row passes them.
   */
  def apply(df: DataFrame, lateness: String): DataFrame = {
    val d = df.withWatermark(Changes.Time, lateness).asInstanceOf[ClassicDataset[_]]
    val kept = d.queryExecution.analyzed.output.map {
      case a: Attribute if a.name == Changes.Time => Alias(Settled(a), a.name)(explicitMetadata = Some(a.metadata))
      case a => a
    }
    ClassicDataset.ofRows(d.sparkSession, Project(kept, d.queryExecution.analyzed))
  }
}
