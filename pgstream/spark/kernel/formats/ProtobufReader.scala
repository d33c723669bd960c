package org.apache.spark.sql.pgstream

import java.io.IOException

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import com.google.protobuf.{CodedInputStream, InvalidProtocolBufferException, WireFormat}
import com.google.protobuf.Descriptors.{Descriptor, FieldDescriptor}

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, ArrayData, GenericArrayData, MapData}
import org.apache.spark.sql.types._

/**
 * Protobuf straight into the declared columns: one message of a descriptor, or in a registry's wire format.
 *
 * Fields by name; those that are no column and those that the descriptor has not are passed over. Columns that the
 * message has no field for are NULL. A field that is absent is NULL where the descriptor tells absence from the default,
 * and the default elsewhere.
 */
final class ProtobufReader(columns: StructType, schemas: ProtobufSchemas) extends FormatReader {
  private val readers = new java.util.HashMap[Descriptor, ProtoFields]
  private var last: Descriptor = _
  private var fields: ProtoFields = _

  override def read(bytes: Array[Byte], values: Array[Any]): Unit =
    try {
      val in = CodedInputStream.newInstance(bytes)
      val message = schemas.of(in)
      if (message ne last) {
        fields = readers.get(message)
        if (fields == null) {
          fields = ProtoFields.of(message, columns)
          readers.put(message, fields)
        }
        last = message
      }
      fields.read(in, values, 0)
    } catch {
      case e: IOException => throw new Malformed(s"not a message ${if (last == null) "" else last.getFullName}: ${ProtobufReader.why(e)}")
    }
}

private object ProtobufReader {
  /** The library's words, of which the first sentence says what is wrong. */
  def why(e: IOException): String = e match {
    case _: InvalidProtocolBufferException => e.getMessage.takeWhile(_ != '.').replace("While parsing a protocol message, ", "")
    case _ => String.valueOf(e.getMessage)
  }
}

/** A field that is read into a column. `wire`: the wire type of one value. */
private class ProtoField(val d: FieldDescriptor, val place: Int, val value: ProtoValue, val path: String) {
  val wire: Int = d.getLiteType.getWireType
  val tag: Int = (d.getNumber << 3) | wire
  val repeated: Boolean = d.isRepeated
  val packable: Boolean = d.isPackable
  val map: Boolean = d.isMapField
  /** Places of the other members of its oneof. */
  var rivals: Array[Int] = Array.empty
  /** What the column holds when nothing is written: null where absence is told apart. */
  val absent: Any = if (repeated || d.hasPresence) null else ProtoValue.default(d, value)
}

/** The fields of a message by tag. */
private class ProtoFields(message: Descriptor, fields: Array[ProtoField]) {
  private val byNumber = {
    val highest = fields.map(_.d.getNumber).maxOption.getOrElse(0)
    if (highest > 4096) null
    else {
      val table = new Array[ProtoField](highest + 1)
      fields.foreach(f => table(f.d.getNumber) = f)
      table
    }
  }
  private val sparse = if (byNumber == null) fields.map(f => f.d.getNumber -> f).toMap else null
  private val required = message.getFields.asScala.filter(_.isRequired).map(_.getNumber).toArray

  /** Up to the end of the input or of its limit; `group`: up to the end of this group. */
  def read(in: CodedInputStream, values: Array[Any], group: Int): Unit = {
    var i = 0
    while (i < fields.length) {
      if (values(fields(i).place) == null) values(fields(i).place) = fields(i).absent
      i += 1
    }
    val seen = if (required.isEmpty) null else new java.util.BitSet
    var tag = in.readTag()
    var next = 0
    while (tag != 0 && !(group != 0 && tag == ((group << 3) | WireFormat.WIRETYPE_END_GROUP))) {
      if (seen != null) seen.set(tag >>> 3)
      // Most messages have their fields in the order of their numbers.
      val f = if (next < fields.length && fields(next).tag == tag) { next += 1; fields(next - 1) } else field(tag >>> 3)
      if (f == null) {
        if (!in.skipField(tag)) throw new Malformed(s"an end of a group that did not begin, in message ${message.getFullName}")
      } else one(f, tag & 7, in, values)
      tag = in.readTag()
    }
    if (group != 0 && tag == 0) throw new Malformed(s"""group "${message.getName}" does not end""")
    if (seen != null) required.foreach(n => if (!seen.get(n)) throw new Malformed(s"""required field "${message.findFieldByNumber(n).getName}" is missing"""))
    settle(values)
  }

  private def field(number: Int): ProtoField =
    if (byNumber == null) sparse.getOrElse(number, null) else if (number < byNumber.length) byNumber(number) else null

