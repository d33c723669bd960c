package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer

import scala.jdk.CollectionConverters._

import org.apache.avro.{LogicalTypes, Schema}
import org.apache.avro.Schema.Type._
import org.apache.avro.io.{BinaryEncoder, EncoderFactory}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.types._

/**
 * Columns as Avro in a registry's wire format, by a schema that has been registered as `id`.
 *
 * The schema may have fields that are no column when they may be null; `formats/avro.py` has seen to it that the types
 * fit before the query began.
 */
final class AvroWriter(schemaText: String, id: Int, row: StructType, which: Array[Int]) extends FormatWriter {
  private val out = new java.io.ByteArrayOutputStream(256)
  private var encoder: BinaryEncoder = _
  private val prefix = ByteBuffer.allocate(5).put(0.toByte).putInt(id).array
  private val schema = new Schema.Parser().parse(schemaText)
  private val write: (BinaryEncoder, InternalRow) => Unit =
    if (schema.getType == RECORD) {
      val struct = AvroOut.fields(schema, StructType(which.map(row(_))), which, "")
      (e, r) => struct.write(e, r)
    } else {
      val one = AvroOut.of(schema, row(which(0)).dataType, row(which(0)).name)
      (e, r) => one.write(e, r, which(0))
    }

  override def write(r: InternalRow): Array[Byte] = {
    out.reset()
    out.write(prefix)
    encoder = EncoderFactory.get().directBinaryEncoder(out, encoder)
    write(encoder, r)
    encoder.flush()
    out.toByteArray
  }
}

private trait AvroOut {
  def write(e: BinaryEncoder, row: SpecializedGetters, i: Int): Unit
}

/** The fields of a record: from their places, or null where nothing is written to them. */
private class AvroOutFields(places: Array[Int], writers: Array[AvroOut]) {
  def write(e: BinaryEncoder, row: SpecializedGetters): Unit = {
    var i = 0
    while (i < places.length) {
      writers(i).write(e, row, places(i))
      i += 1
    }
  }
}

private object AvroOut {
  def fields(s: Schema, columns: StructType, places: Array[Int], path: String): AvroOutFields = {
    val all = s.getFields.asScala.toArray
    val at = all.map(f => columns.fieldNames.indexOf(f.name))
    new AvroOutFields(
      at.map(n => if (n < 0) -1 else places(n)),
      all.zip(at).map {
        case (f, n) if n >= 0 => of(f.schema, columns(n).dataType, path + f.name)
        case (f, _) => absent(f, path + f.name)
      }
    )
  }

  /** A field that no column is written to. */
  private def absent(f: Schema.Field, path: String): AvroOut = {
    val nothing = if (f.schema.getType == UNION) f.schema.getTypes.asScala.indexWhere(_.getType == NULL) else -1
    if (nothing < 0) throw new Unwritable(s"""field "$path" of the Avro schema is no column and may not be null""")
    (e, _, _) => e.writeIndex(nothing)
  }

  def of(s: Schema, t: DataType, path: String): AvroOut = {
    def no = throw new Unwritable(s"""column "$path" of type ${Reader.name(t)} cannot be written as Avro ${AvroValue.name(s)}""")
    val value: AvroOut = (s.getType, t) match {
      case (UNION, _) => return union(s, t, path)
      case (NULL, _) => return (e, r, i) => if (r.isNullAt(i)) e.writeNull() else no
      case (BOOLEAN, BooleanType) => (e, r, i) => e.writeBoolean(r.getBoolean(i))
      case (INT, ByteType) => (e, r, i) => e.writeInt(r.getByte(i).toInt)
      case (INT, ShortType) => (e, r, i) => e.writeInt(r.getShort(i).toInt)
      case (INT, IntegerType) => (e, r, i) => e.writeInt(r.getInt(i))
      case (INT, _: TimeType) if s.getLogicalType.isInstanceOf[LogicalTypes.TimeMillis] =>
        (e, r, i) => e.writeInt((r.getLong(i) / 1000000L).toInt)
      case (LONG, _: TimeType) if s.getLogicalType.isInstanceOf[LogicalTypes.TimeMicros] =>
        (e, r, i) => e.writeLong(r.getLong(i) / 1000L)
      case (INT, DateType) => (e, r, i) => e.writeInt(r.getInt(i))
      case (LONG, ByteType) => (e, r, i) => e.writeLong(r.getByte(i).toLong)
      case (LONG, ShortType) => (e, r, i) => e.writeLong(r.getShort(i).toLong)
      case (LONG, IntegerType) => (e, r, i) => e.writeLong(r.getInt(i).toLong)
      case (LONG, TimestampType | TimestampNTZType) =>
        val unit = units(s).getOrElse(no)
        (e, r, i) => e.writeLong(unit(r.getLong(i)))
      case (LONG, LongType) => (e, r, i) => e.writeLong(r.getLong(i))
      case (FLOAT, FloatType) => (e, r, i) => e.writeFloat(r.getFloat(i))
      case (DOUBLE, FloatType) => (e, r, i) => e.writeDouble(r.getFloat(i).toDouble)
      case (DOUBLE, DoubleType) => (e, r, i) => e.writeDouble(r.getDouble(i))
      case (DOUBLE, IntegerType) => (e, r, i) => e.writeDouble(r.getInt(i).toDouble)
      case (STRING, _: StringType) =>
        (e, r, i) => { val b = r.getUTF8String(i).getBytes; e.writeBytes(b, 0, b.length) }
      case (ENUM, _: StringType) =>
        (e, r, i) => {
          val symbol = r.getUTF8String(i).toString
          if (!s.hasEnumSymbol(symbol)) throw new Unwritable(s"""column "$path": "$symbol" is no symbol of enum ${s.getName}""")
          e.writeEnum(s.getEnumOrdinal(symbol))
        }
      case (BYTES | FIXED, d: DecimalType) => decimal(s, d, path, no)
      case (BYTES, BinaryType) => (e, r, i) => { val b = r.getBinary(i); e.writeBytes(b, 0, b.length) }
      case (FIXED, BinaryType) =>
        (e, r, i) => {
          val b = r.getBinary(i)
          if (b.length != s.getFixedSize)
            throw new Unwritable(s"""column "$path": ${b.length} bytes for a fixed of ${s.getFixedSize}""")
          e.writeFixed(b, 0, b.length)
        }
      case (ARRAY, ArrayType(element, _)) =>
        val w = of(s.getElementType, element, path + ".element")
        (e, r, i) => {
          val a = r.getArray(i)
          e.writeArrayStart()
          e.setItemCount(a.numElements())
          var n = 0
          while (n < a.numElements()) { e.startItem(); w.write(e, a, n); n += 1 }
          e.writeArrayEnd()
        }
      case (MAP, MapType(_: StringType, v, _)) =>
        val w = of(s.getValueType, v, path + ".value")
        (e, r, i) => {
          val m = r.getMap(i)
          e.writeMapStart()
          e.setItemCount(m.numElements())
          var n = 0
          while (n < m.numElements()) {
            e.startItem()
            val k = m.keyArray().getUTF8String(n).getBytes
            e.writeBytes(k, 0, k.length)
            w.write(e, m.valueArray(), n)
            n += 1
          }
          e.writeMapEnd()
        }
      case (RECORD, st: StructType) =>
        val inner = fields(s, st, st.indices.toArray, path + ".")
        (e, r, i) => inner.write(e, r.getStruct(i, st.length))
      case _ => no
    }
    (e, r, i) => if (r.isNullAt(i)) throw new Unwritable(s"""column "$path" is NULL, which its Avro schema forbids""") else value.write(e, r, i)
  }

