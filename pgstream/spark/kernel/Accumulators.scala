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

/**
 * A sum of fractions in two numbers, `high` and what it is too little by: what is added and taken away again leaves no
 * rounding behind. What is no number, or has no end, is counted apart, since it could not be taken away.
 *
 * In state it is the one number that it was in earlier versions, where that says all; else `Marks` stand there.
 */
final class Fractions {
  private var high, low = 0.0
  private var nans, ups, downs = 0L

  def add(v: Double, sign: Int): Unit =
    if (v.isNaN) nans += sign
    else if (v == Double.PositiveInfinity) ups += sign
    else if (v == Double.NegativeInfinity) downs += sign
    else plus(sign * v)

  /** The product of two numbers, all digits of it. */
  def add(v: Double, times: Double, sign: Int): Unit = {
    val p = v * times
    add(p, sign)
    if (!p.isNaN && !p.isInfinite) plus(sign * Math.fma(v, times, -p))
  }

  def isOdd: Boolean = nans != 0 || ups != 0 || downs != 0

  def result: Double =
    if (!isOdd) high
    else if (nans != 0 || (ups != 0 && downs != 0)) Double.NaN
    else if (ups != 0) Double.PositiveInfinity
    else Double.NegativeInfinity

  /** This less the square of `of` divided by `n`, where that is more than what is lost of either. */
  def lessSquare(of: Fractions, n: Long): Double = {
    val p = of.high * of.high
    val q = p / n
    val rest = (Math.fma(-q, n.toDouble, p) + Math.fma(of.high, of.high, -p) + 2 * of.high * of.low) / n
    val d = (high - q) + (low - rest)
    if (d > high * 1e-30) d else 0.0
  }

  private def plus(v: Double): Unit = {
    val s = high + v
    if (s.isNaN || s.isInfinite) { high = s; low = 0 }
    else {
      val part = s - high
      val rest = low + ((high - (s - part)) + (v - part))
      high = s + rest
      low = rest - (high - s)
    }
  }

  def write(out: DataOutput): Unit =
    if (isOdd) { out.writeLong(Fractions.Marks + 1); numbers(out); Seq(nans, ups, downs).foreach(out.writeLong) }
    else if (low != 0) { out.writeLong(Fractions.Marks); numbers(out) }
    else out.writeDouble(high)

  private def numbers(out: DataOutput): Unit = { out.writeDouble(high); out.writeDouble(low) }

  def read(in: DataInput): Unit = {
    reset()
    val first = in.readLong()
    if (first == Fractions.Marks || first == Fractions.Marks + 1) { high = in.readDouble(); low = in.readDouble() }
    else high = java.lang.Double.longBitsToDouble(first)
    if (first == Fractions.Marks + 1) { nans = in.readLong(); ups = in.readLong(); downs = in.readLong() }
  }

  def reset(): Unit = { high = 0; low = 0; nans = 0; ups = 0; downs = 0 }
}

object Fractions {
  /** Bits of numbers that `writeDouble` never writes: it has one NaN only. */
  val Marks = 0x7ff8706773747200L
}

/** SUM and AVG as a fraction. */
final class DoubleSum(t: DataType, mean: Boolean) extends Accumulator {
  private var n = 0L
  private val sum = new Fractions
  private val of = Accumulator.double(t)
  override def add(row: InternalRow, at: Int, sign: Int): Unit =
    if (!row.isNullAt(at)) { n += sign; if (n == 0) sum.reset() else sum.add(of(row, at), sign) }
  override def result: Any = if (n == 0) null else if (mean) sum.result / n else sum.result
  override def write(out: DataOutput): Unit = { out.writeLong(n); sum.write(out) }
  override def read(in: DataInput): Unit = { n = in.readLong(); sum.read(in) }
  override def reset(): Unit = { n = 0; sum.reset() }
}

/** Variance and standard deviation, of the sums of values and of squares. */
final class Variance(t: DataType, sample: Boolean, root: Boolean) extends Accumulator {
  private var n = 0L
  private val (sum, squares) = (new Fractions, new Fractions)
  private val of = Accumulator.double(t)
  override def add(row: InternalRow, at: Int, sign: Int): Unit =
    if (!row.isNullAt(at)) {
      n += sign
      if (n == 0) reset() else { sum.add(of(row, at), sign); squares.add(of(row, at), of(row, at), sign) }
    }
  override def result: Any = {
    val by = if (sample) n - 1 else n
    if (by <= 0) null
    else {
      val v = if (sum.isOdd || squares.isOdd) Double.NaN else squares.lessSquare(sum, n) / by
      if (root) math.sqrt(v) else v
    }
  }
  override def write(out: DataOutput): Unit = {
    out.writeLong(n)
    out.writeLong(Fractions.Marks + 2)
    sum.write(out)
    squares.write(out)
  }
  override def read(in: DataInput): Unit = {
    reset()
    n = in.readLong()
    val first = in.readLong()
    if (first == Fractions.Marks + 2) { sum.read(in); squares.read(in) }
    else {
      // Of earlier versions: the mean, and the sum of the squares of the distances from it.
      val mean = java.lang.Double.longBitsToDouble(first)
      sum.add(mean, n.toDouble, 1)
      squares.add(in.readDouble(), 1)
      squares.add(mean, n * mean, 1)
    }
  }
  override def reset(): Unit = { n = 0; sum.reset(); squares.reset() }
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
    case ("avg_wide", d: DecimalType) => DecimalType(38, math.max(6, d.scale))
    case ("avg_wide", _) => resultType("avg", t)
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
    case "sum" | "avg" | "avg_wide" =>
      val mean = function != "sum"
      t match {
        case d: DecimalType => new DecimalSum(d, resultType(function, t).asInstanceOf[DecimalType], mean)
        case FloatType | DoubleType => new DoubleSum(t, mean)
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
