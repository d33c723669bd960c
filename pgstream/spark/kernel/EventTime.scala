package org.apache.spark.sql.pgstream

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, BinaryExpression, Expression, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.types.DataType
import org.apache.spark.util.AccumulatorV2

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

/** The latest event time of a batch's records in each partition of its source, microseconds. */
class PartitionTimes extends AccumulatorV2[(Int, Long), Map[Int, Long]] {
  import PartitionTimes.Latest
  // A task that still runs is asked for its figures by another thread.
  private val latest = new ConcurrentHashMap[Int, Latest]
  // A task's records come partition by partition.
  private var last: Latest = _

  def see(partition: Int, time: Long): Unit = {
    if (last == null || last.partition != partition) last = latest.computeIfAbsent(partition, new Latest(_))
    if (time > last.time) last.time = time
  }

  override def add(v: (Int, Long)): Unit = see(v._1, v._2)
  override def value: Map[Int, Long] = latest.values.asScala.map(l => l.partition -> l.time).toMap
  override def isZero: Boolean = latest.isEmpty
  override def reset(): Unit = { latest.clear(); last = null }
  override def copy(): PartitionTimes = { val c = new PartitionTimes; c.merge(this); c }
  override def merge(other: AccumulatorV2[(Int, Long), Map[Int, Long]]): Unit = other.value.foreach(add)
}

object PartitionTimes {
  private class Latest(val partition: Int) extends Serializable { @volatile var time: Long = Long.MinValue }
}

/** A record's event time as it is, noted as one of its partition; those without one have one of their own. */
case class Noted(time: Expression, partition: Expression, times: PartitionTimes) extends BinaryExpression {
  override def left: Expression = time
  override def right: Expression = partition
  // It notes: it must neither move nor be asked twice.
  override lazy val deterministic: Boolean = false
  override def dataType: DataType = time.dataType
  override def nullable: Boolean = time.nullable
  override def eval(row: InternalRow): Any = {
    val t = time.eval(row)
    if (t != null) times.see(Option(partition.eval(row)).fold(-1)(_.asInstanceOf[Int]), t.asInstanceOf[Long])
    t
  }
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val noted = ctx.addReferenceObj("times", times)
    val (t, p) = (time.genCode(ctx), partition.genCode(ctx))
    ev.copy(code"${t.code} ${p.code} if (!${t.isNull}) $noted.see(${p.isNull} ? -1 : ${p.value}, ${t.value});", t.isNull, t.value)
  }
  override protected def withNewChildrenInternal(l: Expression, r: Expression): Noted = copy(time = l, partition = r)
}

object EventTime {
  /**
   * The rows of a source, its event time told to Spark, and noted for each partition where a source has some
   * (`Watermarks`). Every record moves it: Spark would apply filters first, those that a join implies too, and time would
   * stand still while no row passes them.
   */
  def apply(df: DataFrame, lateness: String): DataFrame = {
    val told = noted(df.asInstanceOf[ClassicDataset[_]]).withWatermark(Changes.Time, lateness).asInstanceOf[ClassicDataset[_]]
    over(told)(Settled(_))
  }

  private def noted(d: ClassicDataset[_]): DataFrame =
    d.queryExecution.analyzed.output.find(_.name == Changes.Partition).fold[DataFrame](d.toDF()) { partition =>
      val times = new PartitionTimes
      // Without a name: Spark tells those with one to its listeners, of each task.
      d.sparkSession.sparkContext.register(times)
      over(d)(Noted(_, partition, times))
    }

  /** The same columns, that of event time by way of `made`. */
  private def over(d: ClassicDataset[_])(made: Attribute => Expression): DataFrame = {
    val kept = d.queryExecution.analyzed.output.map {
      case a: Attribute if a.name == Changes.Time => Alias(made(a), a.name)(explicitMetadata = Some(a.metadata))
      case a => a
    }
    ClassicDataset.ofRows(d.sparkSession, Project(kept, d.queryExecution.analyzed))
  }
}
