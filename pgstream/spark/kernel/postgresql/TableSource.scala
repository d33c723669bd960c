package org.apache.spark.sql.pgstream

import java.io.{DataInputStream, DataOutputStream}
import java.sql.SQLException

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SQLContext}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, ReadLimit, ReadMaxRows, ReportsSourceMetrics, SupportsAdmissionControl}
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.sources.StreamSourceProvider
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SerializableConfiguration

import Json.Node

/**
 * A place in a table's records: first the rows that it had, then its changes. `left`: how many of those rows are still to be
 * read, which is told (`engine.replacements` wants to know), not read again.
 */
case class TablePlace(entity: String, at: SlotPlace, left: Long = 0) extends Offset {
  override def json(): String = {
    val o = Json.obj
    o.putObject(entity).put("0", at.seq)
    o.put("lsn", SlotReader.text(at.lsn)).put("part", at.part).put("beat", at.beat)
    if (left > 0) o.put("left", left)
    Json.text(o)
  }
}

object TablePlace {
  def of(o: AnyOffset): SlotPlace = o match {
    case TablePlace(_, at, _) => at
    case other =>
      val n = Json.read(other.json())
      val entity = n.properties().iterator().next().getKey
      SlotPlace(n.get(entity).get("0").asLong, SlotReader.lsn(n.str("lsn")), n.get("part").asLong, n.get("beat").asLong)
  }
}

/** The rows that a table had and its changes since, each once: see `SlotReader`, and decision "Changes of tables". */
class TableSource(context: SQLContext, c: com.fasterxml.jackson.databind.JsonNode, access: PgAccess, metadata: String, override val schema: StructType)
    extends Source with SupportsAdmissionControl with ReportsSourceMetrics {
  private val entity = c.str("entity")
  private val store = c.str("store")
  private val tables = c.strings("tables").map(TableSource.named)
  private val most = c.get("most").asLong
  private val conf = context.sparkSession.asInstanceOf[org.apache.spark.sql.classic.SparkSession].sessionState.newHadoopConf()
  private val folder = new SlotFolder(metadata, conf)
  private val slot = new TableSlot(access, folder, store, entity, tables)
  private val texts = tables.map(new TableText(c.str("kind"), c.str("database"), _, c.strings("keys"), c.strings("columns"), c.strings("nested").toSet,
    c.get("fills").asBoolean, Envelope(c.strings("sources"), c.get("bytes").asBoolean)))
  private var start: SlotStart = _
  private var reader: SlotReader = _
  private var watch: SlotWatch = _
  private var done: Option[SlotPlace] = None
  private var sent: List[Broadcast[_]] = Nil

  override def getOffset: Option[Offset] = throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is asked")
  override def getDefaultReadLimit: ReadLimit = ReadLimit.maxRows(most)

  override def latestOffset(from: AnyOffset, limit: ReadLimit): AnyOffset = guarded {
    val place = Option(from).map(TablePlace.of)
    open(place)
    watch.check()
    val at = place.getOrElse(SlotPlace(0, start.lsn, 0))
    val rows = limit match { case m: ReadMaxRows => m.maxRows; case _ => most }
    val end =
      if (at.seq < start.rows) at.copy(seq = math.min(start.rows, (at.seq / start.chunk + 1) * start.chunk))
      else reader.end(at, rows)
    if (place.isDefined && end == at) from else TablePlace(entity, end, start.rows - end.seq)
  }

  override def reportLatestOffset(): AnyOffset = null

  override def getBatch(from: Option[Offset], end: Offset): DataFrame = guarded {
    val spark = context.sparkSession.asInstanceOf[org.apache.spark.sql.classic.SparkSession]
    open(from.map(TablePlace.of))
    val (a, b) = (from.map(TablePlace.of).getOrElse(SlotPlace(0, start.lsn, 0)), TablePlace.of(end))
    val rdd: RDD[InternalRow] =
      if (a.seq == b.seq) new NoRows(spark.sparkContext)
      else if (a.seq < start.rows)
        new TableRows(spark.sparkContext, new SerializableConfiguration(conf), folder.rows(a.seq / start.chunk).toString, a.seq,
          a.seq % start.chunk, b.seq - a.seq, start.micros, if (start.keeps) 0 else Unsent.None)
      else {
        val rows = spark.sparkContext.broadcast(reader.between(a, b).toArray)
        sent = rows :: sent
        new ChangeRows(spark.sparkContext, rows)
      }
    spark.internalCreateDataFrame(rdd, schema, isStreaming = true)
  }

  /** One batch more than what is known to be done stays: the newest file of a checkpoint may be lost with the power. */
  override def commit(end: Offset): Unit = guarded {
    if (reader != null) {
      done.foreach { place =>
        reader.confirm(place)
        if (place.seq > 0 && place.seq <= start.rows) folder.drop((place.seq - 1) / start.chunk)
      }
      done = Some(TablePlace.of(end))
    }
    sent.drop(3).foreach(_.destroy())
    sent = sent.take(3)
  }

  override def metrics(latest: java.util.Optional[AnyOffset]): java.util.Map[String, String] =
    (if (watch == null) Map.empty[String, String] else watch.figures).asJava

  override def stop(): Unit = synchronized {
    if (watch != null) watch.close()
    if (reader != null) reader.close()
  }

  override def toString: String = s"Table[$entity]"

  private def open(place: Option[SlotPlace]): Unit = synchronized {
    if (start == null)
      start = place match {
        case None =>
          val s = folder.started.getOrElse(slot.begin(c.str("slot"), c.str("publication"), c.get("snapshot").asBoolean, most, texts))
          slot.resume(s, SlotPlace(0, s.lsn, 0))
          s
        case Some(at) =>
          val s = folder.started.getOrElse(throw new TableFault("data", "55000", s"the checkpoint has lost how the slot of table $entity began",
            "Create the query again: it begins with the rows that the table has."))
          slot.resume(s, at)
          s
      }
    texts.foreach(_.keeps = start.keeps)
    if (reader == null) {
      val from = place.filter(_.seq >= start.rows).getOrElse(SlotPlace(start.rows, start.lsn, 0))
      reader = new SlotReader(access, start.slot, start.publication, from, texts, most, slot.oids, folder.mark)
      watch = new SlotWatch(access, start.slot, start.publication, tables, c.get("warn_mb").asLong << 20)
    }
  }

  private def guarded[T](f: => T): T =
    try f
    catch {
      case e: SQLException => throw TableSource.fault(e).at(store)
      case e: TableFault => throw e.at(store)
    }
}

