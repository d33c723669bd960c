package org.apache.spark.sql.pgstream

import java.net.http.HttpClient
import java.nio.ByteBuffer
import java.util.concurrent.{CompletableFuture, Flow}

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.{JsonFactory, JsonParser, JsonToken}
import com.fasterxml.jackson.databind.node.ObjectNode

import Json.Node

/** A record of a shard. */
final class ShardRecord(val key: String, val data: Array[Byte], val sequence: String, val micros: Long)

/** What came at once: records, the iterator or number to go on with (null at the end of a shard), and how far behind it is. */
final class ShardPage(val records: Array[ShardRecord], val next: String, val behindMs: Long)

/** A shard of a stream and those that it came from. `closed`: nothing more is written into it. */
case class ShardInfo(id: String, parents: Set[String], closed: Boolean)

/** The records that a range named are not there any more. */
class RecordsGoneException(message: String) extends RuntimeException(message)

/**
 * A data stream of Kinesis. `from` is where reading begins: `trim`, `time:<ms>` or `after:<sequence>`. `consumer` is the name
 * of one that is registered, whose own share of each shard is read; empty for the share of all. Sent to the tasks.
 */
case class KinesisStream(name: String, place: AwsPlace, consumer: String = "") {
  @transient private lazy val call = new AwsCall(place)
  @transient private lazy val consumerArn = AwsCall.patiently(KinesisStream.PatienceMs) {
    val arn = call("DescribeStreamSummary", Json.obj.put("StreamName", name)).get("StreamDescriptionSummary").str("StreamARN")
    try call("DescribeStreamConsumer", Json.obj.put("StreamARN", arn).put("ConsumerName", consumer)).get("ConsumerDescription").str("ConsumerARN")
    catch {
      case e: AwsException if e.code == "ResourceNotFoundException" =>
        throw new AwsException(KinesisStream.NoConsumer, e.status, s"$arn has no consumer $consumer")
    }
  }

  /** All shards that have records, parents before their children. */
  def shards(): Seq[ShardInfo] = {
    val out = ArrayBuffer.empty[ShardInfo]
    var token: String = null
    do {
      val ask = Json.obj
      if (token == null) ask.put("StreamName", name) else ask.put("NextToken", token)
      val page = AwsCall.patiently(KinesisStream.PatienceMs)(call("ListShards", ask))
      page.get("Shards").elements().asScala.foreach { s =>
        val closed = Option(s.get("SequenceNumberRange")).exists(_.opt("EndingSequenceNumber").isDefined)
        out += ShardInfo(s.str("ShardId"), Set("ParentShardId", "AdjacentParentShardId").flatMap(s.opt(_)), closed)
      }
      token = page.opt("NextToken").orNull
    } while (token != null)
    out.sortBy(_.id).toSeq
  }

  def retentionHours(): Int =
    AwsCall.patiently(KinesisStream.PatienceMs)(call("DescribeStreamSummary", Json.obj.put("StreamName", name)))
      .get("StreamDescriptionSummary").get("RetentionPeriodHours").asInt

  /** An iterator, which is good for five minutes. */
  def iterator(shard: String, from: String): String = {
    val ask = Json.obj.put("StreamName", name).put("ShardId", shard)
    call("GetShardIterator", begun(ask, from, "ShardIteratorType", "StartingSequenceNumber")).str("ShardIterator")
  }

  /** Have the consumer's share of a shard sent for five minutes: messages of AWS's event stream, into `into`. */
  def subscribe(by: HttpClient, shard: String, from: String, into: Flow.Subscriber[java.util.List[ByteBuffer]]): CompletableFuture[Unit] = {
    val ask = Json.obj.put("ConsumerARN", consumerArn).put("ShardId", shard)
    begun(ask.putObject("StartingPosition"), from, "Type", "SequenceNumber")
    call.pushed(by, "SubscribeToShard", ask, into)
  }

  private def begun(ask: ObjectNode, from: String, kind: String, number: String): ObjectNode = from.split(":", 2) match {
    case Array("trim") => ask.put(kind, "TRIM_HORIZON")
    case Array("time", ms) => ask.put(kind, "AT_TIMESTAMP").put("Timestamp", BigDecimal(ms.toLong, 3).bigDecimal)
    case Array("after", seq) => ask.put(kind, "AFTER_SEQUENCE_NUMBER").put(number, seq)
  }

  def page(iterator: String, limit: Int): ShardPage =
    KinesisStream.read(call.bytes("GetRecords", Json.mapper.writeValueAsBytes(Json.obj.put("ShardIterator", iterator).put("Limit", limit))))

  /** PutRecords: the codes of those that were not taken, by their places. */
  def put(body: Array[Byte]): Map[Int, String] = {
    val answer = Json.mapper.readTree(call.bytes("PutRecords", body, 20000))
    if (answer.get("FailedRecordCount").asInt == 0) Map.empty
    else
      answer.get("Records").elements().asScala.zipWithIndex.flatMap { case (r, i) =>
        r.opt("ErrorCode").map(code => i -> s"$code: ${r.opt("ErrorMessage").getOrElse("")}")
      }.toMap
  }
}

object KinesisStream {
  /** A service that is away ends the batch after this: the query then says so, and is tried again. */
  val PatienceMs = 12000L
  val PageRecords = 10000
  val NoConsumer = "ConsumerNotFoundException"
  private val factory = new JsonFactory

  /** The answer of GetRecords, or an event of SubscribeToShard, without a tree of it: it is up to 13 MB. */
  def read(bytes: Array[Byte]): ShardPage = {
    val p = factory.createParser(bytes)
    val records = new ArrayBuffer[ShardRecord]
    var next: String = null
    var behind = 0L
    p.nextToken()
    while (p.nextToken() == JsonToken.FIELD_NAME) {
      val name = p.currentName
      p.nextToken()
      name match {
        case "Records" => while (p.nextToken() != JsonToken.END_ARRAY) records += record(p)
        case "NextShardIterator" | "ContinuationSequenceNumber" => next = p.getValueAsString(null)
        case "MillisBehindLatest" => behind = p.getValueAsLong(0L)
        case _ => p.skipChildren()
      }
    }
    new ShardPage(records.toArray, next, behind)
  }

  private def record(p: JsonParser): ShardRecord = {
    var key, sequence: String = null
    var data = Array.emptyByteArray
    var micros = 0L
    while (p.nextToken() == JsonToken.FIELD_NAME) {
      val name = p.currentName
      p.nextToken()
      name match {
        case "Data" => data = p.getBinaryValue
        case "PartitionKey" => key = p.getText
        case "SequenceNumber" => sequence = p.getText
        case "ApproximateArrivalTimestamp" => micros = p.getDecimalValue.movePointRight(6).longValue
        case _ => p.skipChildren()
      }
    }
    new ShardRecord(key, data, sequence, micros)
  }

  /** What Python says of a store and a stream: `config` and, apart, its keys. */
  def of(config: String, keys: String): KinesisStream = {
    val c = Json.read(config)
    val place = AwsPlace("kinesis", "Kinesis_20131202", c.str("endpoint"), c.str("region"), c.str("who"), AwsKeys.read(keys))
    KinesisStream(c.str("stream"), place, c.opt("consumer").getOrElse(""))
  }
}
