package org.apache.spark.sql.pgstream

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * The decoder as a Spark expression over (key, value, partition, offset, timestamp, headers, metadata); NULL for a dropped record.
 *
 * Declared non-deterministic so that the optimizer neither copies it into a filter below (every record would be decoded
 * twice) nor moves it: it counts bad records.
 */
case class DecodeRecord(children: Seq[Expression], decoder: RecordDecoder) extends Expression {
  private val schema: StructType = decoder.schema

  override def nullable: Boolean = true
  override def foldable: Boolean = false
  override lazy val deterministic: Boolean = false
  override def dataType: DataType = schema
  override def prettyName: String = "decode_record"

  override def eval(input: InternalRow): Any = {
    def at[T](i: Int): T = children(i).eval(input).asInstanceOf[T]
    decoder.decode(at(0), at(1), at[Int](2), at[Long](3), at[Long](4), at(5), at(6))
  }

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val d = ctx.addReferenceObj("decoder", decoder, classOf[RecordDecoder].getName)
    val c = children.map(_.genCode(ctx))
    val codes = c.map(_.code).reduce(_ + _)
    def orNull(i: Int, kind: String) = s"${c(i).isNull} ? null : ($kind) ${c(i).value}"
    ev.copy(code = code"""
      $codes
      InternalRow ${ev.value} = $d.decode(${orNull(0, "byte[]")}, ${orNull(1, "byte[]")}, ${c(2).value}, ${c(3).value}, ${c(4).value},
        ${orNull(5, "ArrayData")}, ${orNull(6, "InternalRow")});
      boolean ${ev.isNull} = ${ev.value} == null;""")
  }

  override protected def withNewChildrenInternal(n: IndexedSeq[Expression]): DecodeRecord = copy(children = n)
}
