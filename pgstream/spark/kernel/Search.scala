package org.apache.spark.sql.pgstream

import java.util.{Arrays, BitSet}

import scala.collection.mutable.{ArrayBuffer, ArrayDeque}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BasePredicate, GenericInternalRow, UnsafeProjection}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.unsafe.types.UTF8String

/** What conditions and measures read of a match; `variable` -1: of all its rows. `errors`: columns that a row must not have. */
sealed trait Read {
  def variable: Int
  def dataType: DataType
  def errors: Array[Int]
  def error(row: InternalRow): UTF8String = if (errors.isEmpty) null else errors.find(!row.isNullAt(_)).map(row.getUTF8String(_)).orNull
}
/** The value `at` of a row: `offset` further in from the first or the last row of a variable, then `shift` rows on. */
case class Seek(variable: Int, at: Int, dataType: DataType, last: Boolean, offset: Int, shift: Int, errors: Array[Int]) extends Read
case class Tally(variable: Int, call: Call, dataType: DataType, errors: Array[Int]) extends Read

/** A query must end, with SQLSTATE and message as `planner/checked.py` has them. */
class Raised(text: String) extends RuntimeException(s"[USER_RAISED_EXCEPTION] $text") {
  def this(state: String, message: String) = this(s"$state $message")
}

/** How an attempt at a row ended. `Waits`: rows that are not there yet may decide. */
sealed trait Outcome
case object Found extends Outcome
case object Nothing extends Outcome
case object Waits extends Outcome

/** Row numbers, in order. */
private final class Places {
  var at = new Array[Int](8)
  var length = 0
  def push(i: Int): Unit = { if (length == at.length) at = Arrays.copyOf(at, 2 * length); at(length) = i; length += 1 }
}

/** An aggregate of the rows that are mapped just now: those that were added stay, until one of them goes. */
private final class Running(t: Tally, schema: StructType) {
  private val inner = FrameCall(t.call, schema, bounded = true)
  private val listed = t.call.distinct || t.call.function == "listagg" || t.call.function == "array_agg"
  private var added = 0
  /** Of the first of its rows that has one. */
  var error: UTF8String = _

  def shrink(to: Int): Unit = if (added > to) { inner.reset(); added = 0; error = null }

  def result(length: Int, row: Int => Kept): Any = {
    while (added < length) {
      val r = row(added).read(schema.length)
      if (error == null) error = t.error(r)
      inner.add(r)
      added += 1
    }
    inner.result(if (listed) ArrayDeque.from(Iterator.range(0, length).map(row)) else null)
  }
}

/**
 * Looks for the preferred match that begins at a row, by going back (SQL:2016: of two matches that are alike so far that one
 * is preferred whose next choice stands further left, or is a longer repetition, if not reluctant).
 *
 * `within` (microseconds): a match takes no row later than that after its first. `horizon`: PREV and NEXT see no row further
 * away. Either is Long.MaxValue where there is none. `conditions`: by variable, null where every row will do, over a row
 * of the `reads`, of which `needs` tells those it is of.
 */
