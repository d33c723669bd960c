package org.apache.spark.sql.pgstream

import java.net.URI
import java.net.http.{HttpClient, HttpRequest, HttpResponse}
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.time.{Duration, Instant, ZoneOffset}
import java.time.format.DateTimeFormatter
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, Flow}
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec

import com.fasterxml.jackson.databind.JsonNode

import Json.Node

/** A service of AWS has refused a call, or could not be reached (`code` Unreachable). */
class AwsException(val code: String, val status: Int, message: String) extends java.io.IOException(s"$code: $message") {
  def throttled: Boolean = AwsException.Throttled(code)
  def passing: Boolean = throttled || status >= 500 || code == "Unreachable"
}

object AwsException {
  private val Throttled = Set("ProvisionedThroughputExceededException", "ThrottlingException", "Throttling",
    "LimitExceededException", "RequestLimitExceeded", "KMSThrottlingException", "ResourceInUseException")
}

/** An access key; `token` is empty unless it is a temporary one. */
case class AwsKeys(id: String, secret: String, token: String) {
  override def toString: String = s"AwsKeys($id, …)"
}

/**
 * The keys that stores' queries use now, by the name that `who` of their configuration says. Python renews those that end
 * (`stores/kinesis/spark.py`); in a process that it does not reach the ones that came with the work are used.
 */
object AwsKeys {
  private val current = new ConcurrentHashMap[String, AwsKeys]

  def renew(who: String, id: String, secret: String, token: String): Unit = current.put(who, AwsKeys(id, secret, token))

  /** Whether a query that runs has them. */
  def used(who: String): Boolean = KinesisSource.uses(who) || Sinks.every.exists { case s: KinesisSink => s.who == who; case _ => false }

  def forget(who: String): Unit = current.remove(who)

  def of(who: String, brought: AwsKeys): AwsKeys = current.getOrDefault(who, brought)

  def read(json: String): AwsKeys = {
    val n = Json.read(json)
    AwsKeys(n.str("id"), n.str("secret"), n.str("token"))
  }
}

/** Where a service is, and by whom it is asked. Sent to the tasks. */
case class AwsPlace(service: String, target: String, endpoint: String, region: String, who: String, brought: AwsKeys) {
  def keys: AwsKeys = AwsKeys.of(who, brought)
  /** With the keys of now, for a task that may run elsewhere. */
  def now: AwsPlace = copy(brought = keys)
}

/** Calls of a service whose protocol is AWS's JSON 1.1, signed by version 4 of its signatures. */
class AwsCall(place: AwsPlace) {
  import AwsCall._
  private val uri = URI.create(place.endpoint + "/")
  private val host = if (uri.getPort < 0) uri.getHost else s"${uri.getHost}:${uri.getPort}"

  /** The answer's bytes. AwsException. */
  def bytes(action: String, body: Array[Byte], timeoutMs: Long = 10000): Array[Byte] = {
    val answer = send(request(action, body, timeoutMs).build())
    if (answer.statusCode == 200) answer.body else throw refused(answer.statusCode, answer.body)
  }

  /**
   * An answer that goes on for minutes: `into` gets its bytes as it asks for them. Done when it is over; AwsException.
   * `by` has it alone: answers of one connection share its window, and a slow reader would stop the others.
   */
  def pushed(by: HttpClient, action: String, body: JsonNode, into: Flow.Subscriber[java.util.List[ByteBuffer]]): CompletableFuture[Unit] = {
    val ask = request(action, Json.mapper.writeValueAsBytes(body), 10000)
    // What is no AWS, and speaks without TLS, need not know how to change to HTTP/2.
    ask.version(if (uri.getScheme == "https") HttpClient.Version.HTTP_2 else HttpClient.Version.HTTP_1_1)
    def read(told: HttpResponse.ResponseInfo): HttpResponse.BodySubscriber[Array[Byte]] =
      if (told.statusCode == 200) HttpResponse.BodySubscribers.fromSubscriber(into, (_: Flow.Subscriber[java.util.List[ByteBuffer]]) => Array.emptyByteArray)
      else HttpResponse.BodySubscribers.ofByteArray()
    by.sendAsync(ask.build(), read(_)).handle { (answer, e) =>
      if (e != null) throw unreachable(Option(e.getCause).getOrElse(e))
      if (answer.statusCode != 200) throw refused(answer.statusCode, answer.body)
    }
  }

