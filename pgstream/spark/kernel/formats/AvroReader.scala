package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.{HashMap => JMap}

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.avro.{LogicalTypes, Schema}
import org.apache.avro.Schema.Type._

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, GenericArrayData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * Avro in a registry's wire format: a zero byte, the schema's id, the value.
 *
 * The schema that a record was written with is read straight into the declared columns: fields by name, those that are
 * not declared are skipped, those that the schema has not are NULL, and numbers widen as Avro's rules for resolving
 * schemas say. A column that the schema cannot give makes each record with that schema malformed.
 */
final class AvroReader(columns: StructType, registry: Registry) extends FormatReader {
  private val readers = new JMap[Integer, AvroFields]
  private val decoder = new AvroBytes

  override def read(bytes: Array[Byte], values: Array[Any]): Unit = {
    if (bytes.length < 5 || bytes(0) != 0)
      throw new Malformed("not in the wire format of a schema registry: a zero byte and a schema id come first")
    val id = ByteBuffer.wrap(bytes, 1, 4).getInt
    var reader = readers.get(id)
    if (reader == null) {
      reader = AvroFields.of(registry.avro(id), columns)
      readers.put(id, reader)
    }
    try {
      reader.read(decoder.over(bytes, 5), values)
      if (!decoder.isEnd) throw new Malformed(s"bytes after the end of the value, by schema $id")
    } catch {
      case _: java.io.EOFException => throw new Malformed(s"the value ends too early for schema $id")
      case e @ (_: org.apache.avro.AvroRuntimeException | _: IndexOutOfBoundsException | _: ArithmeticException |
          _: UnsupportedOperationException) =>
        throw new Malformed(s"not a value of schema $id: ${e.getMessage}")
    }
  }
}

/** Reads one value of a schema, or passes over it. */
private trait AvroValue {
  def read(d: AvroBytes): Any
}

/** The fields of a record in the order of its schema: each into its place, or passed over. */
private class AvroFields(places: Array[Int], readers: Array[AvroValue]) {
  def read(d: AvroBytes, values: Array[Any]): Unit = {
    var i = 0
    while (i < places.length) {
      val v = readers(i).read(d)
      if (places(i) >= 0) values(places(i)) = v
      i += 1
    }
  }
}

/** A union of records: the one that is there. */
private class AvroBranches(branches: Array[AvroFields]) extends AvroFields(Array.empty, Array.empty) {
  override def read(d: AvroBytes, values: Array[Any]): Unit = branches(d.readInt()).read(d, values)
}

private object AvroFields {
  /** A whole value or key: the fields of a record, of each record of a union, or the one column that anything else is. */
  def of(s: Schema, columns: StructType): AvroFields = s.getType match {
    case RECORD => fields(s, columns, "")
    case UNION if s.getTypes.asScala.forall(b => b.getType == RECORD || b.getType == NULL) && !whole(s, columns) =>
      new AvroBranches(s.getTypes.asScala.map(branch(_, columns)).toArray)
    case _ if columns.length == 1 =>
      new AvroFields(Array(0), Array(AvroValue.of(s, columns(0).dataType, columns(0).name)))
    case _ => throw new Malformed(s"the schema is ${AvroValue.name(s)}, which has no fields for the columns")
  }

  /** Whether one column is all of a union of records: nothing in it has its name. */
  private def whole(s: Schema, columns: StructType): Boolean = columns.length == 1 && !s.getTypes.asScala.exists(b =>
    b.getType == RECORD && (AvroValue.branch(b) == columns(0).name || b.getField(columns(0).name) != null))

  /** One record of a union: the column of its name, or the columns of its fields. */
  private def branch(b: Schema, columns: StructType): AvroFields =
    if (b.getType == NULL) new AvroFields(Array.empty, Array.empty)
    else
      try {
        val at = columns.fieldNames.indexOf(AvroValue.branch(b))
        if (at < 0) fields(b, columns, "") else new AvroFields(Array(at), Array(AvroValue.of(b, columns(at).dataType, columns(at).name)))
      } catch {
        case e: Malformed => new AvroFields(Array.empty, Array.empty) { override def read(d: AvroBytes, values: Array[Any]): Unit = throw e }
      }

