package org.apache.spark.sql.pgstream

import java.lang.reflect.{InvocationTargetException, Method}
import java.net.{URI, URL, URLClassLoader}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.util.{Base64, List => JList, Map => JMap}
import javax.security.auth.callback.{Callback, UnsupportedCallbackException}
import javax.security.auth.login.AppConfigurationEntry

import scala.jdk.CollectionConverters._

import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler
import org.apache.kafka.common.security.oauthbearer.{OAuthBearerToken, OAuthBearerTokenCallback}

import org.apache.spark.{SparkContext, SparkEnv, SparkFiles}

/**
 * Tokens for Amazon MSK: the process's own AWS identity takes the store's role at the region's STS, and AWS's library for
 * Kafka's clients signs a request to connect. The library's own handler is not used: where the role cannot be taken, it
 * signs with the process's identity instead.
 */
class MskLogin extends AuthenticateCallbackHandler {
  private var host = ""
  private var role: AnyRef = _

  override def configure(configs: JMap[String, _], mechanism: String, jaas: JList[AppConfigurationEntry]): Unit = {
    val said = jaas.asScala.flatMap(_.getOptions.asScala).toMap
    val region = said("region").toString
    host = s"kafka.$region.amazonaws.com"
    role = Aws.role(said("role").toString, region)
  }

  override def handle(callbacks: Array[Callback]): Unit = callbacks.foreach {
    case asked: OAuthBearerTokenCallback =>
      try asked.token(Aws.token(host, role))
      catch { case e @ (_: RuntimeException | _: ReflectiveOperationException) => asked.error("no_token", e.getMessage, null) }
    case other => throw new UnsupportedCallbackException(other)
  }

  override def close(): Unit = Option(role).foreach(Aws.call(_, "close"))
}

object MskLogin {
  /** In the driver: executors get the library with their next tasks. When the pool began it may not have been fetched yet. */
  def send(): Unit = if (Option(SparkEnv.get).exists(_.executorId == SparkContext.DRIVER_IDENTIFIER)) {
    val spark = SparkContext.getOrCreate()
    val jar = Aws.named
    def isThere = spark.listFiles().exists(_.endsWith(s"/${jar.getFileName}"))
    synchronized(if (!spark.isLocal && Files.isRegularFile(jar) && !isThere) spark.addFile(jar.toString))
  }
}

/**
 * AWS's library, loaded when a store needs it and by a class loader of its own: the netty and the HTTP client in it are not
 * Spark's. Hence the reflection, which sees public names only.
 */
private object Aws {
  private val Sdk = "software.amazon.awssdk."
  private val Sts = s"${Sdk}services.sts."
  private val Iam = "software.amazon.msk.auth.iam."
  def named: Path = Path.of(System.getProperty("pgstream.msk.jar", ""))
  private lazy val loader = {
    MskLogin.send()
    // An executor has it among the application's files.
    def sent = Path.of(SparkFiles.get(named.getFileName.toString))
    val jar = Some(named).filter(Files.isRegularFile(_)).orElse(Some(sent).filter(Files.isRegularFile(_)))
      .getOrElse(throw new IllegalStateException(s"$named is not there: pgstream jars --msk fetches it"))
    new URLClassLoader(Array[URL](jar.toUri.toURL), getClass.getClassLoader) {
      // What is in the jar is the jar's, also where Spark has another version of it; but Kafka's classes and the loggers.
      override def loadClass(name: String, resolve: Boolean): Class[_] = getClassLoadingLock(name).synchronized {
        val own = Option(findLoadedClass(name)).orElse(
          if (Own.exists(name.startsWith)) Some(findClass(name)) else None)
        own.getOrElse(super.loadClass(name, resolve))
      }
    }
  }
  private val Own = Seq("software.amazon.", "io.netty.", "org.apache.http.", "org.apache.commons.codec.")

  /** Credentials of a role, fetched anew before they expire. */
  def role(arn: String, region: String): AnyRef = {
    val place = static(s"${Sdk}regions.Region", "of", region)
    val client = built(s"${Sts}StsClient", "region" -> place)
    val request = built(s"${Sts}model.AssumeRoleRequest", "roleArn" -> arn, "roleSessionName" -> "pgstream")
    built(s"${Sts}auth.StsAssumeRoleCredentialsProvider", "stsClient" -> client, "refreshRequest" -> request)
  }

  def token(host: String, role: AnyRef): OAuthBearerToken = {
    val asked = static(s"${Iam}internals.AuthenticationRequestParams", "create", host, call(role, "resolveCredentials"), "pgstream")
    val signer = made(s"${Iam}internals.AWS4SignedPayloadGenerator")
    val uri = call(call(signer, "presignRequest", asked), "getUri").asInstanceOf[URI]
    // The agent is not among what is signed; MSK wants it said.
    val text = Base64.getUrlEncoder.withoutPadding.encodeToString(s"$uri&User-Agent=pgstream".getBytes(UTF_8))
    made(s"${Iam}IAMOAuthBearerToken", text).asInstanceOf[OAuthBearerToken]
  }

  def call(on: AnyRef, method: String, arguments: AnyRef*): AnyRef = run(on, on.getClass, method, arguments)

  private def static(name: String, method: String, arguments: AnyRef*) = run(null, loader.loadClass(name), method, arguments)

  private def made(name: String, arguments: AnyRef*): AnyRef =
    loader.loadClass(name).getConstructor(arguments.map(_.getClass): _*).newInstance(arguments: _*).asInstanceOf[AnyRef]

  private def built(name: String, parts: (String, AnyRef)*): AnyRef =
    call(parts.foldLeft(static(name, "builder")) { case (b, (part, value)) => call(b, part, value) }, "build")

  private def run(on: AnyRef, kind: Class[_], name: String, arguments: Seq[AnyRef]): AnyRef = {
    def fits(m: Method) = m.getName == name && !m.isBridge && m.getParameterCount == arguments.size &&
      m.getParameterTypes.zip(arguments).forall { case (t, a) => t.isInstance(a) }
    val method = kind.getMethods.find(fits).getOrElse(throw new NoSuchMethodException(s"${kind.getName}.$name"))
    method.setAccessible(true)
    try method.invoke(on, arguments: _*)
    catch { case e: InvocationTargetException => throw e.getCause }
  }
}
