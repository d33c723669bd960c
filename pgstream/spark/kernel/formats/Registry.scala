package org.apache.spark.sql.pgstream

import java.net.URI
import java.net.http.{HttpClient, HttpRequest, HttpResponse}
import java.nio.charset.StandardCharsets.UTF_8
import java.time.Duration
import java.util.Base64
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
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
      val found = get(s"/schemas/ids/$id").getOrElse(throw new Malformed(s"schema $id is not in the schema registry"))
      val kind = found.opt("schemaType").getOrElse("AVRO")
      if (kind != "AVRO") throw new Malformed(s"schema $id is $kind, not AVRO")
      val schema =
        try parsed(found, new Schema.Parser, Set.empty)
        catch { case e: org.apache.avro.AvroRuntimeException => throw new Malformed(s"schema $id cannot be used: ${e.getMessage}") }
      schemas.put(id, schema)
      schema
    }
  }

  /** Schemas that this one refers to come first, so that the parser knows their names. */
  private def parsed(found: JsonNode, parser: Schema.Parser, seen: Set[(String, Int)]): Schema = {
    Option(found.get("references")).toSeq.flatMap(_.elements().asScala).foreach { r =>
      val at = (r.str("subject"), r.get("version").asInt)
      if (seen(at)) throw new org.apache.avro.SchemaParseException(s"${at._1} refers to itself")
      if (!parser.getTypes.containsKey(r.str("name"))) {
        val subject = java.net.URLEncoder.encode(at._1, UTF_8).replace("+", "%20")
        val inner = get(s"/subjects/$subject/versions/${at._2}").getOrElse(throw new Malformed(s"""schema "${at._1}", version ${at._2}, is not in the schema registry"""))
        parsed(inner, parser, seen + at)
      }
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
