package org.apache.spark.sql.pgstream

import java.util.concurrent.{ConcurrentHashMap, Semaphore}

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

import Json.Node

/**
 * Rows of an interactive SELECT, as JSON arrays of text values, to the outbox. The client's credit bounds what is under
 * way: without credit the batch waits, and with it the query. A LIMIT ends the query by itself.
 */
class ResultSink(config: String) extends BatchSink {
  private val c = Json.read(config)
  private val query = c.str("query")
  private val limit = c.opt("limit").map(_.toLong).getOrElse(Long.MaxValue)
  private val client = ResultSink.client(query)

  override protected def lasting: Boolean = false

  override protected def write(batch: Long, rows: RDD[InternalRow], schema: StructType): Unit = {
    if (batch <= client.batch) { rows.foreach(_ => ()); return }
    val left = math.min(limit - client.sent, Int.MaxValue).toInt
    val parts = rows.sparkContext.runJob(rows, (it: Iterator[InternalRow]) => ResultSink.render(it, schema, left))
    rowsOut = 0
    parts.iterator.flatten.take(left).grouped(ResultSink.Chunk).foreach { rows =>
      val chunk = rows.toArray
      client.credit.acquire(chunk.length)
      Watch.rows(query, chunk)
      client.sent += chunk.length
      rowsOut += chunk.length
    }
    client.batch = batch
    if (client.sent >= limit) Watch.finish(query)
  }
}

/** The client of a query: rows it may still be sent, rows and the last batch it was sent. It outlives the stream. */
class ResultClient {
  val credit = new Semaphore(0)
  @volatile var sent = 0L
  @volatile var batch = -1L
}

object ResultSink {
  private val Chunk = 500
  private val clients = new ConcurrentHashMap[String, ResultClient]

  def client(query: String): ResultClient = clients.computeIfAbsent(query, _ => new ResultClient)
  def forget(query: String): Unit = clients.remove(query)

  /** Deletes are not shown: a client sees each new value of a key. */
  def render(rows: Iterator[InternalRow], schema: StructType, limit: Int): Array[String] = {
    val layout = ViewLayout(schema, Nil, "append")
    val text = new PgText(copy = false)
    val json = new JsonText(' ')
    val value = new Bytes(256)
    val out = new Bytes(1024)
    rows.filterNot(layout.deleted).take(limit).map { row =>
      out.clear()
      out.put('[')
      layout.visible.zipWithIndex.foreach { case (i, n) =>
        if (n > 0) out.put(',')
        if (row.isNullAt(i)) out.ascii("null")
        else {
          value.clear()
          text.write(value, row, i, schema(i).dataType)
          json.string(out, value.toArray)
        }
      }
      out.put(']')
      out.text
    }.toArray
  }
}
