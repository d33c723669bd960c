package org.apache.spark.sql.pgstream

import java.math.RoundingMode
import java.util.TreeMap
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.{FunctionIdentifier, InternalRow}
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, ArrayData, GenericArrayData, TypeUtils}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Functions that Spark SQL has no expression for: a plan's texts call them by name. */
object Functions {
  def register(e: SparkSessionExtensions): Unit = {
    add(e, "pgstream_json_all", classOf[JsonAll])(a => JsonAll(a.head, a(1), a(2)))
    add(e, "pgstream_multiset", classOf[Multiset])(a => Multiset(a.head))
    add(e, "pgstream_regexp_extract", classOf[Extract])(a => Extract(a.head, a(1), a(2)))
    add(e, "pgstream_truncate", classOf[Truncate])(a => Truncate(a.head, a(1)))
    add(e, "pgstream_watermark", classOf[CurrentWatermark])(_ => CurrentWatermark())
  }

  private def add(e: SparkSessionExtensions, name: String, made: Class[_])(build: Seq[Expression] => Expression): Unit =
    e.injectFunction((FunctionIdentifier(name), new ExpressionInfo(made.getName, name), build))
}

/** How often each value of an array is in it, in the order of the values; NULLs are not counted. Of no array, none. */
case class Multiset(child: Expression) extends UnaryExpression with CodegenFallback {
  private lazy val element = child.dataType.asInstanceOf[ArrayType].elementType
  @transient private lazy val order = TypeUtils.getInterpretedOrdering(element)

  override def checkInputDataTypes(): TypeCheckResult = child.dataType match {
    case ArrayType(t, _) => TypeUtils.checkForOrderingExpr(t, prettyName)
    case t => TypeCheckResult.TypeCheckFailure(s"$prettyName takes an array, not ${t.sql}")
  }
  override def prettyName: String = "pgstream_multiset"
  override def dataType: DataType = MapType(element, IntegerType, valueContainsNull = false)
  override def nullable: Boolean = false

  override def eval(row: InternalRow): Any = {
    val counts = new TreeMap[Any, Integer](order)
    child.eval(row) match {
      case values: ArrayData => values.foreach(element, (_, v) => if (v != null) counts.merge(v, 1, (a, b) => a + b))
      case _ => ()
    }
    val keys = counts.keySet.toArray.asInstanceOf[Array[Any]]
    new ArrayBasedMapData(new GenericArrayData(keys), new GenericArrayData(counts.values.toArray.asInstanceOf[Array[Any]]))
  }
  override protected def withNewChildInternal(c: Expression): Multiset = copy(child = c)
}

/** A group of a regular expression's first match; NULL where nothing matches, and where the group is not in the match. */
case class Extract(subject: Expression, regexp: Expression, idx: Expression) extends RegExpExtractBase with CodegenFallback {
  override def prettyName: String = "regexp_extract"
  override def dataType: DataType = subject.dataType
  override def nullable: Boolean = true

  override protected def nullSafeEval(text: Any, pattern: Any, group: Any): Any = {
    val found = getLastMatcher(text, pattern)
    if (!found.find()) null
    else {
      RegExpExtractBase.checkGroupIndex(prettyName, found.groupCount, group.asInstanceOf[Int])
      UTF8String.fromString(found.group(group.asInstanceOf[Int]))
    }
  }
  override protected def withNewChildrenInternal(a: Expression, b: Expression, c: Expression): Extract = copy(a, b, c)
}

/**
 * A number cut toward zero, `right` digits behind the point; where those are fewer than none, so many before it are 0.
 * Whole numbers and DECIMAL are exact.
 */
case class Truncate(left: Expression, right: Expression) extends BinaryExpression with ImplicitCastInputTypes with CodegenFallback {
  override def inputTypes: Seq[AbstractDataType] = Seq(NumericType, IntegerType)
  override def prettyName: String = "pgstream_truncate"
  override def dataType: DataType = left.dataType
  override def nullIntolerant: Boolean = true

  override protected def nullSafeEval(value: Any, digits: Any): Any = {
    val n = digits.asInstanceOf[Int]
    value match {
      case v: Decimal if n >= v.scale => v
      case v: Decimal =>
        val cut = v.toJavaBigDecimal.setScale(math.max(n, -DecimalType.MAX_PRECISION), RoundingMode.DOWN)
        Decimal(cut.setScale(v.scale), v.precision, v.scale)
      case v: Long => whole(v, n)
      case v: Int => whole(v, n).toInt
      case v: Short => whole(v, n).toShort
      case v: Byte => whole(v, n).toByte
      case v: Double => fraction(v, n)
      case v: Float => fraction(v, n).toFloat
    }
  }

  private def whole(v: Long, n: Int): Long = if (n >= 0) v else if (n < -18) 0 else v - v % BigInt(10).pow(-n).toLong

  private def fraction(v: Double, n: Int): Double = {
    val by = math.pow(10, n)
    math.signum(v) * math.floor(math.abs(v) * by) / by
  }

  override protected def withNewChildrenInternal(l: Expression, r: Expression): Truncate = copy(l, r)
}

/** What the event time had passed when the row's batch began; NULL before the first. */
case class CurrentWatermark() extends LeafExpression with CodegenFallback {
  // The same for a batch, another for the next: it is not to be worked out before.
  override lazy val deterministic: Boolean = false
  override def dataType: DataType = TimestampType
  override def nullable: Boolean = true
  override def eval(row: InternalRow): Any = {
    val passed = Passed.micros(None)
    if (passed == Long.MinValue) null else passed
  }
}
