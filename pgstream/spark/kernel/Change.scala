package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.util.concurrent.ConcurrentHashMap

import scala.reflect.{classTag, ClassTag}

import org.apache.spark.sql.{DataFrame, Dataset, Encoder}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.Analyzer
import org.apache.spark.sql.catalyst.encoders.{AgnosticEncoder, ExpressionEncoder}
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoders._
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral, GenerateUnsafeProjection}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.catalyst.plans.logical.{Project, TransformWithState}
import org.apache.spark.sql.classic.{Dataset => ClassicDataset}
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TTLConfig, TimeMode}
import org.apache.spark.sql.types._

/**
 * A row on its way into or out of an operator with state: packed, so that operators need no schema to keep it.
 *
 * Every operator tells per batch the difference of its result before and after the batch, as rows that are taken back
 * (`delete`) and rows that are added; so the order in which a shuffle hands them on means nothing. `time` is in
 * microseconds; `place` and `offset` are the position of the source record, -1 where there is none. `side`: 0 or 1, the input of a join.
 */
case class Change(key: Array[Byte], row: Array[Byte], side: Int, time: Long, place: Int, offset: Long, delete: Boolean) {
  def later(o: Change): Boolean = if (place != o.place) place > o.place else offset > o.offset
  def as(r: Array[Byte], taken: Boolean): Change = Change(key, r, side, time, place, offset, taken)
}

/**
 * Encoders of case classes, written out. `Encoders.product` asks Scala's reflection: seconds of a young JVM, and a part of
 * each task where an operator opens its state.
 */
object CaseClass {
  def encoder[T: ClassTag](fields: (String, AgnosticEncoder[_])*): Encoder[T] =
    Once(ProductEncoder(classTag[T], fields.map { case (name, of) => EncoderField(name, of, of.nullable, Metadata.empty) }, None))
}

/**
 * An encoder that is resolved once in a process: Spark has its analyzer resolve one for each variable of an operator's
 * state, in each task.
 */
class Once[T](of: ExpressionEncoder[T]) extends ExpressionEncoder[T](of.encoder, of.objSerializer, of.objDeserializer) {
  override def resolveAndBind(attrs: Seq[Attribute], analyzer: Analyzer): ExpressionEncoder[T] =
    Once.resolved.computeIfAbsent((encoder, attrs.map(a => a.name -> a.dataType)), _ => of.resolveAndBind(attrs, analyzer))
      .asInstanceOf[ExpressionEncoder[T]]
}

object Once {
  private val resolved = new ConcurrentHashMap[(AgnosticEncoder[_], Seq[(String, DataType)]), ExpressionEncoder[_]]

  def apply[T](encoder: AgnosticEncoder[T]): Encoder[T] = new Once(ExpressionEncoder(encoder))
}

/** Values as the bytes of an UnsafeRow: equal rows have equal bytes. */
case class Pack(children: Seq[Expression]) extends Expression {
  @transient private lazy val pack = UnsafeProjection.create(children)
  override def dataType: DataType = BinaryType
  override def nullable: Boolean = false
  override def eval(row: InternalRow): Any = Changes.bytes(pack(row))
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val row = GenerateUnsafeProjection.createCode(ctx, children)
    ev.copy(code = code"""
      ${row.code}
      byte[] ${ev.value} = org.apache.spark.sql.pgstream.Changes.bytes(${row.value});""", isNull = FalseLiteral)
  }
  override protected def withNewChildrenInternal(n: IndexedSeq[Expression]): Pack = copy(children = n)
}

/** The struct that `Pack` made bytes of. */
case class Unpack(child: Expression, schema: StructType) extends UnaryExpression {
  override def dataType: DataType = schema
  override def nullable: Boolean = true
  override protected def nullSafeEval(bytes: Any): Any = Changes.row(bytes.asInstanceOf[Array[Byte]], schema.length)
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode =
    defineCodeGen(ctx, ev, bytes => s"org.apache.spark.sql.pgstream.Changes.row($bytes, ${schema.length})")
  override protected def withNewChildInternal(c: Expression): Unpack = copy(child = c)
}

/** DataFrames to changes and back; applying an operator. */
object Changes {
  type Processor = StatefulProcessor[Array[Byte], Change, Change]
  implicit val encoder: Encoder[Change] = CaseClass.encoder[Change](
    "key" -> BinaryEncoder, "row" -> BinaryEncoder, "side" -> PrimitiveIntEncoder, "time" -> PrimitiveLongEncoder,
    "place" -> PrimitiveIntEncoder, "offset" -> PrimitiveLongEncoder, "delete" -> PrimitiveBooleanEncoder)
  implicit val binary: Encoder[Array[Byte]] = Once(BinaryEncoder)
  val long: Encoder[Long] = Once(PrimitiveLongEncoder)
  val Time: String = "__time"
  val Partition: String = "__partition"

