package org.apache.spark.sql.pgstream

import java.util.Base64

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.google.protobuf.DescriptorProtos.{FileDescriptorProto, FileDescriptorSet}
import com.google.protobuf.Descriptors.FileDescriptor
import com.squareup.wire.schema.{CoreLoader, ErrorCollector, Linker, Loader, Location, ProtoFile, SchemaException}
import com.squareup.wire.schema.internal.SchemaEncoder
import com.squareup.wire.schema.internal.parser.ProtoParser

import Json.Node

/**
 * Schemas of a registry, which are .proto texts, as descriptors. Wire parses and links them.
 *
 * A text may also be a file's descriptor in base64, which is how Confluent's Python client registers.
 */
object ProtobufText {
  private val Main = "pgstream_main.proto"

  /** A text with those that it refers to, by the names under which it imports them. Malformed with the reason. */
  def file(text: String, refers: Map[String, String]): FileDescriptor = Protobuf.linked(files(text, refers))(Main)

  /** For the server: `text` and `refers` in JSON to a set of files in base64, the text's own being the last. */
  def compiled(request: String): String = {
    val r = Json.read(request)
    val all = Protobuf.linked(files(r.str("text"), r.entries("refers")))
    val set = FileDescriptorSet.newBuilder
    def add(f: FileDescriptor): Unit = if (!set.getFileList.asScala.exists(_.getName == f.getName)) {
      f.getDependencies.asScala.foreach(add)
      set.addFile(f.toProto)
    }
    add(all(Main))
    Base64.getEncoder.encodeToString(set.build().toByteArray)
  }

  private def files(text: String, refers: Map[String, String]): Map[String, FileDescriptorProto] = {
    val (coded, texts) = (refers + (Main -> text)).map { case (n, t) => n -> (t, decoded(n, t)) }.partition(_._2._2.isDefined)
    val parsed = if (texts.isEmpty) Map.empty[String, FileDescriptorProto] else wired(texts.map { case (n, (t, _)) => n -> t })
    parsed ++ coded.map { case (n, (_, d)) => n -> d.get } -- Protobuf.Known.keys
  }

  private def decoded(name: String, text: String): Option[FileDescriptorProto] =
    try Some(FileDescriptorProto.parseFrom(Base64.getDecoder.decode(text.trim)).toBuilder.setName(name).build())
    catch { case _: IllegalArgumentException | _: com.google.protobuf.InvalidProtocolBufferException => None }

  private def wired(texts: Map[String, String]): Map[String, FileDescriptorProto] =
    try {
      val loader = new Texts(texts)
      val errors = new ErrorCollector
      val schema = new Linker(loader, errors, true, true).link(texts.keys.map(loader.load).asJava)
      errors.throwIfNonEmpty()
      val encoder = new SchemaEncoder(schema)
      loader.files.collect { case (name, _) if !Texts.ofWire(name) =>
        name -> FileDescriptorProto.parseFrom(encoder.encode(schema.protoFile(name)).toByteArray).toBuilder.setName(name).build()
      }.toMap
    } catch {
      case e @ (_: IllegalStateException | _: IllegalArgumentException | _: SchemaException) =>
        throw new Malformed(String.valueOf(e.getMessage).linesIterator.take(1).mkString)
    }
}

/** The texts at hand, and the files of Google's and Confluent's that they import without carrying them. */
private class Texts(texts: Map[String, String]) extends Loader {
  val files = mutable.LinkedHashMap.empty[String, ProtoFile]

  override def load(name: String): ProtoFile = files.getOrElseUpdate(name, ProtobufTypes.get(name).orElse(texts.get(name)) match {
    case Some(text) => ProtoFile.Companion.get(ProtoParser.Companion.parse(Location.get(name), text))
    case None if Texts.ofWire(name) => CoreLoader.INSTANCE.load(name)
    case None => throw new SchemaException(Seq(s"file $name, which is imported, is not among the references").asJava)
  })

  override def withErrors(errors: ErrorCollector): Loader = this
}

private object Texts {
  /** Wire asks for its own extensions with whatever it links. */
  def ofWire(name: String): Boolean = Protobuf.Known.contains(name) || name == "wire/extensions.proto"
}

/** Files that schemas import as if every registry had them: the types of Google's and Confluent's that are columns of ours. */
private object ProtobufTypes {
  private def file(pack: String, body: String) = s"""syntax = "proto3"; package $pack; $body"""

  // The params of Meta are a map, which is a list of entries; Wire cannot encode options that are maps.
  private val all = Map(
    "google/type/date.proto" -> file("google.type", "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"),
    "google/type/decimal.proto" -> file("google.type", "message Decimal { string value = 1; }"),
    "google/type/timeofday.proto" -> file("google.type", "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"),
    "confluent/type/decimal.proto" -> file("confluent.type", "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"),
    "confluent/meta.proto" -> file("confluent", """
      import "google/protobuf/descriptor.proto";
      message Meta { message Param { string key = 1; string value = 2; } string doc = 1; repeated Param params = 2; repeated string tags = 3; }
      extend google.protobuf.FileOptions { Meta file_meta = 1088; }
      extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
      extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
      extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
      extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""")
  )

  def get(name: String): Option[String] = all.get(name)
}
