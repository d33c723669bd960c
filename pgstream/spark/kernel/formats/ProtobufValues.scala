package org.apache.spark.sql.pgstream

import scala.jdk.CollectionConverters._

import com.google.protobuf.CodedInputStream
import com.google.protobuf.Descriptors.{Descriptor, FieldDescriptor}
import com.google.protobuf.Descriptors.FieldDescriptor.Type._

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Reads what stands after a tag. */
private trait ProtoValue {
  /** `old`: what the same field of the same message was before, for messages, which are merged. */
  def read(in: CodedInputStream, old: Any): Any
}

/** One value of a field as Spark's, by the field's type and the column's. */
private object ProtoValue {
  /** A value that is passed over: a number that a closed enum has no symbol for. */
  object Nothing

  def name(f: FieldDescriptor): String = f.getType match {
    case MESSAGE | GROUP => f.getMessageType.getFullName
    case ENUM => f.getEnumType.getFullName
    case other => other.name.toLowerCase(java.util.Locale.ROOT)
  }

  /** The reader of a field for a column's type, lists and maps included; Malformed, naming the field, where there is none. */
  def of(f: FieldDescriptor, t: DataType, path: String, open: Boolean = false): ProtoValue = t match {
    case ArrayType(e, _) if f.isRepeated && !f.isMapField => single(f, e, path, open)
    case m: MapType if f.isMapField => ProtoFields.entry(f.getMessageType, m, path)
    case _ if f.isRepeated => no(f, t, path)
    case _ => single(f, t, path, open)
  }

  private def no(f: FieldDescriptor, t: DataType, path: String) =
    throw new Malformed(s"""field "$path" must be ${Reader.name(t)}, the descriptor says ${if (f.isMapField) "map" else (if (f.isRepeated) "repeated " else "") + name(f)}""")

  private def read(r: CodedInputStream => Any): ProtoValue = (in, _) => r(in)

  private def single(f: FieldDescriptor, t: DataType, path: String, open: Boolean): ProtoValue = {
    def signed(value: CodedInputStream => Long): ProtoValue = t match {
      case LongType => read(value)
      case _ => integer(value, t, path).getOrElse(no(f, t, path))
    }
    (f.getType, t) match {
      case (INT32, IntegerType) => read(_.readInt32())
      case (SINT32, IntegerType) => read(_.readSInt32())
      case (SFIXED32, IntegerType) => read(_.readSFixed32())
      case (INT32, _) => signed(_.readInt32().toLong)
      case (SINT32, _) => signed(_.readSInt32().toLong)
      case (SFIXED32, _) => signed(_.readSFixed32().toLong)
      case (UINT32, _) => signed(_.readUInt32() & 0xffffffffL)
      case (FIXED32, _) => signed(_.readFixed32() & 0xffffffffL)
      case (INT64, _) => signed(_.readInt64())
      case (SINT64, _) => signed(_.readSInt64())
      case (SFIXED64, _) => signed(_.readSFixed64())
      case (UINT64, d: DecimalType) => read(in => decimal(unsigned(in.readUInt64()), d, path))
      case (FIXED64, d: DecimalType) => read(in => decimal(unsigned(in.readFixed64()), d, path))
      case (UINT64, _) => signed(in => positive(in.readUInt64(), t, path))
      case (FIXED64, _) => signed(in => positive(in.readFixed64(), t, path))
      case (FLOAT, FloatType) => read(_.readFloat())
      case (FLOAT, DoubleType) => read(_.readFloat().toDouble)
      case (DOUBLE, DoubleType) => read(_.readDouble())
      case (BOOL, BooleanType) => read(_.readBool())
      case (BOOL, ByteType | ShortType | IntegerType | LongType) => signed(in => if (in.readBool()) 1L else 0L)
      case (STRING, _: StringType) | (BYTES, _: StringType) => read(in => text(in.readByteArray(), path))
      case (BYTES, BinaryType) | (STRING, BinaryType) => read(_.readByteArray())
      case (ENUM, _: StringType) => symbols(f, open)
      case (ENUM, ShortType | IntegerType | LongType) => signed(_.readEnum().toLong)
      case (MESSAGE, _) => ProtoKnown.reader(f.getMessageType, t, path).getOrElse(message(f, t, path))
      case (GROUP, _) => message(f, t, path)
      case _ => no(f, t, path)
    }
  }

