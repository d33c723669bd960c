package org.apache.spark.sql.pgstream

import org.apache.spark.sql.types.{LongType, StructType, TimeType}

/** Times of day out of PostgreSQL, which Spark's JDBC does not read: as the nanoseconds that Spark keeps them in. */
object PgClock {
  /** What is selected for an expression of a type by PostgreSQL's name. */
  def read(expression: String, t: String): String =
    if (t.startsWith("time") && !t.startsWith("timestamp") && !t.endsWith("]")) s"(EXTRACT(EPOCH FROM $expression::$t) OPERATOR(pg_catalog.*) 1000000000)::bigint"
    else s"$expression::$t"

  /** What is then read for columns. */
  def stored(s: StructType): StructType =
    StructType(s.map(f => if (f.dataType.isInstanceOf[TimeType]) f.copy(dataType = LongType) else f))
}
