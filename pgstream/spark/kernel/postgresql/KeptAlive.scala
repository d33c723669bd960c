package org.apache.spark.sql.pgstream

import java.net.{InetAddress, Socket, StandardSocketOptions}
import javax.net.SocketFactory

import jdk.net.ExtendedSocketOptions._

/**
 * Sockets on which a way that is gone without a word is noticed in a minute, not after the system's two hours: who waits for a
 * lock or for a commit of a store hears nothing for as long as that takes. Named to the driver as its `socketFactory`.
 */
class KeptAlive extends SocketFactory {
  override def createSocket(): Socket = {
    val s = new Socket()
    s.setOption(StandardSocketOptions.SO_KEEPALIVE, java.lang.Boolean.TRUE)
    Seq(TCP_KEEPIDLE -> 30, TCP_KEEPINTERVAL -> 10, TCP_KEEPCOUNT -> 3).foreach { case (option, n) =>
      if (s.supportedOptions.contains(option)) s.setOption(option, Integer.valueOf(n))
    }
    s
  }

  override def createSocket(host: String, port: Int): Socket = refuse
  override def createSocket(host: String, port: Int, from: InetAddress, own: Int): Socket = refuse
  override def createSocket(host: InetAddress, port: Int): Socket = refuse
  override def createSocket(host: InetAddress, port: Int, from: InetAddress, own: Int): Socket = refuse

  /** The driver connects by itself. */
  private def refuse: Nothing = throw new UnsupportedOperationException("a socket that is not connected is made")
}
