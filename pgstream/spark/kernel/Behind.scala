package org.apache.spark.sql.pgstream

import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, TransformWithState, UnaryNode}
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}

/** An operator of ours whose rows come out as much as `ms` after the watermark has passed their event time. */
case class Behind(child: LogicalPlan, ms: Long) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): Behind = copy(newChild)
}

object Behind {
  /** `plan` is the operator and what makes rows of its results. */
  def of(plan: LogicalPlan, ms: Long): LogicalPlan = plan.mapChildren { case t: TransformWithState => Behind(t, ms); case other => other }
}

object BehindStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case Behind(t: TransformWithState, ms) =>
      new BehindExec(t.keyDeserializer, t.valueDeserializer, t.groupingAttributes, t.dataAttributes, t.statefulProcessor, t.timeMode,
        t.outputMode, t.keyEncoder.asInstanceOf[ExpressionEncoder[Any]], t.outputObjAttr, None, None, None, None, planLater(t.child), true,
        t.hasInitialState, t.initialStateGroupingAttrs, t.initialStateDataAttrs, t.initialStateDeserializer, planLater(t.initialState), ms) :: Nil
    case _ => Nil
  }
}

/**
 * Spark's operator, which tells those above it a watermark that is so much behind its own. Spark's own tells none where state
 * has a time to live: nothing above would ever be told that time goes on.
 */
class BehindExec(keyDeserializer: Expression, valueDeserializer: Expression, groupingAttributes: Seq[Attribute], dataAttributes: Seq[Attribute],
    statefulProcessor: StatefulProcessor[Any, Any, Any], timeMode: TimeMode, outputMode: OutputMode, keyEncoder: ExpressionEncoder[Any],
    outputObjAttr: Attribute, stateInfo: Option[StatefulOperatorStateInfo], batchTimestampMs: Option[Long],
    eventTimeWatermarkForLateEvents: Option[Long], eventTimeWatermarkForEviction: Option[Long], child: SparkPlan, isStreaming: Boolean,
    hasInitialState: Boolean, initialStateGroupingAttrs: Seq[Attribute], initialStateDataAttrs: Seq[Attribute],
    initialStateDeserializer: Expression, initialState: SparkPlan, ms: Long)
    extends TransformWithStateExec(keyDeserializer, valueDeserializer, groupingAttributes, dataAttributes, statefulProcessor, timeMode,
      outputMode, keyEncoder, outputObjAttr, stateInfo, batchTimestampMs, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, child,
      isStreaming, hasInitialState, initialStateGroupingAttrs, initialStateDataAttrs, initialStateDeserializer, initialState) {

  override def produceOutputWatermark(input: Long): Option[Long] = Some(math.max(input - ms, 0))

  /** Spark makes another of its own kind of it at each step of its planning. */
  override def copy(keyDeserializer: Expression, valueDeserializer: Expression, groupingAttributes: Seq[Attribute], dataAttributes: Seq[Attribute],
      statefulProcessor: StatefulProcessor[Any, Any, Any], timeMode: TimeMode, outputMode: OutputMode, keyEncoder: ExpressionEncoder[Any],
      outputObjAttr: Attribute, stateInfo: Option[StatefulOperatorStateInfo], batchTimestampMs: Option[Long],
      eventTimeWatermarkForLateEvents: Option[Long], eventTimeWatermarkForEviction: Option[Long], child: SparkPlan, isStreaming: Boolean,
      hasInitialState: Boolean, initialStateGroupingAttrs: Seq[Attribute], initialStateDataAttrs: Seq[Attribute],
      initialStateDeserializer: Expression, initialState: SparkPlan): TransformWithStateExec =
    new BehindExec(keyDeserializer, valueDeserializer, groupingAttributes, dataAttributes, statefulProcessor, timeMode, outputMode, keyEncoder,
      outputObjAttr, stateInfo, batchTimestampMs, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, child, isStreaming,
      hasInitialState, initialStateGroupingAttrs, initialStateDataAttrs, initialStateDeserializer, initialState, ms)

  override protected def otherCopyArgs: Seq[AnyRef] = Long.box(ms) :: Nil
  override def canEqual(other: Any): Boolean = other.isInstanceOf[BehindExec]
  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)
  override def hashCode: Int = super.hashCode
}
