package org.apache.spark.sql.pgstream

import java.util.{Base64, List => JList}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.google.protobuf.DescriptorProtos.{DescriptorProto, FileDescriptorProto, FileDescriptorSet}
import com.google.protobuf.Descriptors.FileDescriptor
import com.squareup.wire.schema.{CoreLoader, ErrorCollector, Linker, Loader, Location, ProtoFile, SchemaException}
import com.squareup.wire.schema.internal.SchemaEncoder
import com.squareup.wire.schema.internal.parser.{EnumElement, FieldElement, MessageElement, OneOfElement, OptionElement, ProtoFileElement, ProtoParser, TypeElement}

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

  private def wired(texts: Map[String, String]): Map[String, FileDescriptorProto] = {
    val loader = new Texts(texts)
    try {
      val errors = new ErrorCollector
      val schema = new Linker(loader, errors, true, true).link(texts.keys.map(loader.load).asJava)
      errors.throwIfNonEmpty()
      val encoder = new SchemaEncoder(schema)
      loader.elements.map { case (name, element) =>
        val file = FileDescriptorProto.parseFrom(encoder.encode(schema.protoFile(name)).toByteArray).toBuilder.setName(name)
        ProtobufGroups.restore(file)
        Reserved.restore(element, file)
        name -> file.build()
      }.toMap
    } catch {
      case e @ (_: IllegalStateException | _: IllegalArgumentException | _: SchemaException) =>
        val why = String.valueOf(e.getMessage).linesIterator.take(1).mkString
        throw new Malformed(loader.missing.fold(why)(name => s"file $name, which is imported, is not among the references"))
    }
  }
}

/** The texts at hand, and the files of Google's and Confluent's that they import without carrying them. */
private class Texts(texts: Map[String, String]) extends Loader {
  private val files = mutable.LinkedHashMap.empty[String, ProtoFile]
  val elements = mutable.LinkedHashMap.empty[String, ProtoFileElement]
  /** A file that is imported and not at hand. Nothing of it may be needed: many are imported for their options alone. */
  var missing: Option[String] = None

  override def load(name: String): ProtoFile = files.getOrElseUpdate(name, ProtobufTypes.get(name).orElse(texts.get(name)) match {
    case Some(text) => parsed(name, text)
    case None if Texts.ofWire(name) => CoreLoader.INSTANCE.load(name)
    case None =>
      missing = missing.orElse(Some(name))
      parsed(name, "")
  })

  private def parsed(name: String, text: String): ProtoFile = {
    val all = ProtoParser.Companion.parse(Location.get(name), ProtobufGroups.asMessages(text))
    elements(name) = all
    ProtoFile.Companion.get(if (ProtobufTypes.get(name).isDefined) all else Lean.file(all))
  }

  override def withErrors(errors: ErrorCollector): Loader = this
}

/**
 * A file without what says nothing about the bytes of its messages: options that are not Protobuf's own but
 * Confluent's of fields, defaults, extensions, services. Wire cannot encode all of them.
 */
private object Lean {
  def file(f: ProtoFileElement): ProtoFileElement =
    f.copy(f.getLocation, f.getPackageName, f.getSyntax, (f.getImports.asScala ++ f.getWeakImports.asScala).asJava, f.getPublicImports,
      Nil.asJava, types(f.getTypes), Nil.asJava, Nil.asJava, Nil.asJava)

  private def types(all: JList[TypeElement]): JList[TypeElement] = all.asScala.map {
    case m: MessageElement => message(m)
    case e: EnumElement =>
      val constants = e.getConstants.asScala.map(c => c.copy(c.getLocation, c.getName, c.getTag, c.getDocumentation, Nil.asJava))
      e.copy(e.getLocation, e.getName, e.getDocumentation, options(e.getOptions), constants.asJava, e.getReserveds)
    case other => other
  }.asJava

  private def message(m: MessageElement): MessageElement =
    m.copy(m.getLocation, m.getName, m.getDocumentation, types(m.getNestedTypes), options(m.getOptions), m.getReserveds,
      fields(m.getFields), m.getOneOfs.asScala.map(oneOf).asJava, m.getExtensions, Nil.asJava, Nil.asJava)

