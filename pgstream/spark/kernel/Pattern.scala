package org.apache.spark.sql.pgstream

import scala.collection.mutable.{ArrayBuffer, ArrayDeque}
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import Json.Node

/** One instruction of a row pattern's program. */
sealed trait Instruction
/** The next row, mapped to a variable. */
case class Take(variable: Int) extends Instruction
/** Two ways to go on, the first preferred. */
case class Split(first: Int, second: Int) extends Instruction
case class Jump(to: Int) extends Instruction
/** A repetition of what may be empty begins; `Check` leaves it when no row was taken since. */
case class Mark(loop: Int) extends Instruction
case class Check(loop: Int, out: Int) extends Instruction
case object Done extends Instruction

/** A row pattern as a program; `loops`: how many `Mark`s it has. */
case class Pattern(program: Array[Instruction], variables: IndexedSeq[String], loops: Int) {
  /** How many rows a match has, at least, before the first that may be mapped to each variable, and behind these in all. */
  def before: Array[Int] = {
    val seen = new Array[Boolean](program.length)
    val found = Array.fill(variables.length + 1)(program.length)
    // Of places that are as many rows away one may lead to the other, so the nearest are gone to first.
    val left = ArrayDeque(0 -> 0)
    while (left.nonEmpty) {
      val (pc, n) = left.removeHead()
      if (!seen(pc)) {
        seen(pc) = true
        program(pc) match {
          case Take(v) => found(v) = math.min(found(v), n); left.append(pc + 1 -> (n + 1))
          case Split(one, two) => left.prependAll(Seq(one -> n, two -> n))
          case Jump(to) => left.prepend(to -> n)
          case Mark(_) => left.prepend(pc + 1 -> n)
          case Check(_, out) => left.prependAll(Seq(pc + 1 -> n, out -> n))
          case Done => found(variables.length) = n
        }
      }
    }
    found
  }
}

object Pattern {
  /** Of the JSON of `plan.Pattern`. */
  def read(n: JsonNode): Pattern = {
    val w = new Writer
    w.write(n)
    w.code += Done
    Pattern(w.code.toArray, w.names.toIndexedSeq, w.loops)
  }

  private def parts(n: JsonNode): Seq[JsonNode] = n.get("parts").elements().asScala.toSeq

  private def empty(n: JsonNode): Boolean = n.str("type") match {
    case "row" => false
    case "sequence" => parts(n).forall(empty)
    case "choice" => parts(n).exists(empty)
    case "repeat" => n.get("least").asInt == 0 || empty(n.get("part"))
  }

  private final class Writer {
    val code = new ArrayBuffer[Instruction]
    val names = new ArrayBuffer[String]
    var loops = 0

    def write(n: JsonNode): Unit = n.str("type") match {
      case "row" => code += Take(variable(n.str("name")))
      case "sequence" => parts(n).foreach(write)
      case "choice" => choice(parts(n))
      case "repeat" => repeat(n)
    }

    private def variable(name: String): Int = {
      if (!names.contains(name)) names += name
      names.indexOf(name)
    }

    /** Room for an instruction that is known when what follows is written. */
    private def room(): Int = { code += Done; code.length - 1 }

    private def choice(of: Seq[JsonNode]): Unit = {
      val ends = of.init.map { p =>
        val split = room()
        write(p)
        val jump = room()
        code(split) = Split(split + 1, code.length)
        jump
      }
      write(of.last)
      ends.foreach(code(_) = Jump(code.length))
    }

    private def repeat(n: JsonNode): Unit = {
      val (part, least) = (n.get("part"), n.get("least").asInt)
      val reluctant = n.has("reluctant") && n.get("reluctant").asBoolean
      def either(go: Int, out: Int): Instruction = if (reluctant) Split(out, go) else Split(go, out)
      (0 until least).foreach(_ => write(part))
      if (n.has("most") && !n.get("most").isNull) {
        val splits = (least until n.get("most").asInt).map { _ => val s = room(); write(part); s }
        splits.foreach(s => code(s) = either(s + 1, code.length))
      } else {
        val split = room()
        val check = if (empty(part)) {
          val loop = loops // repetitions inside it have numbers of their own
          code += Mark(loop)
          loops += 1
          write(part)
          Some(room() -> loop)
        } else { write(part); None }
        code += Jump(split)
        code(split) = either(split + 1, code.length)
        check.foreach { case (at, loop) => code(at) = Check(loop, code.length) }
      }
    }
  }
}
