package org.apache.spark.sql.pgstream

import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.google.protobuf.{AnyProto, ApiProto, CodedInputStream, DescriptorProtos, DurationProto, EmptyProto, FieldMaskProto, SourceContextProto, StructProto, TimestampProto, TypeProto, WrappersProto}
import com.google.protobuf.DescriptorProtos.{FileDescriptorProto, FileDescriptorSet}
import com.google.protobuf.Descriptors.{Descriptor, DescriptorValidationException, FileDescriptor}

import Json.Node

/** Which message the bytes of a record are. */
trait ProtobufSchemas {
  /** Also passes over what stands before the message. */
  def of(in: CodedInputStream): Descriptor
}

/** The message that was named with its descriptor: nothing stands before it. */
final class NamedMessage(message: Descriptor) extends ProtobufSchemas {
  override def of(in: CodedInputStream): Descriptor = message
}

/** A registry's wire format: a zero byte, the schema's id, and the way to the message in its file, by number. */
final class RegisteredMessage(registry: Registry) extends ProtobufSchemas {
  private var id = -1
  private var way = Seq.empty[Int]
  private var message: Descriptor = _

  override def of(in: CodedInputStream): Descriptor = {
    if (in.isAtEnd || in.readRawByte() != 0)
      throw new Malformed("not in the wire format of a schema registry: a zero byte and a schema id come first")
    val now = Integer.reverseBytes(in.readFixed32())
    val to = indexes(in)
    if (message == null || now != id || to != way) {
      message = at(registry.protobuf(now), now, to)
      id = now
      way = to
    }
    message
  }

  private def indexes(in: CodedInputStream): Seq[Int] = {
    val n = in.readSInt32()
    if (n == 0) RegisteredMessage.First
    else if (n < 0 || n > 100) throw new Malformed(s"not in the wire format of a schema registry: a message at depth $n")
    else Seq.fill(n)(in.readSInt32())
  }

  private def at(file: FileDescriptor, id: Int, way: Seq[Int]): Descriptor = {
    def one(of: java.util.List[Descriptor], n: Int) =
      if (n >= 0 && n < of.size) of.get(n) else throw new Malformed(s"schema $id has no message ${way.mkString(".")}")
    way.tail.foldLeft(one(file.getMessageTypes, way.head))((m, n) => one(m.getNestedTypes, n))
  }
}

object RegisteredMessage {
  val First: Seq[Int] = Seq(0)

  /** The bytes before a message that is written by a registered schema. */
  def prefix(id: Int, m: Descriptor): Array[Byte] = {
    val way = Iterator.iterate(m)(_.getContainingType).takeWhile(_ != null).map(_.getIndex).toSeq.reverse
    val out = new java.io.ByteArrayOutputStream
    out.write(0)
    out.write(java.nio.ByteBuffer.allocate(4).putInt(id).array)
    val to = com.google.protobuf.CodedOutputStream.newInstance(out)
    if (way == First) to.writeSInt32NoTag(0)
    else {
      to.writeSInt32NoTag(way.length)
      way.foreach(to.writeSInt32NoTag)
    }
    to.flush()
    out.toByteArray
  }
}

object Protobuf {
  /** Files that every program has; also for schemas that import them without carrying them. */
  val Known: Map[String, FileDescriptor] = Seq(
    AnyProto.getDescriptor, ApiProto.getDescriptor, DescriptorProtos.getDescriptor, DurationProto.getDescriptor,
    EmptyProto.getDescriptor, FieldMaskProto.getDescriptor, SourceContextProto.getDescriptor, StructProto.getDescriptor,
    TimestampProto.getDescriptor, TypeProto.getDescriptor, WrappersProto.getDescriptor
  ).map(f => f.getName -> f).toMap

  /** `side`: `descriptors`, a set of files in base64, and the full name of the `message`; or the `registry`. */
  def reading(side: JsonNode): ProtobufSchemas = side.opt("descriptors") match {
    case Some(_) => new NamedMessage(message(side))
    case None => new RegisteredMessage(Registry.open(side.str("registry")))
  }

  def message(side: JsonNode): Descriptor = {
    val set = FileDescriptorSet.parseFrom(Base64.getDecoder.decode(side.str("descriptors")))
    val files = linked(set.getFileList.asScala.map(f => f.getName -> f).toMap)
    val name = side.str("message")
    val found = files.values.flatMap { f =>
      val short = if (f.getPackage.isEmpty) name else name.stripPrefix(f.getPackage + ".")
      if (f.getPackage.nonEmpty && short == name) None else nested(f, short)
    }
    found.headOption.getOrElse(throw new Malformed(s"""the descriptor has no message "$name""""))
  }

  private def nested(f: FileDescriptor, name: String): Option[Descriptor] = {
    val parts = name.split('.').toList
    parts.tail.foldLeft(Option(f.findMessageTypeByName(parts.head)))((m, part) => m.flatMap(d => Option(d.findNestedTypeByName(part))))
  }

  /** Files with those that they import, by name. Malformed for what does not fit together. */
  def linked(files: Map[String, FileDescriptorProto]): Map[String, FileDescriptor] = {
    val done = scala.collection.mutable.LinkedHashMap.empty[String, FileDescriptor]
    def link(name: String, within: Set[String]): FileDescriptor = done.getOrElse(name, {
      if (within(name)) throw new Malformed(s"""file "$name" of the descriptor imports itself""")
      val made = files.get(name) match {
        case Some(f) =>
          val imports = f.getDependencyList.asScala.map(link(_, within + name)).toArray
          try FileDescriptor.buildFrom(f, imports)
          catch { case e: DescriptorValidationException => throw new Malformed(s"the descriptor does not fit together: ${e.getMessage}") }
        case None => Known.getOrElse(name, throw new Malformed(s"""file "$name", which the descriptor imports, is not there"""))
      }
      done(name) = made
      made
    })
    files.keys.foreach(link(_, Set.empty))
    done.toMap
  }
}
