package org.apache.spark.sql.pgstream

import java.util.Arrays

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.kafka010.pgstream.KafkaRead
import org.apache.spark.sql.catalyst.expressions.{Ascending, Expression, SortOrder, UnaryExpression, XxHash64}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SortExec, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.types.{BinaryType, DataType, LongType}

/**
 * Rows on their way into an operator are sorted by their key as its bytes are, which is the order that the state store has
 * them in: what it looks up next is beside what it has just looked up.
 *
 * Spark compares the first eight bytes of a sorted value where it has them at hand; those of a packed row are its NULL
 * bits, the same in nearly all, so that every comparison fetched both rows. `KeyOrder` is compared first.
 */
object GroupOrder extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case t: TransformWithStateExec if t.groupingAttributes.map(_.dataType) == Seq(BinaryType) =>
      t.withNewChildren(t.children.map {
        case s: SortExec if s.sortOrder.length == 1 =>
          s.copy(sortOrder = SortOrder(KeyOrder(t.groupingAttributes.head), Ascending) +: s.sortOrder)
        case other => other
      })
    case j: StreamingSymmetricHashJoinExec =>
      def sorted(keys: Seq[Expression], rows: SparkPlan): SparkPlan = rows match {
        case s: SortExec => s
        case _ => SortExec(Seq(KeyOrder(Pack(keys)), new XxHash64(keys)).map(SortOrder(_, Ascending)), global = false, rows)
      }
      j.withNewChildren(Seq(sorted(j.leftKeys, j.left), sorted(j.rightKeys, j.right)))
  }
}

/**
 * A number of the packed row of a key that is no less for a row whose bytes are no less: seven bytes from where they begin to
 * differ from those of the first row that was asked for, and where that is.
 *
 * Spark compares it where it has it at hand. Bytes of packed rows begin with what is the same in most of them: NULL bits,
 * lengths, the beginning of a text.
 */
case class KeyOrder(child: Expression) extends UnaryExpression {
  // One for all code that is made of it: a comparison asks for its two rows in two places.
  @transient lazy val place = new KeyPlace
  override def dataType: DataType = LongType
  override protected def nullSafeEval(key: Any): Any = place.of(key.asInstanceOf[Array[Byte]])
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val me = ctx.addReferenceObj("keyOrder", this)
    val place = ctx.addMutableState(classOf[KeyPlace].getName, "place", v => s"$v = $me.place();")
    defineCodeGen(ctx, ev, key => s"$place.of($key)")
  }
  override protected def withNewChildInternal(c: Expression): KeyOrder = copy(child = c)
}

/** Where keys are beside the first of them. */
final class KeyPlace {
  private var first: Array[Byte] = _

  def of(key: Array[Byte]): Long = {
    if (first == null) first = key
    val differs = Arrays.mismatch(key, first)
    if (differs < 0) 1L << 62
    else {
      val less = differs < first.length && (differs >= key.length || (key(differs) & 0xff) < (first(differs) & 0xff))
      val at = math.min(differs, KeyPlace.Furthest)
      var bytes = 0L
      var i = at
      while (i < at + 7) { bytes = bytes << 8 | (if (i < key.length) key(i) & 0xff else 0); i += 1 }
      // Below the first key those that differ late are nearest to it, above it those that differ late as well.
      if (less) at.toLong << 55 | bytes >>> 1 else 1L << 62 | (KeyPlace.Furthest - at).toLong << 55 | bytes >>> 1
    }
  }
}

private object KeyPlace { val Furthest = 127 }

/** What `spark.sql.extensions` names. */
class Extensions extends (SparkSessionExtensions => Unit) {
  override def apply(e: SparkSessionExtensions): Unit = {
    for (rule <- Seq(GroupOrder, WindowSave, Together, KafkaRead)) e.injectColumnar(_ => new ColumnarRule { override def preColumnarTransitions: Rule[SparkPlan] = rule })
    for (strategy <- Seq(BatchRowsStrategy, BeginningStrategy, BehindStrategy)) e.injectPlannerStrategy(_ => strategy)
    e.injectCheckRule(_ => Fence)
    Functions.register(e)
  }
}
