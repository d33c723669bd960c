package org.apache.spark.sql.pgstream

import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.sql.streaming.StreamingQueryProgress

/** Events as JSON; `spark.events` in Python reads them. */
object Events {
  def progress(run: Run, p: StreamingQueryProgress): ObjectNode = {
    val o = Json.obj
    o.put("type", "progress").put("query", run.query).put("batch", p.batchId)
    o.put("rows_in", p.numInputRows).put("rows_out", run.sink.rowsOut)
    o.put("rows_per_s", finite(p.processedRowsPerSecond)).put("batch_ms", p.batchDuration)
    o.put("began", p.timestamp)
    o.putObject("totals").put("batches", run.batches).put("batch_ms", run.batchMs).put("rows_in", run.rowsIn)
      .put("rows_out", run.sink.totalOut)
    o.put("state_rows", p.stateOperators.map(_.numRowsTotal).sum)
    o.put("state_bytes", p.stateOperators.map(_.memoryUsedBytes).sum)
    o.put("late_rows", run.lateRows + run.late.value)
    o.put("bad_records", run.bad.value.longValue)
    val durations = o.putObject("durations")
    p.durationMs.forEach((k, v) => durations.put(k, v))
    o.put("watermark", p.eventTime.get("watermark"))
    val sources = o.putArray("sources")
    p.sources.foreach { s =>
      val n = sources.addObject()
      n.put("description", s.description).put("end", s.endOffset).put("latest", s.latestOffset).put("rows_in", s.numInputRows)
      val figures = n.putObject("figures")
      // Spark has figures of its own there for some sources; those of ours are named as they are shown.
      s.metrics.forEach((name, value) => if (name.contains('_')) figures.put(name, value))
    }
    o
  }

  /** Of a batch under way in real-time mode; `latest` and `read`: by partition the end at `now` and the next offset. */
  def realTime(run: Run, sink: RealTimeSink, topic: String, latest: Map[Int, Long], read: Map[Int, Long], now: java.time.Instant,
      rows: Long, perSecond: Double, ms: Long): ObjectNode = {
    def offsets(at: Map[Int, Long]): String = {
      val o = Json.obj
      val partitions = o.putObject(topic)
      at.foreach { case (p, n) => partitions.put(p.toString, n) }
      Json.text(o)
    }
    val o = Json.obj
    o.put("type", "progress").put("query", run.query).put("batch", sink.batch)
    o.put("rows_in", rows - run.rowsIn).put("rows_out", sink.sent.sum - sink.totalOut)
    o.put("rows_per_s", finite(perSecond)).put("batch_ms", ms).put("began", now.toString)
    o.putObject("totals").put("batches", run.batches).put("batch_ms", run.batchMs).put("rows_in", rows).put("rows_out", sink.sent.sum)
    o.put("state_rows", 0).put("state_bytes", 0).put("late_rows", 0).put("bad_records", run.bad.value.longValue)
    o.putObject("durations")
    o.putArray("sources").addObject().put("description", s"KafkaV2[Subscribe[$topic]]").put("end", offsets(read))
      .put("latest", offsets(latest)).put("rows_in", rows - run.rowsIn).putObject("figures")
    o
  }

  def ended(run: Run, failure: Option[Throwable]): ObjectNode = {
    val o = Json.obj
    o.put("type", "ended").put("query", run.query).put("attempt", run.attempt).put("asked", run.sink.stopping || run.finished)
    // A run that has had no batch told none: what was told before it need not be all that was written by then.
    o.put("whole", run.whole && run.batches > 0 && failure.isEmpty)
    val list = o.putArray("chain")
    failure.foreach { f =>
      chain(list, f)
      val text = new java.io.StringWriter
      f.printStackTrace(new java.io.PrintWriter(text))
      o.put("trace", text.toString.take(20000))
    }
    o
  }

  /** Why a call from Python failed. */
  def causes(failure: Throwable): String = {
    val list = Json.mapper.createArrayNode()
    chain(list, failure)
    list.toString
  }

  /** The causes of a failure, outermost first: class and message, and the place of a bad record. */
  private def chain(list: ArrayNode, failure: Throwable): Unit = {
    var e = failure
    var n = 0
    while (e != null && n < 20) {
      val o = list.addObject()
      o.put("class", e.getClass.getName).put("message", String.valueOf(e.getMessage).take(4000))
      e match {
        case b: BadRecordException =>
          o.put("topic", b.topic).put("partition", b.partition).put("offset", b.offset).put("place", b.place).put("reason", b.reason)
        case s: java.sql.SQLException => o.put("sqlstate", s.getSQLState)
        case _ => ()
      }
      e = e.getCause
      n += 1
    }
  }

  private def finite(d: Double): Double = if (d.isNaN || d.isInfinite) 0.0 else d
}
