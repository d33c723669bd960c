package org.apache.spark.sql.pgstream

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

import Json.Node

/**
 * The sinks of an application. A row has the number of its output, then a struct for each output, of which that one is
 * not null. A batch is one job: each task hands the rows of an output to the sink that they are for, and when all are
 * done each sink commits. Each knows by itself which batches it has, so one that is repeated is written where it is not.
 */
class OutputsSink(config: String, make: String => TaskSink) extends BatchSink {
  private val sinks = Json.read(config).get("sinks").elements.asScala.toSeq.map { s =>
    (s.get("outputs").elements.asScala.map(_.asInt).toSeq, make(Json.text(s.get("sink"))))
  }
  /** Of each output, its sink and its number among that one's. */
  private val routes: Map[Int, (Int, Int)] =
    (for (((outputs, _), sink) <- sinks.zipWithIndex; (output, i) <- outputs.zipWithIndex) yield output -> (sink, i)).toMap

  override protected def write(batch: Long, rows: RDD[InternalRow], schema: StructType): Unit = {
    val schemas = schema.fields.toSeq.tail.map(_.dataType.asInstanceOf[StructType])
    val work = OutputsSink.work(sinks.map { case (outputs, s) => s.begin(batch, outputs.map(schemas)) }, routes, schemas.map(_.length))
    try {
      val done = rows.sparkContext.runJob(rows, work).toSeq.flatten
      wrote(sinks.zipWithIndex.map { case ((_, s), sink) =>
        s.end(batch, done.collect { case (output, made) if routes(output)._1 == sink => TaskSink.Done(routes(output)._2, made) })
      }.sum)
    } finally sinks.foreach(_._2.over())
  }

  override private[pgstream] def parts: Seq[BatchSink] = sinks.map(_._2)

  override def close(): Unit = sinks.foreach(_._2.close())
}

object OutputsSink {
  private def work(works: Seq[TaskSink.Work], routes: Map[Int, (Int, Int)], widths: Seq[Int]) =
    (t: TaskContext, it: Iterator[InternalRow]) => part(works, routes, widths, t.partitionId(), it)

  private def part(
      works: Seq[TaskSink.Work], routes: Map[Int, (Int, Int)], widths: Seq[Int], task: Int, all: Iterator[InternalRow]): Seq[(Int, Any)] = {
    val rows = all.buffered
    val made = mutable.LinkedHashMap.empty[Int, Any]
    while (rows.hasNext) {
      val output = rows.head.getInt(0)
      // A union gives the rows of one input after those of another: a writer is asked for a batch once a task.
      if (made.contains(output)) throw new IllegalStateException(s"the rows of output $output are not together")
      val own = new Iterator[InternalRow] {
        override def hasNext: Boolean = rows.hasNext && rows.head.getInt(0) == output
        override def next(): InternalRow = rows.next().getStruct(1 + output, widths(output))
      }
      val (sink, number) = routes(output)
      made.put(output, works(sink)(number, task, own))
      own.foreach(_ => ())
    }
    made.toSeq
  }
}
