package org.apache.spark.sql.pgstream

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, BasePredicate}
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperatorStateInfo, StateStoreSaveExec, StreamingAggregationStateManager}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.streaming.OutputMode
import org.apache.spark.sql.types.StructType

/**
 * Spark's operator that keeps the rows of windows, with two things left out of each batch.
 *
 * It looks through all its state for windows that have ended, also where event time has passed no end of a window since
 * the batch before: all ends lie `Every` milliseconds apart. What a batch finds in its state has ended after the event
 * time of the one before, which that one has removed the rest by; so it is after a restart, too, and in older checkpoints.
 * And it compiles a class for each batch, with its event time as a constant in it.
 */
class WindowSave(keys: Seq[Attribute], info: Option[StatefulOperatorStateInfo], mode: Option[OutputMode], late: Option[Long],
    ended: Option[Long], version: Int, input: SparkPlan) extends StateStoreSaveExec(keys, info, mode, late, ended, version, input) {
  private val every = conf.getConfString(WindowSave.Every, "0").toLong
  // Of Spark's two ways to hand on event time the older tells both operators' moments as one.
  private val still = every > 0 && allowMultipleStatefulOperators &&
    late.zip(ended).exists { case (before, now) => Math.floorDiv(before, every) == Math.floorDiv(now, every) }

  override lazy val watermarkPredicateForDataForLateEvents: Option[BasePredicate] = WindowSave.ended(input.output, late)
  override lazy val watermarkPredicateForKeysForEviction: Option[BasePredicate] = WindowSave.ended(keys, ended)

  override protected def removeKeysOlderThanWatermark(manager: StreamingAggregationStateManager, store: StateStore): Unit =
    if (!still) super.removeKeysOlderThanWatermark(manager, store)

  /** Where a rule gives back what is equal, Spark keeps what was there. */
  override def canEqual(other: Any): Boolean = other.isInstanceOf[WindowSave]
  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)
  override def hashCode: Int = super.hashCode
  override protected def withNewChildInternal(child: SparkPlan): WindowSave = new WindowSave(keys, info, mode, late, ended, version, child)
}

object WindowSave extends Rule[SparkPlan] {
  /** A setting of a query's session: how far apart all ends of its windows are, in ms; 0 where that is not known. */
  val Every = "spark.pgstream.windows.every"

  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case s: StateStoreSaveExec if s.stateInfo.isDefined && window(s.child.output).exists(w => window(s.keyExpressions).exists(_.exprId == w.exprId)) =>
      new WindowSave(s.keyExpressions, s.stateInfo, s.outputMode, s.eventTimeWatermarkForLateEvents, s.eventTimeWatermarkForEviction,
        s.stateFormatVersion, s.child)
  }

  /** The first column of event time, if that is a window. */
  private def window(columns: Seq[Attribute]): Option[Attribute] =
    columns.find(_.metadata.contains(EventTimeWatermark.delayKey)).filter(_.dataType.isInstanceOf[StructType])

  private def ended(columns: Seq[Attribute], by: Option[Long]): Option[BasePredicate] =
    for (w <- window(columns); ms <- by) yield new Ended(columns.indexWhere(_.exprId == w.exprId), ms * 1000)

  private class Ended(at: Int, micros: Long) extends BasePredicate {
    override def eval(row: InternalRow): Boolean = !row.isNullAt(at) && {
      val window = row.getStruct(at, 2)
      !window.isNullAt(1) && window.getLong(1) <= micros
    }
  }
}