  /** A whole number in a narrower or other column: refused where it does not fit. */
  private def integer(value: CodedInputStream => Long, t: DataType, path: String): Option[ProtoValue] = {
    def within(low: Long, high: Long)(in: CodedInputStream): Long = {
      val v = value(in)
      if (v < low || v > high) throw new Malformed(s"""field "$path" must be ${Reader.name(t)}, found $v""")
      v
    }
    t match {
      case IntegerType => Some(read(within(Int.MinValue, Int.MaxValue)(_).toInt))
      case ShortType => Some(read(within(Short.MinValue, Short.MaxValue)(_).toShort))
      case ByteType => Some(read(within(Byte.MinValue, Byte.MaxValue)(_).toByte))
      case BooleanType => Some(read(within(0, 1)(_) == 1))
      case DoubleType => Some(read(value(_).toDouble))
      case d: DecimalType => Some(read(in => decimal(Decimal(value(in)), d, path)))
      case _ => None
    }
  }

  private def unsigned(v: Long): Decimal = Decimal(new java.math.BigDecimal(new java.math.BigInteger(java.lang.Long.toUnsignedString(v))))

  private def positive(v: Long, t: DataType, path: String): Long =
    if (v >= 0) v else throw new Malformed(s"""field "$path" must be ${Reader.name(t)}, found ${java.lang.Long.toUnsignedString(v)}""")

  def decimal(value: Decimal, t: DecimalType, path: String): Decimal = {
    val said = value.toString
    if (!value.changePrecision(t.precision, t.scale)) throw new Malformed(s"""field "$path" must be ${t.sql}, found $said""")
    value
  }

  def text(b: Array[Byte], path: String): UTF8String = Bounds.text(b, path)

  /** Symbols by number. A number without one stands as it is in an open enum. */
  private def symbols(f: FieldDescriptor, open: Boolean): ProtoValue = {
    val known = f.getEnumType.getValues.asScala.reverse.map(v => Integer.valueOf(v.getNumber) -> UTF8String.fromString(v.getName))
    val names = new java.util.HashMap[Integer, UTF8String](known.toMap.asJava)
    val closed = f.getEnumType.isClosed && !open
    read { in =>
      val n = in.readEnum()
      val symbol = names.get(n)
      if (symbol != null) symbol else if (closed) Nothing else UTF8String.fromString(n.toString)
    }
  }

  private def message(f: FieldDescriptor, t: DataType, path: String): ProtoValue = t match {
    case st: StructType =>
      val fields = ProtoFields.fields(f.getMessageType, st, path + ".")
      val group = if (f.getType == GROUP) f.getNumber else 0
      (in, old) => {
        val values = old match { case row: GenericInternalRow => row.values; case _ => Bounds.row(st.length) }
        if (group != 0) fields.read(in, values, group) else within(in) { fields.read(in, values, 0) }
        new GenericInternalRow(values)
      }
    case _ => no(f, t, path)
  }

  /** The length that stands here, and what reads so many bytes. */
  def within(in: CodedInputStream)(body: => Unit): Unit = {
    val end = in.pushLimit(in.readRawVarint32())
    body
    in.popLimit(end)
  }

  /** What a reader makes of a field that is not there. */
  def default(f: FieldDescriptor, value: ProtoValue): Any = {
    val zero: Array[Byte] = f.getLiteType.getWireType match {
      case com.google.protobuf.WireFormat.WIRETYPE_FIXED32 => new Array[Byte](4)
      case com.google.protobuf.WireFormat.WIRETYPE_FIXED64 => new Array[Byte](8)
      case _ if f.getType == ENUM => varint(f.getEnumType.getValues.get(0).getNumber)
      case _ => new Array[Byte](1)
    }
    value.read(CodedInputStream.newInstance(zero), null)
  }

  private def varint(n: Int): Array[Byte] = {
    val out = new java.io.ByteArrayOutputStream
    val to = com.google.protobuf.CodedOutputStream.newInstance(out)
    to.writeInt32NoTag(n)
    to.flush()
    out.toByteArray
  }
}