  /** A projection's row uses the same memory again and again: the bytes must be copied. */
  def bytes(row: UnsafeRow): Array[Byte] = row.copy().getBytes

  def row(bytes: Array[Byte], width: Int): UnsafeRow = {
    val r = new UnsafeRow(width)
    r.pointTo(bytes, bytes.length)
    r
  }

  def visible(df: DataFrame): StructType = StructType(df.schema.filterNot(f => PgText.Hidden(f.name)))

  /** `key` names the columns of the key, `columns` those that are kept; hidden columns that are missing are filled in. */
  def pack(df: DataFrame, key: Seq[String], columns: Seq[String], side: Int = 0): Dataset[Change] = {
    val d = df.asInstanceOf[ClassicDataset[_]]
    val out = d.queryExecution.analyzed.output
    def at(name: String): Option[Attribute] = out.find(_.name == name)
    def struct(names: Seq[String]): Expression = Pack(names.map(n => at(n).get))
    def or(name: String, default: Literal): Expression =
      at(name).map(a => Coalesce(Seq(a, default))).getOrElse(default)
    val micros = PreciseTimestampConversion(at(Time).get, TimestampType, LongType)
    // 0.0 and -0.0 are equal, as are all NaN.
    val packed = Pack(key.map(n => NormalizeFloatingNumbers.normalize(at(n).get)))
    val list = Seq("key" -> packed, "row" -> struct(columns), "side" -> Literal(side),
      "time" -> Coalesce(Seq(micros, Literal(0L))), "place" -> or("__partition", Literal(-1)),
      "offset" -> or("__offset", Literal(-1L)), "delete" -> or("__delete", Literal(false)))
    ClassicDataset.ofRows(d.sparkSession, Project(list.map { case (n, e) => Alias(e, n)() }, d.logicalPlan)).as[Change]
  }

  /**
   * As `groupByKey(_.key).transformWithState`, which would make a Change of every row only to read its key. Rows come out as
   * much as `behindMs` after the watermark has passed their event time; it goes on to what stands above, with a time to live too.
   */
  def run(changes: Dataset[Change], p: Processor, mode: String, time: TimeMode, behindMs: Long = 0): Dataset[Change] = {
    val d = changes.asInstanceOf[ClassicDataset[Change]]
    val out = d.queryExecution.analyzed.output
    val key = out.filter(_.name == "key")
    val to = if (mode == "append") OutputMode.Append() else OutputMode.Update()
    val plan = TransformWithState(key, out, p, time, to, d.queryExecution.analyzed)
    val known = behindMs == 0 && time != TimeMode.ProcessingTime()
    ClassicDataset.ofRows(d.sparkSession, if (known) plan else Behind.of(plan, behindMs)).as[Change]
  }

  /**
   * The columns of `key` and `schema`, then the hidden ones. `placed`: rows still have the position of their source record.
   */
  def unpack(changes: Dataset[Change], schema: StructType, placed: Boolean, key: StructType = new StructType): DataFrame = {
    val d = changes.asInstanceOf[ClassicDataset[_]]
    val out = d.queryExecution.analyzed.output.map(a => a.name -> a).toMap
    val rows = ClassicDataset.ofRows(d.sparkSession, Project(
      Seq(Alias(Unpack(out("key"), key), "k")(), Alias(Unpack(out("row"), schema), "r")(), Alias(PreciseTimestampConversion(out("time"), LongType, TimestampType), Time)(),
        out("delete"), out("place"), out("offset")), d.logicalPlan))
    val places = if (placed) Seq("place AS __partition", "offset AS __offset") else Nil
    def names(of: String, s: StructType): Seq[String] =
      s.fieldNames.toSeq.map(n => { val q = "`" + n.replace("`", "``") + "`"; s"$of.$q AS $q" })
    rows.selectExpr(names("k", key) ++ names("r", schema) ++ Seq(Time, "delete AS __delete") ++ places: _*)
  }

  def ttl(ms: Long): TTLConfig = if (ms > 0) TTLConfig(java.time.Duration.ofMillis(ms)) else TTLConfig.NONE
  def time(ttlMs: Long): TimeMode = if (ttlMs > 0) TimeMode.ProcessingTime() else TimeMode.None()
  def same(a: Array[Byte], b: Array[Byte]): Boolean = java.util.Arrays.equals(a, b)
  def wrap(b: Array[Byte]): ByteBuffer = ByteBuffer.wrap(b)
}
