package org.apache.spark.sql.pgstream

import java.io.{DataInput, DataOutput}
import java.math.{BigDecimal => Big}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.TypeUtils
import org.apache.spark.sql.types._

/**
 * One aggregate of one group, of whole rows or of values already told apart; every row that was added can be taken back
 * (`sign` -1). NULL arguments count for nothing but in `CountRows`.
 */
abstract class Accumulator {
  def add(row: InternalRow, at: Int, sign: Int): Unit
  def result: Any
  def write(out: DataOutput): Unit
  def read(in: DataInput): Unit
  def reset(): Unit
}

/** COUNT. */
final class Count extends Accumulator {
  private var n = 0L
  override def add(row: InternalRow, at: Int, sign: Int): Unit = if (!row.isNullAt(at)) n += sign
  override def result: Any = n
  override def write(out: DataOutput): Unit = out.writeLong(n)
  override def read(in: DataInput): Unit = n = in.readLong()
  override def reset(): Unit = n = 0
}

/** SUM of whole numbers. */
final class LongSum(t: DataType) extends Accumulator {
  private var n = 0L
  private var sum = 0L
  private val of = Accumulator.long(t)
  override def add(row: InternalRow, at: Int, sign: Int): Unit =
    if (!row.isNullAt(at)) { n += sign; sum += sign * of(row, at) }
  override def result: Any = if (n == 0) null else sum
  override def write(out: DataOutput): Unit = { out.writeLong(n); out.writeLong(sum) }
  override def read(in: DataInput): Unit = { n = in.readLong(); sum = in.readLong() }
  override def reset(): Unit = { n = 0; sum = 0 }
}

/** AVG of whole numbers, cut toward zero. The sum has more digits than one number: `high` counts 2 to the power of 32. */
final class LongMean(t: DataType) extends Accumulator {
  private var n, high, low = 0L
  private val of = Accumulator.long(t)
  override def add(row: InternalRow, at: Int, sign: Int): Unit =
    if (!row.isNullAt(at)) {
      val v = of(row, at)
      n += sign
      low += sign * (v & 0xffffffffL)
      high += sign * (v >> 32) + (low >> 32)
      low &= 0xffffffffL
    }
  override def result: Any =
    if (n == 0) null
    else if (high == high.toInt) ((high << 32) + low) / n
    else (((BigInt(high) << 32) + low) / n).toLong
  override def write(out: DataOutput): Unit = { out.writeLong(n); out.writeLong(high); out.writeLong(low) }
  override def read(in: DataInput): Unit = { n = in.readLong(); high = in.readLong(); low = in.readLong() }
  override def reset(): Unit = { n = 0; high = 0; low = 0 }
}

/** SUM and AVG of decimals, exact; more digits than the result's type holds give NULL. */
final class DecimalSum(t: DecimalType, to: DecimalType, mean: Boolean) extends Accumulator {
  private var n = 0L
  private var sum = Big.ZERO
  override def add(row: InternalRow, at: Int, sign: Int): Unit =
    if (!row.isNullAt(at)) {
      n += sign
      val v = row.getDecimal(at, t.precision, t.scale).toJavaBigDecimal
      sum = if (sign > 0) sum.add(v) else sum.subtract(v)
    }
  override def result: Any =
    if (n == 0) null
    else {
      val v = if (mean) sum.divide(Big.valueOf(n), to.scale, java.math.RoundingMode.HALF_UP) else sum
      val d = Decimal(v)
      if (d.changePrecision(to.precision, to.scale)) d else null
    }
  override def write(out: DataOutput): Unit = { out.writeLong(n); out.writeUTF(sum.toString) }
  override def read(in: DataInput): Unit = { n = in.readLong(); sum = new Big(in.readUTF()) }
  override def reset(): Unit = { n = 0; sum = Big.ZERO }
}

/** SUM and AVG as a fraction. */
final class DoubleSum(t: DataType, mean: Boolean) extends Accumulator {
  private var n = 0L
  private var sum = 0.0
  private val of = Accumulator.double(t)
  override def add(row: InternalRow, at: Int, sign: Int): Unit =
    if (!row.isNullAt(at)) { n += sign; if (n == 0) sum = 0 else sum += sign * of(row, at) }
  override def result: Any = if (n == 0) null else if (mean) sum / n else sum
  override def write(out: DataOutput): Unit = { out.writeLong(n); out.writeDouble(sum) }
  override def read(in: DataInput): Unit = { n = in.readLong(); sum = in.readDouble() }
  override def reset(): Unit = { n = 0; sum = 0 }
}

