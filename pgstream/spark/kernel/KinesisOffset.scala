package org.apache.spark.sql.pgstream

import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset}
import org.apache.spark.sql.execution.streaming.Offset

import Json.Node

/**
 * How far a shard was read. `number` is its `__partition`: those of children are higher than their parents'. `count` is how
 * many records were read since `from`, which is the next one's `__offset`; `last` the sequence number of the last of them,
 * empty for none. `done`: the shard was split or merged, and read to its end.
 */
case class ShardOffset(number: Int, from: String, count: Long, last: String, done: Boolean) {
  def begin: String = if (last.isEmpty) from else s"after:$last"
}

/**
 * How far a stream was read: all that is needed to read the same records again. `begin` is where reading of the stream
 * began; shards that are found later are read from there, once those that they came from are done. Done shards stay until
 * Kinesis has forgotten them. `asof`: what had come by then, in epoch milliseconds, was read; 0 is not known.
 */
case class KinesisOffset(stream: String, begin: String, shards: ListMap[String, ShardOffset], next: Int, asof: Long) extends Offset {
  override def json(): String = {
    val o = Json.obj
    val list = o.putObject(stream)
    shards.foreach { case (id, s) =>
      val n = list.putObject(id).put("number", s.number).put("count", s.count).put("last", s.last)
      if (s.from != begin) n.put("from", s.from)
      if (s.done) n.put("done", true)
    }
    Json.text(o.put("@begin", begin).put("@next", next).put("@asof", asof))
  }

  /** With shards that were not known, numbered in the order of their ids. */
  def and(more: Seq[(String, ShardOffset)]): KinesisOffset = {
    val numbered = more.zipWithIndex.map { case ((id, s), i) => id -> s.copy(number = next + i) }
    copy(shards = shards ++ numbered, next = next + more.length)
  }
}

object KinesisOffset {
  def read(stream: String, o: AnyOffset): KinesisOffset = o match {
    case k: KinesisOffset => k
    case other =>
      val n = Json.read(other.json())
      val begin = n.str("@begin")
      val shards = n.get(stream).properties().asScala.toSeq.map { e =>
        val s = e.getValue
        e.getKey -> ShardOffset(s.get("number").asInt, s.opt("from").getOrElse(begin), s.get("count").asLong, s.str("last"), s.has("done"))
      }
      KinesisOffset(stream, begin, ListMap.from(shards), n.get("@next").asInt, n.opt("@asof").map(_.toLong).getOrElse(0L))
  }
}
