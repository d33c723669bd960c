package org.apache.spark.sql.pgstream

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.{OffsetSeq, OffsetSeqLog}
import org.apache.spark.sql.execution.streaming.runtime.SerializedOffset

/**
 * Where the batches of a query end, in its checkpoint. The last one, of which nothing is written yet, may be made to end before
 * a bad record: what comes before that is then a batch like any other, and the next begins with it. Of a batch that kept
 * its end a sink that has a part would say that it has all.
 */
class BatchEnds(spark: SparkSession, checkpoint: String) extends OffsetSeqLog(spark, s"$checkpoint/offsets") {
  /** Whether it does end there now. Places of Kafka's topics can be told from a record's; those of other sources are more. */
  def before(bad: BadRecordException, isWritten: Long => Boolean): Boolean = getLatest() match {
    case Some((batch, ends)) if !isWritten(batch) =>
      val starts = get(batch - 1).map(_.offsets).getOrElse(Nil)
      val cut = ends.offsets.zipWithIndex.map { case (end, i) =>
        end.flatMap(e => BatchEnds.cut(Json.read(e.json()), starts.lift(i).flatten.map(s => Json.read(s.json())), bad))
      }
      if (cut.exists(_.nonEmpty)) {
        val made = ends.offsets.zip(cut).map { case (end, c) => c.map(SerializedOffset(_)).orElse(end) }
        replace(batch, OffsetSeq(made, ends.metadata))
      }
      cut.exists(_.nonEmpty)
    case _ => false
  }

  private def replace(batch: Long, ends: OffsetSeq): Unit = {
    val out = fileManager.createAtomic(batchIdToPath(batch), overwriteIfPossible = true)
    try { serialize(ends, out); out.close() } catch { case e: Throwable => out.cancel(); throw e }
  }
}

object BatchEnds {
  /** A source's place before the bad record, if it is behind it: `{topic: {partition: next offset}}` and nothing else. */
  private def cut(end: JsonNode, start: Option[JsonNode], bad: BadRecordException): Option[String] = {
    val partition = bad.partition.toString
    def at(n: JsonNode): Option[Long] = Option(n.get(bad.topic)).flatMap(t => Option(t.get(partition))).map(_.asLong)
    val plain = end.properties().asScala.forall(_.getValue.properties().asScala.toSeq match {
      case Seq() => false
      case parts => parts.forall(_.getValue.isIntegralNumber)
    })
    if (!plain || !at(end).exists(_ > bad.offset) || start.flatMap(at).exists(_ > bad.offset)) None
    else {
      end.get(bad.topic).asInstanceOf[ObjectNode].put(partition, bad.offset)
      Some(Json.text(end))
    }
  }
}