private case object WholeTable extends Partition { override def index: Int = 0 }

private class NoRows(context: SparkContext) extends RDD[InternalRow](context, Nil) {
  override protected def getPartitions: Array[Partition] = Array(WholeTable)
  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = Iterator.empty
}

/** Changes that the driver holds. */
private class ChangeRows(context: SparkContext, rows: Broadcast[Array[(Long, TableRecord, Long)]]) extends RDD[InternalRow](context, Nil) {
  override protected def getPartitions: Array[Partition] = Array(WholeTable)
  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] =
    rows.value.iterator.map { case (seq, r, micros) => TableRows.row(r, micros, seq) }
}

/** Rows that a table had, out of a file: `count` of them after `skip`; `before` came in files before them. */
private class TableRows(context: SparkContext, conf: SerializableConfiguration, file: String, before: Long, skip: Long, count: Long, micros: Long,
    unsent: Long)
    extends RDD[InternalRow](context, Nil) {
  override protected def getPartitions: Array[Partition] = Array(WholeTable)

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val path = new Path(file)
    val in = new DataInputStream(new java.io.BufferedInputStream(path.getFileSystem(conf.value).open(path), 1 << 16))
    task.addTaskCompletionListener[Unit](_ => in.close())
    (0L until skip).foreach(_ => TableRows.read(in))
    Iterator.range(0, count.toInt).map(i => TableRows.row(TableRows.read(in).copy(unsent = unsent), micros, before + i + 1))
  }
}

object TableRows {
  private[pgstream] def row(r: TableRecord, micros: Long, seq: Long): InternalRow =
    new GenericInternalRow(Array[Any](r.key, r.value, micros, 0, seq, r.unsent))

  private[pgstream] def write(out: DataOutputStream, r: TableRecord): Unit =
    Seq(r.key, r.value).foreach { b =>
      out.writeInt(if (b == null) -1 else b.length)
      if (b != null) out.write(b)
    }

  private[pgstream] def read(in: DataInputStream): TableRecord = {
    def one(): Array[Byte] = {
      val n = in.readInt()
      if (n < 0) null else in.readNBytes(n)
    }
    TableRecord(one(), one())
  }
}

/** What `readStream.format(…)` names; option `config` is JSON, `secret` the driver's properties. */
class TableSourceProvider extends StreamSourceProvider {
  override def sourceSchema(c: SQLContext, s: Option[StructType], name: String, o: Map[String, String]): (String, StructType) =
    ("table", s.get)

  override def createSource(
      context: SQLContext, metadata: String, schema: Option[StructType], name: String, o: Map[String, String]): Source =
    new TableSource(context, Json.read(o("config")), TableSource.access(o("secret")), metadata, schema.get)
}

object TableSource {
  def access(json: String): PgAccess = PgAccess(Json.read(s"""{"all":$json}""").entries("all"))

  /** Why the changes of a table cannot be read. */
  private[pgstream] def fault(e: SQLException): TableFault =
    TableFault.of(e, "REPLICATION, SELECT on the table, and to make a publication CREATE on the database and to own the table")

  /** A table whose name and schema's have no dot. */
  private def named(full: String): TableName = {
    val Array(schema, table) = full.split('.')
    TableName(schema, table)
  }

  /** Drop the slots and publications that were made for a query; `access` by the entity's store. None: the query has none. */
  def forget(checkpoint: String, json: String, entity: String): Unit = {
    val conf = org.apache.spark.sql.classic.SparkSession.active.sparkContext.hadoopConfiguration
    val sources = new Path(checkpoint, "sources")
    val fs = sources.getFileSystem(conf)
    if (fs.exists(sources))
      fs.listStatus(sources).filter(_.isDirectory).foreach { dir =>
        val folder = new SlotFolder(dir.getPath.toString, conf)
        if (folder.read("intent").exists(_.str("table") == entity)) new TableSlot(access(json), folder, "", entity, Nil).end()
      }
  }
}
