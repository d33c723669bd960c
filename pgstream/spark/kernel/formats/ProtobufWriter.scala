package org.apache.spark.sql.pgstream

import java.io.ByteArrayOutputStream
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import com.google.protobuf.{ByteString, CodedOutputStream, WireFormat}
import com.google.protobuf.Descriptors.{Descriptor, FieldDescriptor}
import com.google.protobuf.Descriptors.FieldDescriptor.Type._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.types._

/**
 * Columns as a message, after `prefix` (a registry's wire format, or nothing).
 *
 * `formats/protobuf.py` has seen to it that the types fit before the query began. A field that is no column is left out;
 * a list or map that is NULL has no elements. NULL in a field that cannot be absent is refused: it would be read as 0.
 */
final class ProtobufWriter(message: Descriptor, prefix: Array[Byte], row: StructType, which: Array[Int]) extends FormatWriter {
  private val fields = ProtoOut.fields(message, StructType(which.map(row(_))), which, "")
  private val out = new ByteArrayOutputStream(256)

  override def write(r: InternalRow): Array[Byte] = {
    out.reset()
    out.write(prefix)
    val to = CodedOutputStream.newInstance(out)
    fields.write(to, r)
    to.flush()
    out.toByteArray
  }
}

/** Writes a value that is there: what stands after a tag, unless it writes tags itself. */
private trait ProtoOut {
  def write(to: CodedOutputStream, row: SpecializedGetters, i: Int): Unit
}

/** What is written first into a buffer, because its length comes before it. Belongs to one place of the tree. */
private final class ProtoBuffer {
  private val bytes = new ByteArrayOutputStream
  private val inner = CodedOutputStream.newInstance(bytes)

  def sized(to: CodedOutputStream)(body: CodedOutputStream => Unit): Unit = {
    bytes.reset()
    body(inner)
    inner.flush()
    to.writeUInt32NoTag(bytes.size)
    to.writeRawBytes(bytes.toByteArray)
  }
}

/** The fields of a message: from their places, in the order of their numbers. */
private class ProtoOutFields(places: Array[Int], writers: Array[ProtoOut], oneofs: Seq[(String, Array[Int])]) {
  def write(to: CodedOutputStream, row: SpecializedGetters): Unit = {
    oneofs.foreach { case (name, members) =>
      if (members.count(!row.isNullAt(_)) > 1) throw new Unwritable(s"""more than one column of oneof "$name" is not NULL""")
    }
    var i = 0
    while (i < places.length) {
      writers(i).write(to, row, places(i))
      i += 1
    }
  }
}