final class Search(
    pattern: Pattern, schema: StructType, reads: IndexedSeq[Read], conditions: Array[BasePredicate],
    needs: Array[Array[Int]], within: Long, horizon: Long
) {
  private val program = pattern.program
  private val running = reads.map { case t: Tally => new Running(t, schema); case _ => null }.toArray
  private val tallies = reads.indices.filter(running(_) != null).toArray
  private val places = Array.fill(pattern.variables.length)(new Places)
  private val values = new Array[Any](reads.length)
  /** What the query ends with if a value is asked for. */
  private val errors = new Array[UTF8String](reads.length)
  private val row = new GenericInternalRow(values) {
    override def isNullAt(i: Int): Boolean = { if (errors(i) != null) throw new Raised(errors(i).toString); super.isNullAt(i) }
  }
  /** Whether a row's condition does not depend on how the rows before it were mapped: then no way is gone twice. */
  private val plain = conditions.indices.forall(v => needs(v).forall(reads(_) match {
    case s: Seek => s.last && s.offset == 0 && (s.variable == v || s.variable == -1)
    case _ => false
  }))
  private val tried = new BitSet
  private val choices = new BitSet

  private var rows: ArrayBuffer[Kept] = _
  private var watermark = 0L
  private var start = 0
  private val mapped = new Places // the variable of each row of the match

  def over(of: ArrayBuffer[Kept], at: Long): Unit = { rows = of; watermark = at }

  /** Rows of the match that was found. */
  def length: Int = mapped.length
  /** The rows of one variable in it. */
  def first(variable: Int): Option[Int] = Option.when(places(variable).length > 0)(places(variable).at(0))
  def last(variable: Int): Option[Int] = Option.when(places(variable).length > 0)(places(variable).at(places(variable).length - 1))

  // Choices that are left: where to go on, at how many rows, with which marks.
  private val left = new ArrayBuffer[(Int, Int, Array[Int])]

  def attempt(at: Int): Outcome = {
    start = at
    truncate(0)
    tried.clear()
    choices.clear()
    left.clear()
    var marks = new Array[Int](pattern.loops)
    var pc = 0
    var steps = 0L
    val most = Search.Steps + 100L * rows.length
    while (true) {
      steps += 1
      if (steps > most) throw Search.tooMany(at)
      var dead = false
      program(pc) match {
        case Done => return Found
        case Jump(to) => pc = to
        case Split(one, two) => if (chosen(pc, marks)) dead = true else { left += ((two, mapped.length, marks)); pc = one }
        case Mark(loop) => marks = marks.updated(loop, mapped.length); pc += 1
        case Check(loop, out) => pc = if (marks(loop) == mapped.length) out else pc + 1
        case Take(v) =>
          val outcome = if (taken(pc)) Nothing else take(v)
          if (outcome == Waits) return Waits
          if (outcome == Found) pc += 1 else dead = true
      }
      if (dead) {
        if (left.isEmpty) return Nothing
        val (to, length, kept) = left.remove(left.length - 1)
        truncate(length)
        marks = kept
        pc = to
      }
    }
    Nothing
  }

  /** Whether this row was to be taken here before, and that led nowhere. No mark says anything about what comes behind it. */
  private def taken(pc: Int): Boolean = plain && again(tried, mapped.length.toLong * program.length + pc)

  /** Whether it was chosen here at this row before, while the same repetitions had begun at it, and that led nowhere. */
  private def chosen(pc: Int, marks: Array[Int]): Boolean = plain && marks.length <= Search.Loops && {
    var bit = mapped.length.toLong * program.length + pc
    marks.foreach(m => bit = 2 * bit + (if (m == mapped.length) 1 else 0))
    bit < Search.Remembered && again(choices, bit)
  }

  private def again(among: BitSet, bit: Long): Boolean =
    bit < Int.MaxValue && (among.get(bit.toInt) || { among.set(bit.toInt); false })

  private def take(v: Int): Outcome = {
    val i = start + mapped.length
    if (i >= rows.length) if (passed(rows(start).time, within)) Nothing else Waits
    else if (rows(i).time - rows(start).time > within) Nothing
    else {
      mapped.push(v)
      places(v).push(i)
      if (conditions(v) == null) Found
      else if (!fill(needs(v))) Waits
      else if (conditions(v).eval(row)) Found
      else { truncate(mapped.length - 1); Nothing }
    }
  }

  /** Whether every row so long after a time would have been told by now. */
  private def passed(time: Long, span: Long): Boolean = span != Long.MaxValue && watermark >= time + span

  private def truncate(length: Int): Unit = {
    while (mapped.length > length) {
      mapped.length -= 1
      places(mapped.at(mapped.length)).length -= 1
    }
    tallies.foreach(r => running(r).shrink(count(reads(r).variable)))
  }

  private def count(variable: Int): Int = if (variable < 0) mapped.length else places(variable).length
  private def place(variable: Int, n: Int): Int = if (variable < 0) start + n else places(variable).at(n)

  /** The values of some reads; false when one of them is not there yet. */
  def fill(which: Array[Int]): Boolean = {
    var known = true
    which.foreach { r =>
      reads(r) match {
        case t: Tally =>
          values(r) = running(r).result(count(t.variable), n => rows(place(t.variable, n)))
          errors(r) = running(r).error
        case s: Seek => known &= seek(r, s)
      }
    }
    known
  }

  private def seek(r: Int, s: Seek): Boolean = {
    values(r) = null
    errors(r) = null
    val n = if (s.last) count(s.variable) - 1 - s.offset else s.offset
    if (n < 0 || n >= count(s.variable)) true
    else {
      val from = place(s.variable, n)
      val i = from + s.shift
      if (i >= rows.length && !passed(rows.last.time, horizon)) false
      else {
        if (i >= 0 && i < rows.length && near(from, i)) {
          val found = rows(i).read(schema.length)
          errors(r) = s.error(found)
          if (!found.isNullAt(s.at)) values(r) = found.get(s.at, s.dataType)
        }
        true
      }
    }
  }

  /** Whether no two rows on the way are further apart than is remembered. */
  private def near(from: Int, to: Int): Boolean =
    horizon == Long.MaxValue || (math.min(from, to) until math.max(from, to)).forall(i => rows(i + 1).time - rows(i).time <= horizon)

  /** The values of some reads, packed; None while one of them is not there yet. */
  def packed(which: Array[Int], pack: UnsafeProjection): Option[Array[Byte]] =
    Option.when(fill(which))(Changes.bytes(pack(new GenericInternalRow(which.map(i => if (row.isNullAt(i)) null else values(i))))))
}

object Search {
  /**
   * Of one attempt, and 100 for each row. Nested repetitions whose conditions depend on the match can go on nearly for ever.
   */
  val Steps = 1000000L
  /** With more repetitions of what may be empty, choices are not remembered: each doubles the room that they take. */
  val Loops = 6
  /** Bits for choices, which take 8 MB then; those of rows that are further on are not remembered. */
  val Remembered = 1L << 26

  def tooMany(at: Int): Raised =
    new Raised("54001", s"the pattern of MATCH_RECOGNIZE needs more than $Steps steps to be looked for at one row")
}
