package org.apache.spark.sql.pgstream

import java.io.IOException
import java.lang.{Long => JLong}
import java.net.{URI, URLEncoder}
import java.net.http.{HttpClient, HttpRequest}
import java.nio.charset.StandardCharsets.UTF_8
import java.time.Duration
import java.util.{Base64, List => JList, Map => JMap, Set => JSet}
import javax.security.auth.callback.{Callback, UnsupportedCallbackException}
import javax.security.auth.login.AppConfigurationEntry

import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import org.apache.kafka.common.security.auth.{AuthenticateCallbackHandler, SaslExtensions, SaslExtensionsCallback}
import org.apache.kafka.common.security.oauthbearer.{OAuthBearerToken, OAuthBearerTokenCallback}

/**
 * Tokens of OAUTHBEARER, from an OIDC provider's endpoint by client_credentials, as `stores/kafka/tokens.py` gets them.
 * Kafka's own handler shows all that an endpoint answers, however much it is; whoever makes a store chooses the address.
 */
class TokenLogin extends AuthenticateCallbackHandler {
  import TokenLogin._

  private var said = Map.empty[String, String]
  private var endpoint: URI = _
  private def secret = said.getOrElse("clientSecret", "")

  override def configure(configs: JMap[String, _], mechanism: String, jaas: JList[AppConfigurationEntry]): Unit = {
    said = jaas.asScala.flatMap(_.getOptions.asScala).map { case (k, v) => k -> v.toString }.toMap
    endpoint = URI.create(configs.get("sasl.oauthbearer.token.endpoint.url").toString)
  }

  override def handle(callbacks: Array[Callback]): Unit = callbacks.foreach {
    case asked: OAuthBearerTokenCallback =>
      try asked.token(fetched())
      catch { case NoToken(why) => asked.error("no_token", s"no OAUTHBEARER token from $place: $why", null) }
    case asked: SaslExtensionsCallback =>
      val given = said.collect { case (k, v) if k.startsWith(Extension) => k.stripPrefix(Extension) -> v }
      if (given.nonEmpty) asked.extensions(new SaslExtensions(given.asJava))
    case other => throw new UnsupportedCallbackException(other)
  }

  override def close(): Unit = ()

  /** Without what may stand behind its path. */
  private def place = s"${endpoint.getScheme}://${endpoint.getRawAuthority}${endpoint.getRawPath}"

  private def fetched(): OAuthBearerToken = {
    val answer =
      try Registry.answer(client(), request(), Largest, AnswerMs)
      catch {
        case e: IOException if e.getMessage == "not in time" => throw NoToken("it does not answer in time")
        case e @ (_: java.net.ConnectException | _: java.net.http.HttpConnectTimeoutException | _: javax.net.ssl.SSLException) =>
          throw NoToken(s"could not connect to it: ${Option(e.getMessage).getOrElse(e.getClass.getSimpleName)}")
        // Of what is not HTTP its text would have a part.
        case e: IOException => throw NoToken(s"it does not answer as a token endpoint does (${e.getClass.getSimpleName})")
        case _: InterruptedException => Thread.currentThread().interrupt(); throw NoToken("interrupted")
      }
    val found = Try(Json.read(answer.body)).toOption.filter(n => n != null && n.isObject)
    if (answer.statusCode != 200) throw NoToken(refusal(answer.statusCode, found))
    val text = found.flatMap(words(_, "access_token")).filter(_.matches("[A-Za-z0-9_.~+/-]+=*"))
    made(text.getOrElse(throw NoToken("it answers without a token")), found.flatMap(number(_, "expires_in")))
  }

  /** Only the two fields that a refusal has: what else answers at some address is nobody's to read. */
  private def refusal(status: Int, found: Option[JsonNode]): String =
    found.flatMap(words(_, "error")) match {
      case None => s"it answers with status $status"
      case Some(error) => (error +: found.flatMap(words(_, "error_description")).toSeq).map(short).mkString("it refuses: ", ": ", "")
    }

  private def short(text: String): String = {
    val plain = (if (secret.isEmpty) text else text.replace(secret, "********")).take(Longest + 1).map(c => if (c.isControl) ' ' else c)
    if (plain.length <= Longest) plain else s"${plain.take(Longest)}…"
  }

  private def made(text: String, lasts: Option[Double]): OAuthBearerToken = {
    val claims = text.split('.') match {
      case Array(_, body, _) => Try(Json.read(new String(Base64.getUrlDecoder.decode(body), UTF_8))).toOption.filter(n => n != null && n.isObject)
      case _ => None
    }
    val now = System.currentTimeMillis
    val ends = claims.flatMap(number(_, "exp")).map(_ * 1000).getOrElse(now + lasts.getOrElse(LastsS) * 1000).toLong
    if (ends <= now) throw NoToken("it answers with a token that has ended")
    new OAuthBearerToken {
      override val value: String = text
      override val scope: JSet[String] = said.get("scope").toSet.flatMap((s: String) => s.split(' ').filter(_.nonEmpty)).asJava
      override val lifetimeMs: Long = ends
      override val principalName: String = claims.flatMap(words(_, "sub")).filter(_.nonEmpty).getOrElse(said("clientId"))
      override val startTimeMs: JLong = now
    }
  }

  private def client(): HttpClient = {
    val b = HttpClient.newBuilder.version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(3))
      .followRedirects(HttpClient.Redirect.NEVER)
    val ssl = said.filter(_._1.startsWith("ssl."))
    if (ssl.nonEmpty) b.sslContext(Registry.tls(ssl))
    b.build()
  }

  private def request(): HttpRequest = {
    val pair = Base64.getEncoder.encodeToString(s"${said("clientId")}:$secret".getBytes(UTF_8))
    val scope = said.get("scope").map(s => s"&scope=${URLEncoder.encode(s, UTF_8)}").mkString
    HttpRequest.newBuilder(endpoint).header("Accept", "application/json").header("Authorization", s"Basic $pair")
      .header("Content-Type", "application/x-www-form-urlencoded")
      .POST(HttpRequest.BodyPublishers.ofString(s"grant_type=client_credentials$scope")).build()
  }
}

object TokenLogin {
  private val Extension = "extension_"
  private val Largest = 1 << 20
  private val AnswerMs = 8000L
  private val LastsS = 300.0
  /** Characters that are shown of what an endpoint says. */
  private val Longest = 200

  private case class NoToken(why: String) extends Exception(why)

  private def words(n: JsonNode, name: String): Option[String] = Option(n.get(name)).filter(_.isTextual).map(_.asText)
  private def number(n: JsonNode, name: String): Option[Double] =
    Option(n.get(name)).filter(_.isNumber).map(_.asDouble).filter(v => v > 0 && v < 1e11)
}
