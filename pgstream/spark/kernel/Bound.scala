package org.apache.spark.sql.pgstream

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.types.{DataType, DateType, StructField, StructType, TimestampNTZType, TimestampType}

/** Expressions of a statement that an operator asks by itself. */
object Bound {
  /** An empty DataFrame of such columns, by whose names to resolve expressions over. */
  def shape(df: DataFrame, fields: Seq[StructField]): DataFrame = {
    val s = df.sparkSession
    // A relation that the optimizer cannot see to be empty.
    s.createDataFrame(s.sparkContext.emptyRDD[Row], StructType(fields))
  }

  /** The columns of a DataFrame over a `shape`, by their names, as expressions over a row of columns `names`; of null none. */
  def columns(of: DataFrame, names: IndexedSeq[String]): Map[String, Expression] =
    if (of == null) Map.empty
    else {
      val d = of.asInstanceOf[ClassicDataset[_]]
      // The optimizer would make literals of them, which are for one batch.
      val plan = d.queryExecution.analyzed.transformAllExpressions {
        case _: CurrentTimestampLike => BatchTime()
        case l: LocalTimestamp => Cast(BatchTime(), TimestampNTZType, l.timeZoneId)
        case c: CurrentDate => Cast(BatchTime(), DateType, c.timeZoneId)
      }
      val optimized = d.sparkSession.sessionState.optimizer.execute(plan)
      val found = values(optimized, names)
      optimized.output.map(a => a.name -> found(a.exprId)).toMap
    }

  /** What the columns of a plan are: the optimizer may have put what is wanted several times into a projection below. */
  private def values(plan: LogicalPlan, names: IndexedSeq[String]): Map[ExprId, Expression] = plan match {
    case Project(list, child) =>
      val below = values(child, names)
      def whole(e: Expression): Expression = e.transform { case a: AttributeReference => below(a.exprId) }
      list.map { case a: Alias => a.exprId -> whole(a.child); case e => e.exprId -> whole(e) }.toMap
    case leaf if leaf.children.isEmpty =>
      leaf.output.map(a => a.exprId -> BoundReference(names.indexOf(a.name).ensuring(_ >= 0, a.name), a.dataType, nullable = true)).toMap
    case other => throw new IllegalStateException(s"columns became ${other.nodeName}")
  }
}

/** When the batch began, as Spark has it for `now()` everywhere else in it. */
case class BatchTime() extends LeafExpression {
  @transient private lazy val micros: Long = Passed.now
  override lazy val foldable: Boolean = false
  override def dataType: DataType = TimestampType
  override def nullable: Boolean = false
  override def eval(row: InternalRow): Any = micros
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val micros = ctx.addMutableState("long", "now", v => s"$v = org.apache.spark.sql.pgstream.Passed.now();")
    ev.copy(code"long ${ev.value} = $micros;", FalseLiteral)
  }
}
