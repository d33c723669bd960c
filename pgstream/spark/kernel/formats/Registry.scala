package org.apache.spark.sql.pgstream

import java.net.URI
import java.net.http.{HttpClient, HttpRequest, HttpResponse}
import java.nio.charset.StandardCharsets.UTF_8
import java.time.Duration
import java.util.Base64
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.google.protobuf.Descriptors.FileDescriptor
import org.apache.avro.Schema
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory

import Json.Node

/** No URL of a registry answers, or the one that does refuses: the query is tried again. */
class RegistryException(name: String, why: String) extends RuntimeException(s"""could not reach schema registry "$name": $why""")

/**
 * Schemas by id, asked for once and then known for as long as the process lives: an id never changes its schema.
 *
 * `config`: `name`, `uris` (tried in turn), `user` and `password` for basic authentication, `ssl` in Kafka's words.
 */
final class Registry(config: String) {
  private val c = Json.read(config)
  private val uris = c.strings("uris")
  private def unreachable(why: String) = new RegistryException(c.str("name"), why)
  private val schemas = new ConcurrentHashMap[Integer, Schema]
  private val files = new ConcurrentHashMap[Integer, FileDescriptor]
  @volatile private var first = 0

  private lazy val client = {
    val b = HttpClient.newBuilder.connectTimeout(Duration.ofSeconds(5)).followRedirects(HttpClient.Redirect.NEVER)
    val ssl = c.entries("ssl")
    if (ssl.nonEmpty) {
      // Kafka's reader of PEM texts, so that a registry takes the same certificates as a broker.
      val engines = new DefaultSslEngineFactory
      engines.configure((Registry.SslDefaults ++ ssl.map { case (k, v) => k -> Registry.value(k, v) }).asJava)
      b.sslContext(engines.sslContext())
    }
    b.build()
  }

  /** The Avro schema of this id. Malformed when there is none; RegistryException when the registry does not answer. */
  def avro(id: Int): Schema = {
    val known = schemas.get(id)
    if (known != null) known
    else {
      val found = registered(id, "AVRO")
      val schema =
        try parsed(found, new Schema.Parser, Set.empty)
        catch { case e: org.apache.avro.AvroRuntimeException => throw new Malformed(s"schema $id cannot be used: ${e.getMessage}") }
      schemas.put(id, schema)
      schema
    }
  }

  /** The file of Protobuf messages of this id. Errors as above. */
  def protobuf(id: Int): FileDescriptor = {
    val known = files.get(id)
    if (known != null) known
    else {
      val found = registered(id, "PROTOBUF")
      val refers = scala.collection.mutable.Map.empty[String, String]
      collect(found, refers)
      val file =
        try ProtobufText.file(found.str("schema"), refers.toMap)
        catch { case e: Malformed => throw new Malformed(s"schema $id cannot be used: ${e.getMessage}") }
      files.put(id, file)
      file
    }
  }

  private def registered(id: Int, wanted: String): JsonNode = {
    val found = get(s"/schemas/ids/$id").getOrElse(throw new Malformed(s"schema $id is not in the schema registry"))
    val kind = found.opt("schemaType").getOrElse("AVRO")
    if (kind != wanted) throw new Malformed(s"schema $id is $kind, not $wanted")
    found
  }

  /** The texts that this one refers to, and those that they do, by the names that they are imported under. */
  private def collect(found: JsonNode, into: scala.collection.mutable.Map[String, String]): Unit =
    references(found).foreach { r =>
      if (!into.contains(r.str("name"))) {
        val inner = version(r.str("subject"), r.get("version").asInt)
        into(r.str("name")) = inner.str("schema")
        collect(inner, into)
      }
    }

  private def references(found: JsonNode): Seq[JsonNode] = Option(found.get("references")).toSeq.flatMap(_.elements().asScala)

  private def version(subject: String, version: Int): JsonNode = {
    val quoted = java.net.URLEncoder.encode(subject, UTF_8).replace("+", "%20")
    get(s"/subjects/$quoted/versions/$version").getOrElse(throw new Malformed(s"""schema "$subject", version $version, is not in the schema registry"""))
  }

  /** Schemas that this one refers to come first, so that the parser knows their names. */
  private def parsed(found: JsonNode, parser: Schema.Parser, seen: Set[(String, Int)]): Schema = {
    references(found).foreach { r =>
      val at = (r.str("subject"), r.get("version").asInt)
      if (seen(at)) throw new org.apache.avro.SchemaParseException(s"${at._1} refers to itself")
      if (!parser.getTypes.containsKey(r.str("name"))) parsed(version(at._1, at._2), parser, seen + at)
    }
    parser.parse(found.str("schema"))
  }

  /** None for what the registry does not have. Each URL is tried once, beginning with the one that answered last. */
  private def get(path: String): Option[JsonNode] = {
    var failure: RegistryException = null
    for (n <- uris.indices) {
      val at = (first + n) % uris.length
      try {
        val answer = client.send(request(uris(at) + path), HttpResponse.BodyHandlers.ofString())
        answer.statusCode match {
          case 200 => first = at; return Some(Json.read(answer.body))
          case 404 if answer.body.contains("error_code") => first = at; return None
          case 401 | 403 => failure = unreachable(s"${uris(at)} refuses the credentials")
          case other => failure = unreachable(s"${uris(at)} answers with status $other")
        }
      } catch {
        case e: java.io.IOException => failure = unreachable(s"${uris(at)} does not answer: ${Registry.why(e)}")
        case _: InterruptedException => Thread.currentThread().interrupt(); throw unreachable("interrupted")
      }
    }
    throw failure
  }

  private def request(uri: String): HttpRequest = {
    val b = HttpRequest.newBuilder(URI.create(uri)).timeout(Duration.ofSeconds(10)).header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
    c.opt("user").foreach { u =>
      val pair = s"$u:${c.opt("password").getOrElse("")}"
      b.header("Authorization", "Basic " + Base64.getEncoder.encodeToString(pair.getBytes(UTF_8)))
    }
    b.build()
  }
}

object Registry {
  private val open = new ConcurrentHashMap[String, Registry]
  private val SslDefaults: Map[String, AnyRef] =
    Map("ssl.protocol" -> "TLSv1.3", "ssl.keymanager.algorithm" -> javax.net.ssl.KeyManagerFactory.getDefaultAlgorithm,
      "ssl.trustmanager.algorithm" -> javax.net.ssl.TrustManagerFactory.getDefaultAlgorithm,
      "ssl.enabled.protocols" -> java.util.List.of("TLSv1.2", "TLSv1.3"))

  def open(config: String): Registry = open.computeIfAbsent(config, new Registry(_))

  private def value(name: String, text: String): AnyRef =
    if (name.endsWith(".key") || name.endsWith("certificates") || name.endsWith("chain") || name.endsWith("password"))
      new org.apache.kafka.common.config.types.Password(text)
    else text

  private def why(e: Throwable): String = Option(e.getMessage).getOrElse(e.getClass.getSimpleName)
}