/** Messages of Google's and Confluent's own that are one value: wrappers, timestamps, dates, decimals, JSON. */
private object ProtoKnown {
  private val Wrappers = Set("Bool", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double", "String", "Bytes").map(n => s"google.protobuf.${n}Value")
  val Json: Set[String] = Set("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")

  def wrapper(m: Descriptor): Boolean = Wrappers(m.getFullName)

  def reader(m: Descriptor, t: DataType, path: String): Option[ProtoValue] = (m.getFullName, t) match {
    case (_, _: StructType) => None
    case (n, _) if Wrappers(n) =>
      val field = new ProtoField(m.findFieldByNumber(1), 0, ProtoValue.of(m.findFieldByNumber(1), t, path), path)
      val fields = new ProtoFields(m, Array(field))
      Some((in, old) => {
        val one = Array[Any](old)
        ProtoValue.within(in) { fields.read(in, one, 0) }
        one(0)
      })
    case ("google.protobuf.Timestamp", TimestampType | TimestampNTZType) => Some(numbers(m, path)(v => micros(v, path)))
    case ("google.type.Date", DateType) => Some(numbers(m, path)(v => days(v, path)))
    case ("google.type.TimeOfDay", _: TimeType) => Some(numbers(m, path)(v => clock(v, path)))
    case ("google.type.Decimal", d: DecimalType) => Some(parts(m, StringType, path)(v => written(v, d, path)))
    case ("confluent.type.Decimal", d: DecimalType) =>
      val st = new StructType().add("value", BinaryType).add("scale", IntegerType)
      Some(struct(m, st, path)(v => unscaled(v(0).asInstanceOf[Array[Byte]], v(1).asInstanceOf[Int], d, path)))
    case (n, _: StringType) if Json(n) => Some((in, _) => ProtoJson.text(in, n, path))
    case _ => None
  }

  private def numbers(m: Descriptor, path: String)(make: Array[Any] => Any): ProtoValue =
    struct(m, StructType(m.getFields.asScala.map(f => StructField(f.getName, LongType)).toSeq), path)(make)

  private def parts(m: Descriptor, t: DataType, path: String)(make: Array[Any] => Any): ProtoValue =
    struct(m, StructType(m.getFields.asScala.map(f => StructField(f.getName, t)).toSeq), path)(make)

  /** These are read whole, so the last of several counts. */
  private def struct(m: Descriptor, st: StructType, path: String)(make: Array[Any] => Any): ProtoValue = {
    val fields = ProtoFields.fields(m, st, path + ".")
    (in, _) => {
      val values = new Array[Any](st.length)
      ProtoValue.within(in) { fields.read(in, values, 0) }
      make(values)
    }
  }

  private def micros(v: Array[Any], path: String): Any = {
    val seconds = v(0).asInstanceOf[Long]
    val nanos = v(1).asInstanceOf[Long]
    if (seconds < -62135596800L || seconds > 253402300799L || nanos < 0 || nanos > 999999999L)
      throw new Malformed(s"""field "$path" is no google.protobuf.Timestamp: $seconds seconds, $nanos nanos""")
    seconds * 1000000L + nanos / 1000L
  }

  private def days(v: Array[Any], path: String): Any =
    try java.time.LocalDate.of(Math.toIntExact(v(0).asInstanceOf[Long]), v(1).asInstanceOf[Long].toInt, v(2).asInstanceOf[Long].toInt).toEpochDay.toInt
    catch {
      case _: java.time.DateTimeException | _: ArithmeticException =>
        throw new Malformed(s"""field "$path" is no whole date: year ${v(0)}, month ${v(1)}, day ${v(2)}""")
    }

  private def clock(v: Array[Any], path: String): Any = {
    val Array(hours, minutes, seconds, nanos) = v.map(_.asInstanceOf[Long])
    if (Seq(hours -> 24L, minutes -> 60L, seconds -> 60L, nanos -> 1000000000L).exists { case (n, end) => n < 0 || n >= end })
      throw new Malformed(s"""field "$path" is no time of day: $hours hours, $minutes minutes, $seconds seconds, $nanos nanos""")
    ((hours * 60 + minutes) * 60 + seconds) * 1000000000L + nanos / 1000 * 1000
  }

  private def written(v: Array[Any], t: DecimalType, path: String): Any = {
    val said = v(0).toString
    def wrong = throw new Malformed(s"""field "$path" must be ${t.sql}, found "$said"""")
    if (said.length > 100) wrong
    val n = try new java.math.BigDecimal(said) catch { case _: NumberFormatException => wrong }
    exact(n, t, path)
  }

  private def unscaled(b: Array[Byte], scale: Int, t: DecimalType, path: String): Any =
    exact(if (b.isEmpty) java.math.BigDecimal.ZERO else if (b.length > 64) throw new Malformed(s"""field "$path" must be ${t.sql}, found ${b.length} bytes""")
      else new java.math.BigDecimal(new java.math.BigInteger(b), scale), t, path)

  // Scales of either sign far beyond any column are refused before anything is computed with them.
  private def exact(n: java.math.BigDecimal, t: DecimalType, path: String): Decimal = {
    def wrong = throw new Malformed(s"""field "$path" must be ${t.sql}, found $n""")
    if (n.signum == 0) return Decimal(java.math.BigDecimal.ZERO.setScale(t.scale), t.precision, t.scale)
    if (n.scale < -100 || n.scale > 200) wrong
    val scaled = try n.setScale(t.scale) catch { case _: ArithmeticException => wrong }
    if (scaled.precision > t.precision) wrong
    Decimal(scaled, t.precision, t.scale)
  }
}
