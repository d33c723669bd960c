package org.apache.spark.sql.pgstream

import java.net.URI
import java.net.http.{HttpClient, HttpRequest, HttpResponse}
import java.nio.charset.StandardCharsets.UTF_8
import java.time.Duration
import java.util.Base64
import java.util.concurrent.{CompletionStage, ExecutionException, Flow, TimeUnit, TimeoutException}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.google.protobuf.Descriptors.FileDescriptor
import org.apache.avro.Schema
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory

import Json.Node

/** No URL of a registry answers, or the one that does refuses: the query is tried again. */
class RegistryException(name: String, why: String) extends RuntimeException(s"""could not reach schema registry "$name": $why""")

/**
 * Schemas by id, asked for once and then known for as long as the process lives: an id never changes its schema. That
 * an id has none is known for a moment only: it may get one. Both are bounded, as are the time that an answer may take
 * and its size.
 *
 * `config`: `name`, `uris` (tried in turn), `user` and `password` for basic authentication, `ssl` in Kafka's words.
 */
final class Registry(config: String) {
  private val c = Json.read(config)
  private val uris = c.strings("uris")
  private def unreachable(why: String) = new RegistryException(c.str("name"), why)
  private val schemas = Registry.bounded[Integer, Schema]
  private val files = Registry.bounded[Integer, FileDescriptor]
  private val missing = Registry.bounded[(Int, String), (Long, String)]
  @volatile private var first = 0

  private lazy val client = {
    val b = HttpClient.newBuilder.connectTimeout(Duration.ofSeconds(5)).followRedirects(HttpClient.Redirect.NEVER)
    val ssl = c.entries("ssl")
    if (ssl.nonEmpty) b.sslContext(Registry.tls(ssl))
    b.build()
  }

  /** The Avro schema of this id. Malformed when there is none; RegistryException when the registry does not answer. */
  def avro(id: Int): Schema = once(schemas, id, "AVRO") { found =>
    try parsed(found, new Schema.Parser, Set.empty)
    catch { case e: org.apache.avro.AvroRuntimeException => throw new Malformed(s"schema $id cannot be used: ${e.getMessage}") }
  }

  /** The file of Protobuf messages of this id. Errors as above. */
  def protobuf(id: Int): FileDescriptor = once(files, id, "PROTOBUF") { found =>
    val refers = scala.collection.mutable.Map.empty[String, String]
    collect(found, refers)
    try ProtobufText.file(found.str("schema"), refers.toMap)
    catch { case e: Malformed => throw new Malformed(s"schema $id cannot be used: ${e.getMessage}") }
  }

