package org.apache.spark.sql.pgstream

import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{ConcurrentHashMap, Semaphore}

import scala.collection.mutable.ArrayBuffer

import net.jpountz.lz4.LZ4Factory
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

import Json.Node

/**
 * Rows of an interactive SELECT, as JSON arrays of text values, to the outbox. The client's credit bounds what is under
 * way, by rows and by bytes: without credit the batch waits, and with it the query. A LIMIT ends the query by itself.
 * All rows of a batch are here before the first is sent, so they are kept small, and are bounded: a client that asks for
 * more than there is room for is told so, and no other query ends for it.
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
    val parts = new Array[Array[RowChunk]](rows.getNumPartitions)
    var bytes = 0L
    rows.sparkContext.runJob(rows, (it: Iterator[InternalRow]) => ResultSink.render(it, schema, left), (i: Int, part: Array[RowChunk]) => {
      bytes += part.map(_.bytes.length.toLong).sum
      if (bytes > ResultSink.MostInAll) throw new LongRows
      parts(i) = part
    })
    rowsOut = 0
    parts.iterator.flatten.takeWhile(_ => rowsOut < left).foreach { chunk =>
      val texts = chunk.texts.take((left - rowsOut).toInt)
      client.credit.acquire(chunk.cost)
      Watch.rows(query, texts, chunk.cost)
      client.sent += texts.length
      rowsOut += texts.length
    }
    client.batch = batch
    if (client.sent >= limit) Watch.finish(query)
  }
}

/** Some rows, as JSON texts. `cost`: of the client's credit. */
class RowChunk(val bytes: Array[Byte], val length: Int, val cost: Int) extends Serializable {
  def texts: Array[String] = {
    val whole = LZ4Factory.fastestInstance.fastDecompressor.decompress(bytes, length)
    new String(whole, UTF_8).split('\n')  // which JSON writes as two characters
  }
}

/** A row is longer, or a batch's rows together are, than there is room for. */
class LongRows extends RuntimeException("the rows of this query are too long")

/** The client of a query: credit, rows and the last batch it was sent. It outlives the stream. */
class ResultClient {
  val credit = new Semaphore(0)
  @volatile var sent = 0L
  @volatile var batch = -1L
}

object ResultSink {
  private val Chunk = 500
  private val ChunkBytes = 1 << 20
  /** Of a row. */
  private val MostBytes = 16 << 20
  /** What a row costs more, for each so many bytes; a chunk never so much that a client might not give it. */
  private val Unit = 4096
  private val MostCost = 1500

  /** Bytes of a batch's rows, as they are kept: of a task's and of all. */
  private def mostInTask: Long = Runtime.getRuntime.maxMemory / 16
  def MostInAll: Long = Runtime.getRuntime.maxMemory / 6

  private val clients = new ConcurrentHashMap[String, ResultClient]

  def client(query: String): ResultClient = clients.computeIfAbsent(query, _ => new ResultClient)
  def forget(query: String): Unit = clients.remove(query)

  /** Deletes are not shown: a client sees each new value of a key. */
  def render(rows: Iterator[InternalRow], schema: StructType, limit: Int): Array[RowChunk] = {
    val layout = ViewLayout(schema, Nil, "append")
    val text = new PgText(copy = false)
    val json = new JsonText(' ')
    val value = new Bytes(256)
    val out = new Bytes(1024)
    val chunks = new ArrayBuffer[RowChunk]
    var (count, bytes) = (0, 0L)

    def close(): Unit = if (count > 0) {
      val packed = LZ4Factory.fastestInstance.fastCompressor.compress(out.toArray)
      bytes += packed.length
      if (bytes > mostInTask) throw new LongRows
      chunks += new RowChunk(packed, out.size, math.min(count + out.size / Unit, MostCost))
      count = 0
      out.clear()
    }

    rows.filterNot(layout.deleted).take(limit).foreach { row =>
      val from = out.size
      out.put('[')
      layout.visible.zipWithIndex.foreach { case (i, n) =>
        if (n > 0) out.put(',')
        if (row.isNullAt(i)) out.ascii("null")
        else {
          value.clear()
          text.write(value, row, i, schema(i).dataType)
          json.string(out, value.toArray)
          if (out.size - from > MostBytes) throw new LongRows
        }
      }
      out.put(']')
      out.put('\n')
      count += 1
      if (count == Chunk || out.size > ChunkBytes) close()
    }
    close()
    chunks.toArray
  }
}
