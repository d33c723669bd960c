package org.apache.spark.sql.pgstream

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, MicroBatchExecution, StreamingQueryWrapper}
import org.apache.spark.sql.streaming.StreamingQuery
import org.apache.spark.sql.types.{BooleanType, DataType}
import org.apache.spark.util.LongAccumulator

/** What the event time has passed before a batch began: rows for that come too late, in every operator alike. */
object Passed {
  private val Key = "pgstream.passed"
  private val Before = "pgstream.passed.before"
  private val Now = "pgstream.now"

  /** On the query's thread, before a batch runs. */
  def tell(execution: QueryExecution): Unit = execution match {
    case e: IncrementalExecution =>
      e.sparkSession.sparkContext.setLocalProperty(Key, e.offsetSeqMetadata.batchWatermarkMs.toString)
      val before = e.prevOffsetSeqMetadata.map(_.batchWatermarkMs).getOrElse(0L)
      e.sparkSession.sparkContext.setLocalProperty(Before, before.toString)
      e.sparkSession.sparkContext.setLocalProperty(Now, e.offsetSeqMetadata.batchTimestampMs.toString)
    case _ => ()
  }

  /** The same of a stream that writes elsewhere than into a sink of ours. */
  def tell(stream: StreamingQuery): Unit = stream match {
    case w: StreamingQueryWrapper =>
      w.streamingQuery match { case m: MicroBatchExecution if m.lastExecution != null => tell(m.lastExecution); case _ => () }
    case _ => ()
  }

  /** In a task: when its batch began, in microseconds. */
  def now: Long =
    Option(TaskContext.get()).flatMap(t => Option(t.getLocalProperty(Now))).map(_.toLong).getOrElse(System.currentTimeMillis()) * 1000

  /**
   * In a task: in microseconds; nothing has passed before the first record. `held`: of rows that come out of an operator,
   * which has seen what passed in this batch; those before them came out in the batch before. Its event time is so many
   * milliseconds behind.
   */
  def micros(held: Option[Long]): Long = {
    val told = Option(TaskContext.get()).flatMap(t => Option(t.getLocalProperty(if (held.isEmpty) Key else Before))).map(_.toLong).getOrElse(0L)
    if (told <= 0) Long.MinValue else (told - held.getOrElse(0L)) * 1000
  }
}

/**
 * Whether a row still counts, by its event time and, where its window is known, by the end of that (`until`). A row that
 * some window it falls into has been told without is counted in `late`, once, however many windows there are.
 *
 * `span`: how long windows are, microseconds; `every`: how far apart they begin, 0 where they are a row's own (a session's
 * first, or a point in time). `held`: see `Passed.micros`. Spark's watermark begins with 1970: what it takes no rows for any
 * more, a window that has ended by then, is over from the beginning.
 */
case class OnTime(time: Expression, until: Expression, span: Long, every: Long, cumulates: Boolean, held: Option[Long], late: LongAccumulator)
    extends BinaryExpression {
  @transient private lazy val passed = if (span > 0 || !whole) math.max(Passed.micros(held), 0L) else Passed.micros(held)
  override def left: Expression = time
  override def right: Expression = until
  // It counts: it must neither move nor be asked twice.
  override lazy val deterministic: Boolean = false
  override def dataType: DataType = BooleanType
  override def nullable: Boolean = false

  private def first(t: Long): Long = if (every == 0) t + span else Math.floorDiv(t, every) * every + every
  private def last(t: Long): Long =
    if (every == 0) t + span else if (cumulates) Math.floorDiv(t, span) * span + span else first(t) - every + span

  /** Of a row that is in all its windows. */
  def check(t: Long): Boolean = if (first(t) > passed) true else { late.add(1); last(t) > passed }

  /** Of a row that is in one of its windows. */
  def check(t: Long, end: Long): Boolean =
    if (end > passed) true else { if (every == 0 || end == first(t)) late.add(1); false }

  private val whole = until == time
  override def eval(row: InternalRow): Any = {
    val t = time.eval(row).asInstanceOf[Long]
    if (whole) check(t) else check(t, until.eval(row).asInstanceOf[Long])
  }

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val me = ctx.addReferenceObj("onTime", this)
    val t = time.genCode(ctx)
    if (whole) ev.copy(code"${t.code} boolean ${ev.value} = $me.check(${t.value});", FalseLiteral)
    else {
      val u = until.genCode(ctx)
      ev.copy(code"${t.code} ${u.code} boolean ${ev.value} = $me.check(${t.value}, ${u.value});", FalseLiteral)
    }
  }

  override protected def withNewChildrenInternal(l: Expression, r: Expression): OnTime = copy(time = l, until = r)
}