  private def oneOf(o: OneOfElement): OneOfElement =
    o.copy(o.getName, o.getDocumentation, fields(o.getFields), Nil.asJava, Nil.asJava, o.getLocation)

  private def fields(all: JList[FieldElement]): JList[FieldElement] = all.asScala.map(f =>
    f.copy(f.getLocation, f.getLabel, f.getType, f.getName, null, f.getJsonName, f.getTag, f.getDocumentation, options(f.getOptions))).asJava

  private def options(all: JList[OptionElement]): JList[OptionElement] =
    all.asScala.filter(o => if (o.isParenthesized) o.getName.startsWith("confluent.") else true).asJava
}

/** Numbers and names that messages reserve: Wire does not pass them on, and whoever adds fields must know them. */
private object Reserved {
  def restore(from: ProtoFileElement, file: FileDescriptorProto.Builder): Unit =
    each(from.getTypes, file.getMessageTypeBuilderList)

  private def each(from: JList[TypeElement], to: JList[DescriptorProto.Builder]): Unit =
    from.asScala.collect { case m: MessageElement => m }.foreach(m => to.asScala.find(_.getName == m.getName).foreach { builder =>
      m.getReserveds.asScala.flatMap(_.getValues.asScala).foreach {
        case n: Integer => builder.addReservedRangeBuilder().setStart(n).setEnd(n + 1)
        case r: kotlin.ranges.IntRange => builder.addReservedRangeBuilder().setStart(r.getFirst).setEnd(r.getLast + 1)
        case name => builder.addReservedName(name.toString)
      }
      each(m.getNestedTypes, builder.getNestedTypeBuilderList)
    })
}

private object Texts {
  /** Wire asks for its own extensions with whatever it links. */
  def ofWire(name: String): Boolean = Protobuf.Known.contains(name) || name == "wire/extensions.proto"
}

/** Files that schemas import as if every registry had them: the types of Google's and Confluent's. */
private object ProtobufTypes {
  private def file(pack: String, body: String) = s"""syntax = "proto3"; package $pack; $body"""

  private def google(name: String, body: String) = s"google/type/$name.proto" -> file("google.type", body)

  // The params of Meta are a map, which is a list of entries; Wire cannot encode options that are maps.
  private val all = Map(
    google("calendar_period", "enum CalendarPeriod { CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; MONTH = 4; QUARTER = 5; HALF = 6; YEAR = 7; }"),
    google("color", """import "google/protobuf/wrappers.proto"; message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }"""),
    google("date", "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"),
    google("datetime", """import "google/protobuf/duration.proto"; message DateTime { int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; int32 seconds = 6; int32 nanos = 7; oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } } message TimeZone { string id = 1; string version = 2; }"""),
    google("dayofweek", "enum DayOfWeek { DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; FRIDAY = 5; SATURDAY = 6; SUNDAY = 7; }"),
    google("decimal", "message Decimal { string value = 1; }"),
    google("expr", "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }"),
    google("fraction", "message Fraction { int64 numerator = 1; int64 denominator = 2; }"),
    google("interval", """import "google/protobuf/timestamp.proto"; message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }"""),
    google("latlng", "message LatLng { double latitude = 1; double longitude = 2; }"),
    google("localized_text", "message LocalizedText { string text = 1; string language_code = 2; }"),
    google("money", "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }"),
    google("month", "enum Month { MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4; MAY = 5; JUNE = 6; JULY = 7; AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11; DECEMBER = 12; }"),
    google("phone_number", "message PhoneNumber { message ShortCode { string region_code = 1; string number = 2; } oneof kind { string e164_number = 1; ShortCode short_code = 2; } string extension = 3; }"),
    google("postal_address", "message PostalAddress { int32 revision = 1; string region_code = 2; string language_code = 3; string postal_code = 4; string sorting_code = 5; string administrative_area = 6; string locality = 7; string sublocality = 8; repeated string address_lines = 9; repeated string recipients = 10; string organization = 11; }"),
    google("quaternion", "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }"),
    google("timeofday", "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"),
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
