package org.apache.spark.sql.pgstream

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.types.{DataType, StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String

/**
 * The value of an expression, and what a query would end with that computes it (`planner/checked.py`); one of them is NULL.
 * It is no code of Spark's: that would compute what two of them have in common before either is tried.
 */
case class Tried(child: Expression) extends UnaryExpression with CodegenFallback {
  override def dataType: DataType = new StructType().add("value", child.dataType).add("error", StringType)
  override def nullable: Boolean = false
  override def eval(row: InternalRow): Any =
    try InternalRow(child.eval(row), null)
    catch {
      case e: SparkThrowable if e.getCondition == Tried.Raises =>
        InternalRow(null, UTF8String.fromString(e.getMessageParameters.get("errorMessage")))
    }
  override protected def withNewChildInternal(c: Expression): Tried = copy(c)
}

object Tried {
  private val Raises = "USER_RAISED_EXCEPTION"

  /** The column that holds the error of a column. */
  def error(column: String): String = column + "_error"

  /** Of a DataFrame that was selected, the columns `names` tried; their errors stand behind all columns. */
  def columns(df: DataFrame, names: java.util.List[String]): DataFrame = {
    val d = df.asInstanceOf[ClassicDataset[_]]
    val tried = d.queryExecution.analyzed match {
      case Project(list, child) => Project(list.map { case a: Alias if names.contains(a.name) => Alias(Tried(a.child), a.name)(); case e => e }, child)
      case other => throw new IllegalStateException(s"a selection became ${other.nodeName}")
    }
    def field(a: Attribute, i: Int, name: String) = Alias(GetStructField(a, i), name)()
    val values = tried.output.map(a => if (names.contains(a.name)) field(a, 0, a.name) else a)
    val errors = tried.output.filter(a => names.contains(a.name)).map(a => field(a, 1, error(a.name)))
    ClassicDataset.ofRows(d.sparkSession, Project(values ++ errors, tried))
  }
}
