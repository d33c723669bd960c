package org.apache.spark.sql.pgstream

import java.io.ByteArrayInputStream
import java.nio.charset.StandardCharsets.US_ASCII
import java.security.{KeyFactory, KeyStore, PrivateKey}
import java.security.cert.{CertificateFactory, X509Certificate}
import java.security.spec.PKCS8EncodedKeySpec
import java.util.Base64
import javax.net.ssl.{KeyManagerFactory, SSLContext, TrustManager, TrustManagerFactory, X509TrustManager}

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.postgresql.ssl.WrappedFactory

import Json.Node

/**
 * TLS of the JDBC driver by PEM texts, which its own factories want as files. `told`, its `sslfactoryarg`, is JSON:
 * `authorities` (those of Java where there are none), `certificate` and `key` (PKCS #8), and `any`, to trust every server.
 * The driver looks after the host name.
 */
class PemTls(told: String) extends WrappedFactory {
  factory = PemTls.context(Json.read(told)).getSocketFactory
}

object PemTls {
  private val Algorithms = Seq("EC", "RSA", "EdDSA")

  private def context(c: com.fasterxml.jackson.databind.JsonNode): SSLContext = {
    val keys = c.opt("certificate").map { chain =>
      val store = empty
      store.setKeyEntry("client", key(c.str("key")), Array.emptyCharArray, certificates(chain).toArray)
      val factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm)
      factory.init(store, Array.emptyCharArray)
      factory.getKeyManagers
    }
    val trusted = c.opt("authorities").map { texts =>
      val store = empty
      certificates(texts).zipWithIndex.foreach { case (one, i) => store.setCertificateEntry(s"ca$i", one) }
      val factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm)
      factory.init(store)
      factory.getTrustManagers
    }
    val made = SSLContext.getInstance("TLS")
    val any = if (c.opt("any").contains("true")) Some(Array[TrustManager](Anyone)) else None
    made.init(keys.orNull, trusted.orElse(any).orNull, null)
    made
  }

  private def empty: KeyStore = {
    val store = KeyStore.getInstance(KeyStore.getDefaultType)
    store.load(null, null)
    store
  }

  private def certificates(pem: String): Seq[X509Certificate] =
    CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem.getBytes(US_ASCII))).asScala.toSeq
      .map(_.asInstanceOf[X509Certificate])

  private def key(pem: String): PrivateKey = {
    val text = pem.linesIterator.map(_.trim).filterNot(_.startsWith("-----")).mkString
    val spec = new PKCS8EncodedKeySpec(Base64.getDecoder.decode(text))
    Algorithms.iterator.flatMap(a => Try(KeyFactory.getInstance(a).generatePrivate(spec)).toOption).nextOption()
      .getOrElse(throw new IllegalArgumentException("the client's key is of no kind that Java knows"))
  }

  private object Anyone extends X509TrustManager {
    override def checkClientTrusted(chain: Array[X509Certificate], kind: String): Unit = ()
    override def checkServerTrusted(chain: Array[X509Certificate], kind: String): Unit = ()
    override def getAcceptedIssuers: Array[X509Certificate] = Array.empty
  }
}