  def fields(s: Schema, columns: StructType, path: String): AvroFields = {
    val declared = columns.fieldNames.zipWithIndex.toMap
    val all = s.getFields.asScala.toArray
    new AvroFields(
      all.map(f => declared.getOrElse(f.name, -1)),
      all.map(f =>
        declared.get(f.name) match {
          case Some(i) => AvroValue.of(f.schema, columns(i).dataType, path + f.name)
          case None => new AvroSkip(f.schema)
        })
    )
  }
}

private class AvroSkip(s: Schema) extends AvroValue {
  override def read(d: AvroBytes): Any = { d.skip(s); null }
}

private object AvroValue {
  private val Day = 86400000000000L

  def name(s: Schema): String = Option(s.getLogicalType).map(_.getName).getOrElse(s.getType.getName)

  /** The reader of a schema for a column's type; Malformed, naming the field, where there is none. */
  def of(s: Schema, t: DataType, path: String): AvroValue = {
    def no = throw new Malformed(s"""field "$path" must be ${Reader.name(t)}, the schema says ${name(s)}""")
    def read(f: AvroBytes => Any): AvroValue = new AvroValue { override def read(d: AvroBytes): Any = f(d) }
    (s.getType, t) match {
      case (UNION, _) => union(s, t, path)
      case (NULL, _) => read(_ => null)
      case (BOOLEAN, BooleanType) => read(_.readBoolean())
      case (INT, DateType) if s.getLogicalType.isInstanceOf[LogicalTypes.Date] => read(_.readInt())
      case (INT, _: TimeType) if s.getLogicalType.isInstanceOf[LogicalTypes.TimeMillis] =>
        read(d => clock(d.readInt(), 1000000L, path))
      case (LONG, _: TimeType) if s.getLogicalType.isInstanceOf[LogicalTypes.TimeMicros] =>
        read(d => clock(d.readLong(), 1000L, path))
      case (INT, IntegerType) => read(_.readInt())
      case (INT, LongType) => read(_.readInt().toLong)
      case (INT, ShortType) => read(d => ranged(d.readInt(), Short.MinValue, Short.MaxValue, t, path).toShort)
      case (INT, ByteType) => read(d => ranged(d.readInt(), Byte.MinValue, Byte.MaxValue, t, path).toByte)
      case (INT, FloatType) => read(_.readInt().toFloat)
      case (INT, DoubleType) => read(_.readInt().toDouble)
      case (INT, d: DecimalType) => read(in => decimal(Decimal(in.readInt()), d, path))
      case (LONG, TimestampType | TimestampNTZType) => timestamp(s).map(read).getOrElse(no)
      case (LONG, LongType) => read(_.readLong())
      case (LONG, FloatType) => read(_.readLong().toFloat)
      case (LONG, DoubleType) => read(_.readLong().toDouble)
      case (LONG, d: DecimalType) => read(in => decimal(Decimal(in.readLong()), d, path))
      case (FLOAT, FloatType) => read(_.readFloat())
      case (FLOAT, DoubleType) => read(_.readFloat().toDouble)
      case (DOUBLE, DoubleType) => read(_.readDouble())
      case (STRING | BYTES, _: StringType) => read(_.readText(path))
      case (STRING, BinaryType) => read(_.readBytes())
      case (ENUM, _: StringType) =>
        val symbols = s.getEnumSymbols.asScala.map(UTF8String.fromString).toArray
        read(d => symbols(d.readInt()))
      case (BYTES | FIXED, d: DecimalType) =>
        s.getLogicalType match {
          case l: LogicalTypes.Decimal if math.abs(l.getScale.toLong) <= Bounds.Scales => read(in => decimal(unscaled(raw(s, in), l), d, path))
          case _ => no
        }
      case (BYTES | FIXED, BinaryType) => read(raw(s, _))
      case (ARRAY, ArrayType(e, _)) => array(of(s.getElementType, e, path + ".element"))
      case (MAP, MapType(_: StringType, v, _)) => map(of(s.getValueType, v, path + ".value"), path)
      case (RECORD, st: StructType) =>
        val fields = AvroFields.fields(s, st, path + ".")
        read { d =>
          val values = Bounds.row(st.length)
          fields.read(d, values)
          new GenericInternalRow(values)
        }
      case _ => no
    }
  }