  private def one(f: ProtoField, wire: Int, in: CodedInputStream, values: Array[Any]): Unit =
    if (f.map) entries(values, f).put(in, wire, f)
    else if (f.repeated) {
      val into = elements(values, f)
      if (wire == f.wire) add(into, f.value.read(in, null))
      else if (f.packable && wire == WireFormat.WIRETYPE_LENGTH_DELIMITED) {
        val end = in.pushLimit(in.readRawVarint32())
        while (in.getBytesUntilLimit > 0) add(into, f.value.read(in, null))
        in.popLimit(end)
      } else wrong(f, wire)
    } else if (wire == f.wire) {
      val v = f.value.read(in, values(f.place))
      if (v != ProtoValue.Nothing) {
        values(f.place) = v
        var i = 0
        while (i < f.rivals.length) { values(f.rivals(i)) = null; i += 1 }
      }
    } else wrong(f, wire)

  private def add(into: ArrayBuffer[Any], v: Any): Unit = if (v != ProtoValue.Nothing) into += v

  private def wrong(f: ProtoField, wire: Int): Unit =
    throw new Malformed(s"""field "${f.path}" is ${ProtoValue.name(f.d)}, which wire type $wire is not""")

  // Lists and maps are open while their message is read, and again when it goes on in a second piece, which costs a copy.
  private def elements(values: Array[Any], f: ProtoField): ArrayBuffer[Any] = values(f.place) match {
    case open: ArrayBuffer[_] => open.asInstanceOf[ArrayBuffer[Any]]
    case closed =>
      val open = ArrayBuffer.empty[Any]
      closed match { case a: ArrayData => Bounds.spend(a.numElements()); open ++= a.array; case _ => }
      values(f.place) = open
      open
  }

  private def entries(values: Array[Any], f: ProtoField): ProtoEntries = values(f.place) match {
    case open: ProtoEntries => open
    case closed =>
      val open = new ProtoEntries
      closed match { case m: MapData => Bounds.spend(m.numElements()); m.keyArray.array.zip(m.valueArray.array).foreach { case (k, v) => open.all.put(k, v) }; case _ => }
      values(f.place) = open
      open
  }

  private def settle(values: Array[Any]): Unit = {
    var i = 0
    while (i < fields.length) {
      val f = fields(i)
      if (f.repeated) values(f.place) = values(f.place) match {
        case open: ArrayBuffer[_] => new GenericArrayData(open.toArray[Any])
        case open: ProtoEntries => open.data
        case null if f.map => new ProtoEntries().data
        case null => new GenericArrayData(Array.empty[Any])
        case closed => closed
      }
      i += 1
    }
  }
}

/** A map while it is read: the last value of a key counts. */
private class ProtoEntries {
  val all = new java.util.LinkedHashMap[Any, Any]
  def data: MapData = new ArrayBasedMapData(new GenericArrayData(all.keySet.toArray), new GenericArrayData(all.values.toArray))

  def put(in: CodedInputStream, wire: Int, f: ProtoField): Unit = {
    if (wire != WireFormat.WIRETYPE_LENGTH_DELIMITED) throw new Malformed(s"""field "${f.path}" is a map, which wire type $wire is not""")
    val e = f.value.read(in, null).asInstanceOf[GenericInternalRow]
    all.put(e.values(0), e.values(1))
  }
}

private object ProtoFields {
  /** A whole value or key: the fields of a message, or the one column that a well-known message is. */
  def of(m: Descriptor, columns: StructType): ProtoFields = fields(m, columns, "")

  def fields(m: Descriptor, columns: StructType, path: String): ProtoFields = {
    val found = columns.fields.zipWithIndex.flatMap { case (c, i) =>
      Option(m.findFieldByName(c.name)).map(f => new ProtoField(f, i, ProtoValue.of(f, c.dataType, path + c.name), path + c.name))
    }
    for (f <- found; one <- Option(f.d.getRealContainingOneof))
      f.rivals = found.filter(o => (o ne f) && o.d.getRealContainingOneof == one).map(_.place)
    new ProtoFields(m, found.sortBy(_.d.getNumber))
  }

  /** The two fields of a map's entry, both always there. */
  def entry(m: Descriptor, map: MapType, path: String): ProtoValue = {
    val key = m.findFieldByNumber(1)
    val value = m.findFieldByNumber(2)
    val k = new ProtoField(key, 0, ProtoValue.of(key, map.keyType, path + ".key"), path + ".key")
    val v = new ProtoField(value, 1, ProtoValue.of(value, map.valueType, path + ".value", open = true), path + ".value")
    val fields = new ProtoFields(m, Array(k, v))
    val nothing = Array(ProtoValue.default(key, k.value), ProtoValue.default(value, v.value))
    (in, _) => {
      val values = new Array[Any](2)
      ProtoValue.within(in) { fields.read(in, values, 0) }
      // Of a foreign writer that leaves defaults out; a message that is left out is one without fields.
      if (values(0) == null) values(0) = nothing(0)
      if (values(1) == null) values(1) = nothing(1)
      new GenericInternalRow(values)
    }
  }
}