  private def request(action: String, body: Array[Byte], timeoutMs: Long): HttpRequest.Builder = {
    val keys = place.keys
    val now = Stamp.format(Instant.now())
    val signed = Seq("content-type" -> Type, "host" -> host, "x-amz-date" -> now) ++
      Seq("x-amz-security-token" -> keys.token).filter(_._2.nonEmpty) ++ Seq("x-amz-target" -> s"${place.target}.$action")
    val request = HttpRequest.newBuilder(uri).timeout(Duration.ofMillis(timeoutMs)).POST(HttpRequest.BodyPublishers.ofByteArray(body))
    signed.filter(_._1 != "host").foreach { case (n, v) => request.header(n, v) }
    request.header("authorization", authorization(keys, now, signed, body))
  }

  def apply(action: String, body: JsonNode): JsonNode = Json.mapper.readTree(bytes(action, Json.mapper.writeValueAsBytes(body)))

  private def send(request: HttpRequest): HttpResponse[Array[Byte]] =
    try client.send(request, HttpResponse.BodyHandlers.ofByteArray())
    catch { case e: java.io.IOException => throw unreachable(e) }

  private def unreachable(e: Throwable): AwsException =
    new AwsException("Unreachable", 0, s"${place.endpoint}: ${Option(e.getMessage).getOrElse(e.getClass.getSimpleName)}")

  private def refused(status: Int, body: Array[Byte]): AwsException = {
    val told = try Json.mapper.readTree(body) catch { case _: java.io.IOException => Json.obj }
    def text(names: String*): Option[String] =
      names.flatMap(n => Option(told).flatMap(t => Option(t.get(n)))).headOption.map(_.asText)
    val code = text("__type", "code").map(_.split('#').last).getOrElse(s"HTTP $status")
    new AwsException(code, status, text("message", "Message").getOrElse(s"it answered with status $status"))
  }

  private def authorization(keys: AwsKeys, now: String, headers: Seq[(String, String)], body: Array[Byte]): String = {
    val names = headers.map(_._1).mkString(";")
    val canonical = s"POST\n/\n\n${headers.map { case (n, v) => s"$n:$v\n" }.mkString}\n$names\n${hex(sha256(body))}"
    val day = now.take(8)
    val scope = s"$day/${place.region}/${place.service}/aws4_request"
    val text = s"AWS4-HMAC-SHA256\n$now\n$scope\n${hex(sha256(canonical.getBytes(UTF_8)))}"
    val key = Seq(day, place.region, place.service, "aws4_request").foldLeft(s"AWS4${keys.secret}".getBytes(UTF_8))(hmac)
    s"AWS4-HMAC-SHA256 Credential=${keys.id}/$scope, SignedHeaders=$names, Signature=${hex(hmac(key, text))}"
  }
}

object AwsCall {
  private val Type = "application/x-amz-json-1.1"
  private val Stamp = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC)
  private lazy val client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(3)).build()

  private lazy val pushing = java.util.concurrent.Executors.newCachedThreadPool((r: Runnable) => {
    val t = new Thread(r, "aws-pushed")
    t.setDaemon(true)
    t
  })

  /** For one answer at a time that goes on for minutes. What is not asked for yet waits in at most a megabyte here. */
  def alone(): HttpClient = {
    System.getProperties.putIfAbsent("jdk.httpclient.windowsize", (1 << 20).toString)
    HttpClient.newBuilder().executor(pushing).connectTimeout(Duration.ofSeconds(3)).build()
  }

  private def sha256(b: Array[Byte]): Array[Byte] = MessageDigest.getInstance("SHA-256").digest(b)
  private def hex(b: Array[Byte]): String = java.util.HexFormat.of().formatHex(b)
  private def hmac(key: Array[Byte], text: String): Array[Byte] = {
    val mac = Mac.getInstance("HmacSHA256")
    mac.init(new SecretKeySpec(key, "HmacSHA256"))
    mac.doFinal(text.getBytes(UTF_8))
  }

  /** How long to wait before the next try, the first being 1: doubling, and not in step with others. */
  def pauseMs(attempt: Int): Long = {
    val most = math.min(5000.0, 200.0 * math.pow(2.0, math.min(attempt - 1, 10)))
    (most * (0.5 + java.util.concurrent.ThreadLocalRandom.current().nextDouble() / 2)).toLong
  }

  /** Try again what may pass, until `patienceMs` are over. */
  def patiently[T](patienceMs: Long)(work: => T): T = {
    val end = System.currentTimeMillis() + patienceMs
    var attempt = 0
    while (true) {
      try return work
      catch {
        case e: AwsException if e.passing && System.currentTimeMillis() < end =>
          attempt += 1
          Thread.sleep(pauseMs(attempt))
      }
    }
    throw new IllegalStateException
  }
}