private object ProtoOut {
  def fields(m: Descriptor, columns: StructType, places: Array[Int], path: String): ProtoOutFields = {
    val found = m.getFields.asScala.toArray.sortBy(_.getNumber).flatMap { f =>
      val n = columns.fieldNames.indexOf(f.getName)
      if (n < 0 && f.isRequired) throw new Unwritable(s"""required field "$path${f.getName}" of message ${m.getFullName} is no column""")
      if (n < 0) None else Some((f, places(n), field(f, columns(n).dataType, path + f.getName)))
    }
    columns.fieldNames.foreach { c =>
      if (m.findFieldByName(c) == null) throw new Unwritable(s"""message ${m.getFullName} has no field for column "$path$c"""")
    }
    val oneofs = m.getRealOneofs.asScala.map(o => o.getName -> found.filter(_._1.getRealContainingOneof == o).map(_._2)).toSeq
    new ProtoOutFields(found.map(_._2), found.map(_._3), oneofs.filter(_._2.length > 1))
  }

  /** A field with its tags. */
  private def field(f: FieldDescriptor, t: DataType, path: String): ProtoOut = (t, f.isMapField, f.isRepeated) match {
    case (mt: MapType, true, _) => map(f, mt, path)
    case (ArrayType(e, _), false, true) => list(f, e, path)
    case (_, _, true) => no(f, t, path)
    case _ =>
      val write = tagged(f, value(f, t, path))
      val absent = f.hasPresence && !f.isRequired
      (to, r, i) =>
        if (!r.isNullAt(i)) write.write(to, r, i)
        else if (!absent)
          throw new Unwritable(s"""column "$path" is NULL, which its Protobuf field cannot be; make the field optional, or use COALESCE""")
  }

  private def no(f: FieldDescriptor, t: DataType, path: String) =
    throw new Unwritable(s"""column "$path" of type ${Reader.name(t)} cannot be written as Protobuf ${if (f.isRepeated) "repeated " else ""}${ProtoValue.name(f)}""")

  private def tagged(f: FieldDescriptor, w: ProtoOut): ProtoOut = {
    val n = f.getNumber
    val wire = f.getLiteType.getWireType
    if (f.getType == GROUP) (to, r, i) => { to.writeTag(n, wire); w.write(to, r, i); to.writeTag(n, WireFormat.WIRETYPE_END_GROUP) }
    else (to, r, i) => { to.writeTag(n, wire); w.write(to, r, i) }
  }

  private def list(f: FieldDescriptor, e: DataType, path: String): ProtoOut = {
    val one = value(f, e, path + ".element")
    val each = tagged(f, one)
    val buffer = new ProtoBuffer
    (to, r, i) =>
      if (!r.isNullAt(i)) {
        val a = r.getArray(i)
        var n = 0
        while (n < a.numElements()) {
          if (a.isNullAt(n)) throw new Unwritable(s"""column "$path" has an element that is NULL, which Protobuf has not""")
          n += 1
        }
        if (a.numElements() > 0 && f.isPacked) {
          to.writeTag(f.getNumber, WireFormat.WIRETYPE_LENGTH_DELIMITED)
          buffer.sized(to) { in => var k = 0; while (k < a.numElements()) { one.write(in, a, k); k += 1 } }
        } else {
          var k = 0
          while (k < a.numElements()) { each.write(to, a, k); k += 1 }
        }
      }
  }

  private def map(f: FieldDescriptor, t: MapType, path: String): ProtoOut = {
    val key = f.getMessageType.findFieldByNumber(1)
    val item = f.getMessageType.findFieldByNumber(2)
    val k = tagged(key, value(key, t.keyType, path + ".key"))
    val v = tagged(item, value(item, t.valueType, path + ".value"))
    val buffer = new ProtoBuffer
    (to, r, i) =>
      if (!r.isNullAt(i)) {
        val m = r.getMap(i)
        var n = 0
        while (n < m.numElements()) {
          if (m.valueArray().isNullAt(n)) throw new Unwritable(s"""column "$path" has a value that is NULL, which a map of Protobuf has not""")
          to.writeTag(f.getNumber, WireFormat.WIRETYPE_LENGTH_DELIMITED)
          buffer.sized(to) { in => k.write(in, m.keyArray(), n); v.write(in, m.valueArray(), n) }
          n += 1
        }
      }
  }

  private def value(f: FieldDescriptor, t: DataType, path: String): ProtoOut = (f.getType, t) match {
    case (STRING, _: StringType) =>
      (to, r, i) => { val b = r.getUTF8String(i).getBytes; to.writeByteArrayNoTag(b) }
    case (BYTES, BinaryType) => (to, r, i) => to.writeByteArrayNoTag(r.getBinary(i))
    case (BOOL, BooleanType) => (to, r, i) => to.writeBoolNoTag(r.getBoolean(i))
    case (FLOAT, FloatType) => (to, r, i) => to.writeFloatNoTag(r.getFloat(i))
    case (DOUBLE, DoubleType) => (to, r, i) => to.writeDoubleNoTag(r.getDouble(i))
    case (DOUBLE, FloatType) => (to, r, i) => to.writeDoubleNoTag(r.getFloat(i).toDouble)
    case (DOUBLE, IntegerType | ShortType | ByteType) =>
      val n = whole(t, path).get
      (to, r, i) => to.writeDoubleNoTag(n(r, i).toDouble)
    case (ENUM, _: StringType) => symbol(f, path)
    case (UINT64 | FIXED64, d: DecimalType) if d.scale == 0 =>
      (to, r, i) => {
        val v = r.getDecimal(i, d.precision, 0).toJavaBigDecimal.toBigIntegerExact
        if (v.signum < 0 || v.bitLength > 64) throw new Unwritable(s"""column "$path": $v does not fit ${ProtoValue.name(f)}""")
        if (f.getType == UINT64) to.writeUInt64NoTag(v.longValue) else to.writeFixed64NoTag(v.longValue)
      }
    case (MESSAGE, st: StructType) =>
      val inner = fields(f.getMessageType, st, st.indices.toArray, path + ".")
      val buffer = new ProtoBuffer
      (to, r, i) => buffer.sized(to)(inner.write(_, r.getStruct(i, st.length)))
    case (GROUP, st: StructType) =>
      val inner = fields(f.getMessageType, st, st.indices.toArray, path + ".")
      (to, r, i) => inner.write(to, r.getStruct(i, st.length))
    case (MESSAGE, _) => known(f, t, path)
    case _ => whole(t, path).flatMap(n => number(f, n, path)).getOrElse(no(f, t, path))
  }

  private type Whole = (SpecializedGetters, Int) => Long

  private def whole(t: DataType, path: String): Option[Whole] = t match {
    case ByteType => Some((r, i) => r.getByte(i).toLong)
    case ShortType => Some((r, i) => r.getShort(i).toLong)
    case IntegerType => Some((r, i) => r.getInt(i).toLong)
    case LongType => Some((r, i) => r.getLong(i))
    case _ => None
  }

  private def number(f: FieldDescriptor, n: Whole, path: String): Option[ProtoOut] = {
    def ranged(low: Long, high: Long): Whole = (r, i) => {
      val v = n(r, i)
      if (v < low || v > high) throw new Unwritable(s"""column "$path": $v does not fit ${ProtoValue.name(f)}""")
      v
    }
    lazy val int = ranged(Int.MinValue, Int.MaxValue)
    lazy val uint = ranged(0, 0xffffffffL)
    lazy val ulong = ranged(0, Long.MaxValue)
    f.getType match {
      case INT32 => Some((to, r, i) => to.writeInt32NoTag(int(r, i).toInt))
      case SINT32 => Some((to, r, i) => to.writeSInt32NoTag(int(r, i).toInt))
      case SFIXED32 => Some((to, r, i) => to.writeSFixed32NoTag(int(r, i).toInt))
      case UINT32 => Some((to, r, i) => to.writeUInt32NoTag(uint(r, i).toInt))
      case FIXED32 => Some((to, r, i) => to.writeFixed32NoTag(uint(r, i).toInt))
      case INT64 => Some((to, r, i) => to.writeInt64NoTag(n(r, i)))
      case SINT64 => Some((to, r, i) => to.writeSInt64NoTag(n(r, i)))
      case SFIXED64 => Some((to, r, i) => to.writeSFixed64NoTag(n(r, i)))
      case UINT64 => Some((to, r, i) => to.writeUInt64NoTag(ulong(r, i)))
      case FIXED64 => Some((to, r, i) => to.writeFixed64NoTag(ulong(r, i)))
      case ENUM => Some((to, r, i) => to.writeEnumNoTag(int(r, i).toInt))
      case _ => None
    }
  }

  private def symbol(f: FieldDescriptor, path: String): ProtoOut = {
    val e = f.getEnumType
    val numbers = e.getValues.asScala.map(v => v.getName -> v.getNumber).toMap
    // A number without a symbol is read as its digits, from an open enum.
    def number(text: String) = if (e.isClosed) None else text.toIntOption
    (to, r, i) => {
      val text = r.getUTF8String(i).toString
      to.writeEnumNoTag(numbers.get(text).orElse(number(text)).getOrElse(
        throw new Unwritable(s"""column "$path": "$text" is no symbol of enum ${e.getFullName}""")))
    }
  }

  /** Messages that are one value. */
  private def known(f: FieldDescriptor, t: DataType, path: String): ProtoOut = {
    val m = f.getMessageType
    val buffer = new ProtoBuffer
    (m.getFullName, t) match {
      case _ if ProtoKnown.wrapper(m) =>
        val inner = m.findFieldByNumber(1)
        val one = tagged(inner, value(inner, t, path))
        (to, r, i) => buffer.sized(to)(one.write(_, r, i))
      case ("google.protobuf.Timestamp", TimestampType | TimestampNTZType) =>
        (to, r, i) => {
          val micros = r.getLong(i)
          val seconds = Math.floorDiv(micros, 1000000L)
          val nanos = Math.floorMod(micros, 1000000L).toInt * 1000
          if (seconds < -62135596800L || seconds > 253402300799L)
            throw new Unwritable(s"""column "$path": a google.protobuf.Timestamp is of the years 1 to 9999""")
          buffer.sized(to) { in =>
            if (seconds != 0) in.writeInt64(1, seconds)
            if (nanos != 0) in.writeInt32(2, nanos)
          }
        }
      case ("google.type.Date", DateType) =>
        (to, r, i) => {
          val d = java.time.LocalDate.ofEpochDay(r.getInt(i).toLong)
          if (d.getYear < 1 || d.getYear > 9999) throw new Unwritable(s"""column "$path": a google.type.Date is of the years 1 to 9999""")
          buffer.sized(to) { in => in.writeInt32(1, d.getYear); in.writeInt32(2, d.getMonthValue); in.writeInt32(3, d.getDayOfMonth) }
        }
      case ("google.type.TimeOfDay", _: TimeType) =>
        (to, r, i) => {
          val seconds = r.getLong(i) / 1000000000L
          val parts = Seq(seconds / 3600, seconds / 60 % 60, seconds % 60, r.getLong(i) % 1000000000L).map(_.toInt)
          buffer.sized(to) { in => parts.zip(1 to 4).foreach { case (n, at) => if (n != 0) in.writeInt32(at, n) } }
        }
      case ("google.type.Decimal", d: DecimalType) =>
        (to, r, i) => {
          val text = r.getDecimal(i, d.precision, d.scale).toJavaBigDecimal.toPlainString
          buffer.sized(to)(_.writeByteArray(1, text.getBytes(UTF_8)))
        }
      case ("confluent.type.Decimal", d: DecimalType) =>
        (to, r, i) => {
          val v = r.getDecimal(i, d.precision, d.scale).toJavaBigDecimal.setScale(d.scale)
          buffer.sized(to) { in =>
            in.writeBytes(1, ByteString.copyFrom(v.unscaledValue.toByteArray))
            in.writeUInt32(2, d.precision)
            if (d.scale != 0) in.writeInt32(3, d.scale)
          }
        }
      case (name, _: StringType) if ProtoKnown.Json(name) =>
        (to, r, i) => to.writeByteArrayNoTag(ProtoJson.message(r.getUTF8String(i), name, path).toByteArray)
      case _ => no(f, t, path)
    }
  }
}