  private def union(s: Schema, t: DataType, path: String): AvroOut = {
    val branches = s.getTypes.asScala.toArray
    val nothing = branches.indexWhere(_.getType == NULL)
    val others = branches.indices.filter(_ != nothing)
    val value: AvroOut = t match {
      case st: StructType if others.length > 1 => tagged(branches, others, st, path)
      case _ =>
        var refusal: Unwritable = new Unwritable(s"""column "$path" has no place in a union of null""")
        val fits = others.view.flatMap { n =>
          try Some(n -> of(branches(n), t, path))
          catch { case e: Unwritable => refusal = e; None }
        }.headOption
        val (n, w) = fits.getOrElse(throw refusal)
        (e, r, i) => { e.writeIndex(n); w.write(e, r, i) }
    }
    (e, r, i) =>
      if (!r.isNullAt(i)) value.write(e, r, i)
      else if (nothing >= 0) { e.writeIndex(nothing); e.writeNull() }
      else throw new Unwritable(s"""column "$path" is NULL, which its Avro schema forbids""")
  }

  /** A STRUCT with a field a branch: the branch of the first that is not NULL. */
  private def tagged(branches: Array[Schema], others: Seq[Int], st: StructType, path: String): AvroOut = {
    val writers = others.flatMap { n =>
      val at = st.fieldNames.indexOf(AvroValue.branch(branches(n)))
      if (at < 0) None else Some((n, at, of(branches(n), st(at).dataType, s"$path.${st(at).name}")))
    }
    (e, r, i) => {
      val struct = r.getStruct(i, st.length)
      writers.find { case (_, at, _) => !struct.isNullAt(at) } match {
        case Some((n, at, w)) => e.writeIndex(n); w.write(e, struct, at)
        case None => throw new Unwritable(s"""column "$path": no branch of its Avro union is given""")
      }
    }
  }

  private def units(s: Schema): Option[Long => Long] = s.getLogicalType match {
    case _: LogicalTypes.TimestampMillis | _: LogicalTypes.LocalTimestampMillis => Some(Math.floorDiv(_, 1000L))
    case _: LogicalTypes.TimestampMicros | _: LogicalTypes.LocalTimestampMicros => Some(v => v)
    case _: LogicalTypes.TimestampNanos | _: LogicalTypes.LocalTimestampNanos => Some(Math.multiplyExact(_, 1000L))
    case _ => None
  }

  private def decimal(s: Schema, t: DecimalType, path: String, no: => Nothing): AvroOut = s.getLogicalType match {
    case l: LogicalTypes.Decimal =>
      (e, r, i) => {
        val v = r.getDecimal(i, t.precision, t.scale).toJavaBigDecimal
        val scaled =
          try v.setScale(l.getScale)
          catch { case _: ArithmeticException => throw new Unwritable(s"""column "$path": $v has more than ${l.getScale} decimals""") }
        if (scaled.precision > l.getPrecision) throw new Unwritable(s"""column "$path": $v has more than ${l.getPrecision} digits""")
        val b = scaled.unscaledValue.toByteArray
        if (s.getType == BYTES) e.writeBytes(b, 0, b.length) else e.writeFixed(extended(b, s.getFixedSize), 0, s.getFixedSize)
      }
    case _ => no
  }

  /** Two's complement in a fixed number of bytes. */
  private def extended(b: Array[Byte], size: Int): Array[Byte] = {
    val out = Array.fill[Byte](size)(if (b(0) < 0) -1 else 0)
    System.arraycopy(b, 0, out, size - b.length, b.length)
    out
  }
}
