package org.apache.spark.sql.pgstream

import java.nio.file.{Files, Path, Paths}

/**
 * Places at which a test lets this process die as by kill -9: the file that the environment's `PGSTREAM_KILL_POINTS` names
 * says which, and how often it is passed before. Without the variable they cost nothing.
 */
object KillPoints {
  private val order: Option[Path] = Option(System.getenv("PGSTREAM_KILL_POINTS")).map(Paths.get(_))

  /** `before` is done only if this is the end. */
  def at(point: String, before: => Unit = ()): Unit = order.foreach(file => if (claim(file, point)) { before; die(file) })

  private def claim(file: Path, point: String): Boolean = synchronized {
    if (!Files.exists(file)) false
    else {
      val Array(name, times) = Files.readString(file).trim.split('=')
      if (name != point) false
      else if (times.toInt > 0) { Files.writeString(file, s"$name=${times.toInt - 1}"); false }
      else true
    }
  }

  private def die(file: Path): Unit = synchronized {
    Files.deleteIfExists(file)
    Runtime.getRuntime.halt(137)
  }
}
