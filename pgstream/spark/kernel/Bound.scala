package org.apache.spark.sql.pgstream

import org.apache.spark.sql.{DataFrame, Row}
import org.apache.spark.sql.catalyst.expressions.{AttributeReference, BoundReference, Expression}
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.types.{StructField, StructType}

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
    else of.asInstanceOf[ClassicDataset[_]].queryExecution.optimizedPlan match {
      case Project(list, _) =>
        list.map { e =>
          e.name -> e.children.headOption.getOrElse(e).transform {
            case a: AttributeReference => BoundReference(names.indexOf(a.name), a.dataType, nullable = true)
          }
        }.toMap
      case other => throw new IllegalStateException(s"columns became ${other.nodeName}")
    }
}
