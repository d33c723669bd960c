package org.apache.spark.sql.pgstream

import java.nio.file.{Files, Path, Paths}

/**
 * Places at which a test lets this process die as by kill -9: the file that the environment's `PGSTREAM_KILL_POINTS` names
 * says which, how often it is passed before, and, where it is not this process that dies, which (`topic before commit=2=PID`).
 * Without the variable they cost nothing.
 */
object KillPoints {
  private val order: Option[Path] = Option(System.getenv("PGSTREAM_KILL_POINTS")).map(Paths.get(_))

  /** `before` is done only if this is the end. */
  def at(point: String, before: => Unit = ()): Unit =
    order.foreach(file => claim(file, point).foreach { victim => before; kill(file, victim) })

  /** Whom to kill, if it is time. */
  private def claim(file: Path, point: String): Option[Long] = synchronized {
    if (!Files.exists(file)) None
    else {
      val words = Files.readString(file).trim.split('=')
      val times = words(1).toInt
      if (words(0) != point) None
      else if (times > 0) { Files.writeString(file, (words.take(1) ++ Seq(s"${times - 1}") ++ words.drop(2)).mkString("=")); None }
      else Some(words.lift(2).map(_.toLong).getOrElse(ProcessHandle.current.pid))
    }
  }

  private def kill(file: Path, victim: Long): Unit = synchronized {
    Files.deleteIfExists(file)
    if (victim == ProcessHandle.current.pid) Runtime.getRuntime.halt(137)
    ProcessHandle.of(victim).ifPresent(_.destroyForcibly())
  }
}