  private def once[T <: AnyRef](all: java.util.Map[Integer, T], id: Int, kind: String)(read: JsonNode => T): T = {
    val known = all.get(id)
    if (known != null) known
    else {
      val none = missing.get((id, kind))
      if (none != null && System.nanoTime() - none._1 < Registry.MissingNanos) throw new Malformed(none._2)
      try {
        val made = read(registered(id, kind))
        all.put(id, made)
        made
      } catch { case e: Malformed => missing.put((id, kind), (System.nanoTime(), e.getMessage)); throw e }
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

  /**
   * None for what the registry does not have. Each URL is tried once, beginning with the one that answered last: one of
   * several servers may not have heard of a new schema yet, and the one that has may be the one that is away.
   */
  private def get(path: String): Option[JsonNode] = {
    var failure: RegistryException = null
    var unknown = Option.empty[Int]
    for (n <- uris.indices) {
      val at = (first + n) % uris.length
      try {
        val answer = ask(uris(at) + path)
        answer.statusCode match {
          case 200 =>
            val found = Json.read(answer.body)
            if (found.get("schema") != null) { first = at; return Some(found) }
            failure = strange(at)
          case 404 if answer.body.contains("error_code") => unknown = unknown.orElse(Some(at))
          case 401 | 403 => failure = unreachable(s"${uris(at)} refuses the credentials")
          case other => failure = unreachable(s"${uris(at)} answers with status $other")
        }
      } catch {
        case _: com.fasterxml.jackson.core.JacksonException => failure = strange(at)
        case e: java.io.IOException => failure = unreachable(s"${uris(at)} does not answer: ${Registry.why(e)}")
        case _: InterruptedException => Thread.currentThread().interrupt(); throw unreachable("interrupted")
      }
    }
    if (failure != null) throw failure
    unknown.foreach(first = _)
    None
  }

  private def strange(at: Int) = unreachable(s"${uris(at)} answers with something else than a schema registry does")

  private def ask(uri: String): HttpResponse[String] =
    Registry.answer(client, request(uri), Registry.Largest, Registry.AnswerMs)

  private def request(uri: String): HttpRequest = {
    val b = HttpRequest.newBuilder(URI.create(uri)).header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
    c.opt("user").foreach { u =>
      val pair = s"$u:${c.opt("password").getOrElse("")}"
      b.header("Authorization", "Basic " + Base64.getEncoder.encodeToString(pair.getBytes(UTF_8)))
    }
    b.build()
  }
}

object Registry {
  private val AnswerMs = 10000L
  private val Largest = 8 << 20
  private val MissingNanos = TimeUnit.SECONDS.toNanos(1)
  private val open = bounded[String, Registry]
  private val SslDefaults: Map[String, AnyRef] =
    Map("ssl.protocol" -> "TLSv1.3", "ssl.keymanager.algorithm" -> javax.net.ssl.KeyManagerFactory.getDefaultAlgorithm,
      "ssl.trustmanager.algorithm" -> javax.net.ssl.TrustManagerFactory.getDefaultAlgorithm,
      "ssl.enabled.protocols" -> java.util.List.of("TLSv1.2", "TLSv1.3"))

  /** `ssl` in Kafka's words: its reader of PEM texts, so that a registry takes the same certificates as a broker. */
  def tls(ssl: Map[String, String]): javax.net.ssl.SSLContext = {
    val engines = new DefaultSslEngineFactory
    engines.configure((SslDefaults ++ ssl.map { case (k, v) => k -> value(k, v) }).asJava)
    engines.sslContext()
  }

  /** All of an answer, in time and not larger; IOException says why not. A request's own timeout ends with the answer's head. */
  def answer(client: HttpClient, request: HttpRequest, largest: Int, ms: Long): HttpResponse[String] = {
    val answer = client.sendAsync(request, _ => new Limited(largest))
    try answer.get(ms, TimeUnit.MILLISECONDS)
    catch {
      case _: TimeoutException => answer.cancel(true); throw new java.io.IOException("not in time")
      case e: InterruptedException => answer.cancel(true); throw e
      case e: ExecutionException => throw (e.getCause match { case i: java.io.IOException => i; case other => new java.io.IOException(why(other)) })
    }
  }

  def open(config: String): Registry = open.computeIfAbsent(config, (c: String) => new Registry(c))

  /** A map that forgets what was not used for the longest time. */
  private def bounded[K, V]: java.util.Map[K, V] =
    java.util.Collections.synchronizedMap(new java.util.LinkedHashMap[K, V](16, 0.75f, true) {
      override protected def removeEldestEntry(eldest: java.util.Map.Entry[K, V]): Boolean = size > 2000
    })

  private def value(name: String, text: String): AnyRef =
    if (name.endsWith(".key") || name.endsWith("certificates") || name.endsWith("chain") || name.endsWith("password"))
      new org.apache.kafka.common.config.types.Password(text)
    else text

  private def why(e: Throwable): String = Option(e.getMessage).getOrElse(e.getClass.getSimpleName)
}

/** The body of an answer as text, up to a size. */
private class Limited(most: Int) extends HttpResponse.BodySubscriber[String] {
  private val all = HttpResponse.BodySubscribers.ofString(UTF_8)
  private var subscription: Flow.Subscription = _
  private var left = most.toLong

  override def getBody: CompletionStage[String] = all.getBody
  override def onSubscribe(s: Flow.Subscription): Unit = { subscription = s; all.onSubscribe(s) }
  override def onNext(parts: java.util.List[java.nio.ByteBuffer]): Unit = {
    left -= parts.asScala.map(_.remaining.toLong).sum
    if (left >= 0) all.onNext(parts)
    else {
      subscription.cancel()
      all.onError(new java.io.IOException("its answer is too large"))
    }
  }
  override def onError(e: Throwable): Unit = all.onError(e)
  override def onComplete(): Unit = all.onComplete()
}