/** Variance and standard deviation by Welford's method, which can be run backwards. */
final class Variance(t: DataType, sample: Boolean, root: Boolean) extends Accumulator {
  private var n = 0L
  private var mean = 0.0
  private var m2 = 0.0
  private val of = Accumulator.double(t)
  override def add(row: InternalRow, at: Int, sign: Int): Unit =
    if (!row.isNullAt(at)) {
      val v = of(row, at)
      val before = v - mean
      n += sign
      if (n == 0) reset()
      else {
        mean += sign * before / n
        m2 = math.max(0.0, m2 + sign * before * (v - mean))
      }
    }
  override def result: Any = {
    val by = if (sample) n - 1 else n
    if (by <= 0) null else if (root) math.sqrt(m2 / by) else m2 / by
  }
  override def write(out: DataOutput): Unit = { out.writeLong(n); out.writeDouble(mean); out.writeDouble(m2) }
  override def read(in: DataInput): Unit = { n = in.readLong(); mean = in.readDouble(); m2 = in.readDouble() }
  override def reset(): Unit = { n = 0; mean = 0; m2 = 0 }
}

object Accumulator {
  def long(t: DataType): (InternalRow, Int) => Long = t match {
    case LongType => (r, i) => r.getLong(i)
    case IntegerType => (r, i) => r.getInt(i).toLong
    case ShortType => (r, i) => r.getShort(i).toLong
    case ByteType => (r, i) => r.getByte(i).toLong
  }

  def double(t: DataType): (InternalRow, Int) => Double = t match {
    case DoubleType => (r, i) => r.getDouble(i)
    case FloatType => (r, i) => r.getFloat(i).toDouble
    case d: DecimalType => (r, i) => r.getDecimal(i, d.precision, d.scale).toDouble
    case other =>
      val of = long(other)
      (r, i) => of(r, i).toDouble
  }

  private def bounded(p: Int, s: Int): DecimalType = DecimalType(math.min(38, p), math.min(38, s))

  /** What Spark's own aggregates give, so that a plan's types do not depend on which operator runs it. */
  def resultType(function: String, t: DataType): DataType = (function, t) match {
    case ("count", _) | ("avg_whole", _: IntegralType) => LongType
    case ("avg_whole", _) => resultType("avg", t)
    case ("sum", d: DecimalType) => bounded(d.precision + 10, d.scale)
    case ("sum", FloatType | DoubleType) => DoubleType
    case ("sum", _) => LongType
    case ("avg", d: DecimalType) => bounded(d.precision + 4, d.scale + 4)
    case ("avg" | "stddev_samp" | "stddev_pop" | "var_samp" | "var_pop", _) => DoubleType
    case ("array_agg", _) => ArrayType(t)
    case ("listagg", _) => StringType
    case _ => t
  }

  /** Of a value of type `t`; MIN, MAX and the functions that keep every value are `Bag`'s. */
  def of(function: String, t: DataType): Accumulator = function match {
    case "count" => new Count
    case "avg_whole" => if (t.isInstanceOf[IntegralType]) new LongMean(t) else of("avg", t)
    case "sum" | "avg" =>
      t match {
        case d: DecimalType => new DecimalSum(d, resultType(function, t).asInstanceOf[DecimalType], function == "avg")
        case FloatType | DoubleType => new DoubleSum(t, function == "avg")
        case _ if function == "sum" => new LongSum(t)
        case _ => new DoubleSum(t, mean = true)
      }
    case "stddev_samp" => new Variance(t, sample = true, root = true)
    case "stddev_pop" => new Variance(t, sample = false, root = true)
    case "var_samp" => new Variance(t, sample = true, root = false)
    case "var_pop" => new Variance(t, sample = false, root = false)
  }

  def ordering(t: DataType): Ordering[Any] = TypeUtils.getInterpretedOrdering(t)
}