  /**
   * Branches that the column can hold are read, others are malformed when they come. Where several are not null and the
   * column is a STRUCT with a field a branch, each goes to the field of its name.
   */
  private def union(s: Schema, t: DataType, path: String): AvroValue = {
    val branches = s.getTypes.asScala.toArray
    val tagged = t match {
      case st: StructType if branches.count(_.getType != NULL) > 1 && st.fieldNames.toSet.subsetOf(branches.map(branch).toSet) =>
        Some(st)
      case _ => None
    }
    val readers = branches.map { b =>
      try
        tagged match {
          case Some(st) if b.getType != NULL => member(b, st, path)
          case _ => of(b, t, path)
        }
      catch { case e: Malformed => new AvroValue { override def read(d: AvroBytes): Any = throw e } }
    }
    if (readers.length > 1 || branches.isEmpty) new AvroValue {
      override def read(d: AvroBytes): Any = readers(d.readInt()).read(d)
    }
    else new AvroValue { override def read(d: AvroBytes): Any = { readers(d.readInt()).read(d) } }
  }

  /** A branch's name as the fields of a STRUCT have it: the type's, or the record's without its namespace. */
  def branch(s: Schema): String = s.getName.toLowerCase(java.util.Locale.ROOT)

  private def member(b: Schema, st: StructType, path: String): AvroValue = {
    val at = st.fieldNames.indexOf(branch(b))
    if (at < 0) new AvroValue { override def read(d: AvroBytes): Any = { d.skip(b); null } }
    else {
      val inner = of(b, st(at).dataType, s"$path.${st(at).name}")
      new AvroValue {
        override def read(d: AvroBytes): Any = {
          val values = Bounds.row(st.length)
          values(at) = inner.read(d)
          new GenericInternalRow(values)
        }
      }
    }
  }

  private def array(element: AvroValue): AvroValue = new AvroValue {
    override def read(d: AvroBytes): Any = {
      val values = ArrayBuffer.empty[Any]
      var n = d.readItems()
      while (n > 0) {
        var i = 0L
        while (i < n) { values += element.read(d); i += 1 }
        n = d.readItems()
      }
      new GenericArrayData(values.toArray)
    }
  }

  private def map(value: AvroValue, path: String): AvroValue = new AvroValue {
    override def read(d: AvroBytes): Any = {
      val entries = new java.util.LinkedHashMap[Any, Any]
      var n = d.readItems()
      while (n > 0) {
        var i = 0L
        while (i < n) {
          val key = d.readText(path)
          entries.put(key, value.read(d))
          i += 1
        }
        n = d.readItems()
      }
      new ArrayBasedMapData(new GenericArrayData(entries.keySet.toArray), new GenericArrayData(entries.values.toArray))
    }
  }

  private def timestamp(s: Schema): Option[AvroBytes => Any] = s.getLogicalType match {
    case _: LogicalTypes.TimestampMillis | _: LogicalTypes.LocalTimestampMillis => Some(d => Math.multiplyExact(d.readLong(), 1000L))
    case _: LogicalTypes.TimestampMicros | _: LogicalTypes.LocalTimestampMicros => Some(_.readLong())
    case _: LogicalTypes.TimestampNanos | _: LogicalTypes.LocalTimestampNanos => Some(d => Math.floorDiv(d.readLong(), 1000L))
    case _ => None
  }

  /** A time of day of so many nanoseconds each. */
  private def clock(v: Long, unit: Long, path: String): Long =
    if (v >= 0 && v < Day / unit) v * unit else throw new Malformed(s"""field "$path" must be TIME, found $v""")

  private def ranged(v: Int, low: Int, high: Int, t: DataType, path: String): Int = {
    if (v < low || v > high) throw new Malformed(s"""field "$path" must be ${Reader.name(t)}, found $v""")
    v
  }

  private def raw(s: Schema, d: AvroBytes): Array[Byte] =
    if (s.getType == FIXED) d.readFixed(s.getFixedSize) else d.readBytes()

  private def unscaled(b: Array[Byte], l: LogicalTypes.Decimal): Decimal =
    if (b.isEmpty || b.length > Bounds.Bytes) throw new Malformed(s"a decimal of ${b.length} bytes")
    else Decimal(new java.math.BigDecimal(new java.math.BigInteger(b), l.getScale))

  private def decimal(value: Decimal, t: DecimalType, path: String): Decimal = {
    val before = value.clone()
    if (!value.changePrecision(t.precision, t.scale)) throw new Malformed(s"""field "$path" must be ${t.sql}, found $before""")
    value
  }
}
