package org.apache.spark.sql.pgstream

import java.nio.ByteBuffer
import java.sql.Connection
import java.util.{HashMap => JMap}

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.TaskContext
import org.apache.spark.executor.InputMetrics
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.CatalystTypeConverters
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection}
import org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
import org.apache.spark.sql.jdbc.JdbcDialects
import org.apache.spark.sql.types._

import Json.Node

/**
 * Rows of a stream beside those that a view has for their keys when they come by. Only what a run of rows asks for is read;
 * `left`: a row that finds nothing stays. A NULL in a key finds nothing.
 */
class Lookup(target: ViewTarget, key: StructType, keyTypes: Seq[String], right: StructType, left: Boolean) extends Serializable {
  private val Run = 1000
  private val all = StructType(key.fields.map(f => f.copy(name = s"__${f.name}")) ++ right.fields)

  /** Not called apply: Py4J would not find the object's. */
  def joined(rows: Iterator[Change]): Iterator[Change] =
    if (!rows.hasNext) Iterator.empty
    else {
      val connection = target.connect()
      TaskContext.get().addTaskCompletionListener[Unit](_ => connection.close())
      rows.grouped(Run).flatMap { run =>
        val found = read(connection, run)
        run.iterator.flatMap { c =>
          val hits = found.get(Changes.wrap(c.key))
          if (hits != null) hits.iterator.map(r => c.copy(key = r))
          else if (left) Iterator.single(c.copy(key = null))
          else Iterator.empty
        }
      }
    }

  private def read(connection: Connection, run: Seq[Change]): JMap[ByteBuffer, ArrayBuffer[Array[Byte]]] = {
    val out = new JMap[ByteBuffer, ArrayBuffer[Array[Byte]]]
    val keys = run.map(c => Changes.wrap(c.key)).distinct.map(b => Changes.row(b.array, key.length)).filterNot(_.anyNull)
    if (keys.nonEmpty) {
      val wanted = key.fieldNames.map(n => s"${ViewMerge.quote(n)} = ANY (?)").mkString(" AND ")
      val names = (key.fieldNames ++ right.fieldNames).map(ViewMerge.quote).mkString(", ")
      val s = connection.prepareStatement(s"SELECT $names FROM ${target.table} WHERE $wanted")
      try {
        key.fields.zipWithIndex.foreach { case (f, i) =>
          val convert = CatalystTypeConverters.createToScalaConverter(f.dataType)
          val values = keys.map(k => convert(k.get(i, f.dataType)).asInstanceOf[AnyRef]).distinct.toArray
          s.setArray(i + 1, connection.createArrayOf(keyTypes(i), values))
        }
        val packKey = project(0, key)
        val packRow = project(key.length, right)
        JdbcUtils.resultSetToSparkInternalRows(s.executeQuery(), JdbcDialects.get(target.url), all, new InputMetrics).foreach { r =>
          out.computeIfAbsent(Changes.wrap(Changes.bytes(packKey(r))), _ => new ArrayBuffer[Array[Byte]]) += Changes.bytes(packRow(r))
        }
      } finally s.close()
    }
    out
  }

  private def project(from: Int, schema: StructType): UnsafeProjection =
    UnsafeProjection.create(schema.fields.toSeq.zipWithIndex.map { case (f, i) => BoundReference(from + i, f.dataType, nullable = true) })
}

object Lookup {
  /** `key`: the columns of `df` that are looked for in the view's columns `columns`; what is found is named by `names`. */
  def apply(df: DataFrame, config: String): DataFrame = {
    val c = Json.read(config)
    val key = c.strings("key")
    val rows = StructType(Changes.visible(df).filterNot(f => key.contains(f.name)))
    val keySchema = StructType(key.zip(c.strings("key_columns")).map { case (k, n) => df.schema(k).copy(name = n) })
    val right = StructType.fromDDL(c.str("ddl"))
    val target = ViewTarget(c.str("url"), c.str("user"), c.str("password"), c.str("table"), "")
    val lookup = new Lookup(target, keySchema, c.strings("key_types"), right, c.str("how") == "left")
    val out = Changes.pack(df, key, rows.fieldNames.toSeq).mapPartitions(lookup.joined(_))(Changes.encoder)
    val named = StructType(right.fields.zip(c.strings("names")).map { case (f, n) => f.copy(name = n) })
    Changes.unpack(out, rows, df.columns.contains("__offset"), named).drop("__delete")
  }
}
